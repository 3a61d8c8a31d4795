r"""Thesis, Table 7.4: correlations between gradient metrics of a network at initialisation.

    grad, snip, grasp   as `grad_norm`, `snip` and |`grasp`|: sums over layers, which is what the experiments ran;
                        the published code has grasp signed, the thesis' eq. 7.3 absolute
    trace               sqrt(||Theta||_tr / m), eq. 7.4; Theta the tangent kernel of the labels' logits f
    knas                sqrt |1/m^2 sum_ij grad f(x_i) . grad f(x_j)|, eq. D.11; not the loss gradients of `knas`
    fisher, naswot      as the proxies of that name; synflow without its logarithm, which changes Pearson's correlation

The thesis has every network of both benchmarks, one batch of CIFAR-10, and does not say how many samples; its published
code takes 64. Here: distinct random networks, and networks that a metric has no value for are left out of its rows. The
published code's gradients of f leave out batch norms; here they are over everything trainable. Its NASWOT has the raw
activations in place of their signs: a possible cause, which we have not tested, of a difference in naswot, trace.

Shu. Understanding and improving neural architecture search (thesis, chapter 7).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

from torch import Tensor

from epochzero.engine import Pass, Proxy, Trace, need
from epochzero.registry import proxies
from epochzero_papers.harness.base import Settings, experiment
from epochzero_papers.harness.score_pairs import Column, Load, Pair, ScorePairs

NB101 = {  # Pearson, Spearman, Kendall
    ("grad", "snip"): (0.98, 0.98, 0.87),
    ("grad", "grasp"): (0.35, 0.61, 0.43),
    ("grad", "trace"): (0.98, 0.98, 0.87),
    ("snip", "grasp"): (0.34, 0.59, 0.42),
    ("snip", "trace"): (0.94, 0.93, 0.77),
    ("grasp", "trace"): (0.37, 0.57, 0.40),
    ("knas", "grad"): (0.95, 0.96, 0.83),
    ("knas", "snip"): (0.91, 0.92, 0.75),
    ("knas", "grasp"): (0.37, 0.65, 0.46),
    ("knas", "trace"): (0.96, 0.96, 0.84),
    ("fisher", "trace"): (0.69, 0.97, 0.85),
    ("synflow", "trace"): (0.02, 0.50, 0.34),
    ("naswot", "trace"): (0.08, 0.11, 0.08),
}
NB201 = {
    ("grad", "snip"): (1.00, 1.00, 0.97),
    ("grad", "grasp"): (0.60, 0.92, 0.77),
    ("grad", "trace"): (0.98, 0.97, 0.85),
    ("snip", "grasp"): (0.55, 0.92, 0.77),
    ("snip", "trace"): (0.97, 0.96, 0.83),
    ("grasp", "trace"): (0.69, 0.89, 0.73),
    ("knas", "grad"): (0.88, 0.94, 0.80),
    ("knas", "snip"): (0.87, 0.94, 0.78),
    ("knas", "grasp"): (0.45, 0.87, 0.69),
    ("knas", "trace"): (0.89, 0.97, 0.86),
    ("fisher", "trace"): (0.30, 0.78, 0.69),
    ("synflow", "trace"): (0.07, 0.49, 0.35),
    ("naswot", "trace"): (0.10, 0.32, 0.22),
}


def mean_kernel(trace: Trace) -> Tensor:
    """KNAS as the thesis defines it."""
    return trace.kernel_label.mean().abs().sqrt()


KNAS = Proxy("thesis_knas", mean_kernel, [need(Pass(), "kernel_label")], higher_is_better=True, defaults={})


@experiment
class ThesisTable74(ScorePairs[Settings]):
    """Correlations among eight metrics."""

    name = "thesis-table7.4"
    source = "Shu, thesis, Table 7.4"
    spaces: ClassVar[Mapping[str, str]] = {"nb101": "nb101", "nb201": "nb201"}
    full = Settings(networks=1000, batch_size=64)
    quick = Settings(networks=5, batch_size=8)

    def columns(self, settings: Settings, load: Load, seed: int) -> Sequence[Column]:
        batch = load(settings.batch_size)
        return [
            Column("grad", proxies["grad_norm"], batch),
            Column("trace", proxies["ntk_trace"], batch, lambda trace: math.sqrt(trace / settings.batch_size)),
            Column("knas", KNAS, batch),
            Column("synflow", proxies["synflow"], batch, math.exp),
            Column("grasp", proxies["grasp"], batch, abs),
            *(Column(name, proxies[name], batch) for name in ("snip", "fisher", "naswot")),
        ]

    def pairs(self, settings: Settings) -> Sequence[Pair]:
        statistics = ("pearson", "spearman", "kendall")
        return [
            Pair(*pair, {name: {"nb101": NB101[pair][i], "nb201": NB201[pair][i]} for i, name in enumerate(statistics)})
            for pair in NB201
        ]
