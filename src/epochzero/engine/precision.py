"""The precision of products: single, unless TF32 was requested.

On a GPU torch by default lets cuDNN round the factors of convolutions to TF32, whose fractions have ten bits; and a
script may have allowed that, or less precision, for products of matrices.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

import torch

_lock = Lock()
_backends: Any = torch.backends
ON_GPU = (_backends.cuda.matmul, _backends.cudnn.conv, _backends.cudnn.rnn)
ON_CPU = (_backends.mkldnn.matmul, _backends.mkldnn.conv)
"""places of torch's newer flags"""


class _State:
    """The state of this process."""

    tf32 = False
    """true if TF32 was requested"""
    runs = 0
    """the number of threads that are scoring"""
    before: _Flags


class _Flags(NamedTuple):
    """Torch's flags, which exist in two generations; the older ones cannot be read if they disagree."""

    named: tuple[str, ...]
    of_products: str | None
    of_cudnn: bool | None


def allow_tf32(allowed: bool) -> None:
    """Allows or forbids rounding factors to TF32 in later scores."""
    _State.tf32 = allowed


def tf32_allowed() -> bool:
    return _State.tf32


def set_precision(tf32: bool) -> None:
    """Sets whether convolutions and matrix products on a GPU may round their factors to TF32.

    Holds in this process and in workers that start later, for scores and for everything else.
    """
    allow_tf32(tf32)
    set_flags(tf32)


@contextmanager
def asked_precision() -> Iterator[None]:
    """In here torch computes as precisely as was asked for, and as before afterwards."""
    with _lock:
        if not _State.runs:
            _State.before = _flags()
            set_flags(_State.tf32)
        _State.runs += 1
    try:
        yield
    finally:
        with _lock:
            _State.runs -= 1
            if not _State.runs:
                _restore(_State.before)


def set_flags(tf32: bool) -> None:
    """Both generations alike. TF32 is for a GPU; a CPU computes in single precision."""
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    for place in ON_GPU:
        place.fp32_precision = "tf32" if tf32 else "ieee"
    for place in ON_CPU:
        place.fp32_precision = "ieee"


def _restore(flags: _Flags) -> None:
    if flags.of_cudnn is not None:
        torch.backends.cudnn.allow_tf32 = flags.of_cudnn
    if flags.of_products is not None:
        torch.set_float32_matmul_precision(flags.of_products)
    for place, value in zip((*ON_GPU, *ON_CPU), flags.named, strict=True):
        place.fp32_precision = value


def _flags() -> _Flags:
    named = tuple(place.fp32_precision for place in (*ON_GPU, *ON_CPU))
    try:
        of_products = torch.get_float32_matmul_precision()
    except RuntimeError:
        of_products = None
    try:
        return _Flags(named, of_products, torch.backends.cudnn.allow_tf32)
    except RuntimeError:
        return _Flags(named, of_products, None)
