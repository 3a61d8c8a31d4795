"""Gradients by the tape against autograd through the whole plan, and gathered sums against loops."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch
from torch import Tensor

from epochzero.engine.gpu.fused import GatherTable
from epochzero.engine.population.grouped_ops import GatherSum
from epochzero.engine.population.merge import merge
from epochzero.engine.population.tape import INPUT, Tape
from epochzero.plan import execute
from epochzero.plan.init import draw
from epochzero.registry import spaces
from epochzero.types import Origin

pytestmark = pytest.mark.usefixtures("repeating_nb201")
SIZES = {"nb201": (2, 8), "nb101": (2, 8), "transnas_macro": (3, 16), "darts_search": (2, 16)}
"""networks, and the side of their images: on smaller ones gradients of transnas_macro explode and rounding shows"""


def merged(space: str, count: int, side: int = 8) -> tuple[object, dict[str, Tensor], Tensor]:
    found, rng = spaces[space], Random(3)
    plans = [found.plan(found.sample(rng), 3, (3, side, side)) for _ in range(count)]
    together = merge(plans)
    own = [draw(plan.weights, Origin()) for plan in plans]
    packed = {name: torch.cat([own[p][part] for p, part in parts]).double() for name, parts in together.packs.items()}
    x = torch.randn(2, 3 * count, side, side, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    return together.plan.with_statistics("batch"), packed, x


@pytest.mark.parametrize("space", SIZES)
def test_gradients_are_those_of_autograd(space: str) -> None:
    plan, packed, x = merged(space, *SIZES[space])
    names = [name for name, param in plan.weights.items() if param.trainable]  # type: ignore[attr-defined]
    leaves = packed | {name: packed[name].requires_grad_() for name in names}
    given = x.clone().requires_grad_()
    output = execute(plan, leaves, (given,))  # type: ignore[arg-type]
    along = torch.randn(output.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    expected = torch.autograd.grad(output, [*(leaves[name] for name in names), given], along, allow_unused=True)

    widest = max(1.0, *(float(gradient.abs().max()) for gradient in expected if gradient is not None))

    tape = Tape(plan, packed, (x,), names, follow_inputs=True)  # type: ignore[arg-type]
    assert torch.equal(tape.output, output.detach())
    for _ in range(2):
        found = tape.gradients(along, [*names, INPUT])
        for name, gradient in zip([*names, INPUT], expected, strict=True):
            if gradient is None:
                assert name not in found or not found[name].any()
            else:
                assert torch.allclose(found[name], gradient, rtol=1e-9, atol=1e-12 * widest), name
    assert set(tape.gradients(along, names[:1])) <= {names[0]}


def test_what_is_not_followed_costs_nothing_and_seen_gradients_are_right() -> None:
    plan, packed, x = merged("nb201", 2)
    last = plan.layer_weights[-1]  # type: ignore[attr-defined]
    tape = Tape(plan, packed, (x,), [last])  # type: ignore[arg-type]
    seen: dict[str, Tensor] = {}
    tape.gradients(torch.ones_like(tape.output), [last], lambda node, g: seen.update({node.name: g}))
    assert len(seen) == 1, "the gradient goes further back than it has to"
    assert torch.equal(next(iter(seen.values())), torch.ones_like(tape.output))


def test_sums_of_gathered_maps_by_hand() -> None:
    a = torch.arange(2 * 2 * 3.0).view(2, 2 * 3)  # [B, 2 maps of 3 channels]
    b = 100 + torch.arange(2 * 3.0).view(2, 3)  # [B, 1 map]
    op = GatherSum(GatherTable(3, (2, 1), *np.array([[0, 1, 1, 1], [0, 1, 0, 0], [1, 0, 0, 0]])))
    assert op.shape((6,), (3,)) == (9,)
    expected = torch.cat([a[:, 3:], b + 2 * a[:, :3], torch.zeros(2, 3)], 1)
    assert torch.equal(op.run((a, b), ()), expected)
