r"""NEAR: the number of directions that each layer's values fill, before and after the activation.

    A_l   = values of layer l: positions of the samples by channels; as many rows as channels, at most `size`
    p_k   = s_k / sum_j s_j                s the singular values of A_l
    score = sum_l exp(-sum_k p_k log p_k)  the effective ranks; l over conv, linear, norm and activation layers

The rows of a feature map are consecutive positions from the middle of the first image on. The published code starts
at a random one, and has no `size`. A layer of zeros adds nothing.

Options:
    samples     number of samples that run, or the batch's where it has fewer; a layer without positions has one row
                for each
    size        largest number of rows: it bounds the cost in wide layers, whose effective ranks are bounded with it

Beware: a sum over layers of at most `size` each: depth and width raise it. A layer without positions, as in a
perceptron, has as many rows as samples: take `samples` as large as its layers are wide.

Husistein, Reiher, Eckhoff. NEAR: a training-free pre-estimator of machine learning model performance. ICLR 2025.
arXiv:2408.08776
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from epochzero.engine import Need, Pass, Summed, Trace, need, of_network, proxy, together
from epochzero.engine.spectrum import eigenvalues
from epochzero.errors import DegenerateError, UserError


def activity(outputs: Tensor, size: int) -> Tensor:
    """Returns the matrices [M, n, C] of many networks' outputs [B, M, ...]."""
    x = outputs.movedim(2, -1) if outputs.dim() > 4 else outputs  # [B, M, ..., C]
    positions, channels = math.prod(x.shape[2:-1]), x.shape[-1]
    rows = min(len(x) * positions, channels, size)
    first = min(positions // 2, len(x) * positions - rows)
    taken = x[: math.ceil((first + rows) / positions)].transpose(0, 1)  # [M, b, ..., C]
    return taken.flatten(1, -2)[:, first : first + rows]


def effective_ranks(matrices: Tensor) -> Tensor:
    """Returns the effective rank of each matrix [M, n, C] with n <= C; 0 for zeros."""
    a = matrices.double()
    spectrum = eigenvalues(a @ a.mT)  # [M, n], the squares of the singular values
    rounding = spectrum.shape[1] * torch.finfo(spectrum.dtype).eps * spectrum[:, -1:]
    singular = torch.where(spectrum > rounding, spectrum, 0).sqrt()
    total = singular.sum(1, keepdim=True)
    share = singular / torch.where(total > 0, total, 1)  # [M, n]
    return torch.where(total[:, 0] > 0, (-torch.xlogy(share, share).sum(1)).exp(), 0)


@lru_cache
def rank_within(size: int) -> Callable[[Tensor], Tensor]:
    """Returns the function of one layer's output: one function for each size, so that a population runs it once."""

    def many(outputs: Tensor) -> Tensor:
        return effective_ranks(activity(outputs, size))

    @together(many)
    def one(output: Tensor) -> Tensor:
        return many(output.unsqueeze(1))[0]

    return one


def needs(samples: int, size: int) -> Sequence[Need]:
    if samples < 2 or size < 2:
        raise UserError("near takes samples and a size of at least 2.")
    return [need(Pass(only=(0, samples), fewer=True), responses=Summed(rank_within(size)))]


@proxy(needs=needs, higher_is_better=True)
def near(trace: Trace, *, samples: int = 16, size: int = 64) -> Tensor:
    total = of_network(torch.clone, trace, "responses")  # []
    if total is None:
        raise DegenerateError("the network has no conv, linear, norm or activation layer")
    return total  # type: ignore[no-any-return]
