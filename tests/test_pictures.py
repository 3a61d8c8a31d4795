"""The style of plots: transparent, legible on light and dark pages, and it leaves matplotlib's own settings alone."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from epochzero import pictures


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    with pictures.style():
        figure, (left, right) = pictures.new_panels(2, 2, 2.0, 2.0)
        left.plot([1, 2, 3], label="line")
        left.legend()
        right.scatter([1, 2], [2, 1], c=[0.0, 1.0])
    names = pictures.save(figure, tmp_path, "some", dark=True)
    assert names == ["some.png", "some.svg", "some-dark.png"]
    return tmp_path


def pixels(path: Path) -> Any:
    return matplotlib.image.imread(path)


def test_images_are_transparent_and_dark_ones_are_of_light_ink(saved: Path) -> None:
    light, dark = pixels(saved / "some.png"), pixels(saved / "some-dark.png")
    assert light.shape == dark.shape and light[0, 0, 3] == dark[0, 0, 3] == 0
    for image, ends in ((light, (0.15, 0.86)), (dark, (0.21, 0.93))):
        grey = (np.ptp(image[..., :3], axis=2) < 0.1) & (image[..., 3] == 1)  # text, edges and grid, not the data
        green = image[grey][:, 1]
        assert (green.min(), green.max()) == pytest.approx(ends, abs=0.02)


def test_an_svg_follows_its_page(saved: Path) -> None:
    text = (saved / "some.svg").read_text()
    used = set(re.findall(r"(?:fill|stroke): (#[0-9a-f]{6})", text))
    assert {pictures.INK, pictures.BLUE} <= used
    rules = dict(re.findall(r'\[style\*="fill: (#\w{6})"\]\{fill:(#\w{6})!important\}', text))
    assert rules == pictures.DARK and text.index("prefers-color-scheme:dark") < text.index("<g ")


@pytest.mark.parametrize(("back", "dark"), [("#ffffff", False), ("#0d1219", True)])
def test_text_can_be_read(back: str, dark: bool) -> None:
    def light(colour: str) -> float:
        parts = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    for colour in (pictures.INK, pictures.QUIET):
        shown = pictures.DARK[colour] if dark else colour
        low, high = sorted((light(shown), light(back)))
        assert (high + 0.05) / (low + 0.05) > 4.5


def test_settings_of_matplotlib_stay() -> None:
    before = dict(matplotlib.rcParams)
    with pictures.style():
        assert matplotlib.rcParams["text.color"] == pictures.INK
    pictures.new_figure(1, 1)
    assert dict(matplotlib.rcParams) == before
