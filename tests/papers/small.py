"""A small experiment and small data for the tests of experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from epochzero.registry import proxies
from epochzero_papers.harness.base import Settings
from epochzero_papers.harness.score_pairs import Column, Load, Pair, ScorePairs
from tests.data.data_files import save

SMALL_IMAGES = np.random.default_rng(5).integers(0, 256, (40, 8, 8, 3), dtype=np.uint8)


def small_images(folder: Path, name: str = "images.npz") -> Path:
    """40 images of 8x8 pixels in 3 classes."""
    return save(folder / name, x=SMALL_IMAGES, y=np.arange(40) % 3)


class Counts(ScorePairs[Settings]):
    """Quick enough to run often: parameters against multiply-accumulates, and a column without a value."""

    name = "counts"
    source = "nowhere"
    full = quick = Settings(networks=10, batch_size=2)

    def columns(self, settings: Settings, load: Load, seed: int) -> Sequence[Column]:
        batch, other = load(settings.batch_size), load(settings.batch_size + 1)
        return [
            Column("params", proxies["params"], batch, lambda value: value / 1e6),
            Column("flops", proxies["flops"], other),
            Column("tf_tas", proxies["tf_tas"], batch),
        ]

    def pairs(self, settings: Settings) -> Sequence[Pair]:
        printed = {name: {"nb201": 0.5, "elsewhere": 0.25} for name in ("pearson", "spearman", "kendall")}
        return [Pair("params", "flops", printed), Pair("params", "tf_tas", {"pearson": {"elsewhere": 0.125}})]
