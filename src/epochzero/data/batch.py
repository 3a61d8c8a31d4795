"""Batches: a few equally sized mini-batches for the engine, under one id for the store."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from numbers import Integral
from typing import TYPE_CHECKING

from torch import Tensor

from epochzero.errors import DataError, UserError
from epochzero.types import Shape

if TYPE_CHECKING:
    from epochzero.data.packed import Layout
    from epochzero.engine.loss import Loss

Part = tuple[Tensor, Tensor | None]
"""Inputs x [B, ...] float32 and labels y [B] int64, if any; or targets of any shape, for a loss of their own."""

DEFAULT_CLASSES = 10
"""number of classes if neither the user nor the labels define it"""

USUAL_PARTS = 4
"""number of parts that proxies which compare batches read"""
USUAL_SIZE = 64
"""samples in a part, if neither the user nor a loader says, and as far as there are so many"""


@dataclass(frozen=True, eq=False)
class Batch:
    """A few equally sized mini-batches ("parts") of inputs and, where there are any, labels."""

    id: str
    """a readable prefix and a hash that covers content, shape, classes, size and normalisation"""
    about: str
    """one sentence: the source, its samples, their normalisation, the labels"""
    input_shape: Shape
    """shape of one sample, such as (3, 32, 32)"""
    num_classes: int
    size: int
    """number of samples in one part"""
    parts: int
    """number of parts"""
    make_part: Callable[[int], Part] = field(repr=False)
    """makes part 0, 1, ...: a pure function, and one that can be sent to another process"""
    layout: Layout | None = None
    """way to split x, a table [B, N], into several or non-real inputs of a module"""
    loss: Loss | None = None
    """of outputs and targets, if it is not that of class labels"""
    given: int = 0
    """number of samples in the given tensors, perhaps enough for more parts of a smaller size"""
    _made: dict[int, Part] = field(default_factory=dict, init=False, repr=False)

    def part(self, index: int) -> Part:
        """Returns part `index`, counted from 0: x [B, ...] and y [B] or None, made on first use and kept.

        Every caller gets the same tensors: do not write into them.
        """
        if not 0 <= index < self.parts:
            noun = "part" if self.parts == 1 else "parts"
            raise DataError(
                f"This batch has {self.parts} {noun} of {self.size} samples, and part {index + 1} is needed: "
                f"{self._more(max(index + 1, USUAL_PARTS))}."
            )
        if index not in self._made:
            self._made[index] = self.make_part(index)
        return self._made[index]

    def _more(self, parts: int) -> str:
        """Returns advice on how to get more parts."""
        if self.given < parts:
            return "give more data or a smaller batch size"
        return f"cut the tensors with data.from_tensors(x, y, size={min(self.given // parts, 64)}, parts={parts})"


def check_request(num_classes: int | None, size: int | None, parts: int, seed: int) -> None:
    """Raises UserError for numbers that no source of data could serve."""
    for what, value, least in (
        ("number of classes", num_classes, 1),
        ("batch size", size, 1),
        ("number of batches", parts, 1),
        ("data seed", seed, 0),
    ):
        if value is not None and not isinstance(value, Integral):
            raise UserError(f"The {what} is {value!r}; it has to be a whole number.")
        if value is not None and value < least:
            raise UserError(f"The {what} is {value}; it has to be at least {least}.")


def digest(*content: object) -> str:
    """Returns a hash, 64 hexadecimal digits, of bytes and of the text of anything else: the same in every process."""
    sha = hashlib.sha256()
    for item in content:
        data = item if isinstance(item, bytes) else str(item).encode()
        sha.update(len(data).to_bytes(8, "little"))
        sha.update(data)
    return sha.hexdigest()


def shape_text(shape: Shape) -> str:
    """Returns a shape as text, such as `3x32x32`."""
    return "x".join(map(str, shape))
