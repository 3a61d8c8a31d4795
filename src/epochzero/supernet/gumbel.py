r"""Sampling options with Gumbel noise, and the straight-through derivative of the sample.

    g_o = -log(-log u_o),  u_o ~ U(0, 1)        p = softmax((alpha + g) / tau)

The sample w is 1 at the k largest alpha + g and 0 elsewhere (k = 1: a draw from softmax(alpha)). The backward pass uses
p instead of w:

    dR/dalpha = p * (dR/dw - p . dR/dw) / tau

Jang, Gu, Poole. Categorical reparameterization with Gumbel-softmax. ICLR 2017. arXiv:1611.01144
"""

from __future__ import annotations

import torch
from torch import Generator, Tensor


def noise(count: int, generator: Generator) -> Tensor:
    """Returns standard Gumbel noise."""
    uniform = torch.rand(count, dtype=torch.float64, generator=generator)
    return -torch.log(-torch.log(uniform.clamp_min(torch.finfo(torch.float64).tiny)))  # [count]


def hardened(logits: Tensor, k: int) -> Tensor:
    """Returns 1 at the k largest and 0 elsewhere."""
    return torch.zeros_like(logits).scatter_(0, logits.topk(k).indices, 1.0)


def straight_through(logits: Tensor, of_weights: Tensor, tau: float) -> Tensor:
    """Returns the gradient with respect to the logits, given the one with respect to the sample."""
    soft = torch.softmax(logits / tau, 0)
    return soft * (of_weights - soft @ of_weights) / tau
