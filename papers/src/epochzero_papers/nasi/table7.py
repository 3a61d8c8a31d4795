r"""NASI, Table 7: how well gradient norms of the loss approximate the trace norm of the tangent kernel.

    exact     sum_x ||grad f(x)||_F^2 over every logit, eq. 9              `ntk_trace(of=outputs)`
    sum       sum_x ||grad L_x||^2, eq. 11                                 `nasi_trace_sum`
    b = 4..   ||1/b sum_x grad L_x||^2 of one mini-batch, eq. 12           `nasi_trace`

Pearson's correlation with `exact` across networks as in the paper; Spearman's is added, since a few large norms can
decide Pearson's. Distinct random networks of each of the three spaces of NAS-Bench-1Shot1, the full networks of
NAS-Bench-101 (stem of 128 channels). The paper does not say how many samples the exact norm has, nor whether a batch's
are among them: here `exact` and `sum` share `samples` samples, and of a file's samples smaller batches are the first of
larger ones. Batch norms act on the statistics of the batch at hand.

Shu, Cai, Dai, Ooi, Low. NASI: label- and data-agnostic neural architecture search at initialization. ICLR 2022.
arXiv:2109.00817
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from epochzero.engine.proxy import parse
from epochzero_papers.harness.base import Settings, experiment
from epochzero_papers.harness.score_pairs import Column, Load, Pair, ScorePairs
from epochzero_papers.nasi.one_shot_spaces import ONE_SHOT

MINI_BATCH = {
    4: (0.74, 0.82, 0.66),
    8: (0.80, 0.87, 0.74),
    16: (0.84, 0.90, 0.81),
    32: (0.83, 0.89, 0.79),
    64: (0.85, 0.91, 0.82),
    128: (0.86, 0.91, 0.84),
}
SUM = (0.88, 0.92, 0.87)


@dataclass(frozen=True)
class Sizes(Settings):
    """Mini-batches up to `batch_size`; the exact norm takes a backward pass for each class of each of its samples."""

    samples: int = 64
    """samples of the exact norm and of the sum"""

    @property
    def batches(self) -> list[int]:
        return [size for size in MINI_BATCH if size <= self.batch_size]


@experiment
class NasiTable7(ScorePairs[Sizes]):
    """Approximate against exact trace norm."""

    name = "nasi-table7"
    source = "NASI (arXiv:2109.00817), Table 7"
    spaces = ONE_SHOT
    full = Sizes(networks=100, batch_size=128, samples=64)
    quick = Sizes(networks=4, batch_size=8, samples=2)

    def columns(self, settings: Sizes, load: Load, seed: int) -> Sequence[Column]:
        all_samples = load(settings.samples)
        return [
            Column("exact", parse("ntk_trace(of=outputs)"), all_samples),
            Column("sum", parse("nasi_trace_sum"), all_samples),
            *(Column(f"b = {size}", parse("nasi_trace"), load(size)) for size in settings.batches),
        ]

    def pairs(self, settings: Sizes) -> Sequence[Pair]:
        printed = {f"b = {size}": MINI_BATCH[size] for size in settings.batches} | {"sum": SUM}
        return [
            Pair("exact", name, {"pearson": dict(zip(self.spaces, values, strict=True)), "spearman": {}})
            for name, values in printed.items()
        ]
