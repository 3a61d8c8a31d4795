"""Real inputs for the check of an export, from any source of data."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor

from epochzero import data as data_
from epochzero.data.batch import shape_text
from epochzero.data.image_folder import SIDE, is_image_folder
from epochzero.errors import DataError
from epochzero.train.image_data import load_images
from epochzero.types import Shape

REAL = 4
"""number of samples for the check"""


def real_inputs(source: str, shape: Shape | None, seed: int = 0) -> tuple[Tensor, int]:
    """A few standardised samples, and the number of classes of their source.

    The samples have this shape, or without one their own, 32x32 pixels for image files.
    """
    if not is_image_folder(Path(source)):
        batch = data_.load(source, input_shape=shape, size=REAL, parts=1, seed=seed)
        return batch.part(0)[0], batch.num_classes
    if shape is not None and shape != (3, shape[-1], shape[-1]):
        raise DataError(
            f"The image files of '{source}' become squares in three colours, and the network takes "
            f"{shape_text(shape)}: leave --data out, or give an .npz file."
        )
    images = load_images(source, seed=seed, side=SIDE if shape is None else shape[-1], skip_unreadable=True)
    return images.standardised(images.x[:REAL]), images.num_classes
