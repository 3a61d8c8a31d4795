"""The sizes of a search for recommenders."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from epochzero.errors import UserError
from epochzero.recommend.supernet.fitness import FINE


@dataclass(frozen=True)
class Preset:
    """The sizes of a search, by default those published."""

    widest: int = 1024
    most_rows: int = 64
    population: int = 128
    generations: int = 240
    tournament: int = 64
    children: int = 8
    top: int = 15
    """networks to train from scratch"""
    batch_size: int = 512
    """of warm-up, scoring and training"""
    fine_steps: int = FINE.epoch
    """steps in which `one_shot` trains the last layer, and the most batches on which it validates"""
    random: int = 0
    """random networks to train as well, by which the search is judged"""

    def __post_init__(self) -> None:
        if wrong := [name for name, size in asdict(self).items() if size < 1 and (name, size) != ("random", 0)]:
            raise UserError(f"The size '{wrong[0]}' of a search for recommenders has to be at least 1.")

    @property
    def evaluations(self) -> int:
        return self.population + self.generations * self.children

    @property
    def options(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in ("population", "generations", "tournament", "children")}


PRESETS = {
    "published": Preset(),
    "reduced": Preset(
        widest=128, most_rows=16, population=16, generations=12, tournament=8, children=4, top=3, fine_steps=20
    ),
}
"""`reduced` is for two cores"""
LARGE = 2_000_000
"""training rows from which `published` is the default"""


def preset_for(rows: int) -> str:
    """The name of the default preset for a table of this many training rows."""
    return "published" if rows >= LARGE else "reduced"


def batch_size_for(rows: int, most: int) -> int:
    """The default batch size for this many training rows: 16 to `most` rows, for about 100 steps or more."""
    return max(16, min(most, 1 << max(1, rows // 100).bit_length() - 1))
