"""Maps of many networks in one place, and the kernels that run on them.

A map is what a node of one network gives for the whole batch, [B, H, W, C]. An arena [S, B, H, W, C] has a slot for
each, and tables of slots say which maps an operation reads, so that nothing has to be copied together first. What an
operation writes lies in a row. The operations, each with its plain counterpart in tests/engine/gpu/plain_kernels.py:

    combine         sums of maps, of which some are scaled and shifted first: what batch norms leave to be done
    convolve        convolutions, each with its own weights; of max(x, 0) if asked, and with moments of the result
    convolve_back   their transposes: the gradients of their inputs; 0 where a ReLU before them was not positive
    correlate       the gradients of their weights
    moments         of channels, in parts: mean, and sum of squares around it
    settle          the scale and shift that a batch norm comes to; and mean and 1 / deviation, for the backward pass
    norm_back       the gradient of a batch norm's input
    pool            means over windows that leave the padding out, or the transpose

The operations that end with `_jvp` are derivatives along a line: every input has a velocity, and that of the output is
written. A linear operation is its own derivative; the rest is

    conv(x, w)'     = conv(x', w) + conv(x, w')         and its transposes likewise; ReLUs pass or stop velocities
    norm(x)'        = norm_back of x'                   the derivative of a batch norm is its own transpose
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import NamedTuple

import torch
from torch import Tensor

from epochzero.engine.failure import KernelError, device_failed, out_of_memory

Window = tuple[int, int, int, int]
"""(kernel, stride, padding, dilation)"""


class Source(NamedTuple):
    """Where maps are: those with numbers from 0 in the arena; a number s below 0 is the map -1 - s outside of it."""

    arena: Tensor
    """[S, B, H, W, C]"""
    outside: Tensor | None = None
    """[P, B, H, W, C], or a single map that all networks have in common"""


SourcePair = tuple[Source, Source]
"""maps, and their velocities in the same slots of another arena"""
TensorPair = tuple[Tensor, Tensor]
"""something and its velocity"""


class Terms(NamedTuple):
    """Which maps add up to which."""

    starts: Tensor
    """[K + 1] where those of each of the K sums begin, and the end"""
    slots: Tensor
    rows: Tensor
    """the scale and shift that each still has to get; -1: none"""


class Moments(NamedTuple):
    """Of the channels of maps, tile by tile."""

    parts: Tensor
    """[M, tiles, 2, C] mean, and sum of squares around it"""
    tile: int
    """pixels of a tile; the last one may have fewer"""


OPERATIONS = (
    *("combine", "convolve", "convolve_back", "correlate", "moments", "settle", "norm_back", "pool"),
    *("convolve_jvp", "convolve_back_jvp", "correlate_jvp", "norm_back_jvp"),
    *("convolve_joint", "correlate_joint", "box", "gather", "SOURCES"),
    *("products", "products_at", "agreements", "agreements_at", "mark", "eigenvalues"),
)
PARTS = ("conv", "correlate", "maps", "norm", "reductions", "spectrum")


def runs_here(x: Tensor) -> bool:
    """Returns True where our own kernels can run on `x`."""
    return x.is_cuda and x.dtype in (torch.float32, torch.float64) and usable()


class _State:
    failed = False
    """true once a kernel could not be compiled"""


def usable() -> bool:
    """Returns True where Triton is installed, and has compiled every kernel so far."""
    return installed() and not failed()


def failed() -> bool:
    """Returns True once a kernel could not be compiled: no other is tried in this process."""
    return _State.failed


def give_up(error: KernelError) -> None:
    """Uses torch's own operations from now on, and says so once."""
    if not _State.failed:
        _State.failed = True
        warnings.warn(
            f"A GPU kernel could not be compiled, so torch's own operations run, which are slower: {error}",
            RuntimeWarning,
            stacklevel=2,
        )


def launched(name: str, launch: Callable[[], object]) -> None:
    """Launches a kernel; KernelError, with the first line of the reason, where that fails."""
    try:
        launch()
    except Exception as error:
        if out_of_memory(error) or device_failed(error):
            raise
        first = (str(error).strip() or "no message").splitlines()[0]
        raise KernelError(f"{name}: {type(error).__name__}: {first}") from error


@cache
def installed() -> bool:
    """Returns True where Triton, which compiles the kernels, is installed."""
    return find_spec("triton") is not None


@cache
def kernels() -> SimpleNamespace:
    """Our own kernels by their names: those on maps of an arena, and others."""
    modules = [vars(import_module(f"epochzero.engine.gpu.triton_{part}")) for part in PARTS]
    return SimpleNamespace(**{name: module[name] for module in modules for name in OPERATIONS if name in module})
