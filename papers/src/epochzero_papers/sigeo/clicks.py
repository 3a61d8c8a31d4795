"""Data and supernets of the studies of recommenders: clicks with planted interactions, a reduced space, warm-up.

Needs torch and numpy alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from epochzero.data.batch import Batch
from epochzero.recommend.data.synthetic import Planted, synthetic
from epochzero.recommend.data.table import CtrTable
from epochzero.recommend.spaces.nasrec import Nasrec
from epochzero.recommend.supernet.fitness import in_parts
from epochzero.recommend.supernet.warm_up import Schedule, WarmUp
from epochzero.recommend.supernet.weights import NASRECS, RecommenderSupernet
from epochzero.registry import spaces
from epochzero.types import Origin

PARTS = 4
"""batches of a score"""
LAW = Planted(sizes=(100, 100, 50, 50, 30, 30, 20, 20, 10, 10))
"""columns with few values, so that their interactions can be learnt from the rows"""
LEVELS = ((0.0, True), (0.01, True), (0.01, False), (1.0, True))
"""levels of warm-up; True if the schedule is shortened to the level"""


@dataclass(frozen=True)
class Sizes:
    """The size of the table, the share that is trained on, and the largest networks."""

    rows: int = 500_000
    share: float = 1.0
    """of the training rows, for networks and supernet alike"""
    batch_size: int = 256
    widest: int = 128
    most_rows: int = 16


class Place:
    """Table, space and batches, made when first needed."""

    def __init__(self, sizes: Sizes, seed: int, folder: Path) -> None:
        self.sizes, self.seed, self.folder = sizes, seed, folder

    @cached_property
    def table(self) -> CtrTable:
        return synthetic(self.folder / "clicks", self.sizes.rows, LAW)

    @cached_property
    def space(self) -> Nasrec:
        whole: Nasrec = spaces["nasrec_small"]
        tables = tuple(size + 1 for size in LAW.sizes)
        return whole.on(LAW.num_dense, tables).reduced(self.sizes.widest, self.sizes.most_rows)

    @cached_property
    def batch(self) -> Batch:
        return in_parts(list(islice(self.table.batches("val", size=self.sizes.batch_size), PARTS)))


def warmed(place: Place, level: float, scaled: bool, device: str = "cpu") -> RecommenderSupernet:
    """Returns a supernet after this level of warm-up."""
    size = place.sizes.batch_size
    stop = round(place.sizes.share * place.table.size("train"))
    supernet = RecommenderSupernet(place.space, Origin(NASRECS.scheme, place.seed), device)
    warm = WarmUp(supernet, Schedule(epoch=-(-stop // size), level=level, scaled=scaled), place.seed)
    warm.run(place.table.batches("train", size=size, stop=stop))
    return supernet
