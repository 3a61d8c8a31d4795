"""Functions that hide layers, rewritten with visible layers: attention with its projections, and recurrent networks.

`F.multi_head_attention_forward` and torch's recurrent functions multiply by weights out of sight of function modes.
Written with `F.linear`, each weight is that of a linear layer. Samples come first in every layer's output.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function

from epochzero.engine.modules.plain_functions import scores_of

MULTI_HEAD = inspect.signature(F.multi_head_attention_forward)
UNUSUAL = ("bias_k", "bias_v", "static_k", "static_v")


def weighted_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, dropout: float) -> tuple[Tensor, Tensor]:
    """Attention that returns its weights too."""
    if has_torch_function((q, k, v)):
        attended: tuple[Tensor, Tensor] = handle_torch_function(weighted_attention, (q, k, v), q, k, v, mask, dropout)
        return attended
    weights = F.dropout(scores_of(q, k, mask), dropout)  # [B, heads, T, S]
    return weights @ v, weights


def _multi_head(given: Mapping[str, Any]) -> tuple[Tensor, Tensor | None]:
    """`F.multi_head_attention_forward`, which takes and gives [T, B, E]."""
    heads = given["num_heads"]
    inputs = [given[name].transpose(0, 1) for name in ("query", "key", "value")]  # [B, T, E]
    alike = given["key"] is given["value"] and given["query"] is given["key"]
    weight, bias = given["in_proj_weight"], given["in_proj_bias"]
    if alike and not given["use_separate_proj_weight"]:
        q, k, v = F.linear(inputs[0], weight, bias).chunk(3, -1)
    else:
        names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
        weights = [given[name] for name in names] if given["use_separate_proj_weight"] else weight.chunk(3)
        biases = (None,) * 3 if bias is None else bias.chunk(3)
        q, k, v = (F.linear(x, w, b) for x, w, b in zip(inputs, weights, biases, strict=True))
    q, k, v = (torch.unflatten(x, -1, (heads, -1)).transpose(1, 2) for x in (q, k, v))  # [B, heads, T, E/heads]
    mask = _mask(given["attn_mask"], given["key_padding_mask"], heads, q)
    dropout = given["dropout_p"] if given["training"] else 0.0
    seen: Tensor | None = None
    if given["need_weights"]:
        attended, seen = weighted_attention(q, k, v, mask, dropout)
        seen = seen.mean(1) if given["average_attn_weights"] else seen
    else:
        attended = F.scaled_dot_product_attention(q, k, v, mask, dropout)
    out = F.linear(attended.transpose(1, 2).flatten(2), given["out_proj_weight"], given["out_proj_bias"])  # [B, T, E]
    return out.transpose(0, 1), seen


def _mask(attention: Tensor | None, padding: Tensor | None, heads: int, like: Tensor) -> Tensor | None:
    """Returns the term added to the scores [B, heads, T, S]: 0, or -inf where a mask forbids attention."""
    parts = []
    if attention is not None:
        parts.append(torch.unflatten(attention, 0, (-1, heads)) if attention.dim() == 3 else attention)
    if padding is not None:
        parts.append(padding[:, None, None])
    added = [
        torch.zeros_like(m, dtype=like.dtype).masked_fill(m, -math.inf) if m.dtype == torch.bool else m.to(like.dtype)
        for m in parts
    ]
    return sum(added[1:], added[0]) if added else None


def _lstm(x: Tensor, state: Sequence[Tensor], recur: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
    i, f, g, o = (x + recur(state[0])).chunk(4, -1)
    cell = torch.sigmoid(f) * state[1] + torch.sigmoid(i) * torch.tanh(g)
    return torch.sigmoid(o) * torch.tanh(cell), cell


def _gru(x: Tensor, state: Sequence[Tensor], recur: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
    (r, z, n), (hr, hz, hn) = x.chunk(3, -1), recur(state[0]).chunk(3, -1)
    update = torch.sigmoid(z + hz)
    return ((1 - update) * torch.tanh(n + torch.sigmoid(r + hr) * hn) + update * state[0],)


def _rnn_tanh(x: Tensor, state: Sequence[Tensor], recur: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
    return (torch.tanh(x + recur(state[0])),)


def _rnn_relu(x: Tensor, state: Sequence[Tensor], recur: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
    return (torch.relu(x + recur(state[0])),)


STEPS = {"lstm": _lstm, "gru": _gru, "rnn_tanh": _rnn_tanh, "rnn_relu": _rnn_relu}


def _recurrent(
    step: Callable[..., tuple[Tensor, ...]],
    x: Tensor,
    start: Tensor | Sequence[Tensor],
    weights: Sequence[Tensor],
    biased: bool,
    layers: int,
    dropout: float,
    training: bool,
    both_ways: bool,
    batch_first: bool,
) -> tuple[Tensor, ...]:
    """Layers of steps along a sequence; the weights of each layer and direction are W_ih, W_hh, b_ih, b_hh."""
    states = (start,) if isinstance(start, Tensor) else tuple(start)  # each [layers * ways, B, hidden]
    ways = 2 if both_ways else 1
    each = len(weights) // (layers * ways)
    x = x if batch_first else x.transpose(0, 1)  # [B, T, features]
    ends = []
    for layer in range(layers):
        x = F.dropout(x, dropout, training) if layer else x
        outputs = []
        for way in range(ways):
            place = layer * ways + way
            w_in, w_state, *biases = weights[place * each : (place + 1) * each]
            b_in, b_state = biases if biased else (None, None)
            moving = F.linear(x, w_in, b_in)  # [B, T, gates]
            state = tuple(s[place] for s in states)
            hidden = []
            for t in reversed(range(x.shape[1])) if way else range(x.shape[1]):
                state = step(moving[:, t], state, lambda h, w=w_state, b=b_state: F.linear(h, w, b))
                hidden.append(state[0])
            outputs.append(torch.stack(hidden[::-1] if way else hidden, 1))  # [B, T, hidden]
            ends.append(state)
        x = torch.cat(outputs, -1)
    out = x if batch_first else x.transpose(0, 1)
    return out, *(torch.stack(last) for last in zip(*ends, strict=True))


def opened(name: str, args: tuple[Any, ...], given: Mapping[str, Any]) -> Callable[[], Any] | None:
    """The call spelled out, or nothing where the function hides no layers or the call is an unusual one."""
    if name == "multi_head_attention_forward":
        bound = MULTI_HEAD.bind(*args, **given)
        bound.apply_defaults()
        arguments = bound.arguments
        unusual = arguments["add_zero_attn"] or any(arguments[part] is not None for part in UNUSUAL)
        if unusual or arguments["query"].dim() != 3:
            return None
        return lambda: _multi_head(arguments)
    if name in STEPS and len(args) == 9 and args[0].dim() == 3:
        per_layer = len(args[2]) // (args[4] * (2 if args[7] else 1))
        if per_layer == (4 if args[3] else 2):
            return lambda: _recurrent(STEPS[name], *args)
    return None
