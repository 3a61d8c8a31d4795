"""Facts of a set of networks, read off their layers: evidence about a score holds for networks like the tested ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from epochzero.errors import UserError
from epochzero.types import Shape

if TYPE_CHECKING:
    from epochzero.engine.structure import Structure
    from epochzero.plan import Plan
    from epochzero.study.task import Task

INSPECTED = 20
"""networks of a set whose layers are inspected"""
VARIES = 1.1
"""ratio of the largest to the smallest from which widths or depths vary"""

Span = tuple[float, float]
"""the smallest and the largest"""


@dataclass(frozen=True)
class Facts:
    """Properties of a set of networks."""

    input: Shape
    attention: bool
    """true if some network has attention"""
    norm: bool
    """true if all networks have norms"""
    width: Span
    """mean of the different numbers of channels of a network's hidden layers"""
    depth: Span
    """convolutions and linear layers on the longest path"""
    flops: Span

    @property
    def widths_vary(self) -> bool:
        return _varies(self.width)

    @property
    def depths_vary(self) -> bool:
        return _varies(self.depth)

    @staticmethod
    def read(told: Mapping[str, Any] | None) -> Facts | None:
        """Returns the facts of `asdict` after a way through JSON; None for None."""
        fields: Any = {name: tuple(it) if isinstance(it, list) else it for name, it in (told or {}).items()}
        return Facts(**fields) if fields else None


def facts_of(structures: Sequence[Structure], flops: Sequence[int], shape: Shape) -> Facts:
    """Returns the facts of networks with these layers."""
    kinds = [{layer.kind for layer in one.layers} for one in structures]
    hidden = [{layer.channels for layer in one.weighted[:-1]} for one in structures]
    return Facts(
        shape,
        attention=any("attention" in of for of in kinds),
        norm=all("norm" in of for of in kinds),
        width=_span([sum(channels) / len(channels) for channels in hidden if channels]),
        depth=_span([one.paths.longest for one in structures if one.paths]),
        flops=_span(flops),
    )


def facts_of_plans(plans: Sequence[Plan]) -> Facts:
    from epochzero.engine.structure import structure_of

    return facts_of([structure_of(plan) for plan in plans], [plan.flops for plan in plans], plans[0].input_shape)


def facts_in(task: Task, archs: Sequence[Any]) -> Facts | None:
    """Returns the facts of the first of these networks; None if one cannot run, or without any."""
    from epochzero.engine.failure import PassFailedError
    from epochzero.engine.space_networks import network_of

    try:
        networks = [network_of(task.space, arch, task.batch) for arch in archs[:INSPECTED]]
        flops = [one.flops for one in networks]
        return facts_of([one.structure for one in networks], flops, task.batch.input_shape) if networks else None
    except (PassFailedError, UserError):
        return None


def _span(values: Sequence[float]) -> Span:
    return (min(values), max(values)) if values else (0, 0)


def _varies(span: Span) -> bool:
    return span[1] > VARIES * span[0]
