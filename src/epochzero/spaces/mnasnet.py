r"""MnasNet's skeleton as Accel-NASBench searches it: seven stages of inverted bottlenecks for ImageNet.

    e6k3l1s0/e4k5l2s0/e1k3l3s1/...      seven stages: expansion, kernel, layers, squeeze-excite

Each stage chooses
    e in {1, 4, 6}    k in {3, 5}    l in {1, 2, 3}, the sixth also 4    s in {0, 1},
so there are 36^6 48 = 1.0e11 networks. Channels and strides belong to the stage:

    stem  3x3 /2  32    stages  16 /1, 24 /2, 40 /2, 80 /2, 112 /1, 192 /2, 320 /1    head  1x1  1280, pool, classifier

A layer with c input channels: 1x1 convolution to c e (left out where e = 1), depthwise k x k, squeeze-excite with c / 4
hidden units and biases, 1x1 convolution to the stage's channels; a residual where shapes allow. Batch norm after each
convolution, SiLU after each but the last of a layer. The table's accuracies do not say which activation was trained.

Ahmad, Du, Xie, Zhang. Accel-NASBench: sustainable benchmarking for accelerator-aware NAS. DAC 2024.
arXiv:2404.08005

Tan, Chen, Pang, Vasudevan, Sandler, Howard, Le. MnasNet: platform-aware neural architecture search for mobile.
CVPR 2019. arXiv:1807.11626
"""

from __future__ import annotations

import itertools
from functools import lru_cache
from random import Random
from typing import NamedTuple

from epochzero.errors import UserError
from epochzero.plan import Builder, Plan, chain
from epochzero.plan.ops.activation import Sigmoid, SiLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import GlobalAvgPool
from epochzero.plan.ops.wiring import Add, Multiply
from epochzero.registry import near_miss, spaces
from epochzero.spaces.base import Architectures, check_images, quoted
from epochzero.spaces.product import Choices
from epochzero.types import Shape

STEM, HEAD = 32, 1280
CHANNELS = (16, 24, 40, 80, 112, 192, 320)
STRIDES = (1, 2, 2, 2, 1, 2, 1)
NORM, SILU = BatchNorm(), SiLU()


class Stage(NamedTuple):
    """The choices of one stage."""

    expansion: int
    kernel: int
    layers: int
    squeeze: int

    def __str__(self) -> str:
        return f"e{self.expansion}k{self.kernel}l{self.layers}s{self.squeeze}"


Arch = tuple[Stage, ...]


def _choices(layers: int) -> tuple[Stage, ...]:
    """Returns a stage's choices with up to this number of layers, the cheapest first."""
    return tuple(itertools.starmap(Stage, itertools.product((1, 4, 6), (3, 5), range(1, layers + 1), (0, 1))))


CHOICES = tuple(map(_choices, (3, 3, 3, 3, 3, 4, 3)))
"""choices of each stage"""


class MnasNet(Choices[Stage], Architectures):
    """Accel-NASBench's space."""

    name = "mnasnet"
    cell_block = ""
    options = CHOICES

    def sample(self, rng: Random) -> Arch:
        return tuple(map(rng.choice, CHOICES))

    def parse(self, text: str) -> Arch:
        """Returns the architecture of seven stages such as `e6k3l1s0`, joined by `/`."""
        stages = text.strip().split("/")
        if len(stages) != len(CHOICES):
            raise UserError(f"A mnasnet string is 7 stages joined by '/', not {len(stages)}: {quoted(text)}.")
        return tuple(map(_stage, stages, CHOICES))

    def text(self, arch: Arch) -> str:
        return "/".join(map(str, arch))

    def plan(self, arch: Arch, num_classes: int = 1000, input_shape: Shape = (3, 224, 224)) -> Plan:
        check_images(self.name, num_classes, input_shape, "3x224x224")
        net = Builder()
        x = net.inline(_stem(input_shape), net.input(input_shape), name="stem")
        for i, (stage, channels, stride) in enumerate(zip(arch, CHANNELS, STRIDES, strict=True)):
            for layer in range(stage.layers):
                block = _layer(stage, channels, 1 if layer else stride, net.shape(x))
                x = net.inline(block, x, name=f"stage{i}layer{layer}")
        net.inline(_head(num_classes, net.shape(x)), x, name="head")
        return net.plan()


def _stage(text: str, choices: tuple[Stage, ...]) -> Stage:
    for choice in choices:
        if str(choice) == text:
            return choice
    hint = near_miss(text, [str(choice) for choice in choices])
    raise UserError(
        f"This stage of mnasnet cannot be {quoted(text)}.{hint} It is written e6k3l1s0: expansion 1, 4 or 6, kernel "
        f"3 or 5, 1 to {choices[-1].layers} layers, squeeze-excite 0 or 1."
    )


@lru_cache(maxsize=256)
def _stem(shape: Shape) -> Plan:
    return chain(shape, conv=Conv(STEM, 3, 2, padding=1), norm=NORM, silu=SILU)


@lru_cache(maxsize=256)
def _head(num_classes: int, shape: Shape) -> Plan:
    return chain(shape, conv=Conv(HEAD, 1), norm=NORM, silu=SILU, pool=GlobalAvgPool(), linear=Linear(num_classes))


@lru_cache(maxsize=8192)
def _layer(stage: Stage, channels: int, stride: int, shape: Shape) -> Plan:
    net = Builder()
    x = y = net.input(shape)  # [c, H, W]
    hidden = shape[0] * stage.expansion
    if stage.expansion > 1:
        y = net.inline(chain(shape, conv=Conv(hidden, 1), norm=NORM, silu=SILU), y, name="expand")  # [c e, H, W]
    depthwise = Conv(hidden, stage.kernel, stride, padding=stage.kernel // 2, groups=hidden)
    y = net.inline(chain(net.shape(y), conv=depthwise, norm=NORM, silu=SILU), y, name="depthwise")  # [c e, H', W']
    if stage.squeeze:
        y = net.inline(_gate(max(1, shape[0] // 4), net.shape(y)), y, name="squeeze_excite")
    y = net.inline(chain(net.shape(y), conv=Conv(channels, 1), norm=NORM), y, name="project")  # [c', H', W']
    if net.shape(y) == shape:
        net.add(Add(), y, x, name="sum")
    return net.plan()


@lru_cache(maxsize=8192)
def _gate(hidden: int, shape: Shape) -> Plan:
    """Squeeze-excite: multiplies every channel by a factor in (0, 1) computed from the means of all channels."""
    net = Builder()
    x = net.input(shape)
    gate = net.add(GlobalAvgPool(keep=True), x, name="pool")  # [c e, 1, 1]
    gate = net.add(SILU, net.add(Conv(hidden, 1, bias=True), gate, name="reduce"), name="silu")
    gate = net.add(Sigmoid(), net.add(Conv(shape[0], 1, bias=True), gate, name="expand"), name="sigmoid")
    net.add(Multiply(), x, gate, name="scaled")
    return net.plan()


spaces.register("mnasnet", MnasNet())
