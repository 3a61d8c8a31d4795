r"""Several trainings of one click-through model side by side, from different first weights: a GPU's way to repeat them.

All weights of all S trainings lie in one table [S, P], and the model is run for all of them at once (`torch.vmap`). A
step is that of `training/trainer.py`, Adagrad with clipping, each training with a norm of its own:

    g_s = gradient of training s,  clipped at 5,     total_s += g_s^2,     w_s -= rate(t) g_s / (sqrt(total_s) + 0.01)

On a GPU a step is recorded once as a CUDA graph and played again: the number of the batch is a tensor on the GPU, which
the graph itself counts up, so that rows and rate are taken there too. Each training ends as if it had been trained
alone, but for rounding. All weights take part in every step, so this is for embeddings of few rows.

    weights = stacked([plan.module(Origin("xavier", seed)).weights() for seed in range(3)])
    trained = Together(run, weights, Rows.of(table, "train")).trained()     # run(weights, dense, ids) -> logits [B]
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from epochzero.engine.gpu.graph import capture, warm_up
from epochzero.errors import UserError
from epochzero.recommend.data.table import CtrTable, Part
from epochzero.recommend.training.metrics import Metrics, measure
from epochzero.recommend.training.settings import Settings
from epochzero.recommend.training.trainer import logits_of

Run = Callable[[Mapping[str, Tensor], Tensor, Tensor], Tensor]
"""One network: weights by name, dense [B, D] and ids [B, F] to logits [B] or [B, 1]."""
CHUNK = 8192


class Rows(NamedTuple):
    """All rows of a part of a table, in memory."""

    dense: Tensor
    """[N, D]"""
    ids: Tensor
    """[N, F]"""
    label: Tensor
    """[N]"""

    @classmethod
    def of(cls, table: CtrTable, part: Part, device: str | torch.device = "cpu", stop: int | None = None) -> Rows:
        """In the order of the file; the first `stop` of them."""
        (batch,) = table.batches(part, size=table.size(part), stop=stop)
        return cls(*(column.to(device) for column in batch))


def stacked(networks: Sequence[Mapping[str, Tensor]], device: str | torch.device = "cpu") -> dict[str, Tensor]:
    """The weights [S, ...] of S networks that differ in nothing but these."""
    first = networks[0]
    return {name: torch.stack([network[name].detach() for network in networks]).to(device) for name in first}


class Together:
    """S trainings of one model."""

    def __init__(self, run: Run, weights: Mapping[str, Tensor], rows: Rows, settings: Settings = Settings()) -> None:
        if settings.epochs != 1:
            raise UserError("Trainings side by side go once through the rows: leave epochs at 1.")
        self.settings, self.rows = settings, rows
        self.shapes = {name: weight.shape[1:] for name, weight in weights.items()}
        self.flat = torch.cat([weight.flatten(1) for weight in weights.values()], 1)  # [S, P]
        self.flat.requires_grad_()
        self.sums = torch.zeros_like(self.flat)  # [S, P]
        self.together = torch.vmap(lambda w, dense, ids: logits_of(run(w, dense, ids)), (0, None, None))
        device, size = self.flat.device, settings.batch_size
        self.steps = -(-len(rows.label) // size)
        rates = [settings.rate(t, self.steps) for t in range(self.steps)]
        self.rates = torch.tensor(rates, dtype=self.flat.dtype, device=device)
        self.step = torch.zeros(1, dtype=torch.long, device=device)
        self.within = torch.arange(size, device=device)

    def weights(self) -> dict[str, Tensor]:
        """By name, [S, ...]: parts of the one table."""
        sizes = [shape.numel() for shape in self.shapes.values()]
        parts = torch.split(self.flat, sizes, 1)
        return {name: part.reshape(-1, *shape) for (name, shape), part in zip(self.shapes.items(), parts, strict=True)}

    def _descend(self, dense: Tensor, ids: Tensor, label: Tensor) -> None:
        logits = self.together(self.weights(), dense, ids)  # [S, B]
        losses = F.binary_cross_entropy_with_logits(logits, label.expand_as(logits), reduction="none").mean(1)
        (gradient,) = torch.autograd.grad(losses.sum(), [self.flat])  # [S, P]
        with torch.no_grad():
            norm = gradient.norm(dim=1, keepdim=True)  # [S, 1]
            gradient = gradient * (self.settings.clip / (norm + 1e-6)).clamp(max=1.0)
            self.sums.addcmul_(gradient, gradient)
            rate = self.rates.index_select(0, self.step)  # [1]
            self.flat.sub_(rate * gradient / self.sums.sqrt().add_(self.settings.eps))
            self.step.add_(1)

    def _full_batch(self) -> None:
        """The step whose number is on the device, all of it there."""
        chosen = self.step * self.settings.batch_size + self.within  # [B]
        self._descend(*(column.index_select(0, chosen) for column in self.rows))

    def trained(self, recorded: bool = True) -> dict[str, Tensor]:
        """The weights [S, ...] after one pass over the rows; recorded where that is possible, on a GPU."""
        full = len(self.rows.label) // self.settings.batch_size
        step = self._record() if recorded and self.flat.is_cuda else self._full_batch
        for _ in range(full):
            step()
        if rest := len(self.rows.label) - full * self.settings.batch_size:
            self._descend(*(column[-rest:] for column in self.rows))
        found = {name: weight.detach() for name, weight in self.weights().items()}
        if not bool(self.flat.isfinite().all()):
            raise UserError("The weights are no longer finite: lower the learning rate, or look at the data.")
        return found

    def _record(self) -> Callable[[], None]:
        """A step as a CUDA graph, or as it is where that fails; nothing has changed when it is ready."""
        state = [tensor.detach().clone() for tensor in (self.flat, self.sums, self.step)]
        warm_up(self._full_batch)
        captured = capture(self._full_batch)
        with torch.no_grad():
            for tensor, before in zip((self.flat, self.sums, self.step), state, strict=True):
                tensor.copy_(before)
        return self._full_batch if captured is None else captured.replay

    @torch.no_grad()
    def measured(self, rows: Rows) -> list[Metrics]:
        """Returns the metrics of each training's weights on some rows."""
        weights = self.weights()
        pieces = zip(torch.split(rows.dense, CHUNK), torch.split(rows.ids, CHUNK), strict=True)
        logits = np.concatenate([self.together(weights, *piece).cpu().numpy() for piece in pieces], 1)  # [S, N]
        label = rows.label.cpu().numpy()
        return [measure(row, label) for row in logits]
