"""Real inputs for the check of an export, from any source of data."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from torch import Tensor

from epochzero import data as data_
from epochzero.data.batch import shape_text
from epochzero.errors import DataError
from epochzero.train.image_data import SIDE, is_image_folder, load_images
from epochzero.types import Shape

REAL = 4
"""number of samples for the check"""


class RealInputs(NamedTuple):
    """Standardised samples, and the number of classes of their source."""

    x: Tensor
    """[`REAL`, ...], or fewer"""
    num_classes: int


def real_inputs(source: str, shape: Shape | None, seed: int = 0) -> RealInputs:
    """A few samples of this shape, or without one of their own shape, 32x32 pixels for image files."""
    if not is_image_folder(Path(source)):
        batch = data_.load(source, input_shape=shape, size=REAL, parts=1, seed=seed)
        return RealInputs(batch.part(0)[0], batch.num_classes)
    if shape is not None and shape != (3, shape[-1], shape[-1]):
        raise DataError(
            f"The image files of '{source}' become squares in three colours, and the network takes "
            f"{shape_text(shape)}: leave --data out, or give an .npz file."
        )
    images = load_images(source, seed=seed, side=SIDE if shape is None else shape[-1], skip_unreadable=True)
    return RealInputs(images.standardised(images.x[:REAL]), images.num_classes)
