"""Images in a folder for each class: photos/cat/1.jpg, photos/dog/2.png. Needs Pillow.

Classes are the folders' names in alphabetical order. Folders `train` and `test` (or `val`) with the classes inside are
the two sets. An image is scaled until its shorter side is `side`, and cropped to its centre. An unreadable image is an
error that names it, or is skipped and listed.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epochzero.errors import DataError, needed

ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
TESTS = ("test", "val")

Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""images [N, 3, H, W] and labels [N]"""


@dataclass
class FolderReader:
    """Reads images of one size, and remembers the unreadable ones and the names of the classes."""

    side: int
    skip: bool
    """skip unreadable images instead of stopping"""
    skipped: list[str] = field(default_factory=list)
    classes: list[str] = field(default_factory=list)
    """names by label, after a folder was read"""

    def read(self, folder: Path) -> tuple[Labelled, Labelled | None]:
        """The training images, and the test images if the folder has any."""
        test = next((folder / name for name in TESTS if (folder / name).is_dir()), None)
        if not (folder / "train").is_dir() or test is None:
            self.classes = _classes(folder)
            return self._images(folder), None
        self.classes = _classes(folder / "train")
        strange = [name for name in _classes(test) if name not in self.classes]
        if strange:
            raise DataError(f"The folder '{test}' has a class '{strange[0]}' that '{folder / 'train'}' lacks.")
        return self._images(folder / "train"), self._images(test)

    def _images(self, folder: Path) -> Labelled:
        pixels, labels = [], []
        for label, name in enumerate(self.classes):
            for file in sorted((folder / name).glob("*")):
                image = self._image(file) if file.suffix.lower() in ENDINGS else None
                if image is not None:
                    pixels.append(image)
                    labels.append(label)
        if not pixels:
            raise DataError(f"The folder '{folder}' holds no image that can be read ({', '.join(sorted(ENDINGS))}).")
        return np.stack(pixels), np.array(labels, np.int64)

    def _image(self, file: Path) -> NDArray[Any] | None:
        Image, ImageOps = (needed(f"PIL.{part}", "Reading images", "images") for part in ("Image", "ImageOps"))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", Image.DecompressionBombWarning)
                with Image.open(file, formats=FORMATS) as image:
                    fitted = ImageOps.fit(image.convert("RGB"), (self.side, self.side), Image.Resampling.BILINEAR)
        except Exception as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            if not self.skip:
                raise DataError(
                    f"The image '{file}' cannot be read ({reason}): repair or remove it, or use --unreadable skip."
                ) from None
            self.skipped.append(f"{file.parent.name}/{file.name}")
            return None
        return np.asarray(fitted).transpose(2, 0, 1)  # [3, H, W]


def _classes(folder: Path) -> list[str]:
    names = sorted(place.name for place in folder.iterdir() if place.is_dir() and not place.name.startswith("."))
    if not names:
        raise DataError(f"The folder '{folder}' holds neither CIFAR files nor a folder of images for each class.")
    return names
