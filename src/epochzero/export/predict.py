"""Predictions for image files, by a trained network, an ensemble, or an exported product.

predictions = predict("product", "photos")
predictions.write("predictions.csv")         # file, class, probability, why, and a column for each class
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from epochzero.data import white
from epochzero.data.image_folder import ENDINGS, complaint, read_image
from epochzero.engine.device import usable
from epochzero.engine.modules.outputs import pick
from epochzero.engine.space_networks import built
from epochzero.ensemble.model import Ensemble
from epochzero.errors import DataError, UserError
from epochzero.export import onnx_model
from epochzero.export.ensemble import holds_ensemble, prepared
from epochzero.export.preprocessing import Preprocessing
from epochzero.export.product import ONNX
from epochzero.export.subject import Subject
from epochzero.export.weights import read_weights
from epochzero.files import csv_text, replacing_output
from epochzero.frames import Framed
from epochzero.progress import Progress, silent
from epochzero.quantities import skips
from epochzero.registry import spaces
from epochzero.spaces.base import Space
from epochzero.types import Origin

Run = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Predictions(Framed):
    """Probabilities of classes for image files."""

    classes: tuple[str, ...]
    files: list[str]
    probabilities: NDArray[np.float32]
    """[files, classes], nan for a file that cannot be read"""
    unreadable: dict[str, str]
    """why files cannot be read"""

    def __len__(self) -> int:
        return len(self.files)

    def __repr__(self) -> str:
        return f"<Predictions for {len(self)} images in {len(self.classes)} classes>"

    def table(self) -> dict[str, list[Any]]:
        """The columns file, class, probability, why, and one for each class."""
        rows = self.probabilities
        best = [
            None if file in self.unreadable else int(row.argmax()) for file, row in zip(self.files, rows, strict=True)
        ]
        columns: dict[str, list[Any]] = {
            "file": self.files,
            "class": ["" if place is None else self.classes[place] for place in best],
            "probability": [math.nan if at is None else float(row[at]) for at, row in zip(best, rows, strict=True)],
            "why": [self.unreadable.get(file, "") for file in self.files],
        }
        for place, name in enumerate(self.classes):
            columns[name if name not in columns else f"{name} (class)"] = rows[:, place].tolist()
        return columns

    def write(self, path: str | Path) -> None:
        """Writes the table as CSV, in place of an older file."""
        columns = self.table()
        rows = zip(*columns.values(), strict=True)
        blank = ([("" if isinstance(cell, float) and math.isnan(cell) else cell) for cell in row] for row in rows)
        with replacing_output(Path(path)) as file:
            file.write(csv_text(columns, blank).encode())


def predict(
    model: str | Path,
    images: str | Path,
    *,
    unreadable: str = "stop",
    batch_size: int = 64,
    device: str = "cpu",
    progress: Progress = silent,
) -> Predictions:
    """Predicts the class of an image file, or of every image in a folder and the folders in it.

    `model` is the folder of `epochzero train`, `ensemble` or `export`. Unreadable files are all named in one error, or
    with unreadable="skip" have the reason in place of probabilities.
    """
    skip, files = skips(unreadable), _files(Path(images))
    usable(device)
    how, run = loaded(Path(model), device)
    if not how.of_bytes:
        raise UserError(f"'{model}' was not trained on images of bytes in colour or grey: call its network yourself.")
    root = Path(images) if Path(images).is_dir() else Path(images).parent
    named = [file.relative_to(root).as_posix() for file in files]
    probabilities = np.full((len(files), len(how.classes)), np.nan, np.float32)
    broken: dict[str, str] = {}
    mean, std = (torch.tensor(values)[:, None, None] * how.scale for values in (how.mean, how.std))
    pairs = list(zip(named, files, strict=True))
    for start in range(0, len(files), batch_size):
        some = pairs[start : start + batch_size]
        read = [read_image(file, how.shape[1:], grey=how.shape[0] == 1) for _, file in some]  # type: ignore[arg-type]
        broken |= {name: why for (name, _), why in zip(some, read, strict=True) if isinstance(why, str)}
        places = [start + place for place, pixels in enumerate(read) if not isinstance(pixels, str)]
        if places and (skip or not broken):
            x = torch.from_numpy(np.stack([pixels for pixels in read if not isinstance(pixels, str)])).float()
            probabilities[places] = run((x - mean) / std).numpy()
        progress(start + len(some), len(files), "")
    if broken and not skip:
        raise DataError(complaint([(str(root / name), why) for name, why in broken.items()]))
    return Predictions(how.classes, named, probabilities, broken)


def loaded(model: Path, device: str = "cpu") -> tuple[Preprocessing, Run]:
    """The preprocessing of a model, and its probabilities as a function of standardised images."""
    if holds_ensemble(model):
        ensemble = Ensemble.load(model).to(device)
        return prepared(ensemble), lambda x: ensemble.predict(x).mean(0)
    if (model / ONNX).is_file():
        return _of_product(model / ONNX)
    if not model.is_dir() or not any(model.glob("epoch-*.pt")):
        raise UserError(
            f"'{model}' holds no model for images: give the folder of `epochzero train`, `ensemble` or `export` (with "
            f"{ONNX})."
        )
    return _of_training(model, device)


def _of_product(path: Path) -> tuple[Preprocessing, Run]:
    onnx_model.check_packages()
    try:
        session = onnx_model.session_of(path.read_bytes())
    except Exception as error:
        raise DataError(f"'{path}' is no ONNX model ({' '.join(str(error).split())[:200]}): export it again.") from None
    metadata = session.get_modelmeta().custom_metadata_map
    how = Preprocessing.read(metadata, path)

    def run(x: Tensor) -> Tensor:
        y = torch.from_numpy(session.run(None, {"x": x.numpy()})[0])
        return y.softmax(1) if how.logits else y

    return how, run


def _of_training(folder: Path, device: str) -> tuple[Preprocessing, Run]:
    weights = read_weights(folder)
    identity = weights.identity
    how = Preprocessing.of_training(identity)
    if how is None or "space" not in identity:
        raise UserError(
            f"The training in '{folder}' does not name a network for images: export it, and predict by that."
        )
    if identity["space"] == "given":
        raise UserError(
            f"The training in '{folder}' is of a module of yours: export it with `epochzero export --from "
            f"{identity['arch'].split()[0]} --weights {folder}`, and predict by the product."
        )
    space, classes, shape = spaces[identity["space"]], identity["num_classes"], tuple(identity["input_shape"])
    arch = space.parse(identity["arch"])
    if isinstance(space, Space):
        subject = Subject.of(space, arch, weights=weights)
        module: torch.nn.Module = subject.plan.module(Origin())
        module.load_state_dict(subject.weights)
    else:
        module = built(space, arch, white(shape, classes, 1, 1, 0), identity["seed"])
        module.load_state_dict(dict(weights.tensors))
    module.eval().to(device)

    def run(x: Tensor) -> Tensor:
        with torch.inference_mode():
            return pick(module(x.to(device)), None).float().softmax(1).cpu()

    return how, run


def _files(images: Path) -> list[Path]:
    """The image files, in order."""
    if images.is_file():
        return [images]
    if not images.exists():
        raise DataError(f"There is no file or folder '{images}' to predict.")
    files = sorted(file for file in images.rglob("*") if file.suffix.lower() in ENDINGS and file.is_file())
    if not files:
        raise DataError(f"The folder '{images}' holds no images ({', '.join(sorted(ENDINGS))}).")
    return files
