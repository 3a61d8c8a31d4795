"""The embedding tables of a model in training: a step touches the rows that a batch names.

An optimiser leaves a weight of gradient zero as it is, so a step on the rows that a batch names is a step on the
embedding tables. A model keeps one parameter for each column, called `table0`, `table1`, ... inside a block (`Tables`,
`Embedding`). Here the tables of a block become views of one tensor. One sort of all ids of a batch gives its rows,
which are gathered into small tables; the model runs on these with the ids counted anew, and their gradient is dense and
small. A model without such parameters is trained with gradients of all its weights.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from epochzero.errors import DataError, UserError
from epochzero.recommend.training.optimizers import Moments, descend, new_moments


def device_of(model: nn.Module) -> torch.device:
    return next((weight.device for weight in model.parameters()), torch.device("cpu"))


class RowTables:
    """The embedding tables of a model, of one or more widths."""

    def __init__(self, model: nn.Module, rows: Sequence[int], optimizer: str = "adagrad") -> None:
        """Collects the tables by their names, and checks them against the columns of the data."""
        self.rows, self.optimizer = tuple(rows), optimizer
        self.starts = torch.tensor([0, *rows], device=device_of(model)).cumsum(0)  # [F + 1]
        self.blocks: dict[str, Tensor] = {}
        self.moments: dict[str, Moments] = {}
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
        self.blocks[block], self.moments[block] = joined, new_moments(self.optimizer, joined)

    def gather(self, ids: Tensor) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor], Tensor]:
        """The sorted rows [R] that ids [B, F] name; for each block a small leaf [R, width]; small tables by names of
        the parameters they replace; and the ids [B, F] within the small tables.
        """
        if ids.shape[1] != len(self.rows) or bool(((ids < 0) | (ids >= self.starts.diff())).any()):
            raise DataError("A batch holds ids beyond the model's embedding tables: build the model for this table.")
        named, place = torch.unique(ids + self.starts[:-1], return_inverse=True)  # [R], [B, F]
        first = torch.searchsorted(named, self.starts)  # [F + 1]: the first named row of each column
        counts = first.diff().tolist()
        leaves = {block: joined[named].requires_grad_() for block, joined in self.blocks.items()}
        small = {
            f"{block}table{column}": table
            for block, leaf in leaves.items()
            for column, table in enumerate(torch.split(leaf, counts))
        }
        return named, leaves, small, place - first[:-1] if self.blocks else ids

    def descend(
        self, named: Tensor, gradients: dict[str, Tensor], *, rate: float, step: int, eps: float, decay: float
    ) -> None:
        """One step on the named rows."""
        for block, gradient in gradients.items():
            weights, moments = self.blocks[block][named], {k: m[named] for k, m in self.moments[block].items()}
            descend([weights], [gradient], [moments], rate=rate, step=step, eps=eps, decay=decay)
            self.blocks[block][named] = weights
            for name, moment in moments.items():
                self.moments[block][name][named] = moment
