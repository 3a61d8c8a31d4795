r"""Training of click models: steps, epochs, early stopping and checkpoints.

    g     = gradient of the mean log loss of a batch, its norm clipped at 5
    w, s  = one step of Adagrad or AdamW (optimizers.py) at rate(t) (settings.py)

A model maps dense [B, D] and ids [B, F] to a logit [B] or [B, 1]. Its embeddings are stepped by row (row_tables.py).

    trained = train(model, table, checkpoint="run.pt")     # stopped and called again: resumes, and ends the same
    evaluate(model, table, "test")                         # Metrics(log_loss, auc, rows)
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.func import functional_call

from epochzero.data.sealed import read_own, write
from epochzero.engine import foreach
from epochzero.errors import DataError, MachineError, UserError
from epochzero.progress import Progress, silent
from epochzero.recommend.data.table import CtrBatch, CtrTable, Part
from epochzero.recommend.training.early_stopping import RETRY, EarlyStopping, base_loss
from epochzero.recommend.training.interrupt import between_steps
from epochzero.recommend.training.metrics import Metrics, log_loss, measure
from epochzero.recommend.training.optimizers import MOMENTS, descend, new_moments
from epochzero.recommend.training.row_tables import RowTables, device_of
from epochzero.recommend.training.settings import Settings

KIND, VERSION = "epochzero click-through training", 1
SWEPT = (1 / 3, 1.0, 3.0)
"""factors of the highest rate that a sweep tries"""
SWEEP_STEPS = 200
"""the most steps for each"""

Floats = NDArray[np.floating[Any]]


class DivergedError(UserError):
    """The loss is not finite."""


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
    best_step: int = 0
    """after which the weights are those that are kept"""
    rate: float = math.nan
    """the highest learning rate"""
    retried: bool = False
    """true if it started once more at a lower rate, since nothing had been learnt"""
    at_base: bool = False
    """true if the model is no better than the base rate on the validation rows; known with early stopping"""


class Trainer:
    """A model in training."""

    def __init__(self, model: nn.Module, rows: Sequence[int], steps: int, settings: Settings = Settings()) -> None:
        """`steps` is what the learning rate depends on: those of the training, or of an epoch with early stopping."""
        self.model, self.settings, self.steps = model, settings, steps
        self.step = 0
        self.factor = 1.0
        """of the rate"""
        self.device = device_of(model)
        self.tables = RowTables(model, rows, settings.optimizer)
        named = {name: p for name, p in model.named_parameters() if name not in self.tables.names and p.requires_grad}
        self.others: list[Tensor] = list(named.values())
        self.moments = {name: new_moments(settings.optimizer, weight) for name, weight in named.items()}

    def train_on(self, batch: CtrBatch) -> float:
        """Takes one step; returns the loss before it."""
        dense, ids, label = (tensor.to(self.device) for tensor in batch)
        named, leaves, small, ids = self.tables.gather(ids)
        loss = F.binary_cross_entropy_with_logits(logits_of(functional_call(self.model, small, (dense, ids))), label)
        if not math.isfinite(value := loss.item()):
            raise DivergedError(
                f"The loss is {value} at step {self.step}: lower the learning rate, or look at the data."
            )
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
        """One step on the named rows and on all other weights."""
        own = self.settings
        rate, at, eps = self.factor * own.rate(self.step, self.steps), self.step, own.eps
        self.tables.descend(named, of_rows, rate=rate, step=at, eps=eps, decay=own.embedding_decay)
        moments = list(self.moments.values())
        descend(self.others, others, moments, rate=rate, step=at, eps=eps, decay=own.weight_decay)

    @property
    def _by_moment(self) -> dict[str, dict[str, Tensor]]:
        """By name of a moment and of a weight, the moment."""
        every = self.moments | self.tables.moments
        return {
            kind: {name: moments[kind] for name, moments in every.items()} for kind in MOMENTS[self.settings.optimizer]
        }

    @torch.no_grad()
    def forget(self) -> None:
        """Sets all moments to zero."""
        for named in self._by_moment.values():
            for moment in named.values():
                moment.zero_()

    def state(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "model": self.model.state_dict(),
            **self._by_moment,
            "random": torch.get_rng_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        self.model.load_state_dict(state["model"])
        for kind, named in self._by_moment.items():
            for name, moment in named.items():
                moment.copy_(state[kind][name])
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
    seed: int = 0,
    identity: Mapping[str, str | int] = {},
    other_start: Callable[[], Mapping[str, Tensor]] | None = None,
    checkpoint: str | Path | None = None,
    every: int = 1000,
    progress: Progress = silent,
) -> Trained:
    """Trains on the first `share` of the rows of the parts; a checkpoint after `every` steps, at the end and at Ctrl-C.

    A training with a checkpoint resumes from it, and ends as if it had never stopped. `identity` holds what else
    defines the training, such as network and seed: a checkpoint with another identity is refused. `seed` is that of
    the order of the rows. With early stopping, a model that ends behind the one with the weights of `other_start`
    continues from these.
    """
    if not 0 < share <= 1:
        raise UserError(f"The share of the rows to train on is {share}: give a number above 0, at most 1.")
    check_labels(table, *parts)
    stop = rows_in(share, table.size(*parts))
    facts: dict[str, Any] = {"settings": settings.told(), "data": table.fingerprint, "parts": [*parts], "stop": stop}
    facts |= identity
    run = _Run(model, table, settings, parts, stop, seed)
    run.other_start = other_start
    if checkpoint is not None and Path(checkpoint).exists():
        _load(Path(checkpoint), run, facts)
    elif settings.sweep:
        run.rate = run.swept(progress)
    model.train()
    begun, start = run.trainer.step, time.perf_counter()
    with between_steps() as stopped:
        for step in run.steps():
            progress(step, run.most, run.note)
            if checkpoint is not None and (step % every == 0 or run.ended or stopped()):
                _save(Path(checkpoint), run, facts)
            if stopped():
                raise KeyboardInterrupt
    return run.result(begun, time.perf_counter() - start)


class _Run:
    """A training under way."""

    def __init__(
        self, model: nn.Module, table: CtrTable, settings: Settings, parts: Sequence[Part], stop: int, seed: int
    ) -> None:
        self.model, self.table, self.settings = model, table, settings
        self.parts, self.stop, self.seed = parts, stop, seed
        self.each = math.ceil(stop / settings.batch_size)
        """steps in an epoch"""
        self.most = self.each * settings.epochs
        self.trainer = Trainer(model, table.rows, self.each if settings.patience else self.most, settings)
        self.stopping = EarlyStopping(model, settings, base_loss(table)) if settings.patience else None
        self.rate = 1.0
        """factor of the highest rate, from the sweep"""
        self.other_start: Callable[[], Mapping[str, Tensor]] | None = None
        self.losses: list[float] = []
        self.ended = False

    def steps(self, most: int | None = None) -> Iterator[int]:
        """Trains, and yields the number of steps after each; ends after `most` of them."""
        most = self.most if most is None else min(most, self.most)
        if self.stopping and not self.stopping.history:
            self.check()
        while not self.ended and self.trainer.step < most:
            for batch in self.batches(*divmod(self.trainer.step, self.each)):
                self.take(batch)
                if self.ended or self.trainer.step == self.most:
                    self.end()
                yield self.trainer.step
                if self.ended or self.trainer.step == most:
                    break

    def take(self, batch: CtrBatch) -> None:
        """One step, and a check where one is due."""
        self.trainer.factor = self.rate * (self.stopping.factor if self.stopping else 1)
        try:
            self.losses.append(self.trainer.train_on(batch))
        except DivergedError:
            if not self.stopping:
                raise
            self.trainer.step += 1
            self.ended = self.stopping.told(math.inf, self.trainer.step)
            self.trainer.forget()
            return
        if self.stopping and (self.trainer.step % -(-self.each // self.settings.checks) == 0):
            self.check()

    def check(self) -> None:
        """Measures the model on the validation rows."""
        stopping = self.stopping
        assert stopping is not None
        before = stopping.retried
        self.ended = stopping.told(val_loss(self.model, self.table), self.trainer.step)
        if stopping.retried != before:
            self.trainer.forget()

    def end(self) -> None:
        """Ends with the best state, unless another start is better."""
        self.ended, stopping = True, self.stopping
        if stopping is None:
            return
        if self.other_start is not None and not stopping.restarted:
            better = stopping.better_from(self.other_start(), lambda: val_loss(self.model, self.table))
            self.ended = not better or self.trainer.step >= self.most
            self.trainer.forget()
        if self.ended:
            self.model.load_state_dict(stopping.weights)

    def batches(self, epoch: int, start: int) -> Iterator[CtrBatch]:
        """Those of an epoch from batch `start` on."""
        size, settings = self.settings.batch_size, self.settings
        if settings.shuffle:
            found = self.table.shuffled(*self.parts, size=size, start=start, stop=self.stop, seed=(self.seed, epoch))
        else:
            found = self.table.batches(*self.parts, size=size, start=start, stop=self.stop)
        return found

    def swept(self, progress: Progress) -> float:
        """The factor of the highest rate with the lowest log loss on the validation rows after a few steps."""
        found = dict[float, float]()
        for factor in SWEPT:
            run = _Run(deepcopy(self.model), self.table, self.settings, self.parts, self.stop, self.seed)
            run.rate, most = factor, min(SWEEP_STEPS, -(-self.each // self.settings.checks))
            for step in run.steps(most):
                progress(step, most, f"rate {factor * self.settings.highest:.2g}")
            found[factor] = val_loss(run.model, self.table)
        return min(found, key=lambda factor: found[factor])

    @property
    def note(self) -> str:
        best = f", best {self.stopping.loss:.4f} on validation rows" if self.stopping else ""
        return f"loss {self.losses[-1]:.4f}{best}" if self.losses else ""

    def result(self, begun: int, seconds: float) -> Trained:
        step, stopping, size = self.trainer.step, self.stopping, self.settings.batch_size
        seen = [self.stop * (at // self.each) + size * (at % self.each) for at in (begun, step)]
        last = self.losses[-max(1, len(self.losses) // 10) :]
        return Trained(
            step,
            sum(last) / max(1, len(last)),
            seconds,
            (seen[1] - seen[0]) / seconds if step > begun else math.nan,
            stopping.step if stopping else step,
            self.rate * self.settings.highest * (RETRY if stopping and stopping.retried else 1),
            bool(stopping and stopping.retried),
            bool(stopping and stopping.at_base),
        )

    def state(self) -> dict[str, Any]:
        stopping = {} if self.stopping is None else {"stopping": self.stopping.state(), "rate": self.rate}
        return self.trainer.state() | stopping | {"ended": self.ended}

    def restore(self, state: dict[str, Any]) -> None:
        self.trainer.restore(state)
        if self.stopping is not None:
            self.stopping.restore(state["stopping"])
            self.rate = state["rate"]
        self.ended = state.get("ended", self.trainer.step == self.most)  # missing in old checkpoints
        self.losses = state["losses"].tolist()


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


def _save(file: Path, run: _Run, facts: dict[str, Any]) -> None:
    """Writes a checkpoint in place of an older one."""
    state = {"kind": KIND, "version": VERSION, "told": facts, "losses": torch.tensor(run.losses, dtype=torch.float64)}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise MachineError(f"The folder '{file.parent}' cannot be made ({error.strerror}).") from error
    write(file, state | run.state())


def _load(file: Path, run: _Run, facts: dict[str, Any]) -> None:
    """Restores a run."""
    state = read_own(file)
    if state.get("kind") != KIND or state.get("version") != VERSION:
        raise UserError(f"{file} is not a checkpoint of a click model: choose another file.")
    if state["told"] != facts:
        differ = ", ".join(sorted(key for key in facts if state["told"].get(key) != facts[key]))
        raise UserError(
            f"{file} is of a training with other {differ}: choose another place, or remove it to start anew."
        )
    try:
        run.restore(state)
    except (RuntimeError, KeyError, ValueError) as error:
        raise UserError(f"{file} is of another model: choose another file, or remove it to start anew.") from error


@torch.no_grad()
def predicted(model: nn.Module, table: CtrTable, *parts: Part, batch_size: int = 8192) -> tuple[Floats, Floats]:
    """The logits [N] and labels [N] of the rows of the parts."""
    training, device = model.training, device_of(model)
    model.eval()
    outputs = [
        (logits_of(model(batch.dense.to(device), batch.ids.to(device))).cpu().numpy(), batch.label.numpy())
        for batch in table.batches(*parts, size=batch_size)
    ]
    model.train(training)
    if not outputs:
        raise DataError(f"The table {table.folder} has no rows in {' and '.join(parts)}: there is nothing to measure.")
    logits, labels = (np.concatenate(arrays) for arrays in zip(*outputs, strict=True))
    return logits, labels


def val_loss(model: nn.Module, table: CtrTable) -> float:
    """The log loss on the validation rows, infinite where a prediction is not finite."""
    loss = log_loss(*predicted(model, table, "val"))
    return loss if math.isfinite(loss) else math.inf


def evaluate(model: nn.Module, table: CtrTable, *parts: Part, batch_size: int = 8192) -> Metrics:
    """Log loss and AUC of the model on the rows of the parts."""
    return measure(*predicted(model, table, *parts, batch_size=batch_size))
