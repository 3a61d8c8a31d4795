"""Top-k: a pool is scored by a proxy, and its best networks are evaluated in that order.

KNAS' selection: the kernel scores a pool, the few that score best are trained, and the best of these by what it is told
wins. `proxy` orders the pool, `networks` is its size; k is the budget. What is told does not change the order.

Xu, Zhao, Lin, Gao, Sun, Yang. KNAS: green neural architecture search. ICML 2021. arXiv:2111.13293
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from epochzero.registry import searches
from epochzero.study.methods.base import Pool, Sampler, Wanted


@searches.registers("top_k")
class TopK:
    """The best of a pool by one proxy."""

    learns = False
    overlaps = True

    def __init__(
        self, space: Sampler, seed: int, pool: Pool, *, proxy: str = "knas", networks: int = 1000, batch: int = 8
    ) -> None:
        self.batch = batch
        (values,), (higher,) = pool.values.values(), pool.better.values()
        scored = np.flatnonzero(np.isfinite(values))
        order = np.argsort(-values[scored] if higher else values[scored], kind="stable")
        self.waiting = [pool.archs[i] for i in scored[order]][::-1]
        """the next one last"""

    @staticmethod
    def wants(options: Mapping[str, Any]) -> Wanted:
        return Wanted([options["proxy"]], options["networks"])

    def ask(self, n: int) -> list[Any]:
        asked, self.waiting = self.waiting[-n:][::-1], self.waiting[:-n]
        return asked

    def tell(self, archs: Sequence[Any], merits: Sequence[float | None]) -> None:
        """Nothing is learnt."""
