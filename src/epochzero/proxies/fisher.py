r"""Fisher: how much the loss feels each output channel of each conv and linear layer.

    d_nk  = sum over space of a_nk * dL/da_nk          a the layer's output for sample n, channel k
    F_k   = 1/2 mean_n d_nk^2
    score = sum_l sum_k F_k * numel(W_l) / C_l         every weight of a channel counts, as in the published code

Beware: it ranks NAS-Bench-101 and NAS-Bench-301 the wrong way (-.28 each, SiGeo's Table 2). It is quadratic in
the loss gradient: a batch run in two halves, as the first published code does when memory is short, multiplies it by 8
(`grad_norm` and `snip` by 2). Here batches are never split.

Theis, Korshunova, Tejani, Huszar. Faster gaze prediction with dense networks and Fisher pruning. 2018.
arXiv:1801.05787; Turner et al. BlockSwap. ICLR 2020; as a proxy: Abdelfattah et al., arXiv:2101.08134
"""

from __future__ import annotations

import math

from torch import Tensor

from epochzero.engine import Layer, Pass, Trace, each_layer, need, proxy
from epochzero.errors import DegenerateError


def information(layer: Layer, gradient: Tensor) -> Tensor:
    """The layer's share of the score."""
    felt = layer.output.detach() * gradient  # [B, C, H, W] for a conv, [B, ..., C] for a linear layer
    felt = felt.movedim(1 if layer.kind == "conv" else -1, 1)  # [B, C, ...]
    channels = felt.shape[1]
    per_channel = felt.reshape(len(felt), channels, -1).sum(2)  # [B, C]
    weight_per_channel = math.prod(layer.weight_shape) / channels
    return per_channel.square().mean(0).sum() / 2 * weight_per_channel  # []


@proxy(needs=[need(Pass(), layer_gradients=information)], higher_is_better=True)
def fisher(trace: Trace) -> Tensor:
    felt = each_layer(Tensor.clone, [trace], "layer_gradients")  # [L]
    if not len(felt):
        raise DegenerateError("the loss does not depend on any conv or linear layer")
    return felt.sum()
