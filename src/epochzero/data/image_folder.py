"""Images in a folder for each class: photos/cat/1.jpg, photos/dog/2.png. Needs Pillow.

Classes are the folders' names in alphabetical order. Folders `train` and `test` (or `val`) with the classes inside are
the two sets. An image is turned as its EXIF data say, cropped to the square in its centre, and scaled to `side`.
Pixels are bytes in three colours: 16 bits are scaled to 8, and transparent pixels are white. Unreadable images are an
error that lists them, or are skipped and listed.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from epochzero.data import cifar
from epochzero.data.samples import Samples
from epochzero.errors import DataError, needed

ENDINGS = {".bmp", ".gif", ".jpeg", ".jpg", ".png", ".ppm", ".tif", ".tiff", ".webp"}
FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
TESTS = ("test", "val")
SIDE = 32
"""default side in pixels"""
NAMED = 20
"""most unreadable images that an error names"""
LARGEST = 2**16 - 1
"""largest value of a pixel of 16 bits"""

Unreadable = list[tuple[str, str]]
"""files with the reasons"""
Labelled = tuple[NDArray[np.uint8], NDArray[np.int64]]
"""images [N, 3, H, W] and labels [N]"""
Files = list[tuple[Path, int]]
"""image files with their labels"""


def is_image_folder(path: Path) -> bool:
    """True for a folder that is not CIFAR in its published form."""
    return path.is_dir() and not any((path / name).is_file() for name in cifar.TRAINING_FILES)


def draw_images(folder: Path, count: int, seed: int, *, side: int, skip: bool) -> Samples:
    """Draws at most `count` training images by the seed; only these are read."""
    reader = FolderReader(side, skip)
    files, _ = reader.files(folder)
    order = np.random.default_rng(seed).permutation(len(files))
    x, y = reader.images([files[i] for i in order], min(count, len(files)))
    name = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")[:24] or "images"
    remark = f"; left out as unreadable: {', '.join(reader.skipped)}" if reader.skipped else ""
    return Samples(folder, name, x, y, len(reader.classes), drawn_from=len(files), remark=remark)


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
        train, test = self.files(folder)
        return self.images(train), None if test is None else self.images(test)

    def files(self, folder: Path) -> tuple[Files, Files | None]:
        """The files of the training images, and of the test images if the folder has any; nothing is read."""
        test = next((folder / name for name in TESTS if (folder / name).is_dir()), None)
        if not (folder / "train").is_dir() or test is None:
            self.classes = _classes(folder)
            return _files(folder, self.classes), None
        self.classes = _classes(folder / "train")
        tested = _classes(test)
        strange = [name for name in tested if name not in self.classes]
        if strange:
            raise DataError(f"The folder '{test}' has a class '{strange[0]}' that '{folder / 'train'}' lacks.")
        labels = {name: label for label, name in enumerate(self.classes)}
        return _files(folder / "train", self.classes), [(f, labels[f.parent.name]) for f, _ in _files(test, tested)]

    def images(self, files: Sequence[tuple[Path, int]], most: int | None = None) -> Labelled:
        """The images of the first `most` files; an unreadable one is replaced by a later file if it is skipped."""
        unreadable: Unreadable = []
        tried = files if self.skip else files[:most]
        read = list(islice(self._readable(tried, unreadable), most))
        if unreadable and not self.skip:
            raise DataError(complaint(unreadable))
        if not read:
            raise DataError(f"None of the {len(files)} images can be read; '{{}}': {{}}.".format(*unreadable[0]))
        return np.stack([pixels for pixels, _ in read]), np.array([label for _, label in read], np.int64)

    def _readable(
        self, files: Sequence[tuple[Path, int]], unreadable: Unreadable
    ) -> Iterator[tuple[NDArray[Any], int]]:
        """The images that can be read; the others are added to the list, with the reason."""
        for file, label in files:
            pixels = read_image(file, (self.side, self.side))
            if isinstance(pixels, str):
                unreadable.append((str(file), pixels))
                self.skipped.append(f"{file.parent.name}/{file.name}")
            else:
                yield pixels, label


def read_image(file: Path, size: tuple[int, int], grey: bool = False) -> NDArray[np.uint8] | str:
    """The pixels [3, H, W] of an image file, or [1, H, W] in grey; or the reason why it cannot be read."""
    Image, ImageOps = (needed(f"PIL.{part}", "Reading images", "images") for part in ("Image", "ImageOps"))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(file, formats=FORMATS) as image:
                upright = ImageOps.exif_transpose(image)
            fitted = _fitted(in_colour(upright).convert("L" if grey else "RGB"), *size)
    except Exception as error:
        reason = str(error).replace(f" {str(file)!r}", "") or type(error).__name__
        return " ".join(reason.split()).rstrip(".")
    return np.asarray(fitted).reshape(*size, -1).transpose(2, 0, 1)


def _fitted(image: Any, height: int, width: int) -> Any:
    """The largest rectangle of this form in the image's centre, scaled; products repeat this in `export/pixels.py`."""
    bilinear = needed("PIL.Image", "Reading images", "images").Resampling.BILINEAR
    across, down = image.size
    across, down = min(across, max(1, down * width // height)), min(down, max(1, across * height // width))
    left, top = (image.width - across) // 2, (image.height - down) // 2
    cut = image.crop((left, top, left + across, top + down))
    return cut.resize((width, down), bilinear).resize((width, height), bilinear)  # in this order by any Pillow


def in_colour(image: Any) -> Any:
    """A Pillow image of any mode as bytes in red, green and blue."""
    Image = needed("PIL.Image", "Reading images", "images")
    if image.mode in ("F", "I") or image.mode.startswith("I;16"):
        values = np.asarray(image).astype(np.float64)
        if image.mode == "F":  # a float image is black at 0 and white at 1
            values = values * LARGEST
        if not (np.isfinite(values).all() and values.min() >= 0 and values.max() <= LARGEST):
            raise ValueError("its pixels are neither from 0 to 65535 nor fractions from 0 to 1")
        image = Image.fromarray((values * (255 / LARGEST)).round().astype(np.uint8))
    if "A" in image.getbands() or "transparency" in image.info:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def _classes(folder: Path) -> list[str]:
    names = sorted(place.name for place in folder.iterdir() if place.is_dir() and not place.name.startswith("."))
    if not names:
        raise DataError(f"The folder '{folder}' holds neither CIFAR files nor a folder of images for each class.")
    return names


def _files(folder: Path, classes: Sequence[str]) -> Files:
    """The image files of each class, in order; DataError for classes without any."""
    by_class = {
        name: sorted(file for file in (folder / name).glob("*") if file.suffix.lower() in ENDINGS) for name in classes
    }
    empty = [f"'{folder / name}'" for name, files in by_class.items() if not files]
    if empty:
        raise DataError(
            f"A class without images: {', '.join(empty[:NAMED])}{_and_more(empty)}. Add images "
            f"({', '.join(sorted(ENDINGS))}) or remove the {'folder' if len(empty) == 1 else 'folders'}."
        )
    return [(file, label) for label, files in enumerate(by_class.values()) for file in files]


def complaint(unreadable: Unreadable) -> str:
    if len(unreadable) == 1:
        ((file, reason),) = unreadable
        return f"The image '{file}' cannot be read ({reason}): repair or remove it, or use --unreadable skip."
    named = ", ".join(f"'{file}' ({reason})" for file, reason in unreadable[:NAMED])
    return (
        f"{len(unreadable)} images cannot be read: {named}{_and_more(unreadable)}. Repair or remove them, or use "
        "--unreadable skip."
    )


def _and_more(names: Sequence[object]) -> str:
    return f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
