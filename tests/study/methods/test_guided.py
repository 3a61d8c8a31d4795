"""Guided: the regression against a slow one by its weights, what is chosen, what is learnt, bad input, and resuming."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm, spearmanr
from torch import nn

import epochzero as ez
from epochzero import data
from epochzero.engine import parse
from epochzero.errors import StoreError, UserError
from epochzero.study.methods.base import Floats, Pool
from epochzero.study.methods.guided import (
    LOCAL,
    OWN,
    PROXIES,
    Guided,
    Prediction,
    Regression,
    evidence,
    improvement,
    normal_scores,
    prior_of,
    unit_scores,
)
from tests.command import epochzero, refusal
from tests.study.methods.kin import Digits

SPACE = Digits()
SEEN = [3, 17, 0, 22, 9]


def drawn(networks: int = 30, proxies: int = 4, seed: int = 0) -> Regression:
    rng = np.random.default_rng(seed)
    features = np.stack([unit_scores(column) for column in rng.normal(size=(proxies, networks))], 1)
    return Regression(features, rng.normal(size=proxies) / 2, 0.1 + rng.random(proxies) / 2)


def by_weights(model: Regression, deviations: Floats, seen: list[int], v: Floats) -> tuple[Prediction, Floats]:
    """The same model by its parameters [1 + K + N], each standard normal: b, the errors of r, and g by a root.

    Also returns the mean without b.
    """
    networks, proxies = model.features.shape
    local = np.array([[math.exp(-sum((x - y) ** 2) / proxies) for y in model.features] for x in model.features])
    values, vectors = np.linalg.eigh(LOCAL**2 * local)
    within = np.linalg.inv(model.features.T @ model.features / networks + np.eye(proxies))
    of_r = model.features @ within @ np.diag(deviations)
    design = np.hstack([np.ones((networks, 1)), of_r, vectors * np.sqrt(np.maximum(values, 0))])
    precision = design[seen].T @ design[seen] / OWN**2 + np.eye(design.shape[1])
    parameters = np.linalg.solve(precision, design[seen].T @ (v - model.prior[seen]) / OWN**2)
    variance = np.einsum("ip,pq,iq->i", design, np.linalg.inv(precision), design) + OWN**2
    without = design.copy()
    without[:, 0] = 0
    return Prediction(model.prior + design @ parameters, np.sqrt(variance)), model.prior + without @ parameters


def deviations_of(model: Regression) -> Floats:
    within = model.features.T @ model.features / len(model.features) + np.eye(model.features.shape[1])
    return np.asarray(np.diagonal(within @ model.spread))


def test_the_closed_form_is_that_of_the_weights() -> None:
    model = drawn()
    v = np.random.default_rng(1).normal(size=len(SEEN))
    slow, _ = by_weights(model, deviations_of(model), SEEN, v)
    fast = model.given(SEEN, v)
    assert fast.mean == pytest.approx(slow.mean)
    others = [i for i in range(30) if i not in SEEN]
    assert fast.deviation[others] == pytest.approx(slow.deviation[others])


def test_leaving_out_in_closed_form_is_leaving_out_one_after_the_other() -> None:
    model = drawn(seed=2)
    v = np.random.default_rng(3).normal(size=len(SEEN))
    slow = []
    for i, network in enumerate(SEEN):
        others = [j for j in range(len(SEEN)) if j != i]
        _, without_b = by_weights(model, deviations_of(model), [SEEN[j] for j in others], v[others])
        slow.append(without_b[network])
    assert model.left_out(SEEN, v) == pytest.approx(slow)


def test_pending_networks_are_as_if_they_had_come_out_as_predicted() -> None:
    model, v = drawn(seed=4), np.array([0.5, -1.0, 0.2, 1.5, 0.0])
    predicted = model.given(SEEN, v).mean
    fast = model.given(SEEN, v, [5, 6])
    told = model.given([*SEEN, 5, 6], np.append(v, predicted[[5, 6]]))
    assert fast.mean == pytest.approx(told.mean) and fast.deviation == pytest.approx(told.deviation)
    assert fast.deviation[5] < model.given(SEEN, v).deviation[5]


def test_ranks_count_and_have_the_variance_that_is_expected() -> None:
    model, told = drawn(seed=5), np.array([3.0, 1.0, 4.0, 1.0, 5.0])
    v = model.scaled(SEEN, told)
    assert v == pytest.approx(model.scaled(SEEN, np.exp(told)))
    assert np.argsort(v, kind="stable").tolist() == np.argsort(told, kind="stable").tolist() and v[1] == v[3]
    rng = np.random.default_rng(0)
    samples = model.prior[SEEN] + rng.multivariate_normal(np.zeros(5), model.among(SEEN), size=100_000)
    assert np.mean(v**2) == pytest.approx(samples.var(1).mean(), rel=0.02)
    assert model.scaled(SEEN, np.ones(5)).tolist() == [0.0] * 5


def test_normal_scores_by_hand() -> None:
    scores = normal_scores(np.array([10.0, math.nan, -math.inf, 10.0, 30.0]))
    assert scores == pytest.approx([norm.ppf(2 / 4), 0.0, norm.ppf(0.5 / 4), norm.ppf(2 / 4), norm.ppf(3.5 / 4)])


def test_expected_improvement_is_the_integral() -> None:
    found = improvement(np.array([0.3, -2.0]), np.array([0.7, 0.1]), 0.5)
    area = quad(lambda f: (f - 0.5) * norm.pdf(f, 0.3, 0.7), 0.5, 10)[0]
    assert found == pytest.approx([area, 0.0])


def test_the_evidence_by_hand() -> None:
    known = {"a": {"flops": 0.8, "naswot": -0.2}, "b": {"flops": 0.4}}
    mean, deviation = prior_of(["naswot", "flops", "new"], known)
    assert mean == pytest.approx([-0.2, 0.6, 0.0])
    assert deviation**2 == pytest.approx([2 * 0.09 / 2, (0.08 + 2 * 0.09) / 3, 0.09])


def test_the_evidence_that_is_shipped() -> None:
    found = evidence()
    assert len(found) >= 2 and {"params", "flops"} <= set.intersection(*map(set, found.values()))
    for by_proxy in found.values():
        assert all(parse(name).text == name and -1 <= value <= 1 for name, value in by_proxy.items())
    left = next(iter(found))
    assert evidence([left]).keys() == found.keys() - {left}
    assert all(parse(name) for name in Guided.wants({"proxies": PROXIES, "networks": 1}).proxies)


# the search


def pool(networks: int = 200, seed: int = 0, **truth: float) -> tuple[Pool, Floats]:
    """Networks 0 ... N-1 with random proxies, and their quality: a weighted sum of these with noise."""
    rng = np.random.default_rng(seed)
    values = {name: rng.normal(size=networks) for name in truth}
    quality = sum(weight * values[name] for name, weight in truth.items()) + 0.3 * rng.normal(size=networks)
    return Pool(list(range(networks)), values, {}), np.asarray(quality)


def searched(search: Guided, quality: Any, evaluations: int) -> list[int]:
    asked: list[int] = []
    while len(asked) < evaluations and (new := search.ask(min(search.batch, evaluations - len(asked)))):
        search.tell(new, [quality[i] for i in new])
        asked += new
    assert len(set(asked)) == len(asked)
    return asked


TRUTHS = [{"flops": 1.0, "naswot": 0.5}, {"flops": -1.0, "depth": 0.7, "new": 0.0}, {"new": 1.0, "flops": 0.0}]


@pytest.mark.parametrize("truth", TRUTHS, ids=["as elsewhere", "against the evidence", "no evidence"])
def test_it_beats_random(truth: dict[str, float]) -> None:
    """Mean rank from 0 of the best of 15, over 12 pools of 200: about 12.5 at random."""
    places, at_random = [], []
    for seed in range(12):
        networks, quality = pool(200, seed, **truth)
        ranks = np.argsort(np.argsort(-quality))
        places.append(min(ranks[searched(Guided(SPACE, seed, networks), quality, 15)]))
        at_random.append(min(ranks[Random(seed).sample(range(200), 15)]))
    assert np.mean(places) < 0.4 * np.mean(at_random)


def test_it_learns_the_weights_of_this_space() -> None:
    networks, quality = pool(flops=-1.0, new=1.0, depth=0.0)
    search = Guided(SPACE, 0, networks)
    before = dict(zip(search.values, search.weights, strict=True))
    searched(search, quality, 40)
    after = dict(zip(search.values, search.weights, strict=True))
    assert before["flops"] > 0.1 and abs(before["new"]) < 0.05 and after["flops"] < -0.2 and after["new"] > 0.2
    v = search.model.scaled(search.seen, np.array(search.told))
    mean, _ = search.model.given(search.seen, v)
    assert spearmanr(mean, quality).statistic > 0.9


def test_first_the_best_by_evidence_then_the_least_certain_of_the_better_half() -> None:
    networks, quality = pool(flops=1.0, naswot=1.0, new=1.0)
    search = Guided(SPACE, 0, networks)
    first, second = searched(search, quality, 2)
    prior, model = search.model.prior, Guided(SPACE, 0, networks).model
    assert first == np.argmax(prior)
    mean, deviation = model.given([first], model.scaled([first], quality[[first]]))
    better = np.flatnonzero(mean >= np.median(mean))
    assert second == better[np.argmax(deviation[better])]


def test_a_batch_is_spread_and_told_in_its_order() -> None:
    networks, quality = pool(flops=1.0, new=0.5)
    search = Guided(SPACE, 0, networks, batch=4)
    asked = searched(search, quality, 22)
    assert len(asked) == 22 and search.seen == asked and search.told == quality[asked].tolist()


def test_networks_that_all_proxies_score_alike_wait() -> None:
    values = {"flops": np.repeat([1.0, 2.0, 3.0], 4), "params": np.repeat([1.0, 2.0, 3.0], 4)}
    asked = searched(Guided(SPACE, 0, Pool(list(range(12)), values, {})), np.arange(12.0), 20)
    assert {i // 4 for i in asked[:3]} == {0, 1, 2} and sorted(asked) == list(range(12))


def test_networks_without_a_value_are_the_worst() -> None:
    networks, quality = pool(flops=1.0, depth=1.0)
    told = [None if value > 0 else value for value in quality]
    search = Guided(SPACE, 0, networks)
    asked = searched(search, told, 30)
    assert np.mean(quality[asked[20:]] > 0) < 0.5, "it leaves the part where training fails"
    assert -math.inf in search.told and math.isfinite(search.model.scaled(search.seen, np.array(search.told)).sum())


@pytest.mark.parametrize(
    ("values", "told", "says"),
    [
        ({"flops": [1.0, 2.0, 3.0, 4.0]}, [5.0] * 4, "What was told is the same of all 4 networks"),
        ({"flops": [2.0] * 4}, [1.0, 2.0, 3.0, 4.0], "guided does without flops: all networks have the same score."),
        ({"zico": [math.nan] * 4}, [1.0, 2.0, 3.0, 4.0], "guided does without zico: it needs a conv layer."),
        ({"flops": [1.0, 2.0, math.nan, math.nan]}, [1.0] * 4, "guided does without flops: most networks lack it."),
        ({}, [1.0, 2.0, 3.0, 4.0], "guided has no proxy that orders these networks"),
        ({"flops": [1.0, 2.0, 3.0, 4.0]}, [None] * 4, "Largest weights: flops +"),
        ({"flops": [1.0, math.nan, 3.0, 4.0]}, [1.0, 2.0, 3.0, 4.0], "of 4 networks with what guided predicts"),
    ],
)
def test_bad_input_is_a_remark(values: dict[str, Any], told: list[float | None], says: str) -> None:
    columns = {name: np.array(column) for name, column in values.items()}
    why = {"zico": "it needs a conv layer"} if "zico" in values else {}
    search = Guided(SPACE, 0, Pool(list("abcd"), columns, {}, why))
    asked = []
    while new := search.ask(1):
        asked += new
        search.tell(new, [told["abcd".index(new[0])]])
    assert sorted(asked) == list("abcd")
    assert any(says in remark for remark in search.remarks), search.remarks


def test_a_pool_of_one() -> None:
    search = Guided(SPACE, 0, Pool(["a"], {"flops": np.array([3.0])}, {}))
    assert search.ask(5) == ["a"]
    search.tell(["a"], [1.0])
    assert search.ask(1) == [] and "drawn at random" in search.remarks[-1]


# whole searches


def told(arch: Any) -> float:
    """More layers are better, but for those that begin with a 1x1 convolution."""
    convolutions: int = sum("conv" in op for op in arch)
    return convolutions - (3.0 if arch[0] == "nor_conv_1x1" else 0.0)


def found(**asked: Any) -> ez.Result:
    options = {"networks": 60, "proxies": "params,flops,depth,layers", "without": "nb201"}
    return ez.search("nb201", told, "guided", options=options | asked.pop("options", {}), **asked)


def test_a_search_that_is_resumed_is_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = found(budget=12)
    found(budget=5, store=tmp_path / "run.db")
    resumed = found(budget=12, store=tmp_path / "run.db")
    assert [one.text for one in resumed.history] == [one.text for one in whole.history]
    assert resumed.recalled == 5 and resumed.remarks[1:] == whole.remarks
    assert any("Rank correlation of what was told of 12 networks" in remark for remark in whole.remarks)
    assert whole.best is not None and whole.best.score.value == max(
        one.scores["feedback:told"] for one in whole.history
    )


def test_feedback_that_raises_is_a_state_with_a_reason() -> None:
    def raising(arch: Any) -> float:
        if arch[0] == "none":
            raise ValueError("no gradient")
        return told(arch)

    options = {"networks": 40, "proxies": "params"}
    result = ez.search("nb201", raising, "guided", 40, options=options)
    assert set(result.unscored) == {"feedback:raising raised ValueError: no gradient"}
    assert result.evaluated == 40 > sum(result.unscored.values()) > 0


def test_proxies_that_do_not_apply_are_left_out_with_a_reason() -> None:
    """A space of perceptrons with one hidden layer has no blocks, so that nothing but the size is left."""
    batch = data.white((2, 3), num_classes=4, size=8)
    result = ez.search("mlp", lambda width: -abs(width - 9), "guided", 6, options={"networks": 16}, data=batch)
    dropped = [remark for remark in result.remarks if remark.startswith("guided does without az_expressivity: ")]
    assert len(dropped) == 1 and result.evaluated == 6 and result.best is not None


def perceptron(width: int, depth: int) -> Any:
    def made(num_classes: int = 10) -> nn.Module:
        hidden = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
        return nn.Sequential(nn.Flatten(), nn.Linear(6, width), nn.ReLU(), *hidden, nn.Linear(width, num_classes))

    return made


def test_among_modules_and_functions_that_make_them(tmp_path: Path) -> None:
    networks = {f"{width}x{depth}": perceptron(width, depth) for width in (4, 8, 16) for depth in (0, 1, 2)}
    networks["a module"] = perceptron(32, 1)()
    called: list[str] = []

    def feedback(network: Any) -> float:
        called.append(network.name)
        return -abs(called.index(network.name))

    asked: dict[str, Any] = {"method": "guided", "data": data.white((2, 3), num_classes=4, size=8)}
    asked["store"] = tmp_path / "run.db"
    first = ez.search(networks, feedback, budget=6, **asked)
    assert len(set(called)) == 6 and set(called) <= networks.keys() and first.winner.arch.name == called[0]
    ez.search(networks, feedback, budget=6, **asked)
    assert len(called) == 6, "the store knows them"
    wider = {name: perceptron(64, 1) for name in networks}
    with pytest.raises(StoreError, match="was started by other code"):
        ez.search(wider, feedback, budget=6, **asked)
    alone = ez.search([perceptron(4, 1)], lambda network: 1.0, "guided", 3, data=asked["data"])
    assert alone.evaluated == 1 and alone.winner.arch.name == "made"
    with pytest.raises(UserError, match="modules and functions that make them: at least one"):
        ez.search([], feedback, "guided")


def test_from_the_command_line(tmp_path: Path) -> None:
    space = ez.space("nb201")
    archs = list(dict.fromkeys(space.sample(Random(i)) for i in range(40)))
    rows = "\n".join(f"{space.text(arch)},{told(arch)}" for arch in archs)
    (tmp_path / "table.csv").write_text(f"arch,accuracy\n{rows}\n")
    (tmp_path / "scores.csv").write_text(
        "arch,params\n" + "\n".join(f"{space.text(a)},{space.plan(a).params}" for a in archs)
    )
    search: list[Any] = ["search", "--method", "guided", "--proxy", "table:accuracy", "--table", tmp_path / "table.csv"]
    search += ["--pool", tmp_path / "scores.csv", "--budget", 8, "--winner-scores", "none", "--json"]
    done = epochzero(*search)
    assert done.json["evaluated"] == 8
    assert any(remark.startswith("guided does without flops: ") for remark in done.json["remarks"])
    assert "asks for at least 1 architecture at a time, not 0" in refusal(*search, "--option", "batch=0")
    assert "guided needs proxies" in refusal(*search, "--option", "proxies=,")


@pytest.mark.parametrize(
    ("options", "says"), [({"networks": 0}, "at least 1 network"), ({"proxies": "naswott"}, "naswot")]
)
def test_mistakes_are_sentences(options: dict[str, Any], says: str) -> None:
    with pytest.raises(UserError, match=says):
        found(budget=2, options=options)
