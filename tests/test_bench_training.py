"""The script that compares training loops: both learn, and what it prints can be read."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest
import torch

from epochzero.train.image_data import load_images
from epochzero.train.recipes import Recipe
from tests.train.train_images import CLASSES, SMALLEST, SPACE, write

RECIPE = Recipe(epochs=6, batch_size=20, nesterov=True)
PLAN = SPACE.plan(SPACE.parse(SMALLEST), CLASSES, (3, 16, 16))


@pytest.fixture(scope="module")
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("training", Path(__file__).parents[1] / "benchmarks" / "training.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_network_has_the_size_that_is_asked_for(script: ModuleType) -> None:
    from epochzero.registry import spaces

    assert spaces["nb201"].plan(spaces["nb201"].parse(script.ARCH), 10).params == 1_288_506


def test_the_plain_crop_is_a_window_of_the_image_with_a_border(script: ModuleType, tmp_path: Path) -> None:
    images = load_images(write(tmp_path / "squares.npz", 20, 4, 16))
    loop = script.PlainLoop(PLAN, images, RECIPE, 0, "cpu", half=False)
    x = torch.rand(6, 3, 16, 16)
    padded = torch.nn.functional.pad(x, (4, 4, 4, 4))
    for image, found in zip(padded, loop.moved(x), strict=True):
        windows = [image[:, i : i + 16, j : j + 16] for i in range(9) for j in range(9)]
        assert any(torch.equal(found, w) or torch.equal(found, w.flip(2)) for w in windows)


def test_both_loops_learn_and_are_compared(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    images = load_images(write(tmp_path / "squares.npz", 120, 60, 16))
    script.compare_accuracy(PLAN, images, replace(RECIPE, pad=0), "cpu", 1)
    *by_seed, ours, plain = (json.loads(line) for line in capsys.readouterr().out.splitlines())
    assert [[line["test_accuracy"]] for line in by_seed] == [ours["test_accuracy"], plain["test_accuracy"]]
    assert (ours["loop"], plain["loop"]) == ("ours", "plain, single precision")
    assert min(ours["mean"], plain["mean"]) > 0.33  # left and right are flipped: half of them can be told
    script.compare_speed(PLAN, script.some_images(images, 40, 8), RECIPE, "cpu", 1)
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [line.get("loop") for line in lines] == ["ours", "plain, single precision", None]
    first, second = (line["images_per_second"]["median"] for line in lines[:2])
    assert lines[2]["ratio_to_the_fastest_plain_loop"] == pytest.approx(first / second)
