"""Running a plan: as values, or as values with two derivatives along a curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from torch import Tensor

from epochzero.plan.ops.base import Jet
from epochzero.plan.plan import Node, Plan

Watch = Callable[[Node, tuple[Tensor, ...], Tensor], None]
"""Called after each node with its inputs and its output."""


V = TypeVar("V")


def run_nodes(plan: Plan, inputs: Sequence[V], run: Callable[[int, Node, tuple[V, ...]], V]) -> list[V]:
    """Runs the nodes in order, each by its index and input values; returns them: None where not needed at the end."""
    values: list[Any] = [None] * len(plan.nodes)
    for index, value in zip(plan.inputs, inputs, strict=True):
        values[index] = value
    for i, node in enumerate(plan.nodes):
        if node.inputs:
            values[i] = run(i, node, tuple([values[j] for j in node.inputs]))
            for j in plan.last_uses[i]:
                values[j] = None
    return values


def execute(plan: Plan, weights: Mapping[str, Tensor], inputs: Sequence[Tensor], watch: Watch | None = None) -> Tensor:
    """Returns the network's output. Values are freed as soon as nothing needs them."""
    return _values(plan.trunk, weights, inputs, watch)[-1]


def execute_both(plan: Plan, weights: Mapping[str, Tensor], inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Returns the output and the auxiliary output of a plan that has one."""
    assert plan.auxiliary is not None
    values = _values(plan, weights, inputs)
    return values[-1], values[plan.auxiliary]


def _values(
    plan: Plan, weights: Mapping[str, Tensor], inputs: Sequence[Tensor], watch: Watch | None = None
) -> list[Tensor]:
    def run(_: int, node: Node, x: tuple[Tensor, ...]) -> Tensor:
        output = node.op.run(x, tuple([weights[name] for name in node.params]))
        if watch is not None:
            watch(node, x, output)
        return output

    return run_nodes(plan, inputs, run)


def execute_jet(plan: Plan, weights: Mapping[str, Tensor], inputs: Sequence[Jet]) -> Jet:
    """Returns the output's value, velocity and acceleration, from those of the inputs."""

    def run(_: int, node: Node, x: tuple[Jet, ...]) -> Jet:
        return node.op.jet(x, tuple([weights[name] for name in node.params]))

    return run_nodes(plan.trunk, inputs, run)[-1]
