r"""SiGeo: steady gradients, a loss that bends strongly at the weights, and a loss that is low already.

    score = l1 * sum_m log || mu_m / sigma_m ||_1  +  l2 * log FR  -  l3 * loss              eq. 7
    FR    = 1/k sum_i (theta . grad L(theta; D_i))^2                                         Fisher-Rao norm

mu_m and sigma_m are the mean absolute value and the standard deviation of module m's gradient over k batches, as in
ZiCo. FR runs over everything trainable, the loss is by default that of the last batch, as eq. 7 writes it, and the
weights are the same for every batch: the paper leaves these open.

The terms alone are weights=1/0/0, 0/1/0 and 0/0/1 (the loss with its sign turned). Over networks the first varies a
hundred times as much as the loss, so the sum has its order; a combination in which each counts alike is the ranks',

    rank(sigeo(weights=1/0/0),sigeo(weights=0/0/1,loss=mean))

Options:
    batches     k, number of batches, at least 2
    weights     l1, l2, l3: zero_shot (1, 1, 0: nothing trained yet), warm_vision (1, 50, 1: after a warm-up),
                warm_recommender (1, 1, 1: after a warm-up), or any three numbers as 1/50/1
    form        module: a sum over modules; neuron: one norm over all weights
    loss        last: that of the last batch; mean: the mean over the k batches

Beware: a layer before a batch norm does not change the loss when it is scaled, so it adds nothing to FR: before any
training FR sees the head, layers without a norm, and the norms themselves. On 1,000 networks of NAS-Bench-201 with
batches of CIFAR-10 it did no better than ZiCo with its two batches (Spearman .747 against .755, see docs/results.md).
The presets warm_vision and warm_recommender are meant for weights after a short training, not for initial weights.

Zheng, Liu, Fedorov, Zhang, Chen, Wen. SiGeo: sub-one-shot NAS via information theory and geometry of loss landscape.
2023. arXiv:2311.13169
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from epochzero.engine import Need, Pass, Trace, each_layer, need, of_network, proxy
from epochzero.errors import DegenerateError, UserError
from epochzero.proxies.plain import inner
from epochzero.proxies.zico import inverse_variation

PRESETS = {"zero_shot": "1/1/0", "warm_vision": "1/50/1", "warm_recommender": "1/1/1"}


def lambdas(weights: str) -> tuple[float, float, float]:
    """Returns the three weights, from the name of a preset or from numbers."""
    try:
        one, two, three = (float(part) for part in PRESETS.get(weights, weights).split("/"))
    except ValueError:
        one = two = three = math.nan
    if not math.isfinite(one + two + three):
        raise UserError(f"sigeo takes weights={', '.join(PRESETS)} or three numbers as 1/50/1, not {weights!r}.")
    return one, two, three


def on_each_batch(batches: int, weights: str, form: str, loss: str) -> Sequence[Need]:
    lambdas(weights)
    if batches < 2 or form not in ("module", "neuron") or loss not in ("last", "mean"):
        raise UserError("sigeo takes batches of at least 2, form=module or form=neuron, and loss=last or loss=mean.")
    reads = ("gradients", "parameters", "parameter_gradients", "loss")
    return [need(Pass(part=i), *reads) for i in range(batches)]


def along(trace: Trace) -> Tensor:
    """Returns the inner product of everything trainable with its gradient."""
    products = each_layer(inner, [trace], "parameters", "parameter_gradients")
    if not len(products):
        raise DegenerateError("the network has nothing to train")
    return products.double().sum()


def fisher_rao(traces: Sequence[Trace]) -> Tensor:
    """Returns the mean over batches of (theta . gradient)^2."""
    return torch.stack([along(trace) for trace in traces]).square().mean()


# recipe 2: in populations of AutoFormer networks, layers that work on tokens were missing
@proxy(needs=on_each_batch, higher_is_better=True, tf32=("nb101",), recipe=2)
def sigeo(
    *traces: Trace, batches: int = 4, weights: str = "zero_shot", form: str = "module", loss: str = "last"
) -> Tensor:
    one, two, three = lambdas(weights)
    ratios = inverse_variation(traces)  # [L]
    steady = ratios.sum().log() if form == "neuron" else torch.where(ratios == 0, 0, ratios.log()).sum()
    counted = traces if loss == "mean" else traces[-1:]
    losses: list[Tensor] = [of_network(torch.clone, trace, "loss") for trace in counted]
    score = one * steady.double() - three * (torch.stack(losses).double().mean() if len(losses) > 1 else losses[0])
    if two:
        bent = fisher_rao(traces)
        if bent == 0:
            raise DegenerateError("the Fisher-Rao norm is 0: the loss does not change along the weights")
        score = score + two * bent.log()
    return score
