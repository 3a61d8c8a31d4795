"""NASI: its gradients against finite differences, its formulas by hand, resuming and options."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from epochzero import data
from epochzero.engine import PlanNetwork, label_loss, parse, score_network
from epochzero.errors import DataError, UserError
from epochzero.plan import Plan, execute
from epochzero.plan.init import draw
from epochzero.plan.ops.activation import ReLU, SiLU
from epochzero.plan.ops.base import Op
from epochzero.plan.ops.pool import AvgPool, MaxPool
from epochzero.registry import spaces
from epochzero.spaces.nb201 import EDGES, OPS
from epochzero.supernet import make, relax
from epochzero.supernet import nasi as module
from epochzero.supernet.base import State
from epochzero.supernet.gumbel import hardened
from epochzero.supernet.nasi import Nasi, most_probable, ntk_factors, slope, trace_norm, weight_slope
from epochzero.supernet.relaxed import Relaxed
from epochzero.types import Origin
from tests.supernet.test_relaxed import in_relaxed

SHAPE = (3, 8, 8)
SMALL: dict[str, Any] = {"channels": 2, "cells": 1, "without": "nothing"}


def batch(**more: Any) -> data.Batch:
    return data.white(SHAPE, num_classes=3, size=4, **more)


def search(space: str = "nb201", **options: Any) -> Nasi:
    cells = {"cells": 3} if space == "darts" else {}
    found = make("nasi", spaces[space], batch(), 0, "cpu", {**SMALL, **cells, **options})
    assert isinstance(found, Nasi)
    return found


def whole_norm(relaxed: Relaxed, theta: dict[str, Tensor], weights: list[Tensor], x: Tensor, y: Tensor) -> float:
    """s of any weights, over every parameter of the relaxed network."""
    leaves = {n: theta[n].detach().requires_grad_() for n, p in relaxed.plan.weights.items() if p.trainable}
    loss = label_loss(execute(relaxed.plan, {**theta, **leaves}, (x, *weights)), y, "mean")
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True, materialize_grads=True)
    return float(torch.stack([gradient.square().sum() for gradient in found]).sum())


def smooth(relaxed: Relaxed) -> Relaxed:
    """The same wiring without kinks: weights of zero put ReLUs and max pools of zeros just there."""

    def change(op: Op) -> Op:
        if isinstance(op, MaxPool):
            return AvgPool(op.kernel, op.stride, op.padding)
        return SiLU() if isinstance(op, ReLU) else op

    plan = relaxed.plan
    nodes = tuple(node._replace(op=change(node.op)) for node in plan.nodes)
    return replace(relaxed, plan=Plan.of(nodes, plan.flops, plan.weights))


@pytest.mark.parametrize("space", ["nb201", "darts", "nb1shot1_s1", "nb1shot1_s3"])
def test_the_gradient_is_that_of_finite_differences(space: str) -> None:
    """Of s in each weight at the sampled corner, times the softmax's derivative, spelled out as a matrix."""
    step, tau = 1e-6, 0.7
    relaxed = smooth(relax(spaces[space], 3, SHAPE, 2, 3 if space == "darts" else 1))
    theta = {name: w.double() for name, w in draw(relaxed.plan.weights, Origin("lecun", 1)).items()}
    maker = torch.Generator().manual_seed(5)
    x = torch.randn(4, *SHAPE, dtype=torch.float64, generator=maker)
    y = torch.tensor([0, 1, 2, 0])
    logits = [torch.randn(len(c.options), dtype=torch.float64, generator=maker) for c in relaxed.choices]
    s, found = slope(relaxed, theta, logits, x, y, tau)
    corner = [hardened(own, c.draws) for own, c in zip(logits, relaxed.choices, strict=True)]
    assert s == pytest.approx(whole_norm(relaxed, theta, corner, x, y))
    tried = range(0, len(logits), 6 if space == "darts" else 3)
    expected = []
    for i in tried:
        own, partial = logits[i], []
        for o in range(len(own)):
            ends = []
            for sign in (1, -1):
                moved = [vector.clone() for vector in corner]
                moved[i][o] += sign * step
                ends.append(whole_norm(relaxed, theta, moved, x, y))
            partial.append((ends[0] - ends[1]) / (2 * step))
        p = torch.softmax(own / tau, 0)
        expected.append((torch.diag(p) - torch.outer(p, p)) / tau @ torch.tensor(partial, dtype=torch.float64))
    wanted = torch.cat(expected)
    parts = torch.split(found, [len(own) for own in logits])
    assert wanted.norm() > 1e-3
    assert torch.allclose(torch.cat([parts[i] for i in tried]), wanted, rtol=1e-3, atol=1e-5 * float(wanted.norm()))


@pytest.mark.parametrize("space", ["nb201", "darts", "nb1shot1_s1", "nb1shot1_s3"])
def test_the_gradient_is_that_of_the_whole_network_differentiated_twice(space: str) -> None:
    """With kinks: every option differentiated, used or not, over several samples."""
    relaxed = relax(spaces[space], 3, SHAPE, 2, 3 if space == "darts" else 1)
    theta = {name: w.double() for name, w in draw(relaxed.plan.weights, Origin("lecun", 1)).items()}
    leaves = {n: theta[n].requires_grad_() for n, p in relaxed.plan.weights.items() if p.trainable}
    maker = torch.Generator().manual_seed(7)
    x, y = torch.randn(4, *SHAPE, dtype=torch.float64, generator=maker), torch.tensor([0, 1, 2, 0])
    sizes = [len(choice.options) for choice in relaxed.choices]
    samples = [[torch.randn(size, dtype=torch.float64, generator=maker) for size in sizes] for _ in range(4)]
    if space == "nb201":
        none, three = torch.eye(5, dtype=torch.float64)[[0, 3]]
        assert (OPS[0], OPS[3]) == ("none", "nor_conv_3x3")
        samples += [[none] * 6, [three, none, none, three, none, none], [three, three, none, none, none, three]]
    told = []
    for logits in samples:
        weights = [hardened(own, c.draws).requires_grad_() for own, c in zip(logits, relaxed.choices, strict=True)]
        loss = label_loss(execute(relaxed.plan, {**theta, **leaves}, (x, *weights)), y, "mean")
        gradients = torch.autograd.grad(
            loss, list(leaves.values()), create_graph=True, allow_unused=True, materialize_grads=True
        )
        s = torch.stack([gradient.square().sum() for gradient in gradients]).sum()
        wanted = torch.autograd.grad(s, weights, allow_unused=True, materialize_grads=True)
        found_s, found = weight_slope(relaxed, theta, [w.detach() for w in weights], x, y)
        assert found_s == pytest.approx(float(s.detach()), rel=1e-12)
        assert torch.allclose(torch.cat(found), torch.cat(wanted), rtol=1e-9, atol=1e-11 * float(s.detach()))
        told.append(bool(torch.cat(wanted).norm() > 0))
    assert sum(told) >= 4


@pytest.mark.parametrize("space", ["nb201", "nb1shot1_s1"])
def test_jacots_parameterisation_written_out(space: str) -> None:
    """Every weight is v / sqrt(fan in), and all is differentiated with respect to v, twice."""
    relaxed = relax(spaces[space], 3, SHAPE, 2, 1)
    theta = {name: w.double() for name, w in draw(relaxed.plan.weights, Origin("lecun", 1)).items()}
    scale = {n: p.fan_in**0.5 if p.role == "weight" else 1.0 for n, p in relaxed.plan.weights.items() if p.trainable}
    v = {name: (theta[name] * factor).requires_grad_() for name, factor in scale.items()}
    maker = torch.Generator().manual_seed(3)
    x, y = torch.randn(4, *SHAPE, dtype=torch.float64, generator=maker), torch.tensor([0, 1, 2, 0])
    logits = [torch.randn(len(c.options), dtype=torch.float64, generator=maker) for c in relaxed.choices]
    weights = [hardened(own, c.draws).requires_grad_() for own, c in zip(logits, relaxed.choices, strict=True)]
    made = {name: leaf / scale[name] for name, leaf in v.items()}
    loss = label_loss(execute(relaxed.plan, {**theta, **made}, (x, *weights)), y, "mean")
    gradients = torch.autograd.grad(
        loss, list(v.values()), create_graph=True, allow_unused=True, materialize_grads=True
    )
    s = torch.stack([gradient.square().sum() for gradient in gradients]).sum()
    wanted = torch.autograd.grad(s, weights, allow_unused=True, materialize_grads=True)
    corner, factors = [w.detach() for w in weights], ntk_factors(relaxed)
    found_s, found = weight_slope(relaxed, theta, corner, x, y, factors)
    assert found_s == pytest.approx(float(s.detach()), rel=1e-10)
    assert float(trace_norm(relaxed, theta, corner, x, y, factors)) == pytest.approx(found_s, rel=1e-10)
    assert torch.cat(wanted).norm() > 0
    assert torch.allclose(torch.cat(found), torch.cat(wanted), rtol=1e-8, atol=1e-10 * found_s)
    assert found_s < float(trace_norm(relaxed, theta, corner, x, y))


def test_jacots_parameterisation_in_a_search() -> None:
    standard, ntk = (search(nu="9", parameters=one).run(2).trajectory["s"] for one in ("standard", "ntk"))
    assert all(0 < less < more for less, more in zip(ntk, standard, strict=True))


def test_s_is_the_proxy_of_the_plain_network() -> None:
    """`nasi_trace` of a network of the space, its weights taken from the relaxed one."""
    space = spaces["nb201"]
    one = data.white((3, 8, 8), num_classes=5, size=6)
    relaxed = relax(space, 5, SHAPE, 16, 5)
    theta = draw(relaxed.plan.weights, Origin("lecun", 0))
    arch = ("nor_conv_3x3", "avg_pool_3x3", "nor_conv_1x1", "skip_connect", "nor_conv_3x3", "nor_conv_3x3")
    plain = space.plan(arch, 5, SHAPE)
    own = {name: theta[in_relaxed(name, arch)] for name in plain.weights}
    score = score_network(PlanNetwork(plain, own), [parse("nasi_trace")], one, 0).scores["nasi_trace"]
    weights = [torch.tensor([float(op == option) for option in OPS]) for op in arch]
    x, y = one.part(0)
    assert y is not None
    assert float(trace_norm(relaxed, theta, weights, x, y)) == pytest.approx(score.value, rel=1e-3)


def fixed_steps(monkeypatch: pytest.MonkeyPatch, steps: list[tuple[float, list[float]]]) -> None:
    """Replace what is measured by given s and gradients."""
    given = iter(steps)

    def told(*_: Any, **__: Any) -> tuple[float, Tensor]:
        s, gradient = next(given)
        return s, torch.tensor(gradient + [0.0] * (30 - len(gradient)), dtype=torch.float64)

    monkeypatch.setattr(module, "slope", told)


STEPS = [(4.0, [3.0, 4.0]), (20.0, [0.0, 10.0]), (1.0, [2.0, 0.0])]


@pytest.mark.parametrize(
    ("mu", "alpha"),
    [
        ("0", [(0.6 + 0.0 + 0.2) / 3, (0.8 + 1.0 + 0.0) / 3]),
        ("1", [(0.6 + 0.0 + 0.4) / 3, (0.8 + 0.0 + 0.0) / 3]),
        ("2", [(0.6 + 0.0 + 0.2) / 3, (0.8 - 1.0 + 0.0) / 3]),
        ("3", [(0.6 + 0.0 + 0.1) / 3, (0.8 - 1.0 + 0.0) / 3]),
    ],
)
def test_the_step_by_hand(monkeypatch: pytest.MonkeyPatch, mu: str, alpha: list[float]) -> None:
    """Equation (18) for nu = 10: the second network lies above it."""
    fixed_steps(monkeypatch, STEPS)
    found = search(nu="10", mu=mu).run(3)
    assert list(found.weights["edge10"].values())[:2] == pytest.approx(alpha)
    assert found.trajectory == {"s": [4.0, 20.0, 1.0], "nu": [10.0] * 3}
    best = "nor_conv_1x1" if max(alpha) < 0 else OPS[alpha.index(max(alpha))]
    assert found.arch[0] == best


def test_an_infinite_bound_is_none_and_can_be_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed_steps(monkeypatch, 2 * STEPS)
    unbounded, free = search(nu="inf", mu="2").run(3), search(nu="10", mu="0").run(3)
    assert unbounded.weights == free.weights
    assert json.loads(json.dumps(unbounded.state, allow_nan=False)) == unbounded.state


def test_the_adaptive_bound_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equation (41)."""
    fixed_steps(monkeypatch, STEPS)
    found = search(nu="adaptive", nu0="100").run(3)
    assert found.trajectory["nu"] == pytest.approx([100, (100 + 4) / 2, (100 + 4 + 20) / 3])


def test_the_mean_bound_is_that_of_random_networks(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[float] = []

    def noted(*given: Any, **more: Any) -> Tensor:
        s = trace_norm(*given, **more)
        seen.append(float(s))
        return s

    monkeypatch.setattr(module, "trace_norm", noted)
    found = search(nu="mean").run(1)
    assert len(seen) == 50
    assert found.trajectory["nu"] == [pytest.approx(sum(seen) / 50)]
    assert len(set(seen)) > 40


def test_the_mean_bound_goes_on_where_it_was_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its networks are measured one by one, told and kept in the state."""
    monkeypatch.setattr(module, "SAMPLED", 5)
    whole, states = search(nu="mean"), list[State]()
    found = whole.run(2, lambda state: states.append(json.loads(json.dumps(state))))
    assert [(len(state["mean"]), state["step"]) for state in states] == [  # type: ignore[arg-type]
        *((i, 0) for i in range(1, 6)),
        (5, 1),
        (5, 2),
    ]
    assert whole.standing(states[2]) == "nu from 3 of 5 networks"
    assert whole.standing(states[-1]) == spaces["nb201"].text(found.arch)
    monkeypatch.setattr(module, "trace_norm", _only(2))
    assert search(nu="mean").run(2, state=states[2]).trajectory["s"] == found.trajectory["s"]


def _only(times: int) -> Any:
    left = iter(range(times))

    def counted(*given: Any, **more: Any) -> Tensor:
        next(left)
        return trace_norm(*given, **more)

    return counted


@pytest.mark.parametrize("seed", range(4))
def test_the_most_probable_connected_cell_is_that_of_a_slow_search(seed: int) -> None:
    """`none` weighs much, so that the arg-max alone is often cut in two."""
    relaxed = relax(spaces["nb201"], 3, SHAPE, 2, 1)
    alpha = torch.randn(30, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    alpha[::5] += 3
    rows = alpha.view(6, 5)

    def connected(cell: tuple[str, ...]) -> bool:
        reached = {0}
        for (to, source), op in zip(EDGES, cell, strict=True):
            if op != "none" and source in reached:
                reached.add(to)
        return 3 in reached

    def weight(cell: tuple[str, ...]) -> float:
        return sum(float(row[OPS.index(op)]) for row, op in zip(rows, cell, strict=True))

    best = max(filter(connected, spaces["nb201"]), key=weight)
    assert most_probable(relaxed, torch.zeros(30, dtype=torch.bool), alpha) == best
    assert not connected(tuple(OPS[int(row.argmax())] for row in rows)), "or it would say nothing"


def test_where_all_are_cut_it_says_so() -> None:
    with pytest.raises(UserError, match="is cut in two: leave out less"):
        search(nu="9", without="skip_connect,nor_conv_1x1,nor_conv_3x3,avg_pool_3x3").run(1)


def test_defaults_of_a_space() -> None:
    """Ours on NAS-Bench-201, those of the paper elsewhere."""
    found = make("nasi", spaces["nb201"], batch(), 0, "cpu", {"channels": 2})
    asked: dict[str, Any] = {"nu": "adaptive", "without": "none", "cells": 1}
    assert isinstance(found, Nasi) and found.steps == 200
    assert found.settings == search(**asked).settings
    assert (search("darts").nu, search("darts").steps) == ("mean", 100)


def test_paper_settings() -> None:
    assert (search("darts").mu, search("darts").nu0) == (2, 500)
    assert (search("nb1shot1_s2").mu, search("nb1shot1_s2").nu0) == (1, 1000)
    assert search(nu="100").nu == 100


@pytest.mark.parametrize("space", ["nb201", "darts", "nb1shot1_s2"])
def test_the_same_seed_gives_the_same_and_stopping_changes_nothing(space: str) -> None:
    whole = search(space, nu="adaptive").run(4)
    states: list[State] = []
    search(space, nu="adaptive").run(2, states.append)
    assert [state["step"] for state in states] == [1, 2]
    stored = json.loads(json.dumps(states[-1]))
    rest = search(space, nu="adaptive").run(4, state=stored)
    assert rest == whole
    assert whole.steps == 4
    text = spaces[space].text(whole.arch)
    assert spaces[space].parse(text) == whole.arch


def test_another_seed_gives_another_trajectory() -> None:
    one, other = (
        make("nasi", spaces["nb201"], batch(), seed, "cpu", {**SMALL, "nu": "9"}).run(2).trajectory["s"]
        for seed in (0, 1)
    )
    assert one != other


def test_random_labels_and_data_replace_the_true_ones() -> None:
    ways = [{}, {"labels": "random"}, {"data": "random"}, {"labels": "random", "data": "random"}]
    found = [tuple(search(nu="9", **way).run(2).trajectory["s"]) for way in ways]
    assert len(set(found)) == 4
    unlabelled = data.from_tensors(torch.randn(8, *SHAPE), size=4, num_classes=3)
    with pytest.raises(DataError, match="labels=random"):
        make("nasi", spaces["nb201"], unlabelled, 0, "cpu", SMALL).run(1)
    assert make("nasi", spaces["nb201"], unlabelled, 0, "cpu", {**SMALL, "nu": "9", "labels": "random"}).run(1).arch


def test_what_is_left_out_is_neither_sampled_nor_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor] = []

    def noted(relaxed: Relaxed, theta: Any, weights: list[Tensor], *more: Any) -> tuple[float, list[Tensor]]:
        seen.extend(weights)
        return weight_slope(relaxed, theta, weights, *more)

    monkeypatch.setattr(module, "weight_slope", noted)
    found = search(nu="9", without="none, avg_pool_3x3").run(4)
    assert len(seen) == 6 * 4
    assert all(w[0] == w[4] == 0 and w.sum() == 1 for w in seen)
    assert not {"none", "avg_pool_3x3"} & set(found.arch)
    assert found.weights["edge10"]["none"] == 0


def test_networks_that_say_nothing_leave_the_weights_at_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    fixed_steps(monkeypatch, [(1.0, [0.0])])
    found = search(nu="9").run(1)
    assert set(found.weights["edge10"].values()) == {0.0}
    assert found.arch[0] == OPS[0], "the first of equals"


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"nu": "avarage"}, "NASI takes 'usual', 'mean', 'adaptive' or a number for 'nu', not 'avarage'"),
        ({"mu": "much"}, "a number for 'mu', not 'much'"),
        ({"mu": "inf"}, "a number for 'mu', not 'inf'"),
        ({"nu": "nan"}, "a number for 'nu', not 'nan'"),
        ({"nu": "-inf"}, "a number for 'nu', not '-inf'"),
        ({"nu0": "inf"}, "a number for 'nu0', not 'inf'"),
        ({"tau": "nan"}, "tau above 0"),
        ({"tau": "inf"}, "tau above 0"),
        ({"labels": "none"}, "'true' or 'random' for 'labels', not 'none'"),
        ({"channels": 3}, "an even number of channels"),
        ({"tau": 0}, "tau above 0"),
        ({"tau": "warm"}, "takes float for 'tau'"),
        ({"nu1": 3}, "no option 'nu1'. Did you mean 'nu"),
        ({"without": "nune"}, "cannot leave out what is not there: nune"),
        ({"without": "none,skip_connect,nor_conv_1x1,nor_conv_3x3,avg_pool_3x3"}, "cannot choose 'edge10' without"),
        ({"parameters": "jacot"}, "'standard' or 'ntk' for 'parameters', not 'jacot'"),
        ({"init": "lecum"}, "No initialisation is called 'lecum'"),
    ],
)
def test_mistakes_are_sentences(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence):
        search(**options)


def test_a_state_of_another_search_is_refused() -> None:
    state = search(nu="9").run(2).state
    with pytest.raises(UserError, match="other settings"):
        search(nu="8").run(3, state=state)
    with pytest.raises(UserError, match="has taken 2 steps already"):
        search(nu="9").run(1, state=state)
    with pytest.raises(UserError, match="at least 1 step"):
        search(nu="9").run(0)
