"""Zero-Cost-PT: its decisions against a slow rewrite with made-up scores, its networks, resuming and options."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import partial
from random import Random
from typing import Any

import pytest
import torch

from epochzero import data
from epochzero.engine import Scored
from epochzero.errors import UserError
from epochzero.plan import Plan, execute
from epochzero.plan.init import draw
from epochzero.plan.ops.mixture import WeightedSum
from epochzero.registry import proxies, spaces
from epochzero.spaces.genotypes import SEARCHED
from epochzero.supernet import make, supernet
from epochzero.supernet import zero_cost_pt as module
from epochzero.supernet.base import State
from epochzero.supernet.zero_cost_pt import ZeroCostPT
from epochzero.types import Origin, Score

SHAPE = (3, 8, 8)


def batch(**more: Any) -> data.Batch:
    return data.white(SHAPE, num_classes=3, size=6, **more)


def search(space: str = "nb201", seed: int = 0, **options: Any) -> ZeroCostPT:
    given = {"channels": 2, "cells": 3 if space == "darts" else 1, "proxy": "synflow", **options}
    found = make("zero_cost_pt", spaces[space], batch(), seed, "cpu", given)
    assert isinstance(found, ZeroCostPT)
    return found


def blocks(plan: Plan) -> set[str]:
    """`cell1.edge3_0.skip_connect`: each operation that is there."""
    return {".".join(node.name.split(".")[:3]) for node in plan.nodes if node.name.count(".") > 2}


def scores_by(monkeypatch: pytest.MonkeyPatch, value: Any) -> list[tuple[Plan, str, data.Batch]]:
    """Replace scoring by a function of the plan; returns what was asked for."""
    asked: list[tuple[Plan, str, data.Batch]] = []

    def told(networks: Iterable[Any], asked_for: Sequence[Any], given: data.Batch, seed: int) -> list[Scored]:
        return [one(network.plan, asked_for[0].text, given) for network in networks]

    def one(plan: Plan, proxy: str, given: data.Batch) -> Scored:
        asked.append((plan, proxy, given))
        found = value(plan)
        return Scored({proxy: Score.degenerate("made up") if found is None else Score(found)}, 0.0)

    monkeypatch.setattr(module, "score_population", told)
    return asked


def without(op: str) -> Any:
    """A network is the worse the fewer edges hold this operation."""
    return lambda plan: float(sum(name.endswith(op) for name in blocks(plan)))


@pytest.mark.parametrize(("space", "op"), [("nb201", "nor_conv_1x1"), ("darts", "dil_conv_3x3")])
def test_the_operation_that_is_missed_most_is_chosen(monkeypatch: pytest.MonkeyPatch, space: str, op: str) -> None:
    scores_by(monkeypatch, without(op))
    found = search(space).run(search(space).each)
    text = spaces[space].text(found.arch)
    assert text.count(op) == (6 if space == "nb201" else 16)


def test_a_proxy_for_which_lower_is_better_is_turned_round(monkeypatch: pytest.MonkeyPatch) -> None:
    scores_by(monkeypatch, lambda plan: -without("nor_conv_1x1")(plan))
    lower = next(name for name in proxies if not proxies[name].higher_is_better)
    assert spaces["nb201"].text(search(proxy=lower).run(6).arch).count("nor_conv_1x1") == 6


def test_an_operation_without_a_score_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where its removal leaves no score, as numpy's nanargmin has it; UserError where nothing has one."""

    def value(plan: Plan) -> float | None:
        few = without("nor_conv_1x1")(plan)
        return None if few < 3 * 6 else without("nor_conv_3x3")(plan)

    scores_by(monkeypatch, value)
    chosen = search()
    op, _ = chosen._operation("edge10", {"decided": {}}, batch())
    assert op == "nor_conv_3x3"
    scores_by(monkeypatch, lambda plan: None)
    with pytest.raises(UserError, match=r"synflow has no score for these networks \(made up\)"):
        search().run(6)


def test_the_removed_operation_is_missing_and_the_others_weigh_alike() -> None:
    found = search("darts")
    plan = found._plan({"decided": {"normal_2_0": "skip_connect"}}, {"reduce_4_1": (0.0, *[1 / 7] * 6)})
    weights = {node.name: node.op.weights for node in plan.nodes if isinstance(node.op, WeightedSum)}
    assert weights["cell1.edge4_1.mixture"] == (1 / 7,) * 6
    assert "cell1.edge4_1.max_pool_3x3" not in blocks(plan)
    assert len(weights["cell1.edge4_0.mixture"]) == 7
    assert sum(weights["cell1.edge4_0.mixture"]) == pytest.approx(1)
    assert max(weights["cell1.edge4_0.mixture"]) - min(weights["cell1.edge4_0.mixture"]) < 0.01
    assert {name for name in blocks(plan) if name.startswith("cell0.edge2_0.")} <= {"cell0.edge2_0.skip_connect"}
    assert {name.split(".")[2] for name in blocks(plan) if name.startswith("cell1.edge2_0.")} == set(SEARCHED)


def test_edges_are_cut_by_the_highest_score(monkeypatch: pytest.MonkeyPatch) -> None:
    """Scores that fall with each edge from node 0 or 1: those go, by the edge proxy alone."""

    def value(plan: Plan) -> float:
        return -float(len({name.split(".")[1] for name in blocks(plan) if name.split(".")[1].endswith(("_0", "_1"))}))

    asked = scores_by(monkeypatch, value)
    found = search("darts", edge_proxy="grad_norm").run(17)
    for cell in (found.arch.normal, found.arch.reduce):
        assert [source for _, source in cell] == [0, 1, *cell_sources(3), *cell_sources(4), *cell_sources(5)]
    by = [name for _, name, _ in asked]
    assert by.count("synflow") == 14 * 2 * 7
    assert by.count("grad_norm") == 2 * (3 + (4 + 3) + (5 + 4 + 3))


def cell_sources(node: int) -> list[int]:
    """Returns the two of 0 .. node-1 that remain if 0 and 1 are removed first."""
    left = list(range(node))
    while len(left) > 2:
        left.remove(next((source for source in left if source < 2), left[0]))
    return left


def test_edges_come_in_random_order_and_each_step_has_its_own_data(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = scores_by(monkeypatch, without("skip_connect"))
    states: list[State] = []
    search().run(12, states.append)
    orders = [[edge for state in states[a:b] for edge in list(state["decided"])[-1:]] for a, b in ((0, 5), (6, 11))]  # type: ignore[arg-type]
    assert orders[0] != orders[1]
    assert len(set(orders[0])) == 5
    own = batch()
    for step in range(12):
        given = asked[5 * step][2]
        assert torch.equal(given.part(0)[0], own.part(step % own.parts)[0])


def test_the_best_proposal_as_a_network_of_its_own_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = Random(3)
    kept: dict[frozenset[str], float] = {}

    def value(plan: Plan) -> float:
        return kept.setdefault(frozenset(node.name for node in plan.nodes), rng.random())

    asked = scores_by(monkeypatch, value)
    whole = search(validations=3)
    found = whole.run(18)
    texts = list(dict.fromkeys(found.state["proposals"]))  # type: ignore[arg-type]
    assert len(texts) == 3
    space = spaces["nb201"]
    merits = {text: 3 * value(whole.supernet.alone(space.parse(text))) for text in texts}
    assert space.text(found.arch) == max(merits, key=lambda text: merits[text])
    assert found.weights["proposals"] == pytest.approx(merits)
    assert len(asked) == 18 * 5 + 3 * 3


@pytest.mark.parametrize(("space", "proxy"), [("nb201", "synflow"), ("nb201", "zico"), ("darts", "flops")])
def test_real_scores_give_an_architecture_and_stopping_changes_nothing(space: str, proxy: str) -> None:
    again = partial(search, space, proxy=proxy, edge_proxy=proxy)
    whole = again().run(again().each)
    states: list[State] = []

    class StoppedError(Exception):
        pass

    def stop(state: State) -> None:
        states.append(state)
        if len(states) == 3:
            raise StoppedError

    with pytest.raises(StoppedError):
        again().run(again().each, stop)
    rest = again().run(again().each, state=json.loads(json.dumps(states[-1])))
    assert rest == whole
    assert spaces[space].parse(spaces[space].text(whole.arch)) == whole.arch


def test_weights_stay_the_same_when_an_operation_goes() -> None:
    found = search("darts")
    whole, fewer = (found._plan({"decided": {}}, change) for change in ({}, {"normal_2_0": (0.0, *[1 / 7] * 6)}))
    ours = draw(whole.weights, Origin())
    assert all(torch.equal(ours[name], w) for name, w in draw(fewer.weights, Origin()).items())


def test_one_operation_on_every_edge_is_the_plain_network() -> None:
    space = spaces["nb201"]
    all_of_it = supernet(space, 3, SHAPE, 16, 0)
    arch = space.sample(Random(1))
    edges = all_of_it.cells["cell"]
    one = all_of_it.plan({e: tuple(float(o == op) for o in all_of_it.ops) for e, op in zip(edges, arch, strict=True)})
    plain, x = space.plan(arch, 3, SHAPE), torch.randn(4, *SHAPE)
    assert [name for name, _ in _sizes(all_of_it.alone(arch))] == [name for name, _ in _sizes(plain)]
    weights = draw(plain.weights, Origin())
    again = dict(zip(one.weights, weights.values(), strict=True))
    assert torch.allclose(execute(one, again, (x,)), execute(plain, weights, (x,)), atol=1e-5)


def _sizes(plan: Plan) -> Iterable[tuple[str, int]]:
    return [(name, param.numel) for name, param in plan.weights.items()]


def test_budget_and_settings() -> None:
    assert (search("nb201").each, search("nb201").steps) == (6, 60)
    assert (search("darts").each, search("darts").steps) == (17, 170)
    assert search(proxy="naswot").validations == 100
    assert search(proxy="zico").validations == 1
    with pytest.raises(UserError, match="A proposal of Zero-Cost-PT takes 17 steps here, and the budget is 16"):
        search("darts").run(16)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"proxy": "naswt"}, "No proxy is called 'naswt'"),
        ({"channels": 5}, "an even number of channels"),
        ({"validations": -1}, "numbers of validations and cells that are 0 or more"),
        ({"init": "lecum"}, "No initialisation is called 'lecum'"),
        ({"pool": 3}, "no option 'pool'"),
    ],
)
def test_mistakes_are_sentences(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        search(**options)


def test_other_spaces_are_refused() -> None:
    with pytest.raises(UserError, match="'nb1shot1_s1' has no supernet of operations"):
        search("nb1shot1_s1")
