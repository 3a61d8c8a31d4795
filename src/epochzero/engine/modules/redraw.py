"""New weights for a module, each drawn by its use."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from epochzero.plan.init import draw
from epochzero.plan.ops.base import Param
from epochzero.types import Origin


def redraw(weights: Mapping[str, Tensor], roles: Mapping[str, str], origin: Origin) -> dict[str, Tensor]:
    """Weights of conv and linear layers by the scheme, biases 0, norms at scale 1, embeddings N(0, 1).

    Tensors with another role, or none, stay as they are.
    """
    drawn = {name: _drawn(name, tensor, roles[name], origin) for name, tensor in weights.items() if name in roles}
    return dict(weights) | drawn


def _drawn(name: str, old: Tensor, role: str, origin: Origin) -> Tensor:
    shape = tuple(old.shape)
    if role == "scale":
        return torch.ones_like(old)
    if role == "bias":
        return torch.zeros_like(old)
    if role == "embedding":
        spec, origin = Param(shape, "weight"), Origin("normal", origin.seed)
    else:
        space = old[0, 0].numel() if old.dim() > 2 else 1
        wide, deep = (1, 0) if role == "factor" else (0, 1)
        spec = Param(shape, "weight", old.shape[deep] * space, old.shape[wide] * space)
    return draw({name: spec}, origin)[name].to(old.device)
