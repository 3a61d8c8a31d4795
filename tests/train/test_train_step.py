"""The loss of a step: smoothed, mixed and taught labels against torch's own and slow formulas; and teachers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epochzero.errors import DataError, UserError
from epochzero.train.augment import jitter, zoom
from epochzero.train.image_data import load_images
from epochzero.train.images import train
from epochzero.train.loop import Training
from epochzero.train.recipes import Recipe
from epochzero.train.step import Step, soft_labels
from epochzero.train.teacher import read_teacher
from tests.command import epochzero, refusal
from tests.train.train_images import CLASSES, SMALLEST, SPACE, write

PLAN = SPACE.plan(SPACE.parse(SMALLEST), CLASSES, (3, 8, 8))
FACTS = {"space": "resnet", "arch": SMALLEST}
QUICK = Recipe(epochs=1, batch_size=16, pad=0, flip=False)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data") / "squares.npz", 32, 16, 8)


@pytest.fixture(scope="module")
def taught(file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teacher")
    train(PLAN, load_images(file), QUICK, seed=9, folder=folder, facts=FACTS)
    return folder


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# The loss


class Line(nn.Module):
    """One matrix, and another as its tower."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.tower = nn.Parameter(drawn(5, 3, seed=1)), nn.Parameter(drawn(5, 3, seed=2))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x @ self.weight, x @ self.tower


def test_soft_labels_are_torchs_smoothing() -> None:
    logits, y = drawn(6, 4), torch.tensor([0, 1, 2, 3, 3, 0])
    for smoothing in (0.0, 0.1, 1.0):
        expected = F.cross_entropy(logits, y, label_smoothing=smoothing)
        torch.testing.assert_close(F.cross_entropy(logits, soft_labels(y, 4, smoothing)), expected)


def test_a_teachers_word_and_the_towers_by_a_slow_formula() -> None:
    """(1 - w) CE(t, z) + w T^2 KL(teacher || z at temperature T) + u CE(t, a), sample by sample."""
    line, x, told = Line(), drawn(4, 5), drawn(4, 3, seed=7)
    target = soft_labels(torch.tensor([0, 1, 2, 1]), 3, 0.2)
    recipe = Recipe(distil=0.7, temperature=3.0, auxiliary=0.4)
    step = Step(line, line, recipe, half=False, record=False)
    loss, logits = step(x, target, told)
    slow, plain = torch.zeros(()), torch.zeros(())
    z, a = line(x)
    for i in range(4):
        own = -(target[i] * torch.log(torch.exp(z[i]) / torch.exp(z[i]).sum())).sum()
        p, q = (torch.exp(v / 3) / torch.exp(v / 3).sum() for v in (told[i], z[i]))
        word = (p * torch.log(p / q)).sum()
        tower = -(target[i] * torch.log(torch.exp(a[i]) / torch.exp(a[i]).sum())).sum()
        plain = plain + own / 4
        slow = slow + (0.3 * own + 0.7 * 9 * word + 0.4 * tower) / 4
    torch.testing.assert_close(loss, plain.detach())
    torch.testing.assert_close(logits, z.detach())
    expected = torch.autograd.grad(slow, [line.weight, line.tower])
    for parameter, gradient in zip(line.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    step(x, target, told)
    torch.testing.assert_close(line.weight.grad, expected[0])  # of the last step, not the sum of both


# Teachers


def test_a_teacher_says_what_the_trained_network_says(file: Path, taught: Path) -> None:
    """Also of images that this training standardises in another way."""
    images, teacher = load_images(file), read_teacher(taught)
    network = train(PLAN, images, QUICK, seed=9, folder=taught, facts=FACTS).module.eval()
    expected = network(images.standardised(images.test_x)).detach()
    torch.testing.assert_close(teacher.for_images(images)(images.standardised(images.test_x)), expected)
    other = replace(images, mean=images.mean + 9, std=images.std * 2)
    other.facts.update(mean=(other.mean / 255).flatten().tolist(), std=(other.std / 255).flatten().tolist())
    found = read_teacher(taught).for_images(other)(other.standardised(other.test_x))
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_with_a_teacher_alone_the_labels_are_not_read(file: Path, taught: Path) -> None:
    images = load_images(file)
    wrong = replace(images, y=(images.y + 1) % CLASSES)
    recipe = replace(QUICK, distil=1.0)
    first, second = (Training(PLAN, data, recipe, teacher=read_teacher(taught)) for data in (images, wrong))
    for training in (first, second):
        training.epoch(0, lambda done, total, note: None)
    for a, b in zip(first.module.parameters(), second.module.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_the_command_learns_from_a_teacher_and_remembers_it(file: Path, taught: Path, tmp_path: Path) -> None:
    asked = ("train", "--space", "resnet", "--arch", SMALLEST, "--data", file, "--epochs", 1, "--out", tmp_path / "a")
    logs = tmp_path / "logs"
    report = epochzero(*asked, "--teacher", taught, "--tensorboard", logs, "--json").json
    assert report["epochs"] == 1
    assert any(path.name.startswith("events.out") for path in logs.iterdir())
    assert "a training with another teacher" in refusal(*asked)


def test_what_teaches_nothing(file: Path, taught: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no trained network"):
        read_teacher(tmp_path)
    other = load_images(write(tmp_path / "large.npz", 8, 4, 16))
    with pytest.raises(UserError, match=r"The teacher takes images of \[3, 8, 8\] in 4 classes"):
        Training(PLAN, other, QUICK, teacher=read_teacher(taught))
    torch.save({"weights": {}, "epoch": 1}, tmp_path / "epoch-000001.pt")
    with pytest.raises(DataError, match="checkpoints of another program"):
        read_teacher(tmp_path)


# Windows and colours


def test_a_zoom_is_a_window_of_the_image() -> None:
    """Of an image whose pixels are their places, a window is a part of the same ramp, as steep as it is wide."""
    ramp = torch.arange(32.0).expand(64, 1, 32, 32)
    found = zoom(ramp, 0.25, torch.Generator().manual_seed(0))
    inner = found[:, 0, 16, 4:28]
    steps = inner.diff(dim=1)
    torch.testing.assert_close(steps.amax(1), steps.amin(1), atol=1e-3, rtol=0)
    width = steps.mean(1)
    assert float(width.min()) >= (0.25 * 3 / 4) ** 0.5 - 1e-3 and float(width.max()) <= 1 + 1e-3
    assert width.std() > 0.05
    whole = zoom(ramp.to(torch.uint8), 1.0, torch.Generator())
    assert whole.dtype == torch.uint8 and int(whole.max()) <= 31


def test_jitter_keeps_bytes_and_can_do_nothing() -> None:
    x = torch.randint(256, (16, 3, 8, 8), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    assert torch.equal(jitter(x, 0.0, torch.Generator()), x)
    found = jitter(x, 0.4, torch.Generator().manual_seed(1))
    assert found.dtype == torch.uint8 and not torch.equal(found, x)
    grey = x[:, :1].expand(-1, 3, -1, -1)
    changed = jitter(grey, 0.4, torch.Generator().manual_seed(1)).int()
    assert int((changed[:, 0] - changed[:, 1]).abs().max()) <= 1  # grey stays grey


def test_autoaugment_needs_bytes(file: Path) -> None:
    images = load_images(file)
    floats = replace(images, x=images.x.float())
    with pytest.raises(UserError, match="AutoAugment needs images of bytes"):
        Training(PLAN, floats, replace(QUICK, auto_augment=True))
    Training(PLAN, images, replace(QUICK, auto_augment=True)).epoch(0, lambda done, total, note: None)
