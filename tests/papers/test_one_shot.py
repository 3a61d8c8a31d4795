"""NASI in NAS-Bench-1Shot1: the selected cell, readings of a recording, and a whole table on small networks."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch

from epochzero import data
from epochzero.errors import DataError
from epochzero.registry import experiments, spaces
from epochzero.spaces.nb101_cell import Cell
from epochzero.supernet import make
from epochzero.supernet import nasi as nasi_module
from epochzero.supernet.nasi import Nasi, split
from epochzero.tables import AccuracyTable
from epochzero_papers.harness.files import NB101 as FILE
from epochzero_papers.nasi import grid as nasi_grid
from epochzero_papers.nasi import one_shot as nasi_one_shot
from epochzero_papers.nasi.grid import recorded
from epochzero_papers.nasi.one_shot import QUICK, Budget, Reading, known_errors, replayed, selected, weight
from epochzero_papers.nasi.one_shot_spaces import rows_by_key
from tests.papers.small import small_images

SPACE, NB101 = spaces["nb1shot1_s1"], spaces["nb101"]
DRAWS = 200
TINY = replace(QUICK, batch_size=2, steps=1, parts=1, channels=2)
NAMES = ("thesis-table6.4", "thesis-table6.8", "thesis-figure6.2", "thesis-figure6.6")


@pytest.fixture(autouse=True)
def _few_for_the_mean() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nasi_module, "SAMPLED", 2)
        patch.setattr(nasi_grid, "SAMPLED", 2)
        patch.setattr(nasi_one_shot, "DRAWS", DRAWS)
        yield


def cells(count: int) -> list[Cell]:
    """Of different networks, the first that are drawn."""
    rng = Random(0)
    found: dict[str, Cell] = {}
    while len(found) < count:
        cell = SPACE.sample(rng)
        found.setdefault(SPACE.key(cell), cell)
    return list(found.values())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Accuracies of 30 networks of NAS-Bench-101, and images."""
    folder = tmp_path_factory.mktemp("data")
    small_images(folder, "cifar10.npz")
    rows = [[NB101.text(SPACE.network(cell)), 0.9 + i / 1000] for i, cell in enumerate(cells(30))]
    with (folder / "nb101.csv").open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows([["arch", "test_acc_108ep"], *rows])
    return folder


def test_errors_are_those_of_the_same_networks() -> None:
    some = cells(5)
    accuracies = {"test_acc_108ep": ["0.5", "0.6", "0.7", "0.8", "0.9"]}
    table = AccuracyTable([NB101.text(SPACE.network(cell)) for cell in some], accuracies, "t")
    rows_by_key.cache_clear()
    known = known_errors(SPACE, table)
    for cell, error in zip(some, (50, 40, 30, 20, 10), strict=True):
        assert known[cell] == pytest.approx(error)
    keys = {SPACE.key(cell) for cell in some}
    assert all(SPACE.key(cell) in keys for cell in known) and len(known) > len(some), (
        "loose ends make more of a network"
    )


def test_a_table_without_cells_of_the_space_is_refused() -> None:
    rows_by_key.cache_clear()
    empty = AccuracyTable([], {"test_acc_108ep": []}, "t.csv")
    with pytest.raises(DataError, match=r"t\.csv holds no cell of nb1shot1_s1"):
        known_errors(SPACE, empty)


def test_the_heaviest_cell_is_nasis_own() -> None:
    nasi = make("nasi", SPACE, data.white((3, 8, 8), size=2, parts=1), 0, "cpu", {"channels": 2, "cells": 1})
    assert isinstance(nasi, Nasi)
    state = recorded(nasi, 3, lambda now: None)
    found = replayed(nasi, state, Reading("x", 3))
    expected = make("nasi", SPACE, nasi.batch, 0, "cpu", {"channels": 2, "cells": 1, "nu": "adaptive"}).run(3)
    every = dict.fromkeys([*cells(100), expected.arch], 0.0)
    assert selected(nasi, found, every) == expected.arch
    own = {key: value for key, value in every.items() if key != expected.arch}
    second = selected(nasi, found, own)
    parts = zip(nasi.relaxed.choices, split(nasi.relaxed, found), strict=True)
    weights = {choice.name: dict(zip(choice.options, part.tolist(), strict=True)) for choice, part in parts}
    assert second != expected.arch and weight(second, weights) <= weight(expected.arch, weights)
    assert weight(second, weights) == max(weight(cell, weights) for cell in own)
    for choice, values in expected.weights.items():
        assert weights[choice] == pytest.approx(values)


def test_nu_is_a_multiple_of_the_mean() -> None:
    nasi = make("nasi", SPACE, data.white((3, 8, 8), size=2, parts=1), 1, "cpu", {"channels": 2, "cells": 1})
    assert isinstance(nasi, Nasi)
    state = recorded(nasi, 2, lambda now: None)
    fixed = make("nasi", SPACE, nasi.batch, 1, "cpu", {"channels": 2, "cells": 1, "nu": "mean", "mu": "3"}).run(2)
    found = split(nasi.relaxed, replayed(nasi, state, Reading("x", 2, 1.0, 3.0)))
    expected = [torch.tensor(list(values.values())) for values in fixed.weights.values()]
    assert torch.allclose(torch.cat(found).float(), torch.cat(expected).float())


@pytest.mark.parametrize("name", NAMES)
def test_tables_are_measured_and_gone_on_with(name: str, folder: Path, tmp_path: Path) -> None:
    one = experiments[name]
    given = {"sizes": (2, 4)} if name == "thesis-table6.8" else {}
    settings = type(one.quick)(**vars(TINY), **given)
    assert isinstance(settings, Budget)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(nasi_one_shot, "NB101", replace(FILE, names=("nb101.csv",)))
        result = one.run(settings, folder=folder, store=tmp_path / "run.db")
        patch.setattr(Nasi, "measured", None)
        again = one.run(settings, folder=folder, store=tmp_path / "run.db")
    assert again.rows == result.rows, "nothing is measured twice"
    errors = {row.x: row.found for row in result.rows}
    assert all(found is not None and 7 < found.value <= 10 for found in errors.values())
    assert {row.y for row in result.rows} == {"S1"} and len(errors) > 2
    assert "S2, S3: left out of this small form." in result.left_out
    printed = {(figure.x, figure.y): figure.value for figure in one.quoted}
    assert all(row.paper == printed.get((row.x, row.y)) for row in result.rows)


def test_missing_data_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"^thesis-table6\.4 needs data that are not there: put cifar10\.npz .* nb101"):
        experiments["thesis-table6.4"].run(TINY, folder=tmp_path)
