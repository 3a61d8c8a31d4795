"""Training: as a plain loop does it, resumed to the last bit, with schedules and augmentations as the papers say."""

from __future__ import annotations

import json
import math
import os
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn

from epochzero.errors import DataError, UserError
from epochzero.plan import Plan
from epochzero.plan.init import generator
from epochzero.registry import spaces
from epochzero.train.checkpoint import Checkpoints
from epochzero.train.image_data import load_images
from epochzero.train.images import Trained, plan_for, train
from epochzero.train.recipes import Recipe, recipe_of
from tests.command import epochzero, process, refusal
from tests.train.train_images import CLASSES, SMALLEST, SPACE, images, write

PLAIN = Recipe(epochs=3, batch_size=20, learning_rate=0.1, pad=0, flip=False)
EVERYTHING = Recipe(
    epochs=3,
    batch_size=32,
    nesterov=True,
    warm_up=1,
    clip=5,
    label_smoothing=0.1,
    mixup=0.2,
    cutout=4,
    erase=0.5,
    drop_path=0.3,
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data") / "squares.npz")


@pytest.fixture(scope="module")
def plan() -> Plan:
    found: Plan = SPACE.plan(SPACE.parse(SMALLEST), CLASSES, (3, 16, 16))
    return found


# Against a plain loop


def plain_loop(
    plan: Plan, file: Path, orders: list[torch.Tensor], rate: float = 0.1
) -> tuple[nn.Module, list[float], float]:
    """Plain torch code: the printed network, SGD and torch's own cosine schedule."""
    namespace: dict[str, Any] = {"__name__": "printed"}
    exec(compile(plan.code(), "printed", "exec"), namespace)  # our own code, printed
    network: nn.Module = namespace["Network"]()
    network.load_state_dict(plan.module().state_dict())
    with np.load(file) as arrays:
        x, test_x = (torch.from_numpy(arrays[name]).permute(0, 3, 1, 2).double() for name in ("x_train", "x_test"))
        y, test_y = (torch.from_numpy(arrays[name]) for name in ("y_train", "y_test"))
    mean, std = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True, correction=0)
    x, test_x = ((pixels - mean).div(std).float() for pixels in (x, test_x))
    optimiser = torch.optim.SGD(network.parameters(), rate, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, len(orders) * (len(x) // 20))
    losses = []
    for order in orders:
        network.train()
        total = 0.0
        for some in torch.chunk(order, len(x) // 20):
            loss = F.cross_entropy(network(x[some]), y[some])
            optimiser.zero_grad()
            torch.autograd.backward(loss)
            optimiser.step()
            schedule.step()
            total += loss.item()
        losses.append(total / (len(x) // 20))
    network.eval()
    with torch.no_grad():
        return network, losses, float((network(test_x).argmax(1) == test_y).double().mean())


def test_the_steps_are_those_of_a_plain_loop(plan: Plan, file: Path) -> None:
    """With the same order of images, the same losses and the same weights; slowly, so that rounding does not grow."""
    trained = train(plan, load_images(file), replace(PLAIN, epochs=2, learning_rate=1e-3))
    orders = [torch.randperm(160, generator=generator(0, "train", epoch)) for epoch in range(2)]
    network, losses, _ = plain_loop(plan, file, orders, 1e-3)
    assert [record["loss"] for record in trained.history] == pytest.approx(losses, rel=2e-4)
    ours, theirs = trained.module.state_dict(), network.state_dict()
    for name, weight in ours.items():
        torch.testing.assert_close(weight, theirs[name], rtol=1e-2, atol=1e-4)


def test_reaches_the_accuracy_of_a_plain_loop(plan: Plan, file: Path) -> None:
    """In another order of images, which is noise."""
    recipe = replace(PLAIN, epochs=10)
    accuracy = train(plan, load_images(file), recipe).history[-1]["test_accuracy"]
    orders = [torch.randperm(160, generator=torch.Generator().manual_seed(seed)) for seed in range(10)]
    expected = plain_loop(plan, file, orders)[2]
    assert expected > 0.8
    assert accuracy == pytest.approx(expected, abs=0.1)


# Stopped and resumed


class KilledError(Exception):
    pass


@pytest.fixture(scope="module")
def whole(plan: Plan, file: Path) -> Trained:
    """A training that was never stopped."""
    return train(plan, load_images(file), EVERYTHING, seed=3)


@pytest.mark.parametrize("at", [1, 6, 9, 14])
def test_stopped_and_resumed_ends_with_the_same_bits(
    plan: Plan, file: Path, whole: Trained, tmp_path: Path, at: int
) -> None:
    """In the first epoch, at its end or in the middle of another: 5 steps each."""
    data = load_images(file)

    def stop(done: int, total: int | None, note: str) -> None:
        assert total == 15
        if done == at:
            raise KilledError

    with pytest.raises(KilledError):
        train(plan, data, EVERYTHING, seed=3, folder=tmp_path, progress=stop)
    resumed = train(plan, data, EVERYTHING, seed=3, folder=tmp_path)
    assert resumed.resumed == at // 5
    assert_same(whole.module, resumed.module)
    assert [r["loss"] for r in resumed.history] == [r["loss"] for r in whole.history]
    again = train(plan, data, EVERYTHING, seed=3, folder=tmp_path)
    assert again.resumed == 3
    assert_same(whole.module, again.module)


def assert_same(a: nn.Module, b: nn.Module) -> None:
    ours, theirs = a.state_dict(), b.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_another_seed_is_another_training(plan: Plan, file: Path) -> None:
    data = load_images(file)
    first, second = (train(plan, data, replace(PLAIN, epochs=1), seed=seed).history for seed in (0, 1))
    assert first[0]["loss"] != second[0]["loss"]


def test_a_folder_of_another_training_is_left_alone(plan: Plan, file: Path, tmp_path: Path) -> None:
    data = load_images(file)
    train(plan, data, replace(PLAIN, epochs=1), folder=tmp_path)
    with pytest.raises(UserError, match="a training with another recipe: choose another folder"):
        train(plan, data, PLAIN, folder=tmp_path)
    with pytest.raises(UserError, match="a training with another seed"):
        train(plan, data, replace(PLAIN, epochs=1), folder=tmp_path, seed=1)


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(plan: Plan, file: Path, tmp_path: Path) -> None:
    data = load_images(file)
    whole = train(plan, data, PLAIN, folder=tmp_path)
    newest, older = Checkpoints(tmp_path).files()
    assert (newest.name, older.name) == ("epoch-000003.pt", "epoch-000002.pt")
    newest.write_bytes(newest.read_bytes()[:-1000])
    resumed = train(plan, data, PLAIN, folder=tmp_path)
    assert resumed.resumed == 2
    assert "epoch-000003.pt' is damaged" in resumed.refused[0]
    assert_same(whole.module, resumed.module)


def test_a_loss_that_is_no_number_stops_with_a_sentence(plan: Plan, file: Path) -> None:
    with pytest.raises(UserError, match="The loss became NaN or infinite in epoch 1: lower the learning_rate"):
        train(plan, load_images(file), replace(PLAIN, learning_rate=1000.0, weight_decay=1.0, epochs=1))


# The auxiliary tower


def test_the_tower_is_trained_with_and_not_tested(tmp_path: Path) -> None:
    space = spaces["darts_search"]
    data = load_images(write(tmp_path / "squares.npz", 8, 4, 32))
    recipe = recipe_of("darts", {"epochs": 1, "batch_size": 4})
    plan = plan_for(space, space.smallest(), data, recipe)
    assert plan.auxiliary is not None
    trained = train(plan, data, recipe, folder=tmp_path)
    before = plan.module().state_dict()
    tower = [name for name in before if name not in plan.trunk.weights]
    assert tower and all(not torch.equal(before[n], trained.module.state_dict()[n]) for n in tower if "linear" in n)
    assert math.isfinite(trained.history[0]["test_loss"])


# Data


def test_a_file_without_a_test_set_holds_some_out(tmp_path: Path) -> None:
    x, y = images(50, 0)
    np.savez(tmp_path / "a.npz", x=x, y=y)
    data = load_images(tmp_path / "a.npz", seed=4)
    assert (len(data.x), len(data.test_x), data.num_classes) == (45, 5, CLASSES)
    together = {image.numpy().tobytes() for image in (*data.x, *data.test_x)}
    assert together == {image.transpose(2, 0, 1).tobytes() for image in x}
    z = data.standardised(data.x)
    assert float(z.mean()) == pytest.approx(0, abs=1e-5) and float(z.std()) == pytest.approx(1, abs=1e-2)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"x_train": images(4, 0)[0]}, "has no labels to learn"),
        ({"x": images(2, 0)[0], "y": np.array([0, 1])}, "has 1 images to train on"),
        (
            {"x_train": images(4, 0)[0], "y_train": np.arange(4), "x_test": images(2, 0, 8)[0], "y_test": np.arange(2)},
            "x_test",
        ),
        (
            {"x_train": images(4, 0)[0], "y_train": np.arange(4), "x_test": images(2, 0)[0], "y_test": np.arange(3)},
            "y_test",
        ),
    ],
)
def test_data_that_cannot_be_learnt(arrays: dict[str, np.ndarray], says: str, tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", **arrays)  # type: ignore[arg-type]
    with pytest.raises(DataError, match=says):
        load_images(tmp_path / "bad.npz")


def test_labels_beyond_the_classes_are_refused(file: Path) -> None:
    with pytest.raises(DataError, match="has the label 3, but 2 classes were asked for"):
        load_images(file, num_classes=2)


# The command


def test_a_killed_command_goes_on(file: Path, tmp_path: Path) -> None:
    """SIGKILL in the middle; then the same command ends as one that was never disturbed."""
    asked = [
        "train",
        "--space",
        "resnet",
        "--arch",
        SMALLEST,
        "--data",
        str(file),
        "--epochs",
        "4",
        "--batch-size",
        "16",
    ]
    child = subprocess.Popen(
        process(*asked, "--out", str(tmp_path / "a")),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        give_up = time.monotonic() + 120
        while not Checkpoints(tmp_path / "a").files() and time.monotonic() < give_up and child.poll() is None:
            time.sleep(0.01)
    finally:
        child.kill()
        child.wait()
    resumed = epochzero(*asked, "--out", tmp_path / "a", "--json").json
    whole = epochzero(*asked, "--out", tmp_path / "b", "--json").json
    assert 1 <= resumed["resumed"] < 4 and whole["resumed"] == 0
    first, second = (Checkpoints(tmp_path / name).last() for name in ("a", "b"))
    assert first is not None and second is not None
    assert all(torch.equal(tensor, second["weights"][name]) for name, tensor in first["weights"].items())
    lines = (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["epoch"] for line in lines] == list(range(1, 5))
    assert resumed["test_accuracy"] == whole["test_accuracy"]


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"--recipe": "dart"}, "No recipe is called 'dart'. Did you mean 'darts'?"),
        ({"--option": "pads=2"}, "A recipe has no 'pads'. Did you mean 'pad'?"),
        ({"--data": "nothing.npz"}, "There is no file or folder nothing.npz to train on."),
        ({"--classes": "2"}, "has the label 3, but 2 classes were asked for"),
        ({"--arch": "SuperRes"}, ""),
        ({"--epochs": "0"}, "A recipe's epochs is 1 to 1e+06, not 0."),
        ({"--out": "/proc/nothing"}, "cannot be written"),
        ({"--device": "cuda:77"}, "cannot be used here"),
    ],
)
def test_what_cannot_be_trained(file: Path, tmp_path: Path, changes: dict[str, str], says: str) -> None:
    asked = {
        "--space": "resnet",
        "--arch": SMALLEST,
        "--data": file,
        "--epochs": 1,
        "--out": tmp_path / "run",
    } | changes
    assert says in refusal("train", *(part for pair in asked.items() for part in pair))
