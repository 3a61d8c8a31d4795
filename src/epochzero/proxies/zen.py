r"""Zen: the change of the features for a small change of the input, times the scale that batch norms divide out.

    x ~ N(0, 1), x' = x + 0.01 e, e ~ N(0, 1);   f the last feature map, before global pooling
    score = log mean_n sum |f(x_n) - f(x'_n)|  +  sum_norms log sqrt(mean_c s_c)
    s_c   = 0.81 + 0.09 var_c(x) + 0.1 var_c(x')          the running variance after the two passes

Conv and linear weights are drawn from N(0, 1), biases are 0.

Options:
    repeats     number of draws of weights and inputs over which the score is averaged

Beware: made for chains of convolutions with batch norms. The published search takes residual links out of the networks
that it scores; here the network is scored as it is. Weak on NAS-Bench-201 (.35, SiGeo's Table 2), strong where widths
vary (.69 to .87 on NATS-Bench-SSS, Dextr's Table 6). With these weights it grows with the number of norms.

Lin, Wang, Sun, Chen, Sun, Qian, Li, Jin. Zen-NAS: a zero-shot NAS for high-performance image recognition. ICCV 2021.
arXiv:2102.01063
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from epochzero.engine import Need, Pass, Trace, each_layer, need, proxy, together
from epochzero.engine.population import reductions
from epochzero.errors import DegenerateError, UserError

NUDGE = 0.01
MOMENTUM = 0.1


def needs(repeats: int) -> Sequence[Need]:
    if repeats < 1:
        raise UserError(f"zen takes repeats of at least 1, not {repeats}.")
    runs = [Pass(inputs="noise", init="normal", draw=i, nudge=by) for i in range(repeats) for by in (0, NUDGE)]
    return [need(run, features=kept, norms=variances) for run in runs]


@proxy(needs=needs, higher_is_better=True, tf32=("nb101",), valid="conv, batch norm")
def zen(*traces: Trace, repeats: int = 1) -> Tensor:
    return torch.stack([zen_score(*pair) for pair in zip(traces[::2], traces[1::2], strict=True)]).mean()


def zen_score(before: Trace, after: Trace) -> Tensor:
    """Returns the score for one draw of weights and inputs, from the runs without and with the change."""
    moved = each_layer(distance, [before, after], "features")  # [1]
    if not len(moved):
        raise DegenerateError("no layer has an output with channels and positions")
    if moved == 0:
        raise DegenerateError("the features do not move with the input: no path connects them")
    return moved[0].log() + each_layer(log_scale, [before, after], "norms").sum()


def kept(features: Tensor) -> Tensor:
    return features


@together(reductions.variances, spread=True)
def variances(seen: Tensor) -> Tensor:
    """Returns [C], the variance of each channel at the input of a batch norm."""
    return reductions.variances(seen.unsqueeze(1))[0]


def distance(before: Tensor, after: Tensor) -> Tensor:
    return (before - after).abs().flatten(1).double().sum(1).mean()  # []


def log_scale(before: Tensor, after: Tensor) -> Tensor:
    """Returns the logarithm of the divisor of a batch norm after the two runs."""
    keep = 1 - MOMENTUM
    return (keep**2 + keep * MOMENTUM * before + MOMENTUM * after).double().mean().sqrt().log()
