"""Images for training and testing, held in memory: an `.npz` file, CIFAR in its published form, or image files.

An `.npz` file may hold `x_test` and `y_test` as well as `x_train` and `y_train`. Without a test set, a share of the
training images is held out, drawn by the seed. Images keep the type they have in the file, such as bytes, and are
standardised per channel by the training images when they are used.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epochzero.data import ARCHIVES, cifar, npz
from epochzero.data.image_folder import SIDE, FolderReader, is_image_folder
from epochzero.data.samples import Samples, channel_statistics
from epochzero.data.sealed import digest
from epochzero.errors import DataError, UserError
from epochzero.types import Shape

HELD_OUT = 0.1
"""share of the training images if there is no test set"""


@dataclass(frozen=True, eq=False)
class Images:
    """Training and test images with their labels, on one device."""

    x: Tensor
    """[N, C, H, W], as in the file"""
    y: Tensor
    """[N]"""
    test_x: Tensor
    test_y: Tensor
    mean: Tensor
    """[1, C, 1, 1], of the training images, in the numbers of the file"""
    std: Tensor
    num_classes: int
    facts: dict[str, Any]
    """description of the data in plain values; for folders of image files also the names of the `classes`"""

    @property
    def input_shape(self) -> Shape:
        return tuple(self.x.shape[1:])

    def to(self, device: str | torch.device) -> Images:
        moved = {name: getattr(self, name).to(device) for name in ("x", "y", "test_x", "test_y", "mean", "std")}
        return replace(self, **moved)

    def standardised(self, x: Tensor) -> Tensor:
        """(x - mean) / std"""
        return (x.float() - self.mean) / self.std

    def split(self, train: Tensor, test: Tensor, facts: dict[str, Any]) -> Images:
        """These training images for training, and those for testing, both by index."""
        x, y = self.x, self.y
        return replace(self, x=x[train], y=y[train], test_x=x[test], test_y=y[test], facts=facts)


def load_images(
    source: str | Path,
    *,
    num_classes: int | None = None,
    seed: int = 0,
    side: int = SIDE,
    skip_unreadable: bool = False,
) -> Images:
    """Images of an `.npz` file, of CIFAR's archive or folder, or of a folder of image files for each class.

    The seed draws the images to hold out, if any. Image files become squares of this side.
    """
    if not isinstance(source, (str, Path)):
        raise UserError(
            f"A training reads images from files, not from {type(source).__name__}: keep arrays by "
            "numpy.savez('images.npz', x_train=x, y_train=y) and give that file, or use your own loop."
        )
    path = Path(source)
    reader = FolderReader(side, skip_unreadable)
    samples, test = _read(path, reader)
    if samples.y is None:
        raise DataError(f"{path} has no labels to learn: give y_train, or y, with the images.")
    x, y = samples.x, samples.y
    held_out = test is None
    if test is None:
        count = max(1, round(HELD_OUT * len(x)))
        order = np.random.default_rng(seed).permutation(len(x))
        test = x[order[:count]], y[order[:count]]
        x, y = x[order[count:]], y[order[count:]]
    if len(x) < 2:
        raise DataError(f"{path} has {len(x)} images to train on: give at least 2.")
    classes = _classes(samples, max(int(y.max(initial=0)), int(test[1].max())), num_classes)
    mean, std = channel_statistics(x, path)
    pixels, labels, test_pixels, test_labels = map(_tensor, (x, y, *test))
    scale = 255 if x.dtype == np.uint8 else 1
    facts = {
        "file": path.name,
        "train": len(x),
        "test": len(test[0]),
        "test_is": f"held out of the training images by seed {seed}" if held_out else "the file's test images",
        "mean": [float(value) / scale for value in mean],
        "std": [float(value) / scale for value in std],
        "scale": scale,
        "unreadable": reader.skipped,
        "sha256": digest([pixels, labels, test_pixels, test_labels]),
    }
    if reader.classes:
        facts["classes"] = reader.classes
    centre, spread = (torch.from_numpy(values).float()[None, :, None, None] for values in (mean, std))
    return Images(pixels, labels, test_pixels, test_labels, centre, spread, classes, facts)


def _read(path: Path, reader: FolderReader) -> tuple[Samples, tuple[NDArray[Any], NDArray[np.int64]] | None]:
    """The training samples, and the test samples if there are any."""
    if not path.exists():
        raise DataError(f"There is no file or folder {path} to train on.")
    if is_image_folder(path):
        (x, y), test = reader.read(path)
        return Samples(path, path.name, x, y), test
    if path.is_dir() or path.name.lower().endswith(ARCHIVES):
        return cifar.read(path), None
    if path.suffix.lower() != ".npz":
        raise DataError(f"{path} is not a data set of images: give an .npz file, CIFAR, or a folder for each class.")
    samples = npz.read(path)
    with npz.opened(path) as archive:
        if not {"x_train", "x_test", "y_test"} <= set(archive.files):
            return samples, None
        x, y = archive["x_test"], archive["y_test"]
    if not (isinstance(x, np.ndarray) and isinstance(y, np.ndarray)):
        raise DataError(f"{path} has no numbers in x_test or y_test: save it again with numpy.savez.")
    x = _like(x, samples)
    if y.dtype.kind not in "iu" or y.size != len(x) or not len(x) or y.min() < 0:
        raise DataError(f"The array y_test of {path} has to hold a class, counted from 0, for each image of x_test.")
    return samples, (x, y.reshape(-1).astype(np.int64))


def _like(x: NDArray[Any], samples: Samples) -> NDArray[Any]:
    """Test images with the axes of the training images."""
    if x.ndim == 3:
        x = x[:, None]
    elif x.ndim == 4 and x.shape[1:] != samples.x.shape[1:]:
        x = x.transpose(0, 3, 1, 2)
    if x.shape[1:] != samples.x.shape[1:] or x.dtype != samples.x.dtype:
        raise DataError(
            f"The images x_test of {samples.path} are of another shape or type than x_train: make them alike."
        )
    if not np.isfinite(x).all():
        raise DataError(f"{samples.path} holds test images that are NaN or infinite: remove or replace them.")
    return x


def _classes(samples: Samples, largest: int, asked: int | None) -> int:
    if asked is not None and largest >= asked:
        raise DataError(
            f"{samples.path} has the label {largest}, but {asked} classes were asked for: ask for at least "
            f"{largest + 1}."
        )
    return asked or max(samples.num_classes or 0, largest + 1)


def _tensor(values: NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.ascontiguousarray(values, dtype=values.dtype.newbyteorder("=")))
