"""AZ-NAS' evolution, as Dextr uses it for MobileNets: parents are the best of the whole history by ranks among all.

1,024 in the population and 100,000 networks within the limits. Nothing is forgotten: with `--proxy "rank(...)"` the
ranks of all networks so far are computed anew after every 64 children, and the next parents are drawn uniformly from
the 1,023 that are then the best. The rest is as in `evolution_zen`.

Lee, Ham. AZ-NAS: assembling zero-cost proxies for network architecture search. CVPR 2024. arXiv:2403.19232
"""

from __future__ import annotations

from epochzero.registry import searches
from epochzero.study.methods.base import Sampler
from epochzero.study.methods.evolution_zen import ZenEvolution


@searches.registers("evolution_az")
class AZEvolution(ZenEvolution):
    """The best of the whole history have children, many at a time."""

    budget = 100_000

    def __init__(self, space: Sampler, seed: int, *, population: int = 1024, batch: int = 64) -> None:
        super().__init__(space, seed, population=max(1, population - 1), batch=batch)
