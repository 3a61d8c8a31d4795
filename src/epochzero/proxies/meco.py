r"""MeCo: the independence of the channels of each layer.

    P_l      = correlation matrix of layer l's channels for one sample, [C, C]
    meco     = sum_l lambda_min(P_l)
    meco_opt = sum_l C / n * lambda_min(P_l)          P_l of n random channels of the C of the layer

A channel that is constant counts as uncorrelated with itself too (a row of zeros), as in the published code, which
also counts blocks, and reads noise of 64x64.

Options:
    channels    n, number of channels drawn from each layer

Beware (meco): networks that differ in width are ranked in the wrong order: -.79, -.87 and -.86 on NATS-Bench-SSS
(Dextr's Table 6). Use `meco_opt` or another score there. A layer with at least as many channels as positions always
adds 0.

Beware (meco_opt): made for networks that differ in width; where all have the same, drawing channels adds noise (see the
correlations measured on NAS-Bench-201).

Jiang, Wang, Bie. MeCo: zero-shot NAS with one data and single forward pass via minimum eigenvalue of correlation.
NeurIPS 2023.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from epochzero.engine import Need, Pass, Trace, each_layer, need, proxy, together
from epochzero.engine.spectrum import extreme_eigenvalues
from epochzero.errors import DegenerateError, UserError
from epochzero.proxies.dextr import of_some_channels


def correlations(outputs: Tensor) -> Tensor | None:
    """Returns the same for many networks [B, M, ...]."""
    x = outputs[0]
    if x.dim() < 3 or 1 in (x := x.flatten(2).double()).shape[1:]:
        return None
    x = x - x.mean(2, keepdim=True)  # [M, C, H*W]
    length = x.norm(dim=2, keepdim=True)  # [M, C, 1]
    x = torch.where(length == 0, 0, x / length)
    return x @ x.mT  # [M, C, C]


def with_positions_to_spare(outputs: Tensor) -> Tensor | None:
    """Returns the same, but [M, 1, 1] zeros for a layer with as many channels as positions: lambda_min is 0 there."""
    x = outputs[0]
    positions = x.shape[2:].numel()
    if x.dim() < 3 or positions == 1 or x.shape[1] < max(positions, 2):
        return correlations(outputs)
    return 0 * x.flatten(1).sum(1, dtype=torch.double)[:, None, None]  # nan stays nan


@together(with_positions_to_spare)
def correlation(output: Tensor) -> Tensor | None:
    """Returns the correlations of the channels of one sample's output; None for one channel or one position."""
    matrices = with_positions_to_spare(output.unsqueeze(1))
    return None if matrices is None else matrices[0]  # [C, C]


def least_eigenvalue(matrix: Tensor) -> Tensor:
    return extreme_eigenvalues(matrix)[0] if matrix.shape[-1] > 1 else matrix[..., 0, 0]


@proxy(needs=[need(Pass(only=(0, 1)), layers=correlation)], higher_is_better=True, tf32=("nb101",))
def meco(trace: Trace) -> Tensor:
    least = each_layer(least_eigenvalue, [trace], "layers")  # [L]
    if not len(least):
        raise DegenerateError("no layer has an output with channels and positions")
    return least.sum()


def least_within(gram: Tensor, positions: Tensor) -> Tensor:
    return least_eigenvalue(gram)


def correlations_and_positions(outputs: Tensor) -> Tensor | None:
    """Returns the same for many networks."""
    matrices = correlations(outputs)
    return None if matrices is None else torch.cat([matrices, torch.zeros_like(matrices[:, :1])], 1)  # [M, C + 1, C]


@together(correlations_and_positions)
def correlation_and_positions(output: Tensor) -> Tensor | None:
    """Returns the same with a row of zeros, as `of_some_channels` needs it."""
    matrices = correlations_and_positions(output.unsqueeze(1))
    return None if matrices is None else matrices[0]  # [C + 1, C]


def needs_opt(channels: int) -> Sequence[Need]:
    if channels < 2:
        raise UserError(f"meco_opt compares channels and needs at least 2, not {channels}.")
    return [need(Pass(only=(0, 1)), "seed", layers=correlation_and_positions)]


@proxy(needs=needs_opt, higher_is_better=True, tf32=("nb101",))
def meco_opt(trace: Trace, *, channels: int = 8) -> Tensor:
    """MeCo on a fixed number of random channels of each layer."""
    least = each_layer(of_some_channels(least_within, channels, trace.seed), [trace], "layers")  # [L]
    if not len(least):
        raise DegenerateError("no layer has an output with channels and positions")
    return least.sum()
