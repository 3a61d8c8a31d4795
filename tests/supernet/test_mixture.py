"""The ops that weigh and add."""

from __future__ import annotations

import pytest
import torch

from epochzero.plan import Builder, execute, execute_jet
from epochzero.plan.ops.mixture import Mixture, Scaled, Selected, WeightedSum

MAP = (2, 3, 3)


def test_weighted_sum() -> None:
    net = Builder()
    x = [net.input(MAP, f"x{i}") for i in range(2)]
    net.add(WeightedSum((0.25, -2.0)), *x, name="sum")
    plan = net.plan()
    a, b = torch.randn(2, 4, *MAP)
    assert torch.allclose(execute(plan, {}, (a, b)), 0.25 * a - 2 * b)
    zero = torch.zeros_like(a)
    value, velocity, acceleration = execute_jet(plan, {}, ((a, b, zero), (b, zero, a)))
    assert torch.allclose(value, 0.25 * a - 2 * b)
    assert torch.allclose(velocity, 0.25 * b)
    assert torch.allclose(acceleration, -2 * a)
    assert plan.params == plan.flops == 0
    scope: dict[str, object] = {}
    exec(plan.code(), scope)
    printed = scope["Network"]()  # type: ignore[operator]
    assert torch.allclose(printed(a, b), 0.25 * a - 2 * b)


def test_weights_from_an_input() -> None:
    net = Builder()
    w, *x = net.input((2,), "w"), net.input(MAP, "x0"), net.input(MAP, "x1")
    total = net.add(Mixture(), w, *x, name="sum")
    net.add(Scaled(1), w, total, name="scaled")
    a, b = torch.randn(2, 4, *MAP)
    weights = torch.tensor([3.0, 0.5], requires_grad=True)
    found = execute(net.plan(), {}, (weights, a, b))
    assert torch.allclose(found, (3 * a + 0.5 * b) * 0.5)
    (slope,) = torch.autograd.grad(found.sum(), weights)
    assert torch.allclose(slope, torch.stack([0.5 * a.sum(), (3 * a + b).sum()]), rtol=1e-4)


def test_selected_terms_alone_are_added() -> None:
    net = Builder()
    w, *x = net.input((3,), "w"), *(net.input(MAP, f"x{i}") for i in range(3))
    net.add(Selected((0, 2)), w, *x, name="sum")
    a, b, c = torch.randn(3, 4, *MAP)
    given = (torch.tensor([1.0, 0.0, 1.0]), a, b * torch.inf, c)
    assert torch.equal(execute(net.plan(), {}, given), a + c)
    scope: dict[str, object] = {}
    exec(net.plan().code(), scope)
    assert torch.equal(scope["Network"]()(*given), a + c)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("op", "inputs", "sentence"),
    [
        (WeightedSum((1.0,)), (MAP, MAP), "1 weights do not fit 2 maps"),
        (WeightedSum((1.0, 2.0)), (MAP, (2, 3, 4)), "cannot add maps of different shapes"),
        (Mixture(), ((3,), MAP, MAP), r"weights of shape \(3,\) do not fit 2 maps"),
        (Scaled(2), ((2,), MAP), r"weights of shape \(2,\) have no number 2"),
    ],
)
def test_misfits_are_refused(
    op: Mixture | Scaled | WeightedSum, inputs: tuple[tuple[int, ...], ...], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        op.shape(*inputs)
