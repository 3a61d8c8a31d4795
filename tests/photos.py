"""Image files in a folder for each class."""

from __future__ import annotations

from pathlib import Path

import pytest

COLOURS = {"blue": (0, 0, 250), "red": (250, 0, 0)}


def photos(folder: Path, each: int = 3) -> Path:
    """Writes `each` wide images of each colour, and a file that is not an image. Skips the test without Pillow."""
    image = pytest.importorskip("PIL.Image", reason="Pillow reads image files")
    for name, colour in COLOURS.items():
        (folder / name).mkdir(parents=True)
        for number in range(each):
            image.new("RGB", (20 + number, 12), colour).save(folder / name / f"{number}.png")
        (folder / name / "notes.txt").write_text("no image")
    return folder
