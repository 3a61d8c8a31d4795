r"""L-SWAG: gradients that vary little between batches, times the number of on-off patterns of the activations.

    Lambda = sum_l log sum_w 1 / std |g_w|       over k batches; g the loss gradient of weight w of layer l
    Psi    = number of distinct on-off patterns of neurons over the samples, as `swap` counts them
    score  = Lambda * Psi

The standard deviation is the population's (divided by k); weights whose gradient varies by no more than rounding are
left out (std at most 16 eps of the layer's largest gradient), and so are layers without other weights. All layers
count: the paper restricts both sums to an interval of the depth, which it chooses for each benchmark by the gradients
of 1,000 of its networks. The network's own weights are used, once.

Options:
    batches     k, number of batches whose gradients are compared, at least 2
    samples     number of samples whose patterns are compared, at most 62

Beware: a product of two numbers that both grow with depth and width. The sum of 1 / std depends most on the weights
whose gradients happen to agree between the batches.

Casarin, Escalera, Lanz. L-SWAG: layer-sample wise activation with gradients information for zero-shot NAS on vision
transformers. CVPR 2025. arXiv:2505.07300
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from epochzero.engine import Need, Pass, Trace, each_layer, need, proxy
from epochzero.errors import DegenerateError, UserError
from epochzero.proxies.swap import distinct, read_patterns


def needs(batches: int, samples: int) -> Sequence[Need]:
    if batches < 2 or not 1 <= samples <= 62:
        raise UserError("lswag takes at least 2 batches, and 1 to 62 samples.")
    gradients = [need(Pass(part=i), "gradients") for i in range(batches)]
    return [need(Pass(only=(0, samples)), relus=read_patterns(samples)), *gradients]


def steadiness(*gradients: Tensor) -> Tensor:
    """Returns sum_w 1 / std |g_w|, from a layer's gradient on each batch."""
    sizes = torch.stack(gradients).flatten(1).abs()  # [k, W]
    std = sizes.std(0, correction=0)  # [W]
    rounding = 16 * torch.finfo(std.dtype).eps * sizes.max()
    return torch.where(std <= rounding, 0, 1 / std).sum()


@proxy(needs=needs, higher_is_better=True, recipe=2)
def lswag(patterns: Trace, *traces: Trace, batches: int = 2, samples: int = 16) -> Tensor:
    steady = each_layer(steadiness, traces, "gradients")  # [L]
    if not steady.any():
        raise DegenerateError("no weight's gradient varies between the batches")
    return torch.where(steady == 0, 0, steady.log()).sum() * distinct(patterns, samples).to(steady.device)
