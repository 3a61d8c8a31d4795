r"""AutoFormer: vision transformers of one width, with separate heads and MLP ratio for each layer.

    192:3x3.5,4x4,3x4,...      the width, then the heads and the MLP ratio of each layer

The network has patches of 16x16 pixels as tokens, a class token, position embeddings, then for each layer, with heads
of 64 features for any width, and hidden = int(width * ratio),

    x = x + project(attention(qkv(norm(x))))         relative positions for keys and for values, up to a distance of 14
    x = x + linear(gelu(linear(norm(x))))

and a layer norm, the mean of the patch tokens, and a classifier.

    space              width            depth         heads     ratio          architectures
    autoformer_tiny    192, 216, 240    12, 13, 14    3, 4      3.5, 4         3 (4^12 + 4^13 + 4^14) = 1.1e9
    autoformer_small   320, 384, 448    12, 13, 14    5, 6, 7   3, 3.5, 4      3 (9^12 + 9^13 + 9^14) = 7.7e13
    autoformer_base    528, 576, 624    14, 15, 16    9, 10     3, 3.5, 4      3 (6^14 + 6^15 + 6^16) = 1.0e13

The published AutoFormer-T has layers of ratio 3, outside its own space: `plan` builds it, `parse` rejects it.

Chen, Peng, Fu, Ling. AutoFormer: searching transformers for visual recognition. ICCV 2021. arXiv:2107.00651
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from random import Random
from typing import Any, Literal, NamedTuple, NoReturn

from epochzero.data.batch import shape_text
from epochzero.errors import UserError
from epochzero.plan import Builder, Plan, chain
from epochzero.plan.ops.activation import GELU
from epochzero.plan.ops.attention import RelativeAttention
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import LayerNorm
from epochzero.plan.ops.pool import TokenMean
from epochzero.plan.ops.token import ClassToken, PositionEmbedding, ToTokens
from epochzero.plan.ops.wiring import Add
from epochzero.registry import spaces
from epochzero.spaces.base import Architectures, check_classes, quoted, replaced
from epochzero.types import Shape

PATCH = 16
HEAD_WIDTH = 64
FARTHEST = 14
"""distance of tokens beyond which all relative positions are equal"""

NORM, SUM = LayerNorm(), Add()
TEXT = re.compile(r"([0-9]{1,6}):(.+)", re.DOTALL)
LAYER = re.compile(r"([0-9]{1,6})x([0-9]{1,6}(?:\.[0-9]{1,6})?)")

Layer = tuple[int, float]
"""Heads and MLP ratio of one layer."""


class Former(NamedTuple):
    """One transformer: its width, and its layers from first to last."""

    width: int
    layers: tuple[Layer, ...]


@dataclass(eq=False)
class Autoformer(Architectures):
    """The choices of one size: tiny, small or base."""

    name: str
    widths: tuple[int, ...]
    depths: tuple[int, ...]
    heads: tuple[int, ...]
    ratios: tuple[float, ...]

    cell_block = ""

    @property
    def about(self) -> str:
        width, depth, heads, ratio = map(_span, (self.widths, self.depths, self.heads, self.ratios))
        return f"AutoFormer: width {width}, {depth} layers, each with {heads} heads and MLP ratio {ratio}"

    def parse(self, text: str) -> Former:
        """Returns the architecture of `192:3x3.5,4x4,...`, or of AutoFormer's own dictionary written as JSON.

        The dictionary has `layer_num`, and lists `mlp_ratio`, `num_heads` and `embed_dim` of that length; the last may
        be one number. Python quotes, and the capitals and `DEPTH` of the published configurations, are accepted too.
        """
        text = text.strip()
        if text.startswith("{"):
            return self._from_dictionary(text)
        match = TEXT.fullmatch(text)
        if match is None:
            width, (layer, *_) = self.smallest()
            example = f"{width}:{_written(layer)},{_written(layer)},..."
            self._refuse(text, f"writes {example} for a width and each layer's heads and ratio")
        pairs = []
        for i, layer_text in enumerate(match[2].split(",")):
            pair = LAYER.fullmatch(layer_text)
            if pair is None:
                self._refuse(text, f"writes heads x ratio for each layer, and layer {i} is {quoted(layer_text)}")
            pairs.append((int(pair[1]), float(pair[2])))
        return self._checked(int(match[1]), pairs)

    def _from_dictionary(self, text: str) -> Former:
        try:
            given = {key.lower(): value for key, value in json.loads(text.replace("'", '"')).items()}
        except (ValueError, RecursionError):
            self._refuse(text, "reads dictionaries as JSON, and this is not one")
        depth = given.get("layer_num", given.get("depth"))
        heads, ratios, width = given.get("num_heads"), given.get("mlp_ratio"), given.get("embed_dim")
        if not (isinstance(heads, list) and isinstance(ratios, list) and len(heads) == len(ratios) == depth):
            self._refuse(text, "needs layer_num, and lists num_heads and mlp_ratio of that length")
        if isinstance(width, list) and width and width == width[:1] * len(heads):
            width = width[0]
        return self._checked(width, list(zip(heads, ratios, strict=True)))

    def _checked(self, width: Any, layers: list[tuple[Any, Any]]) -> Former:
        """Returns the architecture; UserError if a value is outside the space."""
        if len(layers) not in self.depths:
            raise UserError(f"{self.name} has {_span(self.depths)} layers, not {len(layers)}.")
        kept = [
            (self._member(heads, self.heads, "heads", i), self._member(ratio, self.ratios, "MLP ratio", i))
            for i, (heads, ratio) in enumerate(layers)
        ]
        return Former(self._member(width, self.widths, "width"), tuple(kept))

    def _member(self, value: Any, choices: tuple[Any, ...], words: str, layer: int | None = None) -> Any:
        for choice in choices:
            if value == choice:
                return choice
        where = "all layers" if layer is None else f"layer {layer}"
        listed = ", ".join(f"{choice:g}" for choice in choices)
        raise UserError(f"The {words} of {where} cannot be {quoted(value)}: {self.name} has {listed}.")

    def _refuse(self, text: str, why: str) -> NoReturn:
        raise UserError(f"{quoted(text)} cannot be read: {self.name} {why}.")

    def text(self, arch: Former) -> str:
        return f"{arch.width}:{','.join(map(_written, arch.layers))}"

    @property
    def _layers(self) -> tuple[Layer, ...]:
        """All possible layers."""
        return tuple(itertools.product(self.heads, self.ratios))

    def count(self) -> int:
        each = len(self.heads) * len(self.ratios)
        return sum(len(self.widths) * each**depth for depth in self.depths)

    def sample(self, rng: Random, distribution: Literal["uniform", "autoformer"] = "uniform") -> Former:
        """Draws uniformly from all architectures, most of which have the largest depth.

        With `autoformer`, all depths are equally likely, as in AutoFormer itself.
        """
        layers = self._layers
        match distribution:
            case "uniform":
                (depth,) = rng.choices(self.depths, [len(layers) ** depth for depth in self.depths])
            case "autoformer":
                depth = rng.choice(self.depths)
            case _:
                raise UserError(f"{self.name} samples by uniform or autoformer, not by {quoted(distribution)}.")
        return Former(rng.choice(self.widths), tuple(rng.choices(layers, k=depth)))

    def crossover(self, one: Former, other: Former, rng: Random) -> Former:
        """Takes depth, width and each layer from one of the two, uniformly; missing layers from the other."""
        layers = rng.choice((one, other)).layers
        mates = [[former.layers[i] for former in (one, other) if i < len(former.layers)] for i in range(len(layers))]
        return Former(rng.choice((one, other)).width, tuple(map(rng.choice, mates)))

    def neighbours(self, arch: Former) -> list[Former]:
        """Returns the architectures with another width, another layer, one layer less, or one more.

        Layers are added and removed at the end, as in AutoFormer's own search; a new layer may be any.
        """
        width, layers = arch
        changed = [Former(other, layers) for other in self.widths if other != width]
        for i, (heads, ratio) in enumerate(layers):
            others = [(other, ratio) for other in self.heads if other != heads]
            others += [(heads, other) for other in self.ratios if other != ratio]
            changed += [Former(width, replaced(layers, i, other)) for other in others]
        if len(layers) - 1 in self.depths:
            changed.append(Former(width, layers[:-1]))
        if len(layers) + 1 in self.depths:
            changed += [Former(width, (*layers, new)) for new in self._layers]
        return changed

    def smallest(self) -> Former:
        return Former(min(self.widths), ((min(self.heads), min(self.ratios)),) * min(self.depths))

    def plan(self, arch: Former, num_classes: int = 1000, input_shape: Shape = (3, 224, 224)) -> Plan:
        """Returns the network, of any width, heads and ratios, for square images of whole patches."""
        check_classes(self.name, num_classes)
        if len(input_shape) != 3 or input_shape[1] != input_shape[2] or input_shape[1] % PATCH or not input_shape[1]:
            raise UserError(
                f"{self.name} takes square images whose side is a multiple of {PATCH}, such as 3x224x224, not "
                f"{shape_text(input_shape)}."
            )
        net = Builder()
        x = net.inline(_stem(arch.width, input_shape), net.input(input_shape), name="stem")
        shape = net.shape(x)
        for i, (heads, ratio) in enumerate(arch.layers):
            x = net.inline(_layer(heads, ratio, shape), x, name=f"layer{i}")
        net.inline(_head(num_classes, shape), x, name="head")
        return net.plan()


def _span(choices: Sequence[float]) -> str:
    """Returns a range in words: 3 or 4; 12 to 14."""
    return f"{choices[0]:g} {'or' if len(choices) == 2 else 'to'} {choices[-1]:g}"


def _written(layer: Layer) -> str:
    """Returns a layer as text: 3x3.5, and 3x4 for a ratio of 4.0."""
    heads, ratio = layer
    return f"{heads}x{ratio:g}"


@lru_cache(maxsize=256)
def _stem(width: int, shape: Shape) -> Plan:
    patches = Conv(width, PATCH, PATCH, bias=True)
    return chain(shape, patches=patches, tokens=ToTokens(), first=ClassToken(), positions=PositionEmbedding())


@lru_cache(maxsize=4096)
def _layer(heads: int, ratio: float, shape: Shape) -> Plan:
    net = Builder()
    x = net.input(shape)
    x = net.add(SUM, x, net.inline(_attention(heads, shape), x, name="attention"), name="attended")
    net.add(SUM, x, net.inline(_mlp(ratio, shape), x, name="mlp"), name="sum")
    return net.plan()


@lru_cache(maxsize=1024)
def _attention(heads: int, shape: Shape) -> Plan:
    qkv, attend = Linear(3 * HEAD_WIDTH * heads), RelativeAttention(heads, FARTHEST)
    return chain(shape, norm=NORM, qkv=qkv, heads=attend, project=Linear(shape[1]))


@lru_cache(maxsize=1024)
def _mlp(ratio: float, shape: Shape) -> Plan:
    width = shape[1]
    return chain(shape, norm=NORM, widen=Linear(int(width * ratio)), gelu=GELU(), narrow=Linear(width))


@lru_cache(maxsize=256)
def _head(num_classes: int, shape: Shape) -> Plan:
    return chain(shape, norm=NORM, mean=TokenMean(start=1), linear=Linear(num_classes))


for _space in (
    Autoformer("autoformer_tiny", (192, 216, 240), (12, 13, 14), (3, 4), (3.5, 4.0)),
    Autoformer("autoformer_small", (320, 384, 448), (12, 13, 14), (5, 6, 7), (3.0, 3.5, 4.0)),
    Autoformer("autoformer_base", (528, 576, 624), (14, 15, 16), (9, 10), (3.0, 3.5, 4.0)),
):
    spaces.register(_space.name, _space)
