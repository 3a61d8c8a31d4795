"""Functions in plain arithmetic, for derivatives that torch's own versions get wrong or lack.

Torch's norms keep the statistics fixed in a second forward-mode derivative, which is wrong (checked against finite
differences, torch 2.13); some activations have no such derivative. Attention has no second derivative of any kind on
the CPU, so it is always replaced: results should not depend on the caller. The first argument is positional, the
others also have torch's names.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor


def _standardised(x: Tensor, axes: list[int], eps: float) -> Tensor:
    centred = x - x.mean(axes, keepdim=True)
    return centred * (centred.square().mean(axes, keepdim=True) + eps).rsqrt()


def _scaled(x: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """Each channel of [B, C, ...] scaled and shifted."""
    wide = (1, -1) + (1,) * (x.dim() - 2)
    x = x if weight is None else x * weight.view(wide)
    return x if bias is None else x + bias.view(wide)


def _batch_norm(
    x: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if training or running_mean is None or running_var is None:
        y = _standardised(x, [0, *range(2, x.dim())], eps)
    else:
        y = _scaled(_scaled(x, None, -running_mean), (running_var + eps).rsqrt(), None)
    return _scaled(y, weight, bias)


def _instance_norm(
    x: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if not use_input_stats:
        return _batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
    return _scaled(_standardised(x, list(range(2, x.dim())), eps), weight, bias)


def _group_norm(
    x: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    groups = _standardised(x.reshape(len(x), num_groups, -1), [2], eps)  # [B, G, C/G*H*W]
    return _scaled(groups.reshape(x.shape), weight, bias)


def _layer_norm(
    x: Tensor,
    normalized_shape: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    y = _standardised(x, list(range(-len(normalized_shape), 0)), eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _rms_norm(x: Tensor, normalized_shape: list[int], weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    y = x * (x.square().mean(list(range(-len(normalized_shape), 0)), keepdim=True) + eps).rsqrt()
    return y if weight is None else y * weight


def _silu(x: Tensor, inplace: bool = False) -> Tensor:
    return x * torch.sigmoid(x)


def _mish(x: Tensor, inplace: bool = False) -> Tensor:
    return x * torch.tanh(F.softplus(x))


def _hardsigmoid(x: Tensor, inplace: bool = False) -> Tensor:
    return F.relu6(x + 3) / 6


def _glu(x: Tensor, dim: int = -1) -> Tensor:
    value, gate = x.chunk(2, dim)
    return value * torch.sigmoid(gate)


def scores_of(q: Tensor, k: Tensor, mask: Tensor | None, scale: float | None = None) -> Tensor:
    """Softmax of q k^T / sqrt(E) + mask, [..., queries, keys]; a boolean mask is True where attention is allowed."""
    scores = q @ k.mT * (1 / math.sqrt(q.shape[-1]) if scale is None else scale)
    if mask is not None and mask.dtype == torch.bool:
        scores = scores.masked_fill(~mask, -math.inf)
    elif mask is not None:
        scores = scores + mask
    return scores.softmax(-1)


def _attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = key.repeat_interleave(times, -3), value.repeat_interleave(times, -3)
    if is_causal:
        attn_mask = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool, device=query.device).tril()
    return F.dropout(scores_of(query, key, attn_mask, scale), dropout_p) @ value


ALWAYS: dict[str, Callable[..., Any]] = {"scaled_dot_product_attention": _attention}

FOR_TWO_DERIVATIVES: dict[str, Callable[..., Any]] = {
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "silu": _silu,
    "mish": _mish,
    "hardsigmoid": _hardsigmoid,
    "glu": _glu,
}
