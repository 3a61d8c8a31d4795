r"""ZiCo: gradients that are large and similar on every batch predict fast, stable training.

    score = sum_l log sum_w  E|g_w| / std(g_w)          over k batches; g the loss gradient of weight w of layer l

The standard deviation is the population's (divided by k); weights whose gradient does not vary are left out, and
so are layers without other weights. The weights are the same for every batch.

Options:
    batches     k, number of batches that are compared, at least 2 (the published code's number; SiGeo takes 4)

Beware: a sum over layers of the logarithm of a sum over weights: it grows with depth and width for any gradients.
Published figures disagree: .63 on NAS-Bench-101 in SiGeo's Table 2, .41 in Dextr's Table 1.

Li, Yang, Bhardwaj, Marculescu. ZiCo: zero-shot NAS via inverse coefficient of variation on gradients. ICLR 2023.
arXiv:2301.11300
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from epochzero.engine import Need, Pass, Trace, each_layer, need, proxy
from epochzero.errors import DegenerateError, UserError

ROUNDING = 16 * torch.finfo(torch.float64).eps
"""Of the layer's largest gradient: what varies less is rounding in double precision. Single precision is as published:
weights with a gradient of exactly 0 are left out."""


def on_each_batch(batches: int) -> Sequence[Need]:
    if batches < 2:
        raise UserError(f"zico compares gradients between batches and needs at least 2, not {batches}.")
    return [need(Pass(part=i), "gradients") for i in range(batches)]


# recipe 2: in populations of AutoFormer networks, layers that work on tokens were missing
@proxy(needs=on_each_batch, higher_is_better=True, recipe=2)
def zico(*traces: Trace, batches: int = 2) -> Tensor:
    ratios = inverse_variation(traces)  # [L]
    return torch.where(ratios == 0, 0, ratios.log()).sum()


def steadiness(*gradients: Tensor) -> Tensor:
    """Returns sum_w E|g_w| / std(g_w), from a layer's gradient on each batch."""
    g = torch.stack(gradients).flatten(1)  # [k, W]
    mean, std = g.abs().mean(0), g.std(0, correction=0)  # [W], [W]
    return torch.where(std <= ROUNDING * mean.max(), 0, mean / std).sum()


def inverse_variation(traces: Sequence[Trace]) -> Tensor:
    """Returns the steadiness of each layer's gradient."""
    ratios = each_layer(steadiness, traces, "gradients")  # [L]
    if not ratios.any():
        raise DegenerateError("no weight's gradient varies between the batches")
    return ratios
