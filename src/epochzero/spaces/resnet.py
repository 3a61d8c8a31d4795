r"""The CIFAR space of ZenNAS and of SiGeo's fifth experiment: residual blocks, searched at 1 M parameters.

    SuperResK{3,5,7}K{3,5,7}(in,out,stride,bottleneck,sub-layers)      both kernels the same
    SuperResK1K{3,5,7}K1(in,out,stride,bottleneck,sub-layers)

One sub-layer of the first is a residual unit of two k x k convolutions, in -> bottleneck -> out; one of the second is
two bottlenecks in a row, each 1x1, k x k, 1x1. The width of the last convolution is searched too. The papers count the
million with 100 classes and ZenNAS's own counter, `zennas_params`.

ZenNAS: block_strings.py
"""

from __future__ import annotations

from epochzero.plan.ops.conv import Conv
from epochzero.registry import spaces
from epochzero.spaces.block_networks import Block, Convs
from epochzero.spaces.block_strings import BlockStrings

PLAIN = {f"SuperResK{kernel}K{kernel}": kernel for kernel in (3, 5, 7)}
BOTTLENECK = {f"SuperResK1K{kernel}K1": kernel for kernel in (3, 5, 7)}
START = (
    "SuperConvK3BNRELU(3,8,1,1)SuperResK3K3(8,16,1,8,1)SuperResK3K3(16,32,2,16,1)SuperResK3K3(32,64,2,32,1)"
    "SuperResK3K3(64,64,2,32,1)SuperConvK1BNRELU(64,128,1,1)"
)


def sub_layer(block: Block, stride: int) -> tuple[Convs, ...]:
    """Returns one unit of two convolutions, or two units of three; the first has the stride."""
    kind, width, _, bottleneck, _ = block
    if kind in PLAIN:
        kernel = PLAIN[kind]
        return ((_conv(bottleneck, kernel, stride), _conv(width, kernel, 1)),)
    kernel = BOTTLENECK[kind]
    first, second = ((Conv(bottleneck, 1), _conv(bottleneck, kernel, s), Conv(width, 1)) for s in (stride, 1))
    return first, second


def _conv(width: int, kernel: int, stride: int) -> Conv:
    return Conv(width, kernel, stride, padding=kernel // 2)


spaces.register(
    "resnet",
    BlockStrings(
        "resnet",
        (*PLAIN, *BOTTLENECK),
        sub_layer,
        START,
        max_layers=18,
        free_last=True,
        classes=10,
        side=32,
        about="Strings of residual and bottleneck blocks for CIFAR (ZenNAS, SiGeo's experiment 5), up to 18 layers",
    ),
)
