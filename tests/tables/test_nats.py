from __future__ import annotations

import bz2
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epochzero.errors import DataError
from epochzero.tables.columns import Column
from epochzero.tables.formats import Source, nats
from epochzero.tables.rows import Rows
from tests.command import epochzero, refusal
from tests.tables.official import CELLS, nats_cell, nats_folder, pickled, runs, trial


def column(rows: Rows, name: str) -> list[float]:
    (found,) = (numbers for column, numbers in rows.columns.items() if column.full_name == name)
    values: list[float] = found.tolist()
    return values


def check(rows: Rows) -> None:
    """The numbers that `nats_folder` put in, by hand."""
    assert list(rows.archs) == list(CELLS)
    assert column(rows, "cifar10_test_seed777") == [60, 70, 80]
    assert column(rows, "cifar10_test_seed888") == [62, 72, 82]
    assert column(rows, "cifar10_val_seed777") == [57, 67, 77]
    assert column(rows, "cifar10_test_12ep_seed777") == [50, 60, 70]
    assert column(rows, "cifar100_val_seed777") == [40, 50, 60]
    assert column(rows, "cifar100_test_seed777") == [39, 49, 59]
    assert column(rows, "imagenet16_test_12ep_seed888") == [11, 21, 31]
    assert column(rows, "cifar10_params_M") == [0.5] * 3
    assert column(rows, "imagenet16_flops_M") == [100] * 3
    assert column(rows, "cifar100_latency_s") == [0.02] * 3
    assert column(rows, "cifar10_train_seconds") == [20 * 2.5] * 3
    assert column(rows, "cifar10_train_seconds_12ep") == [12 * 2.5] * 3
    assert len(rows.columns) == 6 * 2 * 2 + 3 * 3 + 3 * 2
    assert Column("cifar10_test_12ep", "accuracy", "cifar10", "test", 12, 888, "percent") in rows.columns


def test_a_folder(tmp_path: Path) -> None:
    rows = nats.read(Source(nats_folder(tmp_path / "NATS-tss-v1_0-3ffb9-simple")))
    check(rows)
    assert rows.notes == []


def test_a_tar_whatever_the_order_of_its_members(tmp_path: Path) -> None:
    folder = nats_folder(tmp_path / "NATS-tss-v1_0-3ffb9-simple")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for file in sorted(folder.iterdir(), reverse=True):
            archive.add(file, f"NATS-tss-v1_0-3ffb9-simple/{file.name}")
    check(nats.read(Source(tmp_path / "a.tar")))


def test_all_architectures_in_one_file(tmp_path: Path) -> None:
    cells = {i: nats_cell(i, cell) for i, cell in reversed(list(enumerate(CELLS)))}
    everything = {"meta_archs": list(CELLS), "arch2infos": cells, "evaluated_indexes": {0, 1, 2}}
    (tmp_path / "a.pickle.pbz2").write_bytes(bz2.compress(pickled(everything)))
    check(nats.read(Source(tmp_path / "a.pickle.pbz2")))


def test_a_folder_that_is_not_whole_says_so(tmp_path: Path) -> None:
    rows = nats.read(Source(nats_folder(tmp_path / "some", listed=5)))
    assert rows.notes == [f"{tmp_path / 'some'} holds 3 of the 5 architectures that it lists."]


def test_runs_that_are_missing_or_disagree(tmp_path: Path) -> None:
    result = runs(CELLS[0], 20, 60.0)
    for seed, params in ((777, 1.5), (888, 0.5), (999, 1.5)):
        result["all_results"]["cifar10", seed] = trial(20, {"ori-test": 60.0}, np.float64(params), latency=None)
    (tmp_path / "000000.pickle.pbz2").write_bytes(bz2.compress(pickled({"200": result})))
    other = runs(CELLS[1], 20, 70.0, (777,))
    (tmp_path / "000001.pickle.pbz2").write_bytes(bz2.compress(pickled({"200": other})))
    rows = nats.read(Source(tmp_path))
    assert column(rows, "cifar10_params_M") == [0.5, 0.5]
    np.testing.assert_array_equal(column(rows, "cifar10_test_seed888"), [60, np.nan])
    np.testing.assert_array_equal(column(rows, "cifar10_test_seed999"), [60, np.nan])
    np.testing.assert_array_equal(column(rows, "cifar10_latency_s"), [np.nan, 0.02])


def test_the_size_space(tmp_path: Path) -> None:
    folder = nats_folder(tmp_path / "sss", ("8:8:8:8:8", "8:16:24:32:64"))
    made = epochzero("data", "import", folder, "--space", "nats_sss", "--out", tmp_path / "sss.ezb", "--json").json
    assert (made["space"], made["architectures"]) == ("nats_sss", 2)
    said = refusal("data", "import", folder, "--space", "nb201", "--out", tmp_path / "wrong.ezb")
    assert "does not fit nb201: An nb201 string is 3 nodes joined by '+', not 1: '8:8:8:8:8'" in said
    assert not (tmp_path / "wrong.ezb").exists()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1], "no dictionary"),
        ({}, "no dictionary"),
        ({"200": {"arch_str": "x"}}, "'all_results'"),
        ({"200": {"arch_str": "x", "all_results": {}}}, "is not a file of NATS-Bench, or it is damaged"),
        ({"200": {"arch_str": "x", "all_results": {("cifar10", 777): {"epochs": "many"}}}}, "'many'"),
    ],
)
def test_what_is_laid_out_otherwise(tmp_path: Path, value: Any, message: str) -> None:
    (tmp_path / "000000.pickle.pbz2").write_bytes(bz2.compress(pickled(value)))
    with pytest.raises(DataError, match=message):
        nats.read(Source(tmp_path))


def test_files_that_were_cut_short(tmp_path: Path) -> None:
    folder = nats_folder(tmp_path / "simple")
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        archive.add(folder)
    content = (tmp_path / "a.tar").read_bytes()
    (tmp_path / "a.tar").write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match="is damaged or cut short"):
        nats.read(Source(tmp_path / "a.tar"))
    one = folder / "000001.pickle.pbz2"
    one.write_bytes(one.read_bytes()[:-20])
    with pytest.raises(DataError, match=r"000001.*is damaged or cut short"):
        nats.read(Source(folder))
    for file in folder.iterdir():
        file.unlink()
    with pytest.raises(DataError, match="holds no architectures"):
        nats.read(Source(folder))
