"""The start of a training: statistics of the input, and embeddings of one scale.

    logits = start(model, table, settings, seed)

`standardised` and `pieces` (plan/ops/numeric.py) get the mean, deviation and intervals of the first training rows. The
intervals of a number end at its values where it has few, else at quantiles in which no value counts for more than one
interval, so that a value that most rows share leaves intervals for the others. With an `embedding_scale` all embeddings
are drawn anew, those with a single feature, which are effects, begin at zero, and so does the last layer of a network
that has a linear model beside it: such a network begins as the linear model.
"""

from __future__ import annotations

from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from epochzero.plan.init import generator
from epochzero.recommend.data.table import CtrTable
from epochzero.recommend.spaces.nasrec_network import WIDE
from epochzero.recommend.supernet.fitness import HEAD
from epochzero.recommend.training.row_tables import RowTables
from epochzero.recommend.training.settings import Settings

ROWS, SIZE = 200_000, 10_000
"""the most rows that statistics come from, and how many are read at a time"""


@torch.no_grad()
def start(model: nn.Module, table: CtrTable, settings: Settings, seed: int) -> None:
    """Sets the statistics of the input and the initial embeddings of a model."""
    buffers = dict(model.named_buffers())
    if any(name.endswith(("standardised.mean", "pieces.low")) for name in buffers):
        dense = torch.cat([b.dense for b in islice(table.batches("train", size=SIZE), ROWS // SIZE)]).double()
        for name, buffer in buffers.items():
            block, _, kind = name.rpartition(".")
            if block.endswith("standardised"):
                deviation = dense.std(0, correction=0)
                buffer.copy_(dense.mean(0) if kind == "mean" else torch.where(deviation > 1e-9, 1 / deviation, 1.0))
            elif block.endswith("pieces"):
                low, scale = intervals(dense.numpy(), buffer.shape[1])
                buffer.copy_(torch.from_numpy(low if kind == "low" else scale))
    if not settings.embedding_scale:
        return
    tables = RowTables(model, table.rows)
    for name, weight in model.named_parameters():
        if name in tables.names and weight.shape[1] == 1:
            weight.zero_()
        elif name in tables.names:
            weight.normal_(0, settings.embedding_scale, generator=generator(seed, "embedding", name))
        elif name.startswith(WIDE) or (name.startswith(HEAD) and any(n.startswith(WIDE) for n in tables.names)):
            weight.zero_()


def intervals(values: NDArray[np.float64], count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The lower ends and the inverse lengths [D, count] of the intervals of values [N, D]; 0 for an empty one."""
    ends = np.stack([_ends(column, count) for column in values.T])  # [D, count + 1]
    length = np.diff(ends)
    return ends[:, :-1], np.divide(1, length, out=np.zeros_like(length), where=length > 0)


def _ends(values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    distinct, rows = np.unique(values, return_counts=True)
    if len(distinct) <= count + 1:
        return np.append(distinct, np.full(count + 1 - len(distinct), distinct[-1]))
    mass = np.minimum(rows, len(values) / count)
    share = (np.cumsum(mass) - mass / 2 - mass[0] / 2) / (mass.sum() - mass[0] / 2 - mass[-1] / 2)  # 0 to 1
    places = np.searchsorted(share, np.linspace(0, 1, count + 1) - 1e-9).clip(0, len(distinct) - 1)
    ends: NDArray[np.float64] = distinct[places]
    return ends
