"""Scores one by one against scores in populations: the figures by hand, what the budget leaves, mistakes."""

from __future__ import annotations

import importlib.util
import json
import sys
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import scipy.stats

from epochzero import data
from epochzero.engine import PlanNetwork, Scored, parse_list, score_population
from epochzero.errors import MachineError, UserError
from epochzero.evaluate.speed.agreement import agreement
from epochzero.evaluate.speed.report import saver
from epochzero.registry import spaces
from epochzero.stats.correlation import rho_of
from epochzero.types import Score
from tests.fresh import Fresh

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "equality.py"
spec = importlib.util.spec_from_file_location("equality", SCRIPT)
assert spec is not None and spec.loader is not None
equality = sys.modules["equality"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(equality)
Settings, run_equality, shuffled_populations = equality.Settings, equality.run_equality, equality.shuffled_populations

TINY = Settings(networks=4, populations="1,3", proxies="snip,naswot", batch_size=4, input_shape="3,8,8")


def nothing(_: object) -> None:
    pass


def test_the_figures_are_those_of_scores_computed_directly(tmp_path: Path) -> None:
    space, rng, batch = spaces["nb201"], Random(0), data.pink((3, 8, 8), size=4)
    archs = [space.sample(rng) for _ in range(4)]

    def scored(numbers: list[int], lockstep: Any) -> list[dict[str, Score]]:
        networks = [PlanNetwork(space.plan(archs[n], 10, (3, 8, 8))) for n in numbers]
        return [one.scores for one in score_population(networks, parse_list(TINY.proxies), batch, 0, lockstep)]

    alone = scored([0, 1, 2, 3], "never")
    first, last = shuffled_populations(4, 3, 0)
    together = dict(zip(last, scored(last, "always"), strict=True))
    together |= dict(zip(first, scored(first, "always"), strict=True))

    said: list[str] = []
    out, table = tmp_path / "equality.json", tmp_path / "equality.md"
    report = run_equality(TINY, said.append, saver(out, table, as_markdown=equality.markdown))
    assert report == json.loads(out.read_text(encoding="utf-8"))
    assert report["settings"]["data_digest"] == batch.id and report["alone"] == 4
    assert report["sizes"] == [
        {"population": 1, "populations": 4, "whole": 0, "networks": 4},
        {"population": 3, "populations": 2, "whole": 2, "networks": 4},
    ]
    rows = {(row["proxy"], row["population"]): row for row in report["rows"]}
    assert list(rows) == [("snip", 1), ("naswot", 1), ("snip", 3), ("naswot", 3)]
    for proxy in ("snip", "naswot"):
        a, b = (np.array([scores[n][proxy].value for n in range(4)]) for scores in (together, alone))
        errors = np.abs(a - b) / np.maximum(np.abs(a), np.abs(b))
        row = rows[proxy, 3]
        assert (row["networks"], row["one_alone"], row["neither"]) == (4, 0, 0)
        assert row["median_relative_error"] == pytest.approx(np.median(errors))
        assert row["worst_relative_error"] == pytest.approx(errors.max())
        assert row["spearman"] == pytest.approx(scipy.stats.spearmanr(a, b).statistic)
        assert rows[proxy, 1]["worst_relative_error"] == 0, "the engine runs a lone network alone"
    assert [text.split()[0] for text in said] == ["populations", "snip", "naswot"] * 2

    lines = table.read_text(encoding="utf-8").splitlines()
    assert "nb201, 4 of 4 random networks one by one, batches of 4 of pink, seed 0" in lines[0]
    assert lines[5] == "| proxy | populations of 1 | populations of 3 |"
    assert lines[7].startswith("| snip | 0e+00 / 0e+00 / 1.000000 | ") and lines[8].startswith("| naswot |")


@pytest.mark.parametrize(("networks", "size"), [(64, 1), (64, 7), (64, 64), (4, 3)])
def test_every_network_has_company_of_the_size_asked_for(networks: int, size: int) -> None:
    found = shuffled_populations(networks, size, 0)
    assert {len(company) for company in found} == {len({*company}) for company in found} == {size}
    assert {number for company in found for number in company} == {*range(networks)}
    assert len(found) == -(-networks // size)
    assert found == shuffled_populations(networks, size, 0) != shuffled_populations(networks, size, 1)
    assert [n for company in shuffled_populations(64, 1, 0) for n in company] != shuffled_populations(64, 64, 0)[0]


def test_an_agreement_by_hand() -> None:
    no = Score.failed("no")
    ours = [Score(1.0), Score(2.0), Score(-4.0), Score(0.0), no, no]
    theirs = [Score(1.0), Score(4.0), Score(-5.0), Score(0.0), Score(1.0), no]
    found = agreement("snip", 7, list(zip(ours, theirs, strict=True)))
    assert (found.proxy, found.population) == ("snip", 7)
    assert (found.networks, found.one_alone, found.neither) == (4, 1, 1)
    assert found.median_relative_error == pytest.approx(0.1) and found.worst_relative_error == 0.5
    assert found.spearman == pytest.approx(1)
    empty = agreement("snip", 7, [(no, no)])
    assert (empty.networks, empty.neither, empty.median_relative_error, empty.spearman) == (0, 1, None, None)
    assert "0 compared, 0 with a score one way alone, 1 with none" in equality.line(empty)


def test_a_proxy_that_does_not_fit_the_space_is_counted() -> None:
    report = run_equality(replace(TINY, proxies="tf_tas,params", populations="2"), nothing, nothing)
    assert [(row["proxy"], row["networks"], row["neither"]) for row in report["rows"]] == [
        ("tf_tas", 0, 4),
        ("params", 4, 0),
    ]
    assert "| tf_tas | - / - / - (4 without score) |" in equality.markdown(report)


def test_scores_that_differ_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    def fake(networks: Any, proxies: Any, batch: Any, seed: int, lockstep: str) -> list[Scored]:
        one = Score(float(networks[0].params) * (2 if lockstep == "always" else 1))
        return [Scored({"snip": one}, 0.0) for _ in networks]

    monkeypatch.setattr(equality, "score_population", fake)
    (row,) = run_equality(replace(TINY, proxies="snip", populations="1"), nothing, nothing)["rows"]
    assert (row["median_relative_error"], row["worst_relative_error"], row["spearman"]) == (0.5, 0.5, 1.0)


def test_nothing_is_begun_after_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock moves on with what is scored: 3 networks alone, then populations of 1 and of 2."""
    clock = [0.0]

    def slow(networks: Any, *given: Any) -> list[Scored]:
        clock[0] += 10
        return [Scored({"snip": Score(1.0)}, 0.0) for _ in networks]

    monkeypatch.setattr("equality.time.perf_counter", lambda: clock[0])
    monkeypatch.setattr(equality, "score_population", slow)
    said: list[str] = []
    settings = replace(TINY, networks=3, populations="1,2", proxies="snip", budget=45.0)
    report = run_equality(settings, said.append, nothing)
    assert [(size["populations"], size["networks"]) for size in report["sizes"]] == [(2, 2), (0, 0)]
    assert said[0].startswith("populations of 1: 2 of 3 networks were scored both ways, in 2 populations")
    clock[0] = 0.0
    assert run_equality(replace(settings, populations="2", budget=25.0, networks=2), nothing, nothing)["alone"] == 2
    clock[0] = 0.0
    with pytest.raises(MachineError, match="Nothing was compared: the budget was spent"):
        run_equality(replace(settings, budget=15.0), nothing, nothing)


def test_spearman_is_that_of_scipy() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.integers(0, 5, (2, 40)).astype(float)
    assert rho_of(one, other) == pytest.approx(scipy.stats.spearmanr(one, other).statistic)
    assert rho_of(np.array([1.0, 2.0, 3.0]), np.array([30.0, 20.0, 10.0])) == pytest.approx(-1)
    assert rho_of(np.ones(3), np.arange(3.0)) is None
    assert rho_of(np.ones(0), np.ones(0)) is None


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"populations": "1,x"}, "--populations takes whole numbers from 1 up such as 1,7,64, not '1,x'."),
        ({"populations": "0"}, "--populations takes whole numbers"),
        ({"populations": "-1"}, "--populations takes whole numbers"),
        ({"populations": "1.5"}, "--populations takes whole numbers"),
        ({"populations": ","}, "--populations takes whole numbers"),
        ({"populations": "5"}, "A population of 5 takes as many networks: --networks is 4."),
        ({"networks": 0}, "--networks is 0; it has to be at least 1."),
        ({"proxies": " "}, "--proxies names nothing"),
        ({"proxies": "naswt"}, "No proxy is called 'naswt'. Did you mean 'naswot'?"),
        ({"space": "nb21"}, "No space is called 'nb21'. Did you mean 'nb201'?"),
        ({"input_shape": "3,x"}, "--input-shape takes whole numbers"),
        ({"device": "cuda:99"}, "The device 'cuda:99' cannot be used here"),
    ],
)
def test_mistakes_are_sentences(changed: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError) as refused:
        run_equality(replace(TINY, **changed), nothing, nothing)
    assert str(refused.value).startswith(sentence)


def test_it_runs_with_torch_and_numpy_alone(tmp_path: Path, fresh: Fresh) -> None:
    program = f"import runpy\nrunpy.run_path({str(SCRIPT)!r}, run_name='__main__')\n"
    tiny = ["--networks", 2, "--populations", "2", "--proxies", "snip", "--batch-size", 4, "--input-shape", "3,8,8"]
    out = tmp_path / "equality.json"
    done = fresh.bare(program, *tiny, "--device", "cpu", "--out", out)
    assert done.code == 0, done.err
    assert done.out.startswith("populations of 2: 2 of 2 networks were scored both ways, in 1 populations, 1 of them")
    assert json.loads(out.read_text(encoding="utf-8"))["rows"][0]["networks"] == 2
    assert fresh.bare(program, "--populations", "0").err.startswith("error: --populations takes whole numbers")
