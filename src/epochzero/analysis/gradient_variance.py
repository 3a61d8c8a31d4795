r"""The variance of the gradient of one sample around given weights.

    g(a, b) = Var[grad f_i(w + a d_1 + b d_2)] = E_i ||grad f_i - E grad f||^2

An unbiased estimate from the mean gradients of n parts of b samples each is b / (n - 1) sum_p ||g_p - mean||^2, since
the mean of b samples has one b-th of the variance of one. Samples have to be independent, so that batch norms use
running statistics; under `train` it is b times the variance of a part's gradient.

Shu. Understanding and improving neural architecture search (thesis, section 4.3.2.2).
"""

from __future__ import annotations

import torch
from torch import Tensor

from epochzero.analysis.subjects import Subject, Weights
from epochzero.errors import UserError


def check_parts(samples: int, parts: int) -> None:
    if not 2 <= parts <= samples:
        raise UserError(f"A variance takes at least 2 parts of at least one sample each, not {parts} of {samples}.")


def gradient_variance(subject: Subject, weights: Weights, x: Tensor, y: Tensor, parts: int) -> Tensor:
    """The variance of each network at given weights: [P]."""
    check_parts(len(x), parts)
    size = len(x) // parts
    gradients = [
        subject.gradients(weights, x[first : first + size], y[first : first + size])
        for first in range(0, parts * size, size)
    ]
    mean = {name: torch.stack([one[name] for one in gradients]).mean(0) for name in gradients[0]}
    spread = [subject.squared_norms({name: one[name] - mean[name] for name in mean}) for one in gradients]  # [P] each
    return torch.stack(spread).sum(0) * size / (parts - 1)
