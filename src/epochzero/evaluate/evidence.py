"""Evidence about scores: their rank correlations on tables of trained networks, and what these networks are like.

`epochzero leaderboard --evidence FILE` writes it; that of this package is evidence.json, in this folder.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.types import Shape

if TYPE_CHECKING:
    from epochzero.engine.structure import Structure
    from epochzero.evaluate.leaderboard.leaderboard import Leaderboard

FILE = Path(__file__).with_suffix(".json")
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


def _varies(span: Span) -> bool:
    return span[1] > VARIES * span[0]


class Known(NamedTuple):
    """The Spearman correlation of a score on one table, with its 95 % interval."""

    spearman: float
    low: float
    high: float


@dataclass(frozen=True)
class Table:
    """A table of trained networks."""

    name: str
    space: str
    target: str
    networks: int
    facts: Facts | None
    """None if its networks could not be built"""
    known: dict[str, Known]
    """by score"""


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


def _span(values: Sequence[float]) -> Span:
    return (min(values), max(values)) if values else (0, 0)


@cache
def tables() -> tuple[Table, ...]:
    """The tables of the package's evidence."""
    return read(FILE)


def read(path: Path) -> tuple[Table, ...]:
    def facts(told: dict[str, Any] | None) -> Facts | None:
        fields: dict[str, Any] = {key: tuple(it) if isinstance(it, list) else it for key, it in (told or {}).items()}
        return Facts(**fields) if fields else None

    def known(told: dict[str, list[float]]) -> dict[str, Known]:
        return {name: Known(*figures) for name, figures in told.items()}

    rows = json.loads(path.read_text(encoding="utf-8"))
    return tuple(Table(**row | {"facts": facts(row["facts"]), "known": known(row["known"])}) for row in rows)


def written(made: Leaderboard) -> str:
    """Returns the evidence of a leaderboard as text: all scores that were not chosen by these accuracies."""
    rows = []
    for board in made.boards:
        known = {}
        for row in made.rows:
            result = row.results.get(board.name)
            estimate = result and result.figures["spearman"].estimate
            if estimate and row.name not in made.chosen:
                known[row.name] = [round(x, 3) for x in (estimate.value, estimate.low, estimate.high)]
        facts = _facts_in(board.space, board.archs)
        told = {"name": board.name, "space": board.space, "target": board.target.column, "networks": len(board.archs)}
        rows.append(told | {"facts": facts and asdict(facts), "known": known})
    return "[\n" + ",\n".join(json.dumps(row, separators=(",", ":")) for row in rows) + "\n]\n"


def _facts_in(space: str, archs: Sequence[str]) -> Facts | None:
    """The facts of some networks of a table; None if they have no plans."""
    from epochzero.engine.structure import structure_of

    try:
        of: Any = spaces[space]
        if not hasattr(of, "plan"):
            return None
        plans = [of.plan(of.parse(arch)) for arch in Random(0).sample(list(archs), min(INSPECTED, len(archs)))]
    except UserError:
        return None
    return facts_of([structure_of(plan) for plan in plans], [plan.flops for plan in plans], plans[0].input_shape)
