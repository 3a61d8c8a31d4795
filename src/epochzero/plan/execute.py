"""Running a plan: as values, or as values with two derivatives along a curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from epochzero.plan.ops.base import Jet
from epochzero.plan.plan import Node, Plan

Watch = Callable[[Node, tuple[Tensor, ...], Tensor], None]
"""Called after each node with its inputs and its output."""


def execute(plan: Plan, weights: Mapping[str, Tensor], inputs: Sequence[Tensor], watch: Watch | None = None) -> Tensor:
    """Returns the network's output. Values are freed as soon as nothing needs them."""
    result = _values(plan.trunk, weights, inputs, watch)[-1]
    assert result is not None
    return result


def execute_both(plan: Plan, weights: Mapping[str, Tensor], inputs: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Returns the output and the auxiliary output of a plan that has one."""
    assert plan.auxiliary is not None
    values = _values(plan, weights, inputs)
    result, auxiliary = values[-1], values[plan.auxiliary]
    assert result is not None and auxiliary is not None
    return result, auxiliary


def _values(
    plan: Plan, weights: Mapping[str, Tensor], inputs: Sequence[Tensor], watch: Watch | None = None
) -> list[Tensor | None]:
    """Returns the nodes' values, as far as something still needs them at the end."""
    values: list[Tensor | None] = [None] * len(plan.nodes)
    for index, value in zip(plan.inputs, inputs, strict=True):
        values[index] = value
    for i, node in enumerate(plan.nodes):
        if node.inputs:
            x = tuple([values[j] for j in node.inputs])
            output = node.op.run(x, tuple([weights[name] for name in node.params]))  # type: ignore[arg-type]
            if watch is not None:
                watch(node, x, output)  # type: ignore[arg-type]
            values[i] = output
            for j in plan.last_uses[i]:
                values[j] = None
    return values


def execute_jet(plan: Plan, weights: Mapping[str, Tensor], inputs: Sequence[Jet]) -> Jet:
    """Returns the output's value, velocity and acceleration, from those of the inputs."""
    plan = plan.trunk
    jets: list[Jet | None] = [None] * len(plan.nodes)
    for index, jet in zip(plan.inputs, inputs, strict=True):
        jets[index] = jet
    for i, node in enumerate(plan.nodes):
        if node.inputs:
            x = tuple([jets[j] for j in node.inputs])
            jets[i] = node.op.jet(x, tuple([weights[name] for name in node.params]))  # type: ignore[arg-type]
            for j in plan.last_uses[i]:
                jets[j] = None
    result = jets[-1]
    assert result is not None
    return result
