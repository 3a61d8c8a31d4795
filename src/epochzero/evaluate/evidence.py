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
from epochzero.study.facts import INSPECTED, Facts, facts_of_plans

if TYPE_CHECKING:
    from epochzero.evaluate.leaderboard.leaderboard import Leaderboard

FILE = Path(__file__).with_suffix(".json")


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


@cache
def tables() -> tuple[Table, ...]:
    """The tables of the package's evidence."""
    return read(FILE)


def read(path: Path) -> tuple[Table, ...]:
    def known(told: dict[str, list[float]]) -> dict[str, Known]:
        return {name: Known(*figures) for name, figures in told.items()}

    rows = json.loads(path.read_text(encoding="utf-8"))
    return tuple(Table(**row | {"facts": Facts.read(row["facts"]), "known": known(row["known"])}) for row in rows)


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
    try:
        of: Any = spaces[space]
        if not hasattr(of, "plan"):
            return None
        some = Random(0).sample(list(archs), min(INSPECTED, len(archs)))
        return facts_of_plans([of.plan(of.parse(arch)) for arch in some])
    except UserError:
        return None
