r"""Dextr, Table 5: how often the largest singular value of a layer's output is at least 1, as its Lemma 1 requires.

    share = mean over layers of [sigma_max(X_l) >= 1]        X_l [C, H*W], the output of layer l for one sample

The mean over 1,000 random networks of each space, one image of CIFAR-10, the layers that `dextr` counts. The output of
a cut edge is zero, so its largest singular value is below 1.

Asthana, Conrad, Ortmanns, Belagiannis. Dextr: zero-shot neural architecture search with singular value decomposition
and extrinsic curvature. TMLR 2025. openreview.net/forum?id=X0uPof5DVh. Appendix
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np
from torch import Tensor

from epochzero.engine import Pass, Proxy, Trace, each_layer, need
from epochzero.engine.spectrum import extreme_eigenvalues
from epochzero.errors import DegenerateError
from epochzero.proxies.dextr import gram
from epochzero.stats.bootstrap import Floats, estimate
from epochzero_papers.harness.base import Measurement, Quoted, Row, Sample, Settings, Work, experiment
from epochzero_papers.harness.score_pairs import Column, Load, Pair, ScorePairs

PAPER = {"NB101": 0.9918, "NB201": 0.9001, "NB301": 0.9951}
SHARE, ASKED = "share of layers", "sigma_max >= 1"


def is_large(gram: Tensor) -> Tensor:
    """Returns 1 if sigma_max is at least 1, from the squares of singular values."""
    return (extreme_eigenvalues(gram)[1] >= 1).double()


def share_of_large(trace: Trace) -> Tensor:
    large = each_layer(is_large, [trace], "layers")  # [L]
    if not len(large):
        raise DegenerateError("no layer has an output with channels and positions")
    return large.mean()


LARGE = Proxy("share_of_large", share_of_large, [need(Pass(only=(0, 1)), layers=gram)], True, {})


@experiment
class DextrTable5(ScorePairs[Settings]):
    """One mean for each space."""

    name = "dextr-table5"
    source = "Dextr (openreview.net/forum?id=X0uPof5DVh), Table 5"
    spaces: ClassVar[Mapping[str, str]] = {"NB101": "nb101", "NB201": "nb201", "NB301": "nb301"}
    full = Settings(networks=1000, batch_size=1)
    quick = Settings(networks=8, batch_size=1)

    def columns(self, settings: Settings, load: Load, seed: int) -> Sequence[Column]:
        return [Column(SHARE, LARGE, load(settings.batch_size))]

    def pairs(self, settings: Settings) -> Sequence[Pair]:
        return []

    @property
    def quoted(self) -> Sequence[Quoted]:
        return [Quoted(SHARE, f"{ASKED}, {space}", "mean", value) for space, value in PAPER.items()]

    def measure(self, work: Work) -> Measurement:
        samples = super().measure(work).samples
        return Measurement([_row(name, sample, work.seed) for name, sample in samples.items()], samples)


def _row(name: str, sample: Sample, seed: int) -> Row:
    shares = np.array([value for value in sample.values[SHARE] if value is not None])
    left_out = len(sample.archs) - len(shares)

    def mean(counts: Floats) -> Floats:
        means: Floats = shares @ counts / len(shares)
        return means

    if not len(shares):
        return Row(name, SHARE, ASKED, "mean", None, left_out, PAPER.get(name), "no network has a value")
    return Row(name, SHARE, ASKED, "mean", estimate([mean], len(shares), seed=seed), left_out, PAPER.get(name))
