"""Data for scoring: noise, or samples from files, tensors or loaders, as a `Batch`.

    load("pink").part(0)                          # x [64, 3, 32, 32], y [64]
    load("images.npz", size=128, seed=1).about    # which samples, how normalised, what labels

A pickle can run code when it is opened, so it is refused; only the official CIFAR files, which are pickles, are read,
by a reader that runs no code.
"""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

from epochzero.data import cifar, npz
from epochzero.data.batch import DEFAULT_CLASSES, USUAL_SIZE, Batch, check_request
from epochzero.data.image_folder import SIDE, draw_images, is_image_folder
from epochzero.data.noise import pink, white
from epochzero.data.samples import draw, reading
from epochzero.data.tensors import from_tensors
from epochzero.errors import DataError, UserError
from epochzero.registry import near_miss
from epochzero.types import Shape

__all__ = ["Batch", "from_tensors", "is_image_folder", "load", "pink", "white"]

NOISE = {"pink": pink, "white": white}
PICKLES = (".pkl", ".pickle", ".pt", ".pth")
ARCHIVES = (".tar.gz", ".tgz", ".tar")
ACCEPTED = (
    "'pink', 'white', an .npz file, a folder of images for each class, or a CIFAR-10 or CIFAR-100 archive or folder"
)


class Sampling(TypedDict, total=False):
    """The keywords of `load`, for functions that pass them on."""

    input_shape: Shape | None
    num_classes: int | None
    size: int | None
    parts: int
    seed: int
    image_size: int | None
    skip_unreadable: bool


def load(
    source: str | Path = "pink",
    *,
    input_shape: Shape | None = None,
    num_classes: int | None = None,
    size: int | None = None,
    parts: int = 4,
    seed: int = 0,
    image_size: int | None = None,
    skip_unreadable: bool = False,
) -> Batch:
    """Returns a batch of noise ("pink" or "white"), or of samples from an `.npz` file, CIFAR or a folder of images.

    For noise, `input_shape` defaults to 3x32x32 and `num_classes` to 10; for files, both default to their content.
    Parts have `size` samples: by default 64, or all of a file that holds fewer. `seed` draws the noise, or selects the
    samples of the files. Image files become squares of `image_size` pixels, by
    default those of the `input_shape`, or 32.
    """
    check_request(num_classes, size, parts, seed)
    usual = USUAL_SIZE if size is None else size
    if image_size is not None and (source in NOISE or Path(source).is_file()):
        raise UserError(f"{source} has no image files to scale: leave the image size out.")
    if source in NOISE:
        shape = (3, 32, 32) if input_shape is None else input_shape
        return NOISE[str(source)](shape, num_classes or DEFAULT_CLASSES, usual, parts, seed)
    path = Path(source)
    with reading(path, "data", f"give {ACCEPTED}"):
        folder, file = path.is_dir(), path.is_file()
        pictures = folder and is_image_folder(path)
    if pictures:
        side = image_size or (SIDE if input_shape is None else input_shape[-1])
        samples = draw_images(path, parts * usual, seed, side=side, skip=skip_unreadable)
    elif folder or (file and path.name.lower().endswith(ARCHIVES)):
        samples = cifar.read(path)
    elif file and path.suffix.lower() == ".npz":
        samples = npz.read(path)
    elif file and (path.suffix.lower() in PICKLES or npz.is_pickle(path)):
        raise DataError(f"{path} {npz.PICKLE}.")
    elif file:
        raise DataError(f"{path} has an unknown format: give {ACCEPTED}.")
    elif path.suffix or len(path.parts) > 1:
        raise DataError(f"There is no file or folder {path}: give {ACCEPTED}.")
    else:
        hint = near_miss(str(source), list(NOISE))
        raise DataError(f"No data are called '{source}'.{hint} Give {ACCEPTED}.")
    return draw(
        samples,
        input_shape=None if input_shape is None else tuple(input_shape),
        num_classes=num_classes,
        size=min(usual, len(samples.x)) if size is None else size,
        parts=parts,
        seed=seed,
    )
