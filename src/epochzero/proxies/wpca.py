r"""W-PCA, for transformers: the principal components of the feed-forward layers, times the number of parameters.

    H_l   = values before the l-th activation on tokens: all tokens of the samples by width
    k_l   = smallest number of principal components of H_l whose variances sum to the share eta of the whole
    score = params * sum_l k_l

No labels, no gradients.

Options:
    samples     number of samples that run; H_l has at most as many components as samples times tokens
    eta         share of the variance, above 0 and below 1

Beware: for transformers only, language models included: feature maps and vectors have no score. Wide and deep networks
have more components and more parameters: look whether it beats `params`.

Wang. W-PCA based gradient-free proxy for efficient search of lightweight language models. ICLR 2025. arXiv:2504.15983
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from epochzero.engine import Need, Pass, Summed, Trace, need, of_network, proxy, together
from epochzero.engine.spectrum import eigenvalues
from epochzero.errors import DegenerateError, UserError


def components(values: Tensor, eta: float) -> Tensor:
    """Returns the number of components of many matrices [M, N, D]."""
    x = values.double()
    x = x - x.mean(1, keepdim=True)
    gram = x @ x.mT if x.shape[1] < x.shape[2] else x.mT @ x
    variances = eigenvalues(gram).clamp(min=0).flip(1)  # descending
    shares = variances.cumsum(1) / variances.sum(1, keepdim=True)
    return (shares < eta).sum(1) + (variances[:, 0] > 0)  # [M]


@lru_cache
def components_of(eta: float) -> Callable[[Tensor], Tensor | None]:
    """Returns the function of an activation's input; the same one each time, so that a population runs it once."""

    def many(before: Tensor) -> Tensor | None:
        if before.dim() != 4:
            return None
        return components(before.transpose(0, 1).flatten(1, 2), eta).double()  # [B, M, N, D] -> [M]

    @together(many)
    def one(before: Tensor) -> Tensor | None:
        found = many(before.unsqueeze(1))
        return None if found is None else found[0]

    return one


def needs(samples: int, eta: float) -> Sequence[Need]:
    if samples < 1 or not 0 < eta < 1:
        raise UserError("wpca takes at least 1 sample, and a share eta above 0 and below 1.")
    return [need(Pass(only=(0, samples)), "params", relus=Summed(components_of(eta)))]


@proxy(needs=needs, higher_is_better=True, valid="linear, activation on tokens")
def wpca(trace: Trace, *, samples: int = 4, eta: float = 0.99) -> Tensor:
    total = of_network(torch.clone, trace, "relus")  # []
    if total is None:
        raise DegenerateError("is for transformers, and no ReLU, GELU or the like works on tokens here")
    if total == 0:
        raise DegenerateError("no feed-forward layer varies between tokens or samples")
    return total * trace.params  # type: ignore[no-any-return]
