r"""Fisher: the sensitivity of the loss to each output channel of each conv and linear layer.

    d_nk  = sum over space of a_nk * dL/da_nk          a the layer's output for sample n, channel k
    F_k   = 1/2 mean_n d_nk^2
    score = sum_l sum_k F_k * numel(W_l) / C_l         every weight of a channel counts, as in the published code

Beware: it ranks NAS-Bench-101 and NAS-Bench-301 in the wrong order (-.28 each, SiGeo's Table 2). It is quadratic in the
loss gradient: a batch run in two halves, as the first published code does when memory is short, multiplies it by 8
(`grad_norm` and `snip` by 2). Here batches are never split.

Theis, Korshunova, Tejani, Huszar. Faster gaze prediction with dense networks and Fisher pruning. 2018.
arXiv:1801.05787; Turner et al. BlockSwap. ICLR 2020; as a proxy: Abdelfattah et al., arXiv:2101.08134
"""

from __future__ import annotations

import math

from torch import Tensor

from epochzero.engine import Layer, Pass, Trace, each_layer, need, proxy, together
from epochzero.engine.population.reductions import Maps, products
from epochzero.errors import DegenerateError


def felt(layer: Layer, gradient: Maps) -> tuple[Tensor, float]:
    """Returns d_nk of many networks [B, M, C], and the weights of a channel."""
    output: Maps = layer.output  # [B, M, C, H, W] of a conv, [B, M, ..., C] of a linear layer
    if layer.kind == "conv":
        per_channel = products(output, gradient)  # [B, M, C]
    else:
        assert isinstance(output, Tensor) and isinstance(gradient, Tensor)
        per_channel = (output * gradient).flatten(2, -2).sum(2) if output.dim() > 3 else output * gradient  # [B, M, C]
    return per_channel, math.prod(layer.weight_shape) / per_channel.shape[2]


def shares(per_channel: Tensor, weight_per_channel: float) -> Tensor:
    return per_channel.square().mean(0).sum(1) / 2 * weight_per_channel  # [M]


def informations(layer: Layer, gradient: Maps) -> Tensor:
    """Returns the layer's share of the score for many networks [B, M, ...]."""
    return shares(*felt(layer, gradient))


@together(informations, spread=True, staged=(felt, shares))
def information(layer: Layer, gradient: Tensor) -> Tensor:
    """Returns the layer's share of the score."""
    one = layer._replace(output=layer.output.detach().unsqueeze(1))
    return informations(one, gradient.unsqueeze(1))[0]  # []


@proxy(needs=[need(Pass(), layer_gradients=information)], higher_is_better=True, tf32=("nb101",))
def fisher(trace: Trace) -> Tensor:
    values = each_layer(Tensor.clone, [trace], "layer_gradients")  # [L]
    if not len(values):
        raise DegenerateError("the loss does not depend on any conv or linear layer")
    return values.sum()
