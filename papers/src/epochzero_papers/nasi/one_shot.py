"""NASI in NAS-Bench-1Shot1: the shared part of the thesis' Tables 6.4 and 6.8 and Figures 6.2 and 6.6.

A search weighs every option of every choice, and NASI takes the cell with the largest weights. The table at hand may
hold only a part of NAS-Bench-101, so here the cell is the one with the largest weights among those whose test error is
known: all cells of a space, or 30,000 random ones of S3, that the table holds, and NASI's own if the table holds it.
With the whole table that is always NASI's own. The paper searches with mu = 1 and an adaptive nu from 1,000 on, for one
epoch of 50,000 images in batches of 64, 781 steps. `networks` counts the searches of each kind, each with weights of
its own; figures are means over them. A search is recorded once (`grid.py`) and read with any number of steps, nu and
mu.
"""

from __future__ import annotations

import json
import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, ClassVar, NamedTuple

import numpy as np
from torch import Tensor, tensor

from epochzero.data.batch import digest
from epochzero.engine.space_networks import batch_for
from epochzero.errors import DataError
from epochzero.registry import spaces
from epochzero.spaces.nb101_cell import Cell
from epochzero.supernet import State, make
from epochzero.supernet.nasi import Nasi, alpha, fresh, most_probable, split, stepped
from epochzero.tables import AccuracyTable
from epochzero_papers.harness.base import Measurement, Quoted, Recipe, Row, Sample, Settings, Work
from epochzero_papers.harness.estimates import estimate
from epochzero_papers.harness.figures import Figures, quoted
from epochzero_papers.harness.files import CIFAR10, NB101
from epochzero_papers.harness.training import folder_at_store
from epochzero_papers.nasi.grid import recorded
from epochzero_papers.nasi.one_shot_spaces import DRAWS, ONE_SHOT, rows_by_key
from epochzero_papers.nasi.saved import EVERY, Saved

ERROR = "test error %"
COLUMN = "test_acc_108ep"
Weights = Mapping[str, Mapping[str, float]]
"""by choice and option"""


@dataclass(frozen=True)
class Budget(Settings):
    """The number of searches, their length, and the size of their supernet."""

    networks: int = 5
    steps: int = 781
    parts: int = 50
    """batches of images, used in turn"""
    channels: int = 16
    cells: int = 0
    """of each stage; the paper's number if 0"""
    spaces: tuple[str, ...] = tuple(ONE_SHOT)


QUICK = Budget(networks=3, batch_size=8, steps=6, parts=6, channels=4, cells=1, spaces=("S1",))


class Reading(NamedTuple):
    """The settings that a recording is read with."""

    what: str
    steps: int
    nu: float | None = None
    """as a multiple of the mean of s; adaptive if None"""
    mu: float | None = None
    """the paper's if None"""


class Search(NamedTuple):
    """A recorded search, and its readings."""

    batch_size: int
    options: Mapping[str, str]
    readings: Sequence[Reading]


class OneShotSearches(Recipe):
    """An experiment whose rows are test errors of cells that NASI selects."""

    full: Budget = Budget()
    quick: Budget = QUICK
    needs = (CIFAR10, NB101)
    paper: ClassVar[Figures] = {}
    """by reading and space"""
    unmeasured: Sequence[str] = ()

    @abstractmethod
    def searches(self, settings: Budget) -> Sequence[Search]:
        """Returns the searches of each space."""

    @property
    def quoted(self) -> Sequence[Quoted]:
        return quoted(self.paper, ERROR)

    def measure(self, work: Work) -> Measurement:
        settings: Budget = work.settings
        images, table = work.images(NB101)
        work.begin(table=table.name, images=Path(images).name)
        accuracies = AccuracyTable.read(table)
        rows: list[Row] = []
        samples = {}
        for place, label in enumerate(settings.spaces):
            known = known_errors(spaces[ONE_SHOT[label]], accuracies)
            errors_of: dict[str, list[float]] = {"random cells": list(known.values())}
            about: dict[str, str] = {"random cells": f"all {len(known)} cells that {table.name} holds."}
            searches = self.searches(settings)
            for number, search in enumerate(searches):
                for seed in range(work.seed, work.seed + settings.networks):
                    done = (place * len(searches) + number) * settings.networks + seed - work.seed
                    work.progress(done, len(settings.spaces) * len(searches) * settings.networks)
                    nasi = _nasi(label, search, images, seed, work)
                    state = _recorded(nasi, work)
                    for reading in search.readings:
                        cell = selected(nasi, replayed(nasi, state, reading), known)
                        errors_of.setdefault(reading.what, []).append(known[cell])
                        about[reading.what] = nasi.batch.about
            rows += [
                Row(label, what, label, ERROR, estimate(errors), 0, self.paper.get(what, {}).get(label))
                for what, errors in errors_of.items()
            ]
            samples[label] = Sample(ONE_SHOT[label], [], {}, errors_of, about, {})
        work.progress(1, 1)
        unasked = [label for label in ONE_SHOT if label not in settings.spaces]
        small = [f"{', '.join(unasked)}: left out of this small form."] if unasked else []
        return Measurement(rows, samples, [*small, *self.unmeasured])


def known_errors(space: Any, table: AccuracyTable) -> dict[Cell, float]:
    """Returns cells of a space with known test errors, in percent."""
    row_of, rng = rows_by_key(tuple(table.archs)), Random(0)
    cells = space if space.count() <= DRAWS else (space.sample(rng) for _ in range(DRAWS))
    errors = 100 * (1 - table.column(COLUMN))
    known = {cell: float(errors[row]) for cell in cells if (row := row_of.get(space.key(cell))) is not None}
    if not known:
        raise DataError(f"{table.source} holds no cell of {space.name}: give a table with more of NAS-Bench-101.")
    return known


def selected(nasi: Nasi, found: Tensor, known: Mapping[Cell, float]) -> Cell:
    """Returns NASI's own cell if its error is known, else the cell of the largest weight among known ones."""
    own: Cell = most_probable(nasi.relaxed, nasi.barred, found)
    if own in known:
        return own
    parts = zip(nasi.relaxed.choices, split(nasi.relaxed, found), strict=True)
    weights = {choice.name: dict(zip(choice.options, own.tolist(), strict=True)) for choice, own in parts}
    return max(known, key=lambda cell: weight(cell, weights))


def weight(cell: Cell, weights: Weights) -> float:
    """Returns the sum over the options that make up a cell."""
    ops = [weights[f"op{vertex}"][op] for vertex, op in enumerate(cell.ops, start=1)]
    sources = [
        weights[f"from{vertex}"][str(source)] for vertex, own in enumerate(cell.sources, start=1) for source in own
    ]
    return float(np.sum([*ops, *sources]))


def replayed(nasi: Nasi, state: Any, reading: Reading) -> Tensor:
    """Returns the weight of every option after the first steps of a recording."""
    nu = None if reading.nu is None else reading.nu * sum(state["mean"]) / len(state["mean"])
    now: State = {"step": 0, **fresh(len(nasi.barred), nu)}
    for s, of_s in zip(state["s"][: reading.steps], state["slopes"], strict=False):
        now = stepped(now, s, tensor(of_s).double(), nasi.mu if reading.mu is None else reading.mu, nasi.nu0)
    return alpha(now)


def _nasi(label: str, search: Search, images: Any, seed: int, work: Work) -> Nasi:
    settings: Budget = work.settings
    space = spaces[ONE_SHOT[label]]
    batch = batch_for(space, images, size=search.batch_size, parts=settings.parts, seed=work.seed)
    sizes = {"channels": settings.channels, "cells": settings.cells}
    nasi = make("nasi", space, batch, seed, work.device, {**sizes, **search.options})
    assert isinstance(nasi, Nasi)
    return nasi


def _recorded(nasi: Nasi, work: Work) -> State:
    """Returns a recording; with a store on disk, one that was stopped resumes."""
    folder = folder_at_store(work, "searches")
    if folder is None:
        return recorded(nasi, work.settings.steps, lambda now: None)
    file = Saved(folder / f"{digest(json.dumps(nasi.settings))[:16]}.json")
    state = recorded(nasi, work.settings.steps, _keeping(file), file.state)
    file.write({"seconds": 0, "state": state})
    return state


def _keeping(file: Saved) -> Callable[[State], None]:
    last = time.monotonic()

    def keep(now: State) -> None:
        nonlocal last
        if time.monotonic() - last > EVERY:
            file.write({"seconds": 0, "state": now})
            last = time.monotonic()

    return keep
