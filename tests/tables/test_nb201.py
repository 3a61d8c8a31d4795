from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from epochzero.errors import DataError
from epochzero.tables.formats import Source, nb201
from tests.command import epochzero, refusal
from tests.tables.official import CELLS, runs
from tests.tables.test_nats import check


def results(index: int, cell: str) -> dict[str, Any]:
    full = runs(cell, 20, 60.0 + 10 * index)
    full["all_results"]["cifar10", 777]["net_state_dict"] = {"stem.weight": torch.ones(2, 2)}
    return {"less": runs(cell, 12, 50.0 + 10 * index), "full": full}


def saved(path: Path, zipped: bool = False) -> Path:
    infos = {index: results(index, cell) for index, cell in enumerate(CELLS)}
    content = {"meta_archs": list(CELLS), "arch2infos": infos, "evaluated_indexes": {0, 1, 2}}
    torch.save(content, path, _use_new_zipfile_serialization=zipped)
    return path


@pytest.mark.parametrize("zipped", [False, True])
def test_the_one_file(tmp_path: Path, zipped: bool) -> None:
    path = saved(tmp_path / "NAS-Bench-201-v1_1-096897.pth", zipped)
    check(nb201.read(Source(path)))


def test_the_folder_of_the_archive(tmp_path: Path) -> None:
    for index, cell in enumerate(CELLS):
        torch.save(results(index, cell), tmp_path / f"{index:06d}-FULL.pth")
    check(nb201.read(Source(tmp_path)))
    made = epochzero("data", "import", tmp_path, "--space", "nb201", "--out", tmp_path / "a.ezb", "--json").json
    assert made["architectures"] == 3


def test_the_command(tmp_path: Path) -> None:
    path = saved(tmp_path / "nb201.pth")
    out = tmp_path / "nb201.ezb"
    made = epochzero("data", "import", path, "--space", "nb201", "--out", out, "--mean", "--json").json
    assert {column["name"] for column in made["columns"] if column["split"]} >= {"cifar10_test", "imagenet16_val_12ep"}
    assert {column["seed"] for column in made["columns"]} == {None}
    shown = epochzero("data", "show", out, "--arch", CELLS[1], "--json").json
    assert (shown["exact"], shown["values"]["cifar10_test"]) == (True, 71)


@pytest.mark.parametrize(
    "content", [{"meta_archs": [], "arch2infos": {0: {}}}, {"meta_archs": ["x"], "arch2infos": {0: {"full": 3}}}]
)
def test_what_is_laid_out_otherwise(tmp_path: Path, content: dict[str, Any]) -> None:
    torch.save(content, tmp_path / "a.pth")
    with pytest.raises(DataError, match="is not a file of NAS-Bench-201"):
        nb201.read(Source(tmp_path / "a.pth"))


def test_another_pth_is_refused(tmp_path: Path) -> None:
    torch.save({"state_dict": {"w": torch.ones(1)}}, tmp_path / "a.pth")
    said = refusal("data", "import", tmp_path / "a.pth", "--space", "nb201", "--out", tmp_path / "a.ezb")
    assert "has an unknown format" in said
