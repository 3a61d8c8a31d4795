"""Frozen values that travel between the layers. No torch here."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from epochzero.frames import Framed, as_html

Shape = tuple[int, ...]
Arch = Hashable
"""An architecture: a small value (often a tuple) that its space can write as text and turn into a plan."""

Status = Literal["ok", "degenerate", "failed"]


@dataclass(frozen=True, slots=True)
class Score:
    """A proxy's result for one network: a number, or the reason why there is none."""

    value: float
    """nan unless `status` is ok"""
    status: Status = "ok"
    """ok; degenerate: the proxy has no value for this network; failed: it could not be computed"""
    why: str = ""
    """the reason why there is no value; of a value that compares with other networks, with which"""

    @property
    def ok(self) -> bool:
        return self.status == "ok"

    @staticmethod
    def degenerate(why: str) -> Score:
        return Score(math.nan, "degenerate", why)

    @staticmethod
    def failed(why: str) -> Score:
        return Score(math.nan, "failed", why)


class Scores(dict[str, Score], Framed):
    """The scores of one network by proxy."""

    def table(self) -> dict[str, list[Any]]:
        """The columns proxy, value, status and why."""
        return {
            "proxy": list(self),
            "value": [score.value for score in self.values()],
            "status": [score.status for score in self.values()],
            "why": [score.why for score in self.values()],
        }

    def _repr_html_(self) -> str:
        return as_html(self.table())


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a network's weights come from: drawn by a scheme with a seed, or given (then named by a hash)."""

    scheme: str = "default"
    seed: int = 0

    def __str__(self) -> str:
        return f"{self.scheme}:{self.seed}"


@dataclass(frozen=True, slots=True)
class Setting:
    """Everything beside architecture and proxy that a score depends on."""

    space: str
    batch: str
    """the id of the data batch, which covers its classes, shape and normalisation"""
    origin: str
    """`str(Origin)`, or the hash of the weights of a given network"""


WIDTH = 4
"""bytes of a number in single precision"""


class Footprint(NamedTuple):
    """The memory that one sample takes, in bytes of single precision."""

    weights: int
    activations: int

    def facts(self, width: int = WIDTH) -> dict[str, int]:
        """The quantities that a budget limits, for numbers of this many bytes."""
        weights, activations = (math.ceil(part * width / WIDTH) for part in self)
        whole = weights + activations
        return {"weight_bytes": weights, "activation_bytes": activations, "peak_memory": whole}
