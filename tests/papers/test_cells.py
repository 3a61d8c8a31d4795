"""The thesis' tables of cells as experiments: counted as printed, trained and scored in a small form."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from epochzero.errors import DataError
from epochzero.registry import experiments
from epochzero.store import Store
from epochzero_papers.__main__ import main
from epochzero_papers.thesis import known_cells, table4_1
from tests.command import epochzero


def images(folder: Path, side: int, count: int = 24) -> Path:
    rng, y = np.random.default_rng(0), np.arange(count) % 3
    x = rng.integers(0, 256, (count, side, side, 3), dtype=np.uint8)
    file = folder / "cifar10.npz"
    np.savez(file, x_train=x[:-8], y_train=y[:-8], x_test=x[-8:], y_test=y[-8:])
    return file


def test_table_4_2_is_counted_as_printed() -> None:
    table = experiments["thesis-table4.2"]
    rows = {(row.x, row.y): row for row in table.run(table.quick).rows}
    for name in ("NASNet", "AmoebaNet", "ENAS", "DARTS", "SNAS"):
        for what in ("width", "depth"):
            assert rows[name, what].difference == 0
    assert {(figure.x, figure.y) for figure in table.quoted} <= set(rows)
    widest = rows["DARTS", "widest variant"].found
    narrowest = rows["DARTS", "narrowest variant"].found
    assert widest is not None and narrowest is not None
    assert 1 <= narrowest.value < 2.5 < widest.value <= 4
    assert table.run(table.quick, seed=1).rows != table.run(table.quick).rows == table.run(table.quick).rows


def test_table_7_2_in_a_small_form(tmp_path: Path) -> None:
    table = experiments["thesis-table7.2"]
    assert table.status(tmp_path) == "needs data"
    with pytest.raises(DataError, match=r"thesis-table7\.2 needs data that are not there: put cifar10\.npz"):
        table.run(table.quick, folder=tmp_path)
    images(tmp_path, 8)
    small = replace(table.quick, batch_size=4, channels=2, cells=2)
    result = table.run(small, folder=tmp_path, store=tmp_path / "run.db")
    rows = {(row.x, row.y): row for row in result.rows}
    assert {(figure.x, figure.y) for figure in table.quoted} == set(rows)
    for name in ("WIDE", "DEEP"):
        assert rows[name, "width"].difference == rows[name, "depth"].difference == 0
        found = rows[name, "M_trace"].found
        assert found is not None and found.value > 0 and found.n == 2
        kappa = rows[name, "kappa"].found
        assert kappa is not None and kappa.value > 1
    again = table.run(small, folder=tmp_path, store=tmp_path / "run.db")
    assert again.rows == result.rows and again.seconds < result.seconds, "from the store"


def test_table_4_1_counts_as_printed_and_trains(tmp_path: Path) -> None:
    table = experiments["thesis-table4.1"]
    images(tmp_path, 32)
    small = replace(table.quick, networks=3, channels=8, cells=1, images=16, batch_size=8)
    result = table.run(small, folder=tmp_path, store=tmp_path / "run.db")
    counted = [row for row in result.rows if row.statistic != table4_1.ERROR]
    assert len(counted) == 3 * 2 * (2 + 3)
    for row in counted:
        assert row.found is not None and round(row.found.value, 2) == row.paper, row
    trained = [row for row in result.rows if row.statistic == table4_1.ERROR]
    assert [(row.x, row.y) for row in trained] == [
        (name, column) for name in ("NASNet", "AmoebaNet", "ENAS") for column in ("C10", "C10 adapted")
    ]
    assert all(row.found is not None and 0 <= row.found.value <= 100 for row in trained)
    assert len(list((tmp_path / "run.db.training").iterdir())) == 6
    assert table.run(small, folder=tmp_path, store=tmp_path / "run.db").rows == result.rows
    with Store.open(tmp_path / "run.db") as store:
        assert len(store.runs()) == 1


def test_the_command_shows_ours_beside_the_papers() -> None:
    found = epochzero("reproduce", "thesis-table4.2", "--quick", "--json").json
    assert found["experiment"] == "thesis-table4.2"
    rows = {(row["x"], row["y"]): row for row in found["rows"]}
    assert rows["AmoebaNet", "depth"]["paper"] == rows["AmoebaNet", "depth"]["found"]["value"] == 4


def test_the_command_for_bare_machines_finds_the_same(tmp_path: Path) -> None:
    file, out = images(tmp_path, 8), tmp_path / "found.json"
    small = "--repeats 2 --batch-size 4 --channels 2 --cells 2 --device cpu"
    main(f"known-cells --data {file} --out {out} {small}".split())
    found = json.loads(out.read_text())["cells"]
    table = experiments["thesis-table7.2"]
    rows = table.run(replace(table.quick, batch_size=4, channels=2, cells=2), folder=tmp_path).rows
    for row in rows:
        assert row.found is not None
        if row.y in ("M_trace", "kappa"):
            assert found[row.x][row.y]["mean"] == pytest.approx(row.found.value)
        elif row.y == "kappa deviation":
            assert found[row.x]["kappa"]["deviation"] == pytest.approx(row.found.value)


def test_the_kernel_of_the_thesis_code_is_another_one(tmp_path: Path) -> None:
    file = str(images(tmp_path, 8))
    size = {"repeats": 1, "batch_size": 4, "channels": 2, "cells": 2, "device": "cpu"}
    exact, layers = (known_cells.measured(file, **size, kernel=kernel) for kernel in ("exact", "layers"))  # type: ignore[arg-type]
    for name in ("NASNet", "DEEP"):
        both = [found[name]["kappa"]["mean"] for found in (exact, layers)]
        assert min(both) > 1 and both[0] != both[1]
        assert layers[name]["M_trace"]["mean"] > 0
