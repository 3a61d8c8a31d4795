"""Images in an `.npz` file: arrays `x_train` and `y_train`, or `x` and `y`; labels are optional.

The images are uint8 or float, [N, H, W] (grey), [N, H, W, C] or [N, C, H, W] with 1, 3 or 4 channels. If both the last
and the second axis could be the channels, the one that makes the images square is chosen, and the last axis if both do.

The labels are integers from 0, [N] or [N, 1].
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import read_array_header_1_0, read_array_header_2_0, read_magic
from numpy.typing import NDArray

from epochzero.data.samples import Samples, reading
from epochzero.errors import DataError

PAIRS = (("x_train", "y_train"), ("x", "y"))
NUMBERS = (np.uint8, np.float16, np.float32, np.float64)
CHANNELS = (1, 3, 4)
RATIO = 1032
"""bytes that deflate makes of one byte at most"""
LARGEST_LABEL = 2**31 - 1
PICKLE = "is a pickle, which can run code when it is opened; save it as .npz"


def is_pickle(path: Path) -> bool:
    """Returns True for a file that starts like a pickle of protocol 2 or later."""
    with reading(path, "a file", "check that it exists and may be read"), path.open("rb") as file:
        start = file.read(2)
    return len(start) == 2 and start[0] == 0x80 and 2 <= start[1] <= 5


def read(path: Path) -> Samples:
    """Returns the training samples of an `.npz` file without unpickling anything."""
    if is_pickle(path):
        raise DataError(f"{path} {PICKLE}.")
    with opened(path) as archive:
        names = list(archive.files)
        pair = next((pair for pair in PAIRS if pair[0] in names), None)
        if pair is None:
            raise DataError(
                f"{path} has no array x_train or x (only: {', '.join(names)[:200] or 'nothing'}): "
                "give the images one of these names."
            )
        images, labels = pair
        x = archive[images]
        y = archive[labels] if labels in names else None
    x = _channels_first(x, f"The array {images} of {path}")
    y = None if y is None else _class_numbers(y, len(x), f"The array {labels} of {path}")
    name = re.sub(r"[^a-z0-9]+", "-", path.stem.lower()).strip("-")[:24] or "npz"
    return Samples(path, name, x, y)


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The arrays of an `.npz` file by name, after a check that each has the size that the file says."""
    with (
        reading(path, "an .npz file", "save it again with numpy.savez, as plain numbers"),
        path.open("rb") as file,
    ):
        if file.read(2) != b"PK":
            raise DataError(f"{path} is not an .npz file: save the arrays x and y with numpy.savez.")
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            for entry in archive.zip.infolist():
                if entry.compress_size > path.stat().st_size or entry.file_size > RATIO * entry.compress_size + RATIO:
                    raise ValueError(f"{entry.filename[:100]} is too large for its file")
                with archive.zip.open(entry) as part:
                    version = read_magic(part)
                    shape, _, kind = (read_array_header_1_0 if version == (1, 0) else read_array_header_2_0)(part)
                    if not kind.hasobject and part.tell() + math.prod(shape) * kind.itemsize != entry.file_size:
                        raise ValueError(f"{entry.filename[:100]} has another size than its header says")
            yield archive


def _channels_first(x: object, where: str) -> NDArray[Any]:
    """Returns the images as a view [N, C, H, W]."""
    if not isinstance(x, np.ndarray) or x.dtype.newbyteorder("=") not in NUMBERS:
        kind = x.dtype if isinstance(x, np.ndarray) else "raw bytes"
        raise DataError(f"{where} is of type {kind}: images have to be uint8, or float of 16, 32 or 64 bits.")
    if x.ndim not in (3, 4):
        raise DataError(
            f"{where} has the shape {list(x.shape)}: images have to be [N, H, W], [N, H, W, C] or [N, C, H, W]."
        )
    if x.size == 0:
        raise DataError(f"{where} is empty (its shape is {list(x.shape)}): give at least one image.")
    if x.ndim == 3:
        return x[:, None]
    _, second, third, last = x.shape
    if last not in CHANNELS and second not in CHANNELS:
        raise DataError(
            f"{where} has the shape {list(x.shape)}: "
            "its last or its second axis has to be the channels, 1, 3 or 4 of them."
        )
    both = last in CHANNELS and second in CHANNELS
    if last not in CHANNELS or (both and third == last and second != third):
        return x
    return x.transpose(0, 3, 1, 2)


def _class_numbers(y: object, count: int, where: str) -> NDArray[np.int64]:
    if not isinstance(y, np.ndarray) or y.dtype.kind not in "iu":
        kind = y.dtype if isinstance(y, np.ndarray) else "raw bytes"
        raise DataError(f"{where} is of type {kind}: labels have to be integers, the numbers of the classes.")
    if y.shape not in ((count,), (count, 1)):
        raise DataError(f"{where} has the shape {list(y.shape)}: labels have to be [{count}], one for each image.")
    if y.min() < 0:
        raise DataError(f"{where} has the label {y.min()}: classes are numbered from 0.")
    if y.max() > LARGEST_LABEL:
        raise DataError(f"{where} has the label {y.max()}, too large for the number of a class.")
    return y.reshape(count).astype(np.int64)
