r"""Steps of Adagrad and AdamW, on whole weights and on the rows of embeddings that a batch names.

With gradient g, rate a, decay d and t the number of the step:

    adagrad    s += g^2,                                            w -= a (d w + g / (sqrt(s) + eps))
    adam       m += (g - m)(1 - .9),  v += (g^2 - v)(1 - .999),     w -= a (d w + m' / (sqrt(v') + 1e-8))

where m' = m / (1 - .9^t) and v' = v / (1 - .999^t). Rows that a batch does not name stay as they are.

Duchi, Hazan, Singer. Adaptive subgradient methods for online learning and stochastic optimization. JMLR 12, 2011.
Loshchilov, Hutter. Decoupled weight decay regularization. ICLR 2019. arXiv:1711.05101
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from epochzero.engine import foreach

Moments = dict[str, Tensor]
"""by name of the moment, a tensor of a weight's shape"""
MOMENTS = {"adagrad": ("sums",), "adam": ("means", "squares")}
BETAS = 0.9, 0.999
ADAM_EPS = 1e-8


def new_moments(optimizer: str, weight: Tensor) -> Moments:
    return {name: torch.zeros_like(weight) for name in MOMENTS[optimizer]}


@torch.no_grad()
def descend(
    weights: list[Tensor],
    gradients: Sequence[Tensor],
    moments: Sequence[Moments],
    *,
    rate: float,
    step: int,
    eps: float,
    decay: float = 0.0,
) -> None:
    """Takes one step, counted from 0, on weights and their moments in place."""
    if not weights:
        return
    kept = [[each[name] for each in moments] for name in moments[0]]
    if decay:
        foreach.mul_(weights, 1 - rate * decay)
    if len(kept) == 1:
        (sums,) = kept
        foreach.addcmul_(sums, gradients, gradients)
        roots = foreach.sqrt(sums)
        foreach.add_(roots, eps)
        foreach.addcdiv_(weights, gradients, roots, value=-rate)
        return
    (means, squares), (first, second) = kept, BETAS
    foreach.mul_(means, first)
    foreach.add_(means, gradients, alpha=1 - first)
    foreach.mul_(squares, second)
    foreach.addcmul_(squares, gradients, gradients, value=1 - second)
    roots = foreach.sqrt(squares)
    foreach.mul_(roots, (1 - second ** (step + 1)) ** -0.5)
    foreach.add_(roots, ADAM_EPS)
    foreach.addcdiv_(weights, means, roots, value=-rate / (1 - first ** (step + 1)))
