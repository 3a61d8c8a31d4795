"""AutoAugment's operations against Pillow's, and its policy against its own probabilities."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from PIL import Image, ImageEnhance, ImageOps
from torch import Tensor

from epochzero.train import auto_augment as aa

Picture = Image.Image


@pytest.fixture(scope="module")
def x() -> Tensor:
    """Noise, a ramp of colours, two values only, and one value only."""
    rng = torch.Generator().manual_seed(0)
    noise = torch.randint(256, (2, 3, 32, 32), generator=rng)
    ramp = (torch.arange(32) * 7 + 20)[None, None, :].expand(3, 32, 32) // torch.tensor([1, 2, 3])[:, None, None]
    two = torch.where(noise[0] > 200, 180, 40)
    return torch.stack((*noise, ramp, two, torch.full((3, 32, 32), 77))).to(torch.uint8)


def picture(image: Tensor) -> Picture:
    return Image.fromarray(image.permute(1, 2, 0).numpy())


def tensor(image: Picture) -> Tensor:
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def enhanced(kind: Callable[[Picture], ImageEnhance._Enhance]) -> Callable[[Picture, float], Picture]:
    return lambda image, by: kind(image).enhance(1 + by)


@pytest.mark.parametrize("by", [-0.9, -0.3, 0.0, 0.5, 0.9])
@pytest.mark.parametrize(
    ("ours", "theirs", "off"),
    [
        (aa.brightness, enhanced(ImageEnhance.Brightness), 1),
        (aa.color, enhanced(ImageEnhance.Color), 2),
        (aa.contrast, enhanced(ImageEnhance.Contrast), 2),
        (aa.sharpness, enhanced(ImageEnhance.Sharpness), 2),
        (aa.invert, lambda image, by: ImageOps.invert(image), 0),
        (aa.auto_contrast, lambda image, by: ImageOps.autocontrast(image), 1),
        (aa.equalize, lambda image, by: ImageOps.equalize(image), 0),
        (aa.solarize, lambda image, by: ImageOps.solarize(image, 256 * (1 - abs(by) / 0.9)), 0),
        (aa.posterize, lambda image, by: ImageOps.posterize(image, 8 - round(abs(by) * 10 / 9 * 4)), 0),
    ],
)
def test_colours_are_pillows(
    x: Tensor, ours: aa.Operation, theirs: Callable[[Picture, float], Picture], off: int, by: float
) -> None:
    found = ours(x, torch.full((len(x),), by))
    assert found.dtype == torch.uint8
    expected = torch.stack([tensor(theirs(picture(image), by)) for image in x])
    assert int((found.int() - expected.int()).abs().max()) <= off


@pytest.mark.parametrize("by", [-0.9, 0.25, 0.8])
def test_places_are_pillows(x: Tensor, by: float) -> None:
    side = int(by / 0.9 * 150 / 331 * 32)
    matrices = {
        "shear_y": (1, 0, 0, by / 3, 1, 0),
        "translate_x": (1, 0, side, 0, 1, 0),
        "translate_y": (1, 0, 0, 0, 1, side),
    }
    for name, matrix in matrices.items():
        found = aa.OPERATIONS[name](x, torch.full((len(x),), by))
        for image, ours in zip(x, found, strict=True):
            theirs = picture(image).transform((32, 32), Image.Transform.AFFINE, matrix, fillcolor=(aa.GREY,) * 3)
            assert (ours == tensor(theirs)).float().mean() > 0.99, name


@pytest.mark.parametrize("by", [-0.9, 0.2, 0.9])
def test_rotation_is_pillows(x: Tensor, by: float) -> None:
    found = aa.rotate(x[:1], torch.tensor([by]))[0]
    turns = [tensor(picture(x[0]).rotate(sign * by / 0.9 * 30, fillcolor=(aa.GREY,) * 3)) for sign in (1, -1)]
    assert max(float((found == turn).float().mean()) for turn in turns) > 0.98


def test_the_policy_is_the_papers() -> None:
    assert len(aa.POLICY) == 25
    assert aa.POLICY[0] == (("invert", 0.1, 7), ("contrast", 0.2, 6))
    assert aa.POLICY[10] == (("color", 0.7, 7), ("translate_x", 0.5, 8))
    assert aa.POLICY[24] == (("translate_y", 0.7, 9), ("auto_contrast", 0.9, 1))
    assert {part[0] for pair in aa.POLICY for part in pair} == set(aa.OPERATIONS)


def test_each_image_gets_its_own_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    """Operations that only count: how often each happens is what the policy says, within noise."""
    counts = dict.fromkeys(aa.OPERATIONS, 0)

    def counting(name: str) -> aa.Operation:
        def operation(x: Tensor, by: Tensor) -> Tensor:
            counts[name] += len(x)
            return x + 1

        return operation

    monkeypatch.setattr(aa, "OPERATIONS", {name: counting(name) for name in counts})
    n = 20_000
    found = aa.auto_augment(torch.zeros(n, 1, 1, 1, dtype=torch.uint8), torch.Generator().manual_seed(0))
    for name in counts:
        expected = n * sum(p for pair in aa.POLICY for op, p, _ in pair if op == name) / 25
        assert counts[name] == pytest.approx(expected, abs=5 * expected**0.5)
    assert int(found.sum()) == sum(counts.values())


def test_draws_decide_everything(x: Tensor) -> None:
    first, again, other = (aa.auto_augment(x, torch.Generator().manual_seed(seed)) for seed in (3, 3, 4))
    assert torch.equal(first, again) and not torch.equal(first, other)
    assert first.shape == x.shape and first.dtype == torch.uint8
