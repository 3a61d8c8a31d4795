r"""Batches from the training samples of a file: draws some, and standardises every channel.

    z = (x - mean_c) / std_c

with the mean and the population standard deviation of channel c over the whole training array of the file. uint8 means
[0, 1]; the factor 1/255 cancels in z and appears only in the numbers of `Batch.about`. A constant channel becomes zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from epochzero.data.batch import DEFAULT_CLASSES, Batch, Part, check_request, digest, shape_text
from epochzero.errors import DataError, UserError
from epochzero.types import Shape

RECIPE = 1
"""increases whenever the same file would give other numbers"""

CHUNK = 1 << 18
"""number of elements converted to double precision together"""


@dataclass(frozen=True, eq=False)
class Samples:
    """The training samples of a file, unchanged."""

    path: Path
    name: str
    """readable part of the batch's id"""
    x: NDArray[Any]
    """[N, C, H, W], uint8 or float"""
    y: NDArray[np.int64] | None
    """[N], from 0 up"""
    num_classes: int | None = None
    """number of classes in the format; if None, the largest label plus one"""
    drawn_from: int = 0
    """number of samples that these were drawn from, in their order; 0 if they are all there are"""
    remark: str = ""
    """end of the sentence about the batch"""


@contextmanager
def reading(path: Path, what: str, remedy: str) -> Iterator[None]:
    """Turns any exception over a damaged or hostile file into one sentence that names the file."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        reason = " ".join(str(error)[:200].split()).rstrip(".") or type(error).__name__
        raise DataError(f"{path} cannot be read as {what} ({reason}): {remedy}.") from error


def draw(
    samples: Samples, *, input_shape: Shape | None, num_classes: int | None, size: int, parts: int, seed: int
) -> Batch:
    """Draws `parts` parts of `size` samples without replacement; fewer parts if the file holds fewer."""
    check_request(num_classes, size, parts, seed)
    path, x, y = samples.path, samples.x, samples.y
    count, shape = len(x), x.shape[1:]
    if input_shape is not None and input_shape != shape:
        raise DataError(
            f"{path} holds samples of shape {shape_text(shape)}, "
            f"but {shape_text(input_shape)} was asked for: "
            "leave the input shape out or give data of that shape."
        )
    if count < size:
        raise DataError(
            f"{path} has {count} samples, fewer than one batch of {size}: use --batch-size {count} or less."
        )
    classes = _count_classes(samples, num_classes)
    mean, std = channel_statistics(x, path)  # [C], [C]
    parts = min(parts, count // size)
    order = np.arange(count) if samples.drawn_from else np.random.default_rng(seed).permutation(count)
    chosen = order[: parts * size]
    x = np.ascontiguousarray(x[chosen], dtype=x.dtype.newbyteorder("="))  # [parts * B, C, H, W]
    y = None if y is None else y[chosen]  # [parts * B]

    numbers = " ".join(f"{value:.9e}" for value in (*mean, *std))
    content = "no labels" if y is None else y.tobytes()
    key = digest(RECIPE, x.shape, x.dtype, classes, size, numbers, x.tobytes(), content)
    scale = 255 if x.dtype == np.uint8 else 1
    return Batch(
        id=f"{samples.name}-{key[:12]}",
        about=f"{len(chosen)} of the {samples.drawn_from or count} training samples of {path.name}, drawn with seed "
        f"{seed}; {'scaled to [0, 1] and ' if scale == 255 else ''}standardised per channel with "
        f"mean {_text(mean / scale)} and std {_text(std / scale)} of "
        f"{'these' if samples.drawn_from else 'the whole training array'}; "
        f"{'no labels' if y is None else 'real labels'}, {classes} classes{samples.remark}.",
        input_shape=shape,
        num_classes=classes,
        size=size,
        parts=parts,
        make_part=partial(_make_part, x=x, y=y, mean=mean, std=std, size=size),
    )


def channel_statistics(x: NDArray[Any], path: Path) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns mean [C] and population standard deviation [C] (1 if constant) of x [N, C, H, W], in chunks."""
    step = max(1, CHUNK // x[0].size)
    starts = range(0, len(x), step)
    each = x.size // x.shape[1]
    total = np.zeros(x.shape[1])
    spread = np.zeros(x.shape[1])
    with np.errstate(over="ignore", invalid="ignore"):
        for start in starts:
            values = x[start : start + step].astype(np.float64, order="C")
            if not np.isfinite(values).all():
                raise DataError(f"{path} holds inputs that are NaN or infinite: remove or replace them.")
            total += values.sum(axis=(0, 2, 3))
        mean = total / each
        for start in starts:
            values = x[start : start + step].astype(np.float64, order="C")
            spread += np.square(values - mean[:, None, None]).sum(axis=(0, 2, 3))
        std = np.sqrt(spread / each)
    if not (np.isfinite(mean).all() and np.isfinite(std).all()):
        raise DataError(f"{path} holds inputs too large to be standardised: scale them down.")
    return mean, np.where(std > 1e-12 * np.abs(mean), std, 1.0)


def _count_classes(samples: Samples, asked: int | None) -> int:
    largest = -1 if samples.y is None else int(samples.y.max())
    if asked is None:
        return samples.num_classes or (largest + 1) or DEFAULT_CLASSES
    if largest >= asked:
        raise DataError(
            f"{samples.path} has the label {largest}, but {asked} classes were asked for: "
            f"labels run from 0 to {asked - 1}, so ask for at least {largest + 1} classes."
        )
    return asked


def _make_part(
    index: int,
    *,
    x: NDArray[Any],
    y: NDArray[np.int64] | None,
    mean: NDArray[np.float64],
    std: NDArray[np.float64],
    size: int,
) -> Part:
    rows = slice(index * size, (index + 1) * size)
    z = (x[rows] - mean[:, None, None]) / std[:, None, None]  # [B, C, H, W]
    inputs = torch.from_numpy(z.astype(np.float32))
    return inputs, None if y is None else torch.from_numpy(y[rows].copy())


def _text(values: NDArray[np.float64]) -> str:
    return "(" + ", ".join(f"{value:.4g}" for value in values) + ")"
