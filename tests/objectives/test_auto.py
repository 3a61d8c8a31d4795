"""`auto`: a slow second version, fallbacks, bad input, searches of every kind, and the value of one network."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from statistics import NormalDist, mean, pstdev

import numpy as np
import pytest
import torch
from torch import nn

import epochzero as ez
from epochzero.engine.passes import merged
from epochzero.engine.reads import FACTS
from epochzero.errors import UserError
from epochzero.objectives import auto, reference
from epochzero.objectives.auto import VERSIONS, Member, Version
from epochzero.objectives.goals import parse_goals
from epochzero.objectives.objective import Objective, parse_objective, parse_objectives
from epochzero.objectives.ranks import combined
from epochzero.objectives.reference import Reference, reference_of
from epochzero.registry import proxies, spaces
from epochzero.store import Store
from epochzero.types import Score
from tests.command import CHEAP, epochzero

AZ = Version(
    (
        *(Member(1.0, (f"az_{name}", "flops")) for name in ("expressivity", "progressivity", "trainability")),
        Member(0.5, ("flops",)),
    )
)


Z = NormalDist().inv_cdf(5 / 6)


@pytest.fixture(autouse=True)
def first_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A version that does not change with the package's."""
    monkeypatch.setitem(VERSIONS, 0, AZ)


def scores_of(rows: list[list[float | None]], objective: Objective) -> list[dict[str, Score]]:
    names = [proxy.text for proxy in objective.proxies]
    return [
        {n: Score.failed(f"no {n}") if x is None else Score(x) for n, x in zip(names, row, strict=True)} for row in rows
    ]


def slow(version: Version, rows: list[list[float | None]]) -> list[float | None]:
    """The definition in loops: merits [networks][scores], None where there is none."""

    def applies(score: str) -> bool:
        there = [row[version.scores.index(score)] for row in rows if row[version.scores.index(score)] is not None]
        scored = [row for row in rows if any(x is not None for x in row)]
        return len(there) >= 0.9 * len(scored) and len(set(there)) > 1

    used = [(m, next((s for s in m.scores if applies(s)), m.scores[-1])) for m in version.members]
    places = [version.scores.index(score) for _, score in used]
    whole = [row for row in rows if all(row[k] is not None for k in places)]
    found: list[float | None] = []
    for row in rows:
        total, shares = 0.0, []
        for (member, score), k in zip(used, places, strict=True):
            below = sum(other[k] < row[k] for other in whole) if row[k] is not None else 0  # type: ignore[operator]
            equal = sum(other[k] == row[k] for other in whole)
            if row in whole:
                shares.append((below + equal / 2) / len(whole))
                part = shares[-1] if version.method == "shares" else NormalDist().inv_cdf(shares[-1])
                if member.by_value and score == member.scores[0]:
                    part = row[k] - mean(other[k] for other in whole)  # type: ignore[type-var, operator]
                total += member.weight * part
        if shares and version.method == "agreement":
            total = mean(shares) - pstdev(shares) / math.sqrt(len(shares))
        found.append(total if row in whole else None)
    return found


# ---- a set


@pytest.mark.parametrize("lacking", [0.0, 0.05, 0.5])
@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_slow_version_agrees(lacking: float, version: int) -> None:
    rng, objective = np.random.default_rng(3), parse_objective(f"auto:{version}")
    table = rng.integers(0, 9, (40, len(objective.proxies))).astype(float)
    table[rng.random(table.shape) < lacking] = np.nan
    rows = [[None if math.isnan(x) else x for x in row] for row in table.tolist()]
    found = objective.merits(scores_of(rows, objective))
    assert found == pytest.approx(slow(VERSIONS[version], rows))
    assert sum(x is not None for x in found) > 10


def test_one_fallback_for_the_whole_set() -> None:
    """One of two lacks expressivity: FLOPs take its place for both, so that their sums compare."""
    objective = parse_objective("auto:0")  # expressivity, flops, progressivity, trainability
    found = objective.merits(scores_of([[None, 5.0, 1.0, 1.0], [9.0, 3.0, 2.0, 2.0]], objective))
    z = NormalDist().inv_cdf(0.75)
    assert found == pytest.approx([(1 + 0.5) * z - 2 * z, 2 * z - (1 + 0.5) * z])
    assert [objective.ranking().terms[0].columns, objective.ranking().chosen] == [(0, 1), [1, 1, 1, 1]]


def test_few_that_lack_a_member_are_failures_with_a_reason() -> None:
    objective = parse_objective("auto:0")
    rows: list[list[float | None]] = [[float(i), float(i), float(i), float(i)] for i in range(19)]
    rows.append([None, 99.0, 99.0, 99.0])
    scores = scores_of(rows, objective)
    found = objective.merits(scores)
    assert found[-1] is None and None not in found[:-1]
    assert objective.why_not(scores[-1]) == "az_expressivity: no az_expressivity"


def test_broken_networks_take_no_member_from_the_others() -> None:
    """One that has no score at all, not even FLOPs, does not make a member give way."""
    objective = parse_objective("auto:3")
    broken: list[float | None] = [None] * len(objective.proxies)
    rows: list[list[float | None]] = [[float(k * i % 7) for k in range(1, 1 + len(broken))] for i in range(1, 5)]
    assert objective.merits(scores_of([*rows, broken], objective)) == [
        *objective.merits(scores_of(rows, objective)),
        None,
    ]
    assert objective.given_way([*rows, broken]) == objective.given_way(rows) == []
    assert objective.given_way([rows[0], broken]) == []


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([], []),
        ([[1.0, 2.0, 3.0, 4.0]], [0.0]),
        ([[1.0, 2.0, 3.0, 4.0]] * 3, [0.0] * 3),
        ([[None] * 4] * 2, [None, None]),
        ([[math.nan] * 4, [1.0] * 4], [None, 0.0]),
        ([[math.inf] * 4, [1.0] * 4, [-math.inf] * 4], [3.5 * Z, 0.0, -3.5 * Z]),
    ],
    ids=["no network", "one network", "equal scores", "all failed", "nan", "infinite"],
)
def test_bad_sets(rows: list[list[float | None]], expected: list[float | None]) -> None:
    objective = parse_objective("auto:0")
    assert objective.merits(scores_of(rows, objective)) == pytest.approx(expected)


def test_two_networks() -> None:
    """The better in more members by weight is first, by as much as the other is last."""
    objective = parse_objective("auto:0")
    better, worse = objective.merits(scores_of([[2.0, 1.0, 2.0, 2.0], [1.0, 2.0, 1.0, 1.0]], objective))
    assert better == -worse == pytest.approx(2.5 * NormalDist().inv_cdf(0.75))  # type: ignore[operator]


def test_a_network_that_all_members_find_good_beats_one_that_a_member_ranks_last() -> None:
    """The mean rank of the first two networks is the same."""
    objective = parse_objective("auto:2")
    names = [proxy.text for proxy in objective.proxies]
    by = {
        "size": [9, 7, 1, 2],
        "depth": [9, 7, 1, 2],
        "near": [9, 7, 1, 2],
        "az_trainability(samples=16)": [1, 9, 2, 3],
    }
    rows: list[list[float | None]] = [[by[name][i] if name in by else 0.0 for name in names] for i in range(4)]
    first, agreed, *_ = objective.merits(scores_of(rows, objective))
    assert agreed > first  # type: ignore[operator]


def test_size_counts_by_its_value() -> None:
    """Larger by 3 is worth as much as the last place and the first in another member, whatever the others' sizes."""
    objective = parse_objective("auto:3")
    names = [proxy.text for proxy in objective.proxies]

    def merits(sizes: list[float], near: list[float]) -> list[float | None]:
        by: dict[str, list[float]] = {"size": sizes, "depth": [0.0, 1, 2, 3, 4], "near": near}
        by["az_trainability(samples=16)"] = sizes
        return objective.merits(scores_of([[by[n][i] if n in by else 0.0 for n in names] for i in range(5)], objective))

    little, much = (
        merits([30.0, 30.1, 30.2, 30.3, 30.4], [4, 0, 1, 2, 3]),
        merits([15, 20, 25, 30, 35], [4, 0, 1, 2, 3]),
    )
    assert much[0] == min(much) and little[0] != min(little)  # type: ignore[type-var]
    base, larger = merits([30.0, 31, 32, 33, 34], [0.0] * 5), merits([31.5, 31, 32, 33, 34], [0.0] * 5)
    moved = larger[0] - base[0]  # type: ignore[operator]
    assert moved == pytest.approx((1.5 - 1.5 / 5) / 3 + 1 / 5), "its value less the mean, and one place in trainability"


# ---- its name and its members


def test_names_and_versions() -> None:
    newest = parse_objective(" auto ")
    assert newest.text == f"auto:{auto.NEWEST}" and parse_objective(newest.text) == newest and newest.of_a_set
    assert [one.text for one in parse_objectives("auto,flops,auto:0")] == [newest.text, "flops", "auto:0"]
    for text in ("auto:99", "rank(auto,flops)", "auto(1)", "auto:"):
        with pytest.raises(UserError):
            parse_objective(text)


def test_versions_are_cheap_and_end_with_flops() -> None:
    """At most three passes, whatever applies; FLOPs apply to everything."""
    for version in VERSIONS.values():
        needs = merged(need for name in version.scores for need in proxies[name.partition("(")[0]].needs)
        runs = [run for run, items in needs.items() if {name for name, _ in items} - FACTS]
        assert 1 <= len(runs) <= 3
        assert all(member.scores[-1] == "flops" for member in version.members)
        assert all(parse_objective(score).proxies[0].text == score for score in version.scores)


# ---- searches, stores


def test_a_search_ranks_all_its_networks_and_resumes(tmp_path: Path) -> None:
    def search(budget: int, seed: int = 2) -> ez.Result:
        return ez.search("nb201", "auto", "evolution", budget, batch_size=4, seed=seed, store=tmp_path / "run.db")

    search(10)
    whole = search(16)
    assert whole.recalled == 10
    rows = [[one.scores[name] for name in VERSIONS[auto.NEWEST].scores] for one in whole.history]
    merits = parse_objective("auto").of_rows([[None if math.isnan(x) else x for x in row] for row in rows])
    best = max((m, -i) for i, m in enumerate(merits) if m is not None)
    assert whole.winner.score.value == pytest.approx(best[0])
    assert whole.winner.text == whole.history[-best[1]].text
    with Store.open(tmp_path / "run.db") as store:
        (run, *_) = [run for run in store.runs() if run.settings["budget"] == 16]
        assert run.settings["proxy"] == f"auto:{auto.NEWEST}"
        texts, setting = [one.text for one in whole.history], whole.task.setting
        assert set(store.scores(setting, "flops", texts)) == set(texts)
        assert not store.scores(setting, "auto", texts) and not store.scores(setting, run.settings["proxy"], texts)


@pytest.mark.parametrize("method", ["reinforce", "tpe"])
def test_searches_that_need_values_which_stay(method: str) -> None:
    if method == "tpe":
        pytest.importorskip("optuna")
    result = ez.search("nb201", "auto", method, 8, batch_size=4)
    alone = ez.score(result.winner.text, "auto", space="nb201", batch_size=4)["auto"]
    assert alone.value == pytest.approx(result.winner.score.value) and 0 < alone.value < 100


def test_a_front_with_auto() -> None:
    result = ez.search("nb201", objectives="auto,-flops", budget=8, batch_size=4)
    for member in result.members:
        value, flops = member.values
        own = ez.score(member.text, "auto", space="nb201", batch_size=4)
        assert value == pytest.approx(own["auto"].value)
        assert flops == own["flops"].value
    assert parse_goals("auto,-flops").text == f"auto:{auto.NEWEST},-flops"


def test_it_is_the_default() -> None:
    small = ("--batch-size", 2, "--json")
    assert next(iter(epochzero("score", "--arch", CHEAP, *small).json["scores"])) == "auto"
    found = epochzero("search", "--budget", 2, "--method", "random", "--winner-scores", "none", *small).json
    assert found["proxy"] == f"auto:{auto.NEWEST}" == ez.search(budget=1, batch_size=2).text
    assert next(iter(ez.score(CHEAP, space="nb201", batch_size=2))) == "auto"
    assert ez.rank([CHEAP], space="nb201", batch_size=2, seeds=1).text == found["proxy"]


# ---- one network


def made(rows: list[list[float]], of_size: bool = False) -> Reference:
    return Reference("among these", "by size", AZ, np.array(rows, float), of_size, pooled=of_size)


def test_the_value_is_the_share_of_reference_networks_below() -> None:
    """Members agree in the order of the reference networks, so that each is on its own place."""
    networks = made([[i, i, i, i] for i in range(10)])
    assert [networks.percentile(np.full(4, float(i))) for i in (0, 4, 9)] == pytest.approx([5.0, 45.0, 95.0])
    beyond = [networks.percentile(np.full(4, x)) for x in (-1e9, -1.0, 0.0, 4.5, 9.0, 10.0, 1e3, 1e6)]
    assert beyond == sorted(set(beyond)) and 0 < beyond[0] < 1 and 99 < beyond[-1] < 100
    assert math.isnan(networks.percentile(np.array([1.0, 1.0, np.nan, 1.0])))


def test_size_does_not_count_among_networks_of_its_size() -> None:
    """Expressivity is a line in log FLOPs with noise: its percentile is that of the noise."""
    rng = np.random.default_rng(0)
    logs, noise = rng.normal(15, 2, 1000), rng.normal(size=1000)
    rows = np.stack([logs + noise, np.exp(logs), np.zeros(1000), np.zeros(1000)], axis=1)
    networks = made(rows.tolist(), of_size=True)
    alike = [networks.percentile(np.array([size + 1.0, math.exp(size), 0.0, 0.0])) for size in (13.0, 15.0, 17.0)]
    assert alike == pytest.approx([100 * NormalDist().cdf(1.0)] * 3, abs=6)
    assert networks.percentile(np.array([15.0, math.exp(15), 0.0, 0.0])) == pytest.approx(50, abs=6)
    sized = np.array([np.nan, math.exp(15), np.nan, np.nan])  # nothing but its size is known
    assert networks.percentile(sized) == pytest.approx(50, abs=6) and networks.meaning(sized) == "by size"


@pytest.mark.parametrize("of_size", [False, True])
def test_a_percentile_by_agreement(of_size: bool) -> None:
    """Beyond the size, each member has the share of reference networks below it; the value orders their agreement."""
    version, rng = VERSIONS[2], np.random.default_rng(1)
    rows = rng.normal(size=(400, len(version.scores)))
    rows[:, version.scores.index("flops")] = 1e6
    networks = Reference("among these", "by size", version, rows, of_size)
    kept = [version.scores.index(member.scores[0]) for member in version.members]
    order = np.argsort(np.array(combined("agreement", rows[:, kept].tolist()), float))
    values = np.array([networks.percentile(row) for row in rows[order]])
    assert (np.diff(values) > -1).all() and values[0] < 1 and values[-1] > 99
    row = rows[order[200]]
    assert networks.percentile(row + np.where(np.arange(len(row)) == kept[2], 1.0, 0.0)) > values[200]


def test_reference_networks_that_are_all_alike() -> None:
    assert made([[1.0] * 4] * 5).percentile(np.full(4, 1.0)) == 50.0
    assert 0 < made([[1.0] * 4] * 5).percentile(np.full(4, 7.0)) < 100


def test_stored_references_hold_for_their_input_only() -> None:
    own, other = (reference_of(VERSIONS[auto.NEWEST], "nb201", shape) for shape in ((3, 32, 32), (3, 16, 16)))
    assert "random networks of nb201, input 3x32x32, batches of 64" in own.about and not own.pooled
    assert other.pooled and len(other.rows) > len(own.rows)
    stored = reference.stored()["spaces"]
    assert {"nb201", "nb101"} <= set(stored) <= set(spaces)
    for name, of in stored.items():
        assert set(VERSIONS[auto.NEWEST].scores) <= set(of["scores"]), name
        assert {len(column) for column in of["scores"].values()} == {of["networks"]}


def test_random_networks_of_a_space_spread_over_the_whole_range() -> None:
    """The share of reference networks below is about uniform for further networks of the same batch size."""
    space, rng = spaces["nb201"], Random(7)
    values = [ez.score(space.sample(rng), "auto", space="nb201", batch_size=16)["auto"].value for _ in range(12)]
    assert 25 < np.nanmean(values) < 75 and np.nanmax(values) - np.nanmin(values) > 40


def test_the_winner_of_a_search_has_its_percentile() -> None:
    words = ("--proxy", "auto", "--batch-size", 4, "--json")
    best = epochzero("search", "--method", "random", "--budget", 4, "--winner-scores", "none", *words).json["best"]
    alone = epochzero("score", "--arch", best["arch"], *words)
    assert best["scores"][f"auto:{auto.NEWEST}"] == alone.json["scores"]["auto"]
    assert 0 < alone.json["scores"]["auto"]["value"] < 100


def test_a_network_beyond_the_references_is_said_to_be() -> None:
    tiny = ez.score(nn.Sequential(nn.Flatten(), nn.Linear(12, 2)), "auto", data=torch.ones(4, 3, 2, 2))["auto"]
    assert tiny.why.endswith(", none of which is so small")


def test_one_module_of_ones_own() -> None:
    plain = nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU(), nn.Linear(5, 10))
    scores = ez.score(plain, "auto,flops", data=torch.ones(4, 3, 2, 2))
    assert 0 < scores["auto"].value < 100 and scores["auto"].why.startswith("percentile")
    space = spaces["nats_sss"]
    module = space.plan(space.parse("8:16:8:16:8")).module()
    blocks = ez.score(module, ["auto"], batch_size=4)
    assert 0 < blocks["auto"].value < 100 and "networks of its size" in blocks["auto"].why
    assert list(blocks) == ["auto", *VERSIONS[auto.NEWEST].scores]
