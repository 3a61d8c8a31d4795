r"""AZ-NAS: features that fill their space, more so from block to block, with gradients that neither grow nor fade.

Features f_1 .. f_L are the outputs of the network's blocks (NAS-Bench-201: the stem and each cell); weights are drawn
by Kaiming's scheme, inputs from N(0, 1).

    e_l                 = entropy of the normalised eigenvalues of f_l's channel covariance
    az_expressivity     = sum_l e_l
    az_progressivity    = min_l (e_l - e_{l-1})
    A_l                 = g_in^T g_out / (B H W)       g_out random signs at f_l, g_in their gradient at f_{l-1}
    az_trainability     = mean_l  2 - s_l - 1/s_l      s_l the largest singular value of A_l
    complexity          = flops
    AZ-NAS              = rank(az_expressivity,az_progressivity,az_trainability,flops)

The score of the paper is the last, the sum of the logarithms of the four ranks. Where a block halves the resolution,
the gradient at its input is folded into channels. A block that passes gradients unchanged is left out (the
published code gives -inf or leaves it out, by copy).

Options:
    samples     (az_trainability) number of inputs, or the batch's where it has fewer; 0 is the batch's

Beware: each is only a part of AZ-NAS: combine them with `rank`. The blocks of a module are the parts, with parts of
their own, of its outermost part that has two of them with feature maps: one long sequence of layers has no score.

Beware (az_expressivity): a sum over blocks of at most log C each: depth and width raise it.

Beware (az_progressivity): a minimum over blocks: one block decides. The authors leave it out for transformers.

Beware (az_trainability): one backward pass between each pair of blocks; random signs at every block, one draw.

Lee, Ham. AZ-NAS: assembling zero-cost proxies for network architecture search. CVPR 2024. arXiv:2403.19232
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor

from epochzero.engine import Need, Pass, Trace, each_layer, need, proxy, together
from epochzero.engine.spectrum import eigenvalues, extreme_eigenvalues
from epochzero.errors import DegenerateError, UserError

AT_START = Pass(inputs="noise", init="kaiming")
EPS = 1e-8


def evenness(output: Tensor) -> Tensor | None:
    """Returns the same for many networks [B, M, ...]."""
    if output.dim() < 4:
        return None
    channels = output.movedim(2, -1) if output.dim() > 4 else output  # [B, M, H, W, C]
    x = channels.transpose(0, 1).flatten(1, -2).double()  # [M, N, C]
    x = x - x.mean(1, keepdim=True)
    spectrum = eigenvalues(x.mT @ x / x.shape[1]).clamp(min=0)  # [M, C]
    share = spectrum / spectrum.sum(1, keepdim=True)
    return -(share * (share + EPS).log()).sum(1)  # [M]


@together(evenness)
def entropy(output: Tensor) -> Tensor | None:
    """Returns the entropy of one block's channel covariance; None for a vector."""
    values = evenness(output.unsqueeze(1))
    return None if values is None else values[0]


def entropies(trace: Trace) -> Tensor:
    e = each_layer(as_it_is, [trace], "blocks")  # [L]
    if len(e) < 2:
        raise DegenerateError("needs a network of at least two blocks with feature maps")
    if not torch.isfinite(e).all():
        raise DegenerateError("a block's features are constant")
    return e


@proxy(needs=[need(AT_START, blocks=entropy)], higher_is_better=True, tf32=("nb101",))
def az_expressivity(trace: Trace) -> Tensor:
    """AZ-NAS, expressivity: the evenness with which the features of the blocks fill their space."""
    return entropies(trace).sum()


@proxy(needs=[need(AT_START, blocks=entropy)], higher_is_better=True, tf32=("nb101",))
def az_progressivity(trace: Trace) -> Tensor:
    """AZ-NAS, progressivity: the smallest growth of expressivity from block to block."""
    return entropies(trace).diff().min()


def gram(arrived: Tensor, signs: Tensor) -> Tensor:
    """Returns A^T A, or A A^T if that is smaller."""
    a = transfer(arrived, signs)
    return a.mT @ a if a.shape[0] > a.shape[1] else a @ a.mT


def fate(arrived: Tensor, signs: Tensor) -> Tensor:
    """Returns [2]: True if any gradient arrived, and True if it differs from the signs."""
    changed = (arrived != signs).any() if arrived.shape == signs.shape else signs.new_ones((), dtype=torch.bool)
    return torch.stack([arrived.any(), changed])


def largest_singular(gram: Tensor) -> Tensor:
    return extreme_eigenvalues(gram)[1].clamp(min=0).sqrt()


def as_it_is(values: Tensor) -> Tensor:
    return values


def needs_gradients(samples: int) -> Sequence[Need]:
    if samples < 0:
        raise UserError("az_trainability takes samples of at least 1, or 0 for the batch's.")
    run = replace(AT_START, only=(0, samples), fewer=True) if samples else AT_START
    return [need(run, block_gradients=gram), need(run, block_gradients=fate)]


@proxy(needs=needs_gradients, higher_is_better=True, tf32=("nb101",))
def az_trainability(grams: Trace, fates: Trace, *, samples: int = 0) -> Tensor:
    """AZ-NAS, trainability: the closeness of each block to passing gradients without growth or decay."""
    fate_of_pairs = each_layer(as_it_is, [fates], "block_gradients")  # [L - 1, 2]
    if not len(fate_of_pairs):
        raise DegenerateError("needs a network of at least two blocks with feature maps")
    arrived, changed = fate_of_pairs.unbind(1)  # each [L - 1]
    if not arrived.all():
        raise DegenerateError("no gradient passes from one block to the next")
    if not changed.any():
        raise DegenerateError("every block passes gradients through untouched")
    s = each_layer(largest_singular, [grams], "block_gradients")[changed]
    return (2 - s - 1 / (s + 1e-6)).mean()


def transfer(arrived: Tensor, signs: Tensor) -> Tensor:
    """Returns A = g_in^T g_out / (B H W), channels in by channels out."""
    if arrived.dim() == signs.dim() == 4:
        times = max(1, arrived.shape[-1] // signs.shape[-1])
        if arrived.shape[-2:] == (times * signs.shape[-2], times * signs.shape[-1]):
            arrived = F.pixel_unshuffle(arrived, times)
    g_in, g_out = (g.flatten(2).transpose(1, 2) if g.dim() > 3 else g for g in (arrived, signs))  # [B, H*W, C]
    g_in, g_out = (g.reshape(-1, g.shape[-1]).double() for g in (g_in, g_out))  # [N, C]
    if len(g_in) != len(g_out):
        raise DegenerateError("the resolution of a block is no whole fraction of that of the block before it")
    return g_in.mT @ g_out / len(g_out)  # [C_in, C_out]
