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
import os
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache, lru_cache, partial

import numpy as np
import torch
from torch import Tensor

from epochzero.plan.ops.base import Param
from epochzero.plan.upload import copied_at_once, upload
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
    """A cache of drawn weights: similar networks draw each weight once.

    On a GPU the weights that are missing are drawn into one buffer and copied together: a launch for each would take
    longer than a small network.
    """

    def __init__(self, most_bytes: int) -> None:
        self._most = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[tuple[Origin, str, Param, torch.device], Tensor] = OrderedDict()

    def __call__(self, origin: Origin, params: Mapping[str, Param], device: torch.device) -> list[Tensor]:
        keys = [(origin, name, param, device) for name, param in params.items()]
        known = {key: self._kept.pop(key) for key in keys if key in self._kept}
        missing = {key[1]: key[2] for key in keys if key not in known}
        fresh = iter(_fresh(origin, missing, device) if missing else ())
        tensors = []
        for key in keys:
            if (tensor := known.get(key)) is None:
                tensor = next(fresh)
                self._bytes += tensor.nbytes
            self._kept[key] = tensor
            tensors.append(tensor)
        while self._bytes > self._most:
            self._bytes -= self._kept.popitem(last=False)[1].nbytes
        return tensors


_drawn = _Drawn(most_bytes=2**28)


def _fresh(origin: Origin, params: Mapping[str, Param], device: torch.device) -> list[Tensor]:
    if device.type == "cuda":
        return copied_at_once(
            [param.shape for param in params.values()], partial(_fill_all, origin, params, device), device
        )
    empty = [torch.empty(param.shape) for param in params.values()]
    _fill_all(origin, params, device, empty)
    return [tensor.to(device) for tensor in empty]


def _fill_all(origin: Origin, params: Mapping[str, Param], device: torch.device, tensors: Sequence[Tensor]) -> None:
    """Draws the weights, by several threads if there are many numbers for a GPU: its other cores are idle."""
    jobs = list(zip(params.items(), tensors, strict=True))
    spread = device.type == "cuda" and sum(tensor.numel() for tensor in tensors) >= MANY
    threads = min(DRAWING_THREADS, (os.cpu_count() or 1) // 2) if spread else 1
    if threads < 2:
        for (name, param), tensor in jobs:
            _fill(origin, name, param, tensor)
        return
    jobs.sort(key=lambda job: -job[1].numel())

    def run(first: int) -> None:
        for (name, param), tensor in jobs[first::threads]:
            _fill(origin, name, param, tensor)

    list(_pool().map(run, range(threads)))


DRAWING_THREADS = 4
MANY = 2**19
"""numbers from which threads draw them"""


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(DRAWING_THREADS, "weights")


def _fill(origin: Origin, name: str, param: Param, out: Tensor) -> None:
    if param.role == "one":
        out.fill_(1)
    elif param.role == "zero" or (param.role == "bias" and origin.scheme != "default"):
        out.zero_()
    elif param.role != "table" and origin.scheme == "default":
        bound = 1 / math.sqrt(param.fan_in)
        out.uniform_(-bound, bound, generator=generator(origin.seed, origin.scheme, name))
    else:
        std = TABLE if param.role == "table" else STANDARD_DEVIATION[origin.scheme](param)
        out.normal_(0, std, generator=generator(origin.seed, origin.scheme, name))


CPU = torch.device("cpu")


def draw(params: Mapping[str, Param], origin: Origin, device: torch.device = CPU) -> dict[str, Tensor]:
    """Returns every parameter and buffer of a plan. The tensors are shared: read them, never write them."""
    check(origin)
    device = torch.device(device)
    fixed = constants(params, device) if device.type == "cuda" else {}
    varying = {name: param for name, param in params.items() if name not in fixed}
    drawn = dict(zip(varying, _drawn(origin, varying, device), strict=True))
    return {name: fixed[name] if name in fixed else drawn[name] for name in params}


class Drawing:
    """Parameters of several networks, which may have names in common, joined along the first axis."""

    def __init__(self, names: Sequence[str], joined: Param, device: torch.device = CPU) -> None:
        self.own = replace(joined, shape=(joined.shape[0] // len(names), *joined.shape[1:]))
        places = {name: i for i, name in enumerate(dict.fromkeys(names))}
        self.names, self.device = list(places), device
        repeated = len(places) < len(names)
        self.index = upload(np.array([places[name] for name in names]), device) if repeated else None

    def drawn(self, origin: Origin) -> Tensor:
        each = _drawn(origin, dict.fromkeys(self.names, self.own), self.device)
        if len(each) == 1 and self.index is None:
            return each[0]
        return torch.cat(each) if self.index is None else torch.stack(each).index_select(0, self.index).flatten(0, 1)


def draw_ahead(drawings: Iterable[Drawing], origin: Origin, device: torch.device) -> None:
    """Draws the weights that are not known yet into few buffers, so that each drawing finds its own."""
    buffers: list[dict[str, Param]] = []  # a name may have several shapes
    for drawing in drawings:
        for name in drawing.names:
            fitting = (buffer for buffer in buffers if buffer.get(name, drawing.own) == drawing.own)
            if (buffer := next(fitting, None)) is None:
                buffers.append(buffer := {})
            buffer[name] = drawing.own
    for buffer in buffers:
        _drawn(origin, buffer, device)


def constants(params: Mapping[str, Param], device: torch.device = CPU) -> dict[str, Tensor]:
    """Returns the parameters that are ones or zeros, as parts of two shared tensors: never write them."""
    fixed = {name: param for name, param in params.items() if param.role in ("one", "zero")}
    longest = max((param.numel for param in fixed.values()), default=0)
    whole = _constants(1 << max(0, longest - 1).bit_length(), device)
    return {name: whole[param.role][: param.numel].view(param.shape) for name, param in fixed.items()}


@lru_cache(maxsize=8)
def _constants(count: int, device: torch.device) -> dict[str, Tensor]:
    return {"one": torch.ones(count, device=device), "zero": torch.zeros(count, device=device)}
