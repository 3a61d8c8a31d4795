"""New weights for a module, each drawn by its use."""

from __future__ import annotations

import math
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
    by_origin: dict[Origin, dict[str, Param]] = {}
    drawn: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if (role := roles.get(name)) == "scale":
            drawn[name] = torch.ones_like(tensor)
        elif role == "bias":
            drawn[name] = torch.zeros_like(tensor)
        elif role is not None:
            own, spec = _specified(tuple(tensor.shape), role, origin)
            by_origin.setdefault(own, {})[name] = spec
    device = next(iter(weights.values())).device if weights else torch.device("cpu")
    for own, specs in by_origin.items():
        drawn |= {name: tensor.to(weights[name].device) for name, tensor in draw(specs, own, device).items()}
    return dict(weights) | drawn


def _specified(shape: tuple[int, ...], role: str, origin: Origin) -> tuple[Origin, Param]:
    if role == "embedding":
        return Origin("normal", origin.seed), Param(shape, "weight")
    space = math.prod(shape[2:])
    wide, deep = (1, 0) if role == "factor" else (0, 1)
    return origin, Param(shape, "weight", shape[deep] * space, shape[wide] * space)
