"""What an experiment is: a recipe that measures again what a paper printed, and sets both side by side.

table = experiments["nasi-table7"]
result = table.run(table.quick, data="cifar10.npz", store="run.db")     # table.full by default
result.rows[0].found, result.rows[0].paper
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

from epochzero.stats import Correlation

Progress = Callable[[int, int], None]
"""(networks done, networks in all)"""


@dataclass(frozen=True)
class Settings:
    """How large an experiment is; a recipe that needs to say more extends this."""

    networks: int
    batch_size: int = 64


@dataclass(frozen=True)
class Row:
    """One figure of the paper's, and ours."""

    x: str
    y: str
    statistic: str
    found: Correlation | None
    """None where there is none, and `why`"""
    unscored: int
    """networks that x or y has no value for; they are left out"""
    paper: Mapping[str, float]
    """by search space, as the paper has it"""
    difference: float | None = None
    """ours less the paper's, where the paper has our search space"""
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.x}, {self.y}"


@dataclass(frozen=True)
class Result:
    """What an experiment found, and everything needed to judge it and to run it again."""

    experiment: str
    about: str
    source: str
    """the paper's table or figure"""
    space: str
    rows: Sequence[Row]
    settings: Mapping[str, Any]
    seed: int
    data: Mapping[str, str]
    """by column, one sentence about its batch"""
    columns: Mapping[str, str]
    """what was measured: name to proxy"""
    archs: Sequence[str]
    values: Mapping[str, Sequence[float | None]]
    """by column, in the order of `archs`; None where there is no score"""
    unscored: Mapping[str, Mapping[str, int]]
    """by column, the reasons for that and how often each was given"""
    device: str
    machine: Mapping[str, Any]
    versions: Mapping[str, Any]
    date: str
    seconds: float
    """of this call; what was in the store already took none"""

    @property
    def batches(self) -> dict[str, list[str]]:
        """What is said of each batch that was used, and the columns that were measured on it."""
        found: dict[str, list[str]] = {}
        for column, about in self.data.items():
            found.setdefault(about, []).append(column)
        return found

    @property
    def spaces_of_paper(self) -> list[str]:
        """The search spaces that the paper has figures for, in its order."""
        return list(dict.fromkeys(space for row in self.rows for space in row.paper))

    def as_dict(self) -> dict[str, Any]:
        """As plain values that JSON can hold."""
        return asdict(self)


class Experiment(Protocol):
    """A recipe. The first line of its file says what it reproduces, the rest where it departs from the paper."""

    name: str
    source: str
    full: Any
    """`Settings`, or the recipe's extension of it: as in the paper, as far as that is within reach"""
    quick: Any
    """the same in a minute or two on two cores"""

    def run(
        self,
        settings: Any = None,
        *,
        seed: int = 0,
        data: str | Path = "pink",
        device: str = "cpu",
        store: str | Path = ":memory:",
        progress: Progress | None = None,
    ) -> Result:
        """Measure. With a store on disk, a run that was stopped goes on where it was."""
