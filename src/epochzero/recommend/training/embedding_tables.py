r"""Embedding tables in training: only the rows that a batch names are touched, which is exact for Adagrad.

Adagrad leaves a weight of gradient zero as it is, so a step on the rows that occur is a step on the tables:

    g_r = gradient of row r,    s_r += g_r^2,    w_r -= rate g_r / (sqrt(s_r) + eps)

A model keeps one parameter for each column, called `table0`, `table1`, ... inside a block (`Tables`, `Embedding`). Here
the tables of a block become views of one tensor. A batch's rows are found by one sort of all its ids, gathered into
small tables, and the model runs on these with the ids counted anew; their gradient is dense and small. A model without
tables of such names is trained as it is, with gradients of all its weights.

Duchi, Hazan, Singer. Adaptive subgradient methods for online learning and stochastic optimization. JMLR 12, 2011.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from epochzero.errors import DataError, UserError


def device_of(model: nn.Module) -> torch.device:
    """Where the model's parameters are."""
    return next((weight.device for weight in model.parameters()), torch.device("cpu"))


class RowTables:
    """All embedding tables of a model, of one or more widths."""

    def __init__(self, model: nn.Module, rows: Sequence[int]) -> None:
        """Found by their names and checked against the rows of the data's columns."""
        self.rows = tuple(rows)
        self.starts = torch.tensor([0, *rows], device=device_of(model)).cumsum(0)  # [F + 1]
        self.blocks: dict[str, Tensor] = {}
        self.sums: dict[str, Tensor] = {}
        given = dict(model.named_parameters())
        for block in [name.removesuffix("table0") for name in given if name.split(".")[-1] == "table0"] if rows else []:
            self._join(block, given)
        self.names = {f"{block}table{column}" for block in self.blocks for column in range(len(rows))}

    def _join(self, block: str, given: dict[str, nn.Parameter]) -> None:
        tables = {name: table for name, table in given.items() if name.startswith(f"{block}table")}
        if {name: len(table) for name, table in tables.items()} != {
            f"{block}table{f}": n for f, n in enumerate(self.rows)
        }:
            raise UserError(
                f"The model has {len(tables)} embedding tables with {sum(map(len, tables.values())):,} rows, and the "
                f"data's columns need {len(self.rows)} with {sum(self.rows):,}: build the model for this table."
            )
        ordered = [tables[f"{block}table{column}"] for column in range(len(self.rows))]
        joined = torch.cat([table.detach() for table in ordered])
        for table, view in zip(ordered, torch.split(joined, list(self.rows)), strict=True):
            table.data = view
        self.blocks[block], self.sums[block] = joined, torch.zeros_like(joined)

    def gather(self, ids: Tensor) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor], Tensor]:
        """The rows that ids [B, F] name, sorted [R]; of each block a small leaf [R, width]; all small tables by the
        names of the parameters they stand for; and the ids [B, F] counted within the small tables.
        """
        if ids.shape[1] != len(self.rows) or bool(((ids < 0) | (ids >= self.starts.diff())).any()):
            raise DataError("A batch holds ids beyond the model's embedding tables: build the model for this table.")
        named, place = torch.unique(ids + self.starts[:-1], return_inverse=True)  # [R], [B, F]
        first = torch.searchsorted(named, self.starts)  # [F + 1]: where each column begins among the named rows
        counts = first.diff().tolist()
        leaves = {block: joined[named].requires_grad_() for block, joined in self.blocks.items()}
        small = {
            f"{block}table{column}": table
            for block, leaf in leaves.items()
            for column, table in enumerate(torch.split(leaf, counts))
        }
        return named, leaves, small, place - first[:-1] if self.blocks else ids

    @torch.no_grad()
    def descend(self, named: Tensor, gradients: dict[str, Tensor], rate: float, eps: float) -> None:
        """One step of Adagrad on the named rows."""
        for block, gradient in gradients.items():
            total = self.sums[block][named].addcmul_(gradient, gradient)  # [R, width]
            self.sums[block][named] = total
            self.blocks[block].index_add_(0, named, gradient / total.sqrt().add_(eps), alpha=-rate)
