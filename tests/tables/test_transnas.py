from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from epochzero.errors import DataError, UserError
from epochzero.registry import spaces
from epochzero.tables.formats import Source, transnas
from tests.command import epochzero, refusal

TASKS = {
    "class_object": ["train_top1", "valid_top1", "valid_top5", "valid_loss", "test_top1", "time_elapsed"],
    "autoencoder": ["valid_ssim", "valid_l1_loss", "valid_neg_loss", "test_ssim"],
}
INFO = ["inference_time", "encoder_params", "model_params", "model_FLOPs", "encoder_FLOPs"]


def network(last: float) -> dict[str, Any]:
    """The record of one network: metric m of a task ends at `last` + the number of m."""
    return {
        task: {
            "total_epochs": 25,
            "metrics": {metric: [0.0] * 24 + [last + number] for number, metric in enumerate(metrics)},
            "model_info": {info: 100.0 + number for number, info in enumerate(INFO)},
        }
        for task, metrics in TASKS.items()
    }


def database() -> dict[str, Any]:
    micro = {"64-41414-1_02_333": network(40), "64-41414-0_00_333": network(20)}
    return {
        "metrics_dict": TASKS,
        "info_names": INFO,
        "task_list": list(TASKS),
        "data": {"macro": {"64-1234-basic": network(30)}, "micro": micro},
    }


def saved(folder: Path, content: dict[str, Any], space: str) -> Source:
    torch.save(content, folder / "t.pth")
    return Source(folder / "t.pth", spaces[space])


def test_the_space_says_which_networks(tmp_path: Path) -> None:
    rows = transnas.read(saved(tmp_path, database(), "transnas_micro_scene"))
    values = {column.full_name: numbers.tolist() for column, numbers in rows.columns.items()}
    assert list(rows.archs) == ["64-41414-1_02_333", "64-41414-0_00_333"]
    assert values["class_object_val_top1"] == [41, 21]
    assert values["class_object_test_top1"] == [44, 24]
    assert values["autoencoder_val_ssim"] == [40, 20]
    assert values["autoencoder_val_neg_loss"] == [42, 22]
    assert values["class_object_model_params"] == [102, 102]
    assert not [
        name for name in values if "train" in name or (name.endswith(("_loss", "elapsed")) and "neg" not in name)
    ]
    kinds = {column.name: (column.quantity, column.dataset, column.split, column.epochs) for column in rows.columns}
    assert kinds["class_object_test_top1"] == ("accuracy", "class_object", "test", 25)
    assert kinds["class_object_val_top5"] == ("other", "class_object", "val", 25)
    assert kinds["autoencoder_test_ssim"][0] == "other"
    assert kinds["class_object_model_FLOPs"][0] == "flops"
    macro = transnas.read(saved(tmp_path, database(), "transnas_macro"))
    assert list(macro.archs) == ["64-1234-basic"]


def test_the_command(tmp_path: Path) -> None:
    path, out = tmp_path / "transnas-bench_v10141024.pth", tmp_path / "t.ezb"
    torch.save(database(), path)
    printed = epochzero("data", "import", path, "--space", "transnas_micro", "--out", out).out
    assert "2 architectures of transnas_micro" in printed and "accuracies are in percent" in printed
    said = refusal("data", "import", path, "--space", "nb201", "--out", tmp_path / "x.ezb")
    assert "is TransNAS-Bench: give --space transnas_micro or transnas_macro, not nb201" in said


def test_what_is_laid_out_otherwise(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="give --space"):
        transnas.read(saved(tmp_path, database(), "nb201"))
    broken = database()
    del broken["data"]["micro"]["64-41414-0_00_333"]["class_object"]["metrics"]["test_top1"]
    with pytest.raises(DataError, match=r"is not a file of TransNAS-Bench.*'test_top1'"):
        transnas.read(saved(tmp_path, broken, "transnas_micro"))
