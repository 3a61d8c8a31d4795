"""The preparation of an image for a network, as a training records it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from epochzero.errors import DataError
from epochzero.export import pixels
from epochzero.types import Shape

KEY, CLASSES = "preprocessing", "classes"
"""metadata of an ONNX model"""
BYTES = 255


@dataclass(frozen=True)
class Preprocessing:
    """Normalisation of images, the size they are scaled to, and the names of the classes."""

    shape: Shape
    """[C, H, W] of the network's input"""
    mean: tuple[float, ...]
    """of each channel, of pixels that were divided by the scale"""
    std: tuple[float, ...]
    scale: float
    """255 for bytes, 1 for other numbers"""
    classes: tuple[str, ...]
    logits: bool = True
    """false if the network gives probabilities"""

    @staticmethod
    def of(data: Mapping[str, Any], shape: Shape, num_classes: int, logits: bool = True) -> Preprocessing:
        """From the facts of a training's data; classes without names are numbers."""
        names = list(data.get("classes", ()))
        names += map(str, range(len(names), num_classes))
        mean, std = (tuple(data[name]) for name in ("mean", "std"))
        return Preprocessing(tuple(shape), mean, std, float(data["scale"]), tuple(names), logits)

    @staticmethod
    def of_training(identity: Mapping[str, Any] | None) -> Preprocessing | None:
        """From the identity of a checkpoint; None without a training on images."""
        if not identity or len(identity["input_shape"]) != 3:
            return None
        return Preprocessing.of(identity["data"], identity["input_shape"], identity["num_classes"])

    @property
    def of_bytes(self) -> bool:
        """True if image files are what the network was trained on, or something like it."""
        return self.scale == BYTES and self.shape[0] in (1, 3)

    def module(self) -> pixels.Preprocess:
        return pixels.Preprocess(self.shape[1:], list(self.mean), list(self.std))  # type: ignore[arg-type]

    @property
    def source(self) -> str:
        """The end of `model.py`."""
        names = f'CLASSES = {list(self.classes)!r}\n"""by the place of an output"""\n'
        if not self.of_bytes:
            return f"\n\n{names}"
        text = Path(pixels.__file__).read_text(encoding="utf-8").partition("from torch import Tensor, nn\n")[2]
        colours = "red, green and blue" if self.shape[0] == 3 else "grey"
        made = f"preprocess = Preprocess({tuple(self.shape[1:])}, {list(self.mean)}, {list(self.std)})"
        about = (
            f'"""Bytes [batch, height, width, {self.shape[0]}] in {colours}, upright, to the input of the network."""'
        )
        return f"{text}\n\n{names}\n{made}\n{about}\n"

    @property
    def metadata(self) -> dict[str, str]:
        """Of an ONNX model."""
        how = {name: getattr(self, name) for name in ("shape", "mean", "std", "scale", "logits")}
        how |= {"crop": "centre", "resize": "bilinear"} if self.of_bytes else {}
        return {KEY: json.dumps(how), CLASSES: json.dumps(self.classes, ensure_ascii=False)}

    @staticmethod
    def read(metadata: Mapping[str, str], source: object) -> Preprocessing:
        """From an ONNX model's metadata; DataError if there is none that makes sense."""
        try:
            how, names = json.loads(metadata[KEY]), json.loads(metadata[CLASSES])
            shape = tuple(map(int, how["shape"]))
            mean, std = (tuple(map(float, how[name])) for name in ("mean", "std"))
            fits = len(shape) == 3 and min(shape) > 0 and max(shape) < 10**5 and len(mean) == len(std) == shape[0]
            if not fits or not names or not all(isinstance(name, str) for name in names):
                raise ValueError("sizes differ")  # noqa: TRY301
            return Preprocessing(shape, mean, std, float(how["scale"]), tuple(names), bool(how["logits"]))
        except (KeyError, ValueError, TypeError):
            raise DataError(
                f"'{source}' does not say how images are prepared and what its classes are: export it with the "
                "--weights of `epochzero train`."
            ) from None
