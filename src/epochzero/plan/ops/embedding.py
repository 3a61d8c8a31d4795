"""Categories as learnt vectors: one table for each field, looked up by the ids of a sample."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from epochzero.plan.ops.base import Jet, Op, Param
from epochzero.types import Shape


def look_up(ids: Tensor, tables: list[Tensor]) -> Tensor:
    """Returns for each field the row of its table with this id."""
    fields = zip(ids.unbind(1), tables, strict=True)
    return torch.stack([nn.functional.embedding(*field) for field in fields], 1)  # [B, fields, width]


class Tables(nn.Module):
    """One table of learnt vectors for each field."""

    def __init__(self, rows: tuple[int, ...], width: int) -> None:
        super().__init__()
        for field, count in enumerate(rows):
            scale = (2 / (count + width)) ** 0.5
            self.register_parameter(f"table{field}", nn.Parameter(torch.randn(count, width) * scale))

    def forward(self, ids: Tensor) -> Tensor:
        return look_up(ids, list(self.parameters()))


def ids_in(table: Tensor, rows: tuple[int, ...]) -> Tensor:
    """Returns the last columns as ids, modulo the number of rows of each field."""
    last = table[:, -len(rows) :].detach().round()  # [B, fields]
    return last.remainder(torch.tensor(rows, dtype=last.dtype, device=last.device)).long()


@dataclass(frozen=True, slots=True)
class Embedding(Op):
    """For each field, the vector of its id: (fields,) whole numbers become (fields, width).

    An id beyond its table is an IndexError. Ids cannot be moved a little, so derivatives along a curve are zero.
    """

    rows: tuple[int, ...]
    """the number of rows of each field's table"""
    width: int

    prints = (look_up, Tables)
    module = "Tables({op.rows}, {op.width})"

    def shape(self, *inputs: Shape) -> Shape:
        if inputs[0] != (len(self.rows),):
            raise ValueError(f"{len(self.rows)} tables need as many ids, not an input of shape {inputs[0]}")
        return len(self.rows), self.width

    def params(self, *inputs: Shape) -> dict[str, Param]:
        tables = (Param((count, self.width), "weight", self.width, count) for count in self.rows)
        return {f"table{field}": table for field, table in enumerate(tables)}

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return look_up(x[0], list(w))

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        value = look_up(x[0][0], list(w))
        return value, torch.zeros_like(value), torch.zeros_like(value)


@dataclass(frozen=True, slots=True)
class Ids(Op):
    """The last columns of a table of numbers as ids, one for each field; any number is some id of its field.

    Ids stay where they are when the table moves: derivatives along a curve are zero.
    """

    rows: tuple[int, ...]

    prints = (ids_in,)
    printed_as = "ids_in({0}, {op.rows})"

    def shape(self, *inputs: Shape) -> Shape:
        if len(inputs[0]) != 1 or inputs[0][0] < len(self.rows):
            raise ValueError(f"an input of shape {inputs[0]} does not end with {len(self.rows)} ids")
        return (len(self.rows),)

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return ids_in(x[0], self.rows)

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        value = ids_in(x[0][0], self.rows)
        return value, torch.zeros_like(value), torch.zeros_like(value)
