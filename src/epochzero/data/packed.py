"""Several inputs, or one of integers or complex numbers, packed into one table of real numbers.

The engine splits, perturbs and differentiates the inputs of a network as one tensor [B, N]. `Layout` maps its columns
to inputs, and gives the module each in its own shape and type. Integers (ids, tokens) and masks are never perturbed:
`real` has only the other columns. A complex number is two real ones.

Where all inputs are ids, proxies that move inputs move what the ids are looked up as. The table of such a pass is
`embedded`: behind the ids a column of factors, 1 to keep what was looked up and 0 to drop it, and then what is added to
each lookup.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from epochzero.data.batch import Batch, Part, shape_text
from epochzero.errors import DataError
from epochzero.types import Shape

Inputs = Tensor | Sequence[Tensor] | Mapping[str, Tensor]
"""The arguments of a module: one tensor, several in order, or several by name."""

LARGEST = 2**24
"""largest integer that is exact in single precision"""


@dataclass(frozen=True)
class Slot:
    """Name, shape and type of one sample of one input."""

    name: str
    """empty for a positional input"""
    shape: Shape
    dtype: torch.dtype
    """float32, complex64, int64 or bool"""

    @property
    def whole(self) -> bool:
        return self.dtype in (torch.int64, torch.bool)

    @property
    def tokens(self) -> bool:
        """True for ids at places in a row, [T]."""
        return self.dtype == torch.int64 and len(self.shape) == 1

    @property
    def width(self) -> int:
        return math.prod(self.shape) * (2 if self.dtype.is_complex else 1)

    def unpack(self, columns: Tensor) -> Tensor:
        """Returns the input in its own shape and type, from its columns [B, width]."""
        if self.dtype.is_complex:
            return torch.complex(*columns.reshape(len(columns), *self.shape, 2).unbind(-1))
        columns = columns.reshape(len(columns), *self.shape)
        return columns.detach().round().to(self.dtype) if self.whole else columns

    def __str__(self) -> str:
        kind = {torch.int64: "whole", torch.bool: "true or false", torch.complex64: "complex"}.get(self.dtype, "real")
        return f"{self.name} {shape_text(self.shape) or 'one'} {kind}".strip()


@dataclass(frozen=True)
class Layout:
    """The assignment of columns of the table to inputs."""

    slots: tuple[Slot, ...]
    added: tuple[Shape, ...] = ()
    """the shapes for one sample of what is added to lookups of ids"""

    @property
    def width(self) -> int:
        """The number of columns of the inputs."""
        return sum(slot.width for slot in self.slots)

    def widened(self, table: Tensor) -> Tensor:
        """Returns a table of the inputs with additions of 0 to what is kept."""
        zeros = table.new_zeros(len(table), sum(map(math.prod, self.added)))
        return torch.cat([table, table.new_ones(len(table), 1), zeros], 1)

    def additions(self, table: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Returns the factors [B] of lookups, and what is added to each."""
        sizes = [self.width, 1, *map(math.prod, self.added)]
        _, keep, *added = torch.split(table, sizes, 1)
        return keep.detach()[:, 0], [one.reshape(-1, *shape) for one, shape in zip(added, self.added, strict=True)]

    def unpack(self, table: Tensor) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
        """Returns the positional and the named arguments of the module."""
        pieces = torch.split(table[:, : self.width], [slot.width for slot in self.slots], 1)  # each [B, width]
        inputs = [slot.unpack(columns) for slot, columns in zip(self.slots, pieces, strict=True)]
        if self.slots[0].name:
            return (), {slot.name: x for slot, x in zip(self.slots, inputs, strict=True)}
        return tuple(inputs), {}

    @property
    def real(self) -> Tensor:
        """[N]: True for columns of real numbers, which can be perturbed, False for ids."""
        own = [torch.full((slot.width,), not slot.whole) for slot in self.slots]
        more = [torch.tensor([False]), torch.full((sum(map(math.prod, self.added)),), True)] if self.added else []
        return torch.cat([*own, *more])

    def __str__(self) -> str:
        return "; ".join(map(str, self.slots))


def only_ids(batch: Batch) -> bool:
    """True if no input holds real numbers."""
    return batch.layout is not None and not batch.layout.real.any()


def embedded(batch: Batch, added: Sequence[Shape]) -> Batch:
    """Returns the batch with additions of these shapes to what its ids are looked up as."""
    assert batch.layout is not None
    layout = replace(batch.layout, added=tuple(added))
    shape = (len(layout.real),)
    return replace(batch, layout=layout, input_shape=shape, make_part=partial(_widened, batch.part, layout))


def _widened(part: Callable[[int], Part], layout: Layout, index: int) -> Part:
    x, y = part(index)
    return layout.widened(x), y


def pack(inputs: Inputs) -> tuple[Tensor, Layout | None]:
    """Returns one tensor [B, ...] of real numbers and its layout; a single real tensor is not changed.

    Bytes are images, scaled to 0 to 1 as in files.
    """
    if isinstance(inputs, Tensor):
        x = _kept(inputs, alone=True)
        if x.is_floating_point():
            return x, None
        named = [("", x)]
    elif isinstance(inputs, Mapping):
        named = [(name, _kept(tensor)) for name, tensor in inputs.items()]
    else:
        named = [("", _kept(tensor)) for tensor in inputs]
    lengths = [len(x) for _, x in named]
    if len(set(lengths)) != 1:
        raise DataError(f"The inputs should have the same number of samples, and have {lengths}.")
    slots = [Slot(name, tuple(x.shape[1:]), x.dtype) for name, x in named]
    columns = [torch.view_as_real(x) if x.is_complex() else x.float() for _, x in named]
    return torch.cat([x.reshape(len(x), -1) for x in columns], 1), Layout(tuple(slots))  # [B, N]


def _kept(tensor: Tensor, alone: bool = False) -> Tensor:
    """Returns the tensor in the type that the module gets."""
    if not isinstance(tensor, Tensor) or tensor.dim() == 0:
        raise DataError(f"An input should be a tensor [samples, ...], not {type(tensor).__name__}.")
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.uint8:
        return tensor.float() / 255
    if tensor.is_complex() or tensor.is_floating_point():
        kept = tensor.to(torch.complex64 if tensor.is_complex() else torch.float32)
        if not torch.isfinite(kept).all():
            raise DataError("The inputs hold infinite or missing (nan) numbers; give finite ones.")
        return kept
    if tensor.dtype == torch.bool:
        return tensor.float() if alone else tensor
    if tensor.numel() and int(tensor.abs().max()) > LARGEST:
        raise DataError(f"An input holds a whole number beyond {LARGEST:,}: give smaller ids.")
    return tensor.long()
