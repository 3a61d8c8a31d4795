"""Published models by name, as modules: `timm:resnet18`, `hf:microsoft/resnet-18`.

    timm:NAME     a model of the package timm, such as timm:vit_tiny_patch16_224; a bare NAME means this too
    hf:NAME       an image classifier of the Hugging Face hub, from its configuration, through the package transformers

Weights are drawn anew; none are downloaded. A model is made for the batch's classes, and for its image size if it works
at one size only. One change away is any other model of timm, so that searches are random: the space is for tables whose
rows are names of models. Neither package is needed to read such a table.

Wightman. PyTorch image models. github.com/huggingface/pytorch-image-models
Wolf et al. Transformers: state-of-the-art natural language processing. EMNLP 2020. arXiv:1910.03771
"""

from __future__ import annotations

import re
from importlib import import_module
from random import Random
from typing import Any

from torch import Tensor, nn

from epochzero.errors import UserError
from epochzero.registry import near_miss, spaces
from epochzero.spaces.base import check_images, quoted
from epochzero.types import Shape

SOURCES = {"timm": "timm", "hf": "transformers"}
"""prefix of a name, and the package that makes the model"""
REFERENCE = re.compile(r"(?:(timm|hf):)?([A-Za-z0-9][\w.-]*(?:/[\w.-]+)?)", re.ASCII)


class Published:
    """Published models by name: timm:resnet18, hf:microsoft/resnet-18. Needs timm or transformers."""

    name = "published"
    about = "Published models by name, from timm or the Hugging Face hub: timm:resnet18, hf:microsoft/resnet-18"
    native: tuple[Shape, int] = ((3, 224, 224), 1000)

    def parse(self, text: str) -> str:
        """Returns the name with its source; whether there is such a model is known only when it is built."""
        match = REFERENCE.fullmatch(text.strip())
        if match is None:
            raise UserError(f"{quoted(text)} names no published model: write timm:resnet18 or hf:microsoft/resnet-18.")
        return f"{match[1] or 'timm'}:{match[2]}"

    def text(self, arch: str) -> str:
        return arch

    def sample(self, rng: Random) -> str:
        """Draws uniformly from all models of timm."""
        return rng.choice(_models())

    def mutate(self, arch: str, rng: Random) -> str:
        """Draws uniformly from all other models of timm."""
        return rng.choice(self.neighbours(arch))

    def neighbours(self, arch: str) -> list[str]:
        """Returns all other models of timm."""
        return [other for other in _models() if other != arch]

    def smallest(self) -> str:
        """Returns timm's first model of the name test_..., which are tiny, or its first model."""
        models = _models()
        return next((model for model in models if model.startswith("timm:test_")), models[0])

    def build(self, arch: str, num_classes: int = 1000, input_shape: Shape = (3, 224, 224)) -> nn.Module:
        """Returns the model with new weights."""
        check_images(self.name, num_classes, input_shape, "3x224x224")
        source, _, name = arch.partition(":")
        return (_timm_model if source == "timm" else _hf_model)(name, num_classes, input_shape)


class Logits(nn.Module):
    """A classifier of transformers as a function of images."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.model(pixel_values=x).logits
        return logits


def is_published(text: object) -> bool:
    """Returns True for a text such as `timm:resnet18`, with its source."""
    return isinstance(text, str) and text.partition(":")[0] in SOURCES and bool(REFERENCE.fullmatch(text))


def _package(source: str) -> Any:
    """Returns the package of a source; UserError if it cannot be imported."""
    name = SOURCES[source]
    try:
        return import_module(name)
    except (ImportError, RuntimeError, OSError) as error:
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise UserError(
            f"Models of {source}: need the package {name}, which cannot be imported ({why}): pip install {name}."
        ) from error


def _models() -> list[str]:
    return [f"timm:{name}" for name in _package("timm").list_models()]


def _timm_model(name: str, num_classes: int, shape: Shape) -> nn.Module:
    timm = _package("timm")
    known = name.partition(".")[0]  # a name may end in the tag of trained weights
    if not timm.is_model(known):
        raise UserError(f"timm {timm.__version__} has no model '{known}'.{near_miss(known, timm.list_models())}")
    channels = {} if shape[0] == 3 else {"in_chans": shape[0]}
    of_one_size = getattr(timm.get_pretrained_cfg(name), "fixed_input_size", False)
    size = {"img_size": shape[1:]} if of_one_size else {}
    model: nn.Module = timm.create_model(name, pretrained=False, num_classes=num_classes, **channels, **size)
    return model


def _hf_model(name: str, num_classes: int, shape: Shape) -> nn.Module:
    transformers = _package("hf")
    config = transformers.AutoConfig.from_pretrained(name, num_labels=num_classes)
    for field, value in (("image_size", shape[1]), ("num_channels", shape[0])):
        if hasattr(config, field):
            setattr(config, field, value)
    return Logits(transformers.AutoModelForImageClassification.from_config(config))


spaces.register("published", Published())
