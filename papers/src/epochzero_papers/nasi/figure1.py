r"""NASI, Figure 1: the approximate trace norm with random against true labels, and random against true data.

    || 1/b sum_x grad L_x ||_2^2, eq. 12       `nasi_trace`; one point of the figure is one network

Random labels are uniform over the classes, random data are N(0, 1) with the true labels kept. Pearson's correlation
across networks as in the paper; Spearman's is added, since a few large norms can decide Pearson's. Distinct random
networks of each of the three spaces of NAS-Bench-1Shot1, the full networks of NAS-Bench-101 (stem of 128 channels). The
paper does not say the figure's batch size; its search takes 64. True labels and true data are those of CIFAR-10, or of
the data given; noise, which has neither, is refused.

Shu, Cai, Dai, Ooi, Low. NASI: label- and data-agnostic neural architecture search at initialization. ICLR 2022.
arXiv:2109.00817
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import torch

from epochzero import data as data_
from epochzero.data import Batch
from epochzero.data.batch import Part, digest
from epochzero.errors import DataError
from epochzero.registry import proxies
from epochzero_papers.harness.base import Settings, experiment
from epochzero_papers.harness.score_pairs import Column, Load, Pair, ScorePairs
from epochzero_papers.nasi.one_shot_spaces import ONE_SHOT

PAPER = {
    "random labels": {"S1": 1.00, "S2": 1.00, "S3": 1.00},
    "random data": {"S1": 0.94, "S2": 0.95, "S3": 0.94},
}


@experiment
class NasiFigure1(ScorePairs[Settings]):
    """Label- and data-agnostic trace norm."""

    name = "nasi-figure1"
    source = "NASI (arXiv:2109.00817), Figure 1"
    spaces = ONE_SHOT
    full = Settings(networks=1000, batch_size=64)
    quick = Settings(networks=5, batch_size=8)
    noise = False

    def columns(self, settings: Settings, load: Load, seed: int) -> Sequence[Column]:
        batch = load(settings.batch_size)
        if batch.part(0)[1] is None:
            raise DataError(
                "nasi-figure1 compares true with random labels, and these data have none: give some that do."
            )
        batches = {"true": batch, "random labels": random_labels(batch, seed), "random data": random_data(batch, seed)}
        return [Column(name, proxies["nasi_trace"], of) for name, of in batches.items()]

    def pairs(self, settings: Settings) -> Sequence[Pair]:
        return [Pair("true", name, {"pearson": printed, "spearman": {}}) for name, printed in PAPER.items()]


def random_labels(batch: Batch, seed: int) -> Batch:
    """The same inputs, with labels drawn uniformly."""
    return replace(
        batch,
        id=f"{batch.id}-random-labels-s{seed}",
        about=f"The inputs of {batch.id}; labels of {batch.num_classes} classes drawn uniformly with seed {seed}.",
        make_part=partial(_relabelled, batch, seed),
    )


def _relabelled(batch: Batch, seed: int, index: int) -> Part:
    generator = torch.Generator().manual_seed(int(digest("labels", seed, index)[:8], 16))
    return batch.part(index)[0], torch.randint(batch.num_classes, (batch.size,), generator=generator)


def random_data(batch: Batch, seed: int) -> Batch:
    """The same labels, with inputs of N(0, 1)."""
    noise = data_.white(batch.input_shape, batch.num_classes, batch.size, batch.parts, seed)
    return replace(
        batch,
        id=f"{batch.id}-random-data-s{seed}",
        about=f"Standard Gaussian noise, seed {seed}; the labels of {batch.id}.",
        make_part=partial(_replaced, batch, noise),
    )


def _replaced(batch: Batch, noise: Batch, index: int) -> Part:
    return noise.part(index)[0], batch.part(index)[1]
