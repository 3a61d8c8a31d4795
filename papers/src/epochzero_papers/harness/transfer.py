"""Metrics evaluated on one dataset against accuracies on another: the thesis' Tables 7.6 and 7.12.

The thesis prints, for each dataset of the accuracies, the mean over the three datasets that a metric is evaluated on;
here each of the nine pairs has a row of its own, with that mean as the paper's figure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from epochzero_papers.harness.correlations import NB201_C10, NB201_C100, NB201_IN16
from epochzero_papers.harness.files import CIFAR10, CIFAR100, IMAGENET16

IMAGES = {"C10": CIFAR10, "C100": CIFAR100, "IN16": IMAGENET16}
TARGETS = tuple(
    replace(target, label=f"{target.label} from {name}", images=(images,))
    for target in (NB201_C10, NB201_C100, NB201_IN16)
    for name, images in IMAGES.items()
)


def thrice(rows: Sequence[Sequence[float]]) -> list[Sequence[float]]:
    """Returns the mean of each dataset of accuracies, once for each dataset of images."""
    return [row for row in rows for _ in IMAGES]
