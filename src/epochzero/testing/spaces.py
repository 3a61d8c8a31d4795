"""What every space promises."""

from __future__ import annotations

from random import Random
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from epochzero.errors import UserError
from epochzero.registry import spaces


def check_space(name: str, samples: int = 5) -> None:
    """Run every check of this file on a few random architectures of one space."""
    space, rng = spaces[name], Random(0)
    archs = [space.smallest(), *(space.sample(rng) for _ in range(samples))]
    for arch in archs:
        check_text(space, arch)
        check_moves(space, arch, rng)
        check_counts(space, arch)
    check_smallest(space, archs)
    check_refuses_nonsense(space)


def check_text(space: Any, arch: Any) -> None:
    text = space.text(arch)
    assert isinstance(hash(arch), int), "an architecture has to be hashable"
    assert space.parse(text) == arch, f"{text!r} does not read back as what it was written from"
    assert space.text(space.parse(text)) == text, f"{text!r} is written differently after reading it"


def check_moves(space: Any, arch: Any, rng: Random) -> None:
    neighbours = space.neighbours(arch)
    assert len(neighbours) == len(set(neighbours)), "a neighbour is listed twice"
    assert arch not in neighbours, "an architecture is its own neighbour"
    for _ in range(5):
        assert space.mutate(arch, rng) in neighbours, "a mutation is no neighbour"
    assert space.sample(Random(1)) == space.sample(Random(1)), "the same random state gives another sample"


def check_counts(space: Any, arch: Any) -> None:
    """The plan counts what its module has and what torch counts (twice the multiply-accumulates)."""
    plan = space.plan(arch)
    module = plan.module()
    assert plan.params == sum(p.numel() for p in module.parameters()), "plan and module differ in parameters"
    counter = FlopCounterMode(display=False)
    with counter, torch.no_grad():
        module.to("meta").eval()(torch.empty(1, *plan.input_shape, device="meta"))
    assert plan.flops == counter.get_total_flops() / 2, "plan and torch differ in multiply-accumulates"


def check_smallest(space: Any, archs: list[Any]) -> None:
    least = space.plan(space.smallest())
    for plan in map(space.plan, archs):
        assert least.params <= plan.params and least.flops <= plan.flops, "the smallest is not the smallest"


def check_refuses_nonsense(space: Any) -> None:
    for text in ("", "nonsense", "|" * 1000, "\0", "é~0", space.text(space.smallest()) + "x"):
        try:
            space.parse(text)
        except UserError as error:
            assert len(str(error).splitlines()) == 1, "the message is longer than a sentence"
        else:
            raise AssertionError(f"{text!r} is read as an architecture")
