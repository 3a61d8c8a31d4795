"""Initialisation of weights. A weight depends only on the scheme, the seed, its name and its shape.

So a network's weights do not depend on what else is scored, on the order of work or on the device; and two
architectures that share a named weight start from the same numbers, which makes their scores comparable.

    default   U(-1/sqrt(fan_in), 1/sqrt(fan_in)) for weights and biases: what PyTorch's layers do
    lecun     N(0, 1/fan_in)                LeCun, Bottou, Orr, Mueller 1998
    xavier    N(0, 2/(fan_in + fan_out))    Glorot, Bengio 2010
    kaiming   N(0, 2/fan_in)                He, Zhang, Ren, Sun 2015
    normal    N(0, 1)

Biases are zero in all but the first. Under every scheme norms start at scale 1 and shift 0, and tables (learnt tokens
and positions) at N(0, 0.02^2), as those of vision transformers do.
"""

from __future__ import annotations

import hashlib
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from epochzero.plan.ops.base import Param
from epochzero.plan.upload import upload
from epochzero.registry import check_known
from epochzero.types import Origin

STANDARD_DEVIATION: dict[str, Callable[[Param], float]] = {
    "lecun": lambda p: math.sqrt(1 / p.fan_in),
    "xavier": lambda p: math.sqrt(2 / (p.fan_in + p.fan_out)),
    "kaiming": lambda p: math.sqrt(2 / p.fan_in),
    "normal": lambda p: 1.0,
}
TABLE = 0.02
"""the standard deviation of tables; the references truncate them at 2, which has no effect"""
SCHEMES = ("default", *STANDARD_DEVIATION)


def generator(seed: int, *path: object) -> torch.Generator:
    """Returns a random generator on the CPU, one for each seed and name."""
    digest = hashlib.blake2b("/".join(map(str, (seed, *path))).encode(), digest_size=8).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest, "little") >> 1)


def check(origin: Origin) -> None:
    """Raises UnknownNameError for a scheme that does not exist."""
    check_known(origin.scheme, SCHEMES, f"No initialisation is called '{origin.scheme}'")


class _Drawn:
    """A cache of drawn weights: a population of similar networks draws each weight once."""

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[Origin, str, Param, torch.device], Tensor] = OrderedDict()

    def __call__(self, origin: Origin, name: str, param: Param, device: torch.device) -> Tensor:
        key = (origin, name, param, device)
        tensor = self._kept.pop(key, None)
        if tensor is None:
            tensor = _fresh(origin, name, param).to(device)
            self._bytes += tensor.nbytes
        self._kept[key] = tensor
        while self._bytes > self._most:
            self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return tensor


_drawn = _Drawn(most_bytes=2**28)


def _fresh(origin: Origin, name: str, param: Param) -> Tensor:
    if param.role == "one":
        return torch.ones(param.shape)
    if param.role == "zero" or (param.role == "bias" and origin.scheme != "default"):
        return torch.zeros(param.shape)
    empty, rng = torch.empty(param.shape), generator(origin.seed, origin.scheme, name)
    if param.role != "table" and origin.scheme == "default":
        bound = 1 / math.sqrt(param.fan_in)
        return empty.uniform_(-bound, bound, generator=rng)
    std = TABLE if param.role == "table" else STANDARD_DEVIATION[origin.scheme](param)
    return empty.normal_(0, std, generator=rng)


CPU = torch.device("cpu")


def draw(params: Mapping[str, Param], origin: Origin, device: torch.device = CPU) -> dict[str, Tensor]:
    """Returns every parameter and buffer of a plan. The tensors are shared: read them, never write them."""
    check(origin)
    return {name: _drawn(origin, name, param, device) for name, param in params.items()}


class Drawing:
    """Parameters of several networks, which may have names in common, joined along the first axis."""

    def __init__(self, names: Sequence[str], joined: Param, device: torch.device = CPU) -> None:
        self.own = replace(joined, shape=(joined.shape[0] // len(names), *joined.shape[1:]))
        places = {name: i for i, name in enumerate(dict.fromkeys(names))}
        self.names, self.device = list(places), device
        repeated = len(places) < len(names)
        self.index = upload(np.array([places[name] for name in names]), device) if repeated else None

    def drawn(self, origin: Origin) -> Tensor:
        each = [_drawn(origin, name, self.own, self.device) for name in self.names]
        if len(each) == 1 and self.index is None:
            return each[0]
        return torch.cat(each) if self.index is None else torch.stack(each).index_select(0, self.index).flatten(0, 1)


def constants(params: Mapping[str, Param], device: torch.device = CPU) -> dict[str, Tensor]:
    """Returns the parameters that are ones or zeros, as parts of two shared tensors: never write them."""
    fixed = {name: param for name, param in params.items() if param.role in ("one", "zero")}
    longest = max((param.numel for param in fixed.values()), default=0)
    whole = {"one": torch.ones(longest, device=device), "zero": torch.zeros(longest, device=device)}
    return {name: whole[param.role][: param.numel].view(param.shape) for name, param in fixed.items()}
