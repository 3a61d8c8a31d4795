"""A user's space, as the suite of speed measures it: eight inverted bottlenecks, given as plans or as modules.

    k3e4/k5e6/...      eight layers: kernel in {3, 5, 7}, expansion in {3, 4, 6}

Stem 3x3 16; layers of 24, 24, 40, 40, 80, 80, 112, 112 channels, the third and the fifth with stride 2; a classifier.
A layer: 1x1 convolution, depthwise k x k, 1x1 convolution, each with a batch norm, the first two with ReLU; a residual
where shapes allow.

The spaces are known once `register` was called, in worker processes too.
"""

from __future__ import annotations

from random import Random

import torch
from torch import Tensor, nn

from epochzero.errors import UserError
from epochzero.plan import Builder, Plan, chain
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import GlobalAvgPool
from epochzero.plan.ops.wiring import Add
from epochzero.registry import spaces
from epochzero.spaces.base import Architectures
from epochzero.spaces.product import Product
from epochzero.types import Shape

STEM = 16
CHANNELS = (24, 24, 40, 40, 80, 80, 112, 112)
STRIDES = (1, 1, 2, 1, 2, 1, 1, 1)
NORM = BatchNorm()
CHOICES = {f"k{kernel}e{expansion}": (kernel, expansion) for kernel in (3, 5, 7) for expansion in (3, 4, 6)}

Arch = tuple[str, ...]


class Layers(Product[str], Architectures):
    """The architectures of both spaces."""

    choices = tuple(CHOICES)
    places = len(CHANNELS)
    cell_block = ""

    def parse(self, text: str) -> Arch:
        arch = tuple(text.split("/"))
        if len(arch) != self.places or not set(arch) <= set(CHOICES):
            raise UserError(f"A network of {self.name} is eight layers such as k3e4, joined by '/'.")
        return arch

    def text(self, arch: Arch) -> str:
        return "/".join(arch)

    def sample(self, rng: Random) -> Arch:
        return Product.sample(self, rng)


class Plans(Layers):
    """The space as plans."""

    name = "mbconv"

    def plan(self, arch: Arch, num_classes: int = 10, input_shape: Shape = (3, 32, 32)) -> Plan:
        net = Builder()
        x = net.input(input_shape)
        x = net.inline(chain(input_shape, conv=Conv(STEM, 3, padding=1), norm=NORM, relu=ReLU()), x, name="stem")
        for i, (choice, channels, stride) in enumerate(zip(arch, CHANNELS, STRIDES, strict=True)):
            x = net.inline(_layer(*CHOICES[choice], channels, stride, net.shape(x)), x, name=f"layer{i}")
        net.inline(chain(net.shape(x), pool=GlobalAvgPool(), linear=Linear(num_classes)), x, name="head")
        return net.plan()


def _layer(kernel: int, expansion: int, channels: int, stride: int, shape: Shape) -> Plan:
    net = Builder()
    x = net.input(shape)
    hidden = shape[0] * expansion
    depthwise = Conv(hidden, kernel, stride, padding=kernel // 2, groups=hidden)
    y = net.inline(chain(shape, conv=Conv(hidden, 1), norm=NORM, relu=ReLU()), x, name="expand")
    y = net.inline(chain(net.shape(y), conv=depthwise, norm=NORM, relu=ReLU()), y, name="depthwise")
    y = net.inline(chain(net.shape(y), conv=Conv(channels, 1), norm=NORM), y, name="project")
    if net.shape(y) == shape:
        net.add(Add(), y, x, name="sum")
    return net.plan()


class Modules(Layers):
    """The space as modules."""

    name = "mbconv_modules"
    native = (3, 32, 32), 10

    def build(self, arch: Arch, num_classes: int = 10, input_shape: Shape = (3, 32, 32)) -> nn.Module:
        inputs = (STEM, *CHANNELS)
        layers = [Bottleneck(*CHOICES[choice], inputs[i], CHANNELS[i], STRIDES[i]) for i, choice in enumerate(arch)]
        stem = nn.Conv2d(input_shape[0], STEM, 3, padding=1, bias=False), nn.BatchNorm2d(STEM), nn.ReLU()
        head = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(CHANNELS[-1], num_classes)
        return nn.Sequential(*stem, *layers, *head)


class Bottleneck(nn.Module):
    """One layer."""

    def __init__(self, kernel: int, expansion: int, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        hidden = inputs * expansion
        depthwise = nn.Conv2d(hidden, hidden, kernel, stride, kernel // 2, groups=hidden, bias=False)
        self.body = nn.Sequential(
            *(nn.Conv2d(inputs, hidden, 1, bias=False), nn.BatchNorm2d(hidden), nn.ReLU()),
            *(depthwise, nn.BatchNorm2d(hidden), nn.ReLU()),
            *(nn.Conv2d(hidden, outputs, 1, bias=False), nn.BatchNorm2d(outputs)),
        )
        self.adds = inputs == outputs and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        return torch.add(x, self.body(x)) if self.adds else self.body(x)


PLANS, MODULES = Plans(), Modules()


def register() -> None:
    """Makes both spaces known to this process."""
    for space in (PLANS, MODULES):
        if space.name not in spaces:
            spaces.register(space.name, space, __name__)
