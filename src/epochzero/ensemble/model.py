r"""An ensemble as one model: networks of one space whose predicted probabilities are averaged.

    p(c | x) = (1/M) sum_m softmax(f_m(x))_c

    ensemble = Ensemble(space, archs, modules, Pixels.of(images))
    ensemble(x)                            # [B, classes], x standardised as in training
    ensemble.of_pixels(pixels)             # the same for pixels between 0 and 1
    ensemble.save(folder);  Ensemble.load(folder)

A saved ensemble is a folder: a safetensors file of weights for each member, and `ensemble.json` with the architectures,
classes, normalisation and a SHA-256 of each file. The list is written last and atomically, and files carry their hash
in their name: saving over another ensemble leaves either the old one or the new one.

A deep ensemble is the same architecture trained from several seeds: Lakshminarayanan, Pritzel, Blundell. NeurIPS 2017.
arXiv:1612.01474
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from epochzero.errors import DataError, MachineError, UserError
from epochzero.files import write
from epochzero.plan.module import PlanModule
from epochzero.registry import spaces
from epochzero.spaces.base import Space
from epochzero.train.image_data import Images
from epochzero.train.tensor_file import as_bytes, read_tensors
from epochzero.types import Shape

FORMAT = 1
MANIFEST = "ensemble.json"


class Pixels(NamedTuple):
    """Normalisation of pixels: (x - mean) / std per channel, for x between 0 and 1 (or as in the file)."""

    mean: tuple[float, ...]
    std: tuple[float, ...]
    scale: float = 1.0
    """divides the file's numbers to give such pixels: 255 for bytes"""

    @staticmethod
    def of(images: Images) -> Pixels:
        facts = images.facts
        return Pixels(tuple(facts["mean"]), tuple(facts["std"]), float(facts["scale"]))


class Ensemble(nn.Module):
    """Networks of one space and the mean of their predictions."""

    mean: Tensor
    std: Tensor

    def __init__(
        self,
        space: Space,
        archs: Sequence[Any],
        modules: Sequence[PlanModule],
        pixels: Pixels,
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """`facts` are plain values that are saved with it: how it was chosen, trained and measured."""
        super().__init__()
        if not modules or len(archs) != len(modules):
            raise UserError(f"An ensemble has one network for each architecture, not {len(modules)} for {len(archs)}.")
        shapes = {(module.plan.input_shape, module.plan.output_shape) for module in modules}
        if len(shapes) > 1:
            raise UserError("The members of an ensemble need the same input shape and the same number of classes.")
        self.space, self.pixels, self.facts = space, pixels, dict(facts or {})
        self.texts = [space.text(arch) for arch in archs]
        self.members = nn.ModuleList(modules)
        self.register_buffer("mean", torch.tensor(pixels.mean)[:, None, None], persistent=False)  # [C, 1, 1]
        self.register_buffer("std", torch.tensor(pixels.std)[:, None, None], persistent=False)

    @property
    def input_shape(self) -> Shape:
        return self.member(0).plan.input_shape

    @property
    def num_classes(self) -> int:
        return self.member(0).plan.output_shape[0]

    @property
    def params(self) -> int:
        return sum(self.member(place).plan.trunk.params for place in range(len(self.members)))

    def member(self, place: int) -> PlanModule:
        """One of the networks."""
        member = self.members[place]
        assert isinstance(member, PlanModule)
        return member

    def forward(self, x: Tensor) -> Tensor:
        """Averaged probabilities [B, classes] of standardised images."""
        return self.each(x).mean(0)

    def each(self, x: Tensor) -> Tensor:
        """The members' probabilities [M, B, classes]."""
        return torch.stack([probabilities_of(member(x)) for member in self.members])

    def of_pixels(self, pixels: Tensor) -> Tensor:
        """Averaged probabilities [B, classes] of images whose pixels are between 0 and 1."""
        return self.forward(self.standardised(pixels))

    def standardised(self, pixels: Tensor) -> Tensor:
        return (pixels - self.mean) / self.std

    @torch.inference_mode()
    def predict(self, x: Tensor, size: int = 256) -> Tensor:
        """The members' probabilities [M, N, classes] of standardised images, in evaluation mode, on the CPU."""
        self.eval()
        return torch.cat([self.each(some.to(self.mean.device)).cpu() for some in torch.split(x, size)], 1)

    def save(self, folder: Path) -> Path:
        """Writes it to a folder, in place of an earlier ensemble. Returns the path of its list."""
        folder.mkdir(parents=True, exist_ok=True)
        members = []
        try:
            for place, text in enumerate(self.texts):
                content = as_bytes(self.member(place).weights())
                sha = hashlib.sha256(content).hexdigest()
                name = f"member-{place + 1}-{sha[:12]}.safetensors"
                write(folder / name, content)
                members.append({"arch": text, "weights": name, "sha256": sha})
            about = {
                "format": FORMAT,
                "space": self.space.name,
                "num_classes": self.num_classes,
                "input_shape": list(self.input_shape),
                "pixels": self.pixels._asdict(),
                "members": members,
                "facts": self.facts,
            }
            write(folder / MANIFEST, json.dumps(about, indent=1))
        except OSError as error:
            raise MachineError(
                f"The ensemble '{folder}' could not be written ({error.strerror}): free some disk space."
            ) from error
        named = {member["weights"] for member in members}
        for old in folder.glob("member-*.safetensors"):
            if old.name not in named:
                old.unlink()
        return folder / MANIFEST

    @staticmethod
    def load(folder: Path, space: Space | None = None) -> Ensemble:
        """Reads an ensemble; DataError if it is damaged or its parts do not fit.

        `space` replaces the registered space of the same name, for one of another size.
        """
        about = _manifest(folder)
        known_space = spaces[about["space"]] if space is None else space
        if known_space.name != about["space"]:
            raise UserError(f"The ensemble '{folder}' is of space '{about['space']}', not of '{known_space.name}'.")
        archs, modules = [], []
        for member in about["members"]:
            archs.append(known_space.parse(member["arch"]))
            plan = known_space.plan(archs[-1], about["num_classes"], tuple(about["input_shape"]))
            modules.append(_with_weights(plan.module(), folder / member["weights"], member["sha256"]))
        pixels = about["pixels"]
        how = Pixels(tuple(pixels["mean"]), tuple(pixels["std"]), float(pixels["scale"]))
        return Ensemble(known_space, archs, modules, how, about["facts"]).eval()


def probabilities_of(outputs: Tensor | tuple[Tensor, Tensor]) -> Tensor:
    """Probabilities [B, classes] of logits, or of the first of logits and auxiliary logits."""
    logits = outputs[0] if isinstance(outputs, tuple) else outputs  # [B, classes]
    return logits.float().softmax(1)


def _manifest(folder: Path) -> dict[str, Any]:
    """The list of an ensemble's folder, checked field by field."""
    path = folder / MANIFEST
    if not path.is_file():
        raise DataError(f"The folder '{folder}' holds no ensemble: there is no {MANIFEST}.")
    try:
        about = json.loads(path.read_text(encoding="utf-8"))
        if about["format"] != FORMAT:
            raise DataError(
                f"The ensemble '{folder}' is of format {about['format']}, and this EpochZero knows {FORMAT}."
            )
        plain = [
            isinstance(about["space"], str),
            isinstance(about["num_classes"], int) and 1 <= about["num_classes"] <= 10**6,
            all(isinstance(side, int) and 1 <= side <= 10**5 for side in about["input_shape"]),
            all(len(about["pixels"][key]) == about["input_shape"][0] for key in ("mean", "std")),
            all(isinstance(value, (int, float)) for key in ("mean", "std") for value in about["pixels"][key]),
            isinstance(about["pixels"]["scale"], (int, float)),
            isinstance(about["facts"], dict),
            bool(about["members"]),
            all(isinstance(member[key], str) for member in about["members"] for key in ("arch", "weights", "sha256")),
            all(Path(member["weights"]).name == member["weights"] for member in about["members"]),
        ]
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        if isinstance(error, DataError):
            raise
        plain = [False]
    if not all(plain):
        raise DataError(f"The list '{path}' is damaged, or is of another program.")
    assert isinstance(about, dict)
    return about


def _with_weights(module: PlanModule, path: Path, sha256: str) -> PlanModule:
    """The network with the weights of a file; DataError if its content has changed since it was saved."""
    try:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise DataError(f"The weights '{path}' cannot be read ({error.strerror}).") from None
    if digest != sha256:
        raise DataError(f"The weights '{path}' are damaged: they do not match their checksum in {MANIFEST}.")
    tensors = read_tensors(path)
    expected = {name: tensor.shape for name, tensor in module.weights().items()}
    if {name: tensor.shape for name, tensor in tensors.items()} != expected:
        raise DataError(f"The weights '{path}' are of another network, or of other classes, than {MANIFEST} says.")
    module.load_state_dict(tensors)
    return module
