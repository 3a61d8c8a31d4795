r"""Training of click models as in NASRec: Adagrad, one epoch in the order of the file.

    g    = gradient of the mean log loss of a batch, its norm clipped at 5
    s   += g^2,   w -= rate(t) g / (sqrt(s) + 0.01)
    rate(t) = 0.12 t / r  for t < r,   0.06 (1 + cos(pi (t - r) / (T - r)))  after, never under 1e-8;   r = T / 10

A model maps dense [B, D] and ids [B, F] to a logit [B] or [B, 1].

    trained = train(model, table, checkpoint="run.pt")     # stopped and called again: resumes, and ends the same
    evaluate(model, table, "test")                         # Metrics(log_loss, auc, rows)

Adagrad leaves a weight of gradient zero as it is, so a step on the rows that a batch names is a step on the embedding
tables. A model keeps one parameter for each column, called `table0`, `table1`, ... inside a block (`Tables`,
`Embedding`). Here the tables of a block become views of one tensor. One sort of all ids of a batch gives its rows,
which are gathered into small tables; the model runs on these with the ids counted anew, and their gradient is dense and
small. A model without such parameters is trained with gradients of all its weights.

Duchi, Hazan, Singer. Adaptive subgradient methods for online learning and stochastic optimization. JMLR 12, 2011.
NASRec: spaces/nasrec.py
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from signal import SIGINT, signal
from threading import current_thread, main_thread
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call

from epochzero.data.sealed import read_own, write
from epochzero.engine import foreach
from epochzero.errors import DataError, MachineError, UserError
from epochzero.progress import Progress, silent
from epochzero.recommend.data.table import CtrBatch, CtrTable, Part
from epochzero.recommend.supernet.warm_up import rising_and_falling
from epochzero.recommend.training.metrics import Metrics, measure

KIND, VERSION = "epochzero click-through training", 1


@dataclass(frozen=True)
class Settings:
    """The settings of a training."""

    batch_size: int = 512
    epochs: int = 1
    highest: float = 0.12
    lowest: float = 1e-8
    rise: float = 0.1
    """share of steps in which the rate rises"""
    eps: float = 1e-2
    clip: float = 5.0

    def __post_init__(self) -> None:
        if min(self.batch_size, self.epochs) < 1 or not 0 <= self.rise < 1:
            raise UserError("Training needs batches of at least 1 row, at least 1 epoch, and a rise from 0 to below 1.")
        if not all(math.isfinite(x) and x > 0 for x in (self.highest, self.lowest, self.eps, self.clip)):
            raise UserError("Rates, eps and clip have to be finite numbers above 0.")

    def rate(self, step: int, steps: int) -> float:
        return rising_and_falling(step, steps, self.highest, self.lowest, self.rise)


@dataclass(frozen=True)
class Trained:
    """The outcome of a training."""

    steps: int
    loss: float
    """mean over the last tenth of the steps"""
    seconds: float
    """of this call"""
    rows_per_second: float
    """of this call; nan if nothing was left to do"""


def device_of(model: nn.Module) -> torch.device:
    return next((weight.device for weight in model.parameters()), torch.device("cpu"))


class RowTables:
    """The embedding tables of a model, of one or more widths."""

    def __init__(self, model: nn.Module, rows: Sequence[int]) -> None:
        """Collects the tables by their names, and checks them against the columns of the data."""
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

    @torch.no_grad()
    def descend(self, named: Tensor, gradients: dict[str, Tensor], rate: float, eps: float) -> None:
        """One step of Adagrad on the named rows."""
        for block, gradient in gradients.items():
            total = self.sums[block][named].addcmul_(gradient, gradient)  # [R, width]
            self.sums[block][named] = total
            self.blocks[block].index_add_(0, named, gradient / total.sqrt().add_(eps), alpha=-rate)


class Trainer:
    """A model in training."""

    def __init__(self, model: nn.Module, rows: Sequence[int], steps: int, settings: Settings = Settings()) -> None:
        self.model, self.settings, self.steps = model, settings, steps
        self.step = 0
        self.device = device_of(model)
        self.tables = RowTables(model, rows)
        named = {name: p for name, p in model.named_parameters() if name not in self.tables.names and p.requires_grad}
        self.others: list[Tensor] = list(named.values())
        self.sums = {name: torch.zeros_like(weight) for name, weight in named.items()}

    def train_on(self, batch: CtrBatch) -> float:
        """Takes one step; returns the loss before it."""
        dense, ids, label = (tensor.to(self.device) for tensor in batch)
        named, leaves, small, ids = self.tables.gather(ids)
        loss = F.binary_cross_entropy_with_logits(logits_of(functional_call(self.model, small, (dense, ids))), label)
        if not math.isfinite(value := loss.item()):
            raise UserError(f"The loss is {value} at step {self.step}: lower the learning rate, or look at the data.")
        weights = [*leaves.values(), *self.others]
        raw = torch.autograd.grad(loss, weights, allow_unused=True, materialize_grads=True)
        if any(gradient.is_sparse for gradient in raw):
            raise UserError("The model has embeddings with sparse gradients: leave `sparse` out, or use `Tables`.")
        norm = torch.stack(foreach.norm(raw)).norm()
        gradients = foreach.mul(raw, (self.settings.clip / (norm + 1e-6)).clamp(max=1.0))
        self._descend(named, dict(zip(leaves, gradients, strict=False)), gradients[len(leaves) :])
        self.step += 1
        return value

    @torch.no_grad()
    def _descend(self, named: Tensor, of_rows: dict[str, Tensor], others: tuple[Tensor, ...]) -> None:
        """One step of Adagrad on the named rows and on all other weights."""
        rate, eps = self.settings.rate(self.step, self.steps), self.settings.eps
        self.tables.descend(named, of_rows, rate, eps)
        if others:
            sums = list(self.sums.values())
            foreach.addcmul_(sums, others, others)
            roots = foreach.sqrt(sums)
            foreach.add_(roots, eps)
            foreach.addcdiv_(self.others, others, roots, value=-rate)

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "model": self.model.state_dict(),
            "sums": self.sums | self.tables.sums,
            "random": torch.get_rng_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        for name, total in (self.sums | self.tables.sums).items():
            total.copy_(state["sums"][name])
        torch.set_rng_state(state["random"])
        self.step = state["step"]


def logits_of(output: Tensor) -> Tensor:
    """[B] from [B] or [B, 1]."""
    return output.squeeze(1) if output.dim() == 2 else output


def train(
    model: nn.Module,
    table: CtrTable,
    settings: Settings = Settings(),
    *,
    parts: Sequence[Part] = ("train",),
    share: float = 1.0,
    identity: Mapping[str, str | int] = {},
    checkpoint: str | Path | None = None,
    every: int = 1000,
    progress: Progress = silent,
) -> Trained:
    """Trains on the first `share` of the rows of the parts; a checkpoint after `every` steps, at the end and at Ctrl-C.

    A training with a checkpoint resumes from it, and ends as if it had never stopped. `identity` holds what else
    defines the training, such as network and seed: a checkpoint with another identity is refused.
    """
    if not 0 < share <= 1:
        raise UserError(f"The share of the rows to train on is {share}: give a number above 0, at most 1.")
    total = table.size(*parts)
    check_labels(table, *parts)
    stop = rows_in(share, total)
    each = math.ceil(stop / settings.batch_size)
    trainer = Trainer(model, table.rows, each * settings.epochs, settings)
    facts: dict[str, Any] = {"settings": asdict(settings), "data": table.fingerprint, "parts": [*parts], "stop": stop}
    facts |= identity
    losses: list[float] = []
    if checkpoint is not None and Path(checkpoint).exists():
        losses = _load(Path(checkpoint), trainer, facts)
    model.train()
    begun, start = trainer.step, time.perf_counter()
    with between_steps() as stopped:
        while trainer.step < trainer.steps:
            for batch in table.batches(*parts, size=settings.batch_size, start=trainer.step % each, stop=stop):
                losses.append(trainer.train_on(batch))
                progress(trainer.step, trainer.steps, f"loss {losses[-1]:.4f}")
                due = trainer.step % every == 0 or trainer.step == trainer.steps or stopped()
                if checkpoint is not None and due:
                    _save(Path(checkpoint), trainer, facts, losses)
                if stopped():
                    raise KeyboardInterrupt
    seconds = time.perf_counter() - start
    seen = stop * settings.epochs - (stop * (begun // each) + settings.batch_size * (begun % each))
    last = losses[-max(1, len(losses) // 10) :]
    return Trained(trainer.steps, sum(last) / len(last), seconds, seen / seconds if begun < trainer.steps else math.nan)


@contextmanager
def between_steps() -> Iterator[Callable[[], bool]]:
    """Holds back Ctrl-C until a step is complete; the function is true once it came. A second one is not held back."""
    came: list[int] = []

    def note(number: int, frame: object) -> None:
        if came:
            raise KeyboardInterrupt
        came.append(number)

    if current_thread() is not main_thread():  # only the main thread receives signals
        yield lambda: False
        return
    before = signal(SIGINT, note)
    try:
        yield lambda: bool(came)
    finally:
        signal(SIGINT, before)


def rows_in(share: float, total: int) -> int:
    return max(1, round(share * total))


def check_labels(table: CtrTable, *parts: Part) -> None:
    """DataError for a table without rows, or with a single label."""
    if not (total := table.size(*parts)):
        raise DataError(f"The table {table.folder} has no rows in {' and '.join(parts)}: there is nothing to learn.")
    if (clicks := table.clicks(*parts)) in (0, total):
        raise DataError(
            f"All {total:,} rows of {' and '.join(parts)} in {table.folder} have the label {int(clicks > 0)}: "
            "a model needs clicks and others; give more rows or another split."
        )


def _save(file: Path, trainer: Trainer, facts: dict[str, Any], losses: list[float]) -> None:
    """Writes a checkpoint in place of an older one."""
    state = {"kind": KIND, "version": VERSION, "told": facts, "losses": torch.tensor(losses, dtype=torch.float64)}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(f"The folder '{file.parent}' cannot be made ({error.strerror}).") from error
    write(file, state | trainer.state())


def _load(file: Path, trainer: Trainer, facts: dict[str, Any]) -> list[float]:
    """Restores the trainer; returns the losses so far."""
    state = read_own(file)
    if state.get("kind") != KIND or state.get("version") != VERSION:
        raise UserError(f"{file} is not a checkpoint of a click model: choose another file.")
    if state["told"] != facts:
        differ = ", ".join(sorted(key for key in facts if state["told"].get(key) != facts[key]))
        raise UserError(
            f"{file} is of a training with other {differ}: choose another place, or remove it to start anew."
        )
    try:
        trainer.restore(state)
    except (RuntimeError, KeyError, ValueError) as error:
        raise UserError(f"{file} is of another model: choose another file, or remove it to start anew.") from error
    losses: list[float] = state["losses"].tolist()
    return losses


@torch.no_grad()
def evaluate(model: nn.Module, table: CtrTable, *parts: Part, batch_size: int = 8192) -> Metrics:
    """Log loss and AUC of the model on the rows of the parts."""
    training, device = model.training, device_of(model)
    model.eval()
    outputs = [
        (logits_of(model(batch.dense.to(device), batch.ids.to(device))).cpu().numpy(), batch.label.numpy())
        for batch in table.batches(*parts, size=batch_size)
    ]
    model.train(training)
    if not outputs:
        raise DataError(f"The table {table.folder} has no rows in {' and '.join(parts)}: there is nothing to measure.")
    return measure(*(np.concatenate(arrays) for arrays in zip(*outputs, strict=True)))
