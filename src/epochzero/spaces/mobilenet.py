r"""The space of inverted bottlenecks of ZenNAS, ZiCo and AZ-NAS, for ImageNet.

    SuperResIDWE{1,2,4,6}K{3,5,7}(in,out,stride,bottleneck,sub-layers)

One sub-layer is two inverted bottlenecks, in -> bottleneck -> out: each expands its output width e times by a 1x1
convolution, filters by a depthwise k x k one and projects by a 1x1 one. The last convolution has 2,048 channels.

ZenNAS does not limit widths here; we stop at 2,048, as it does in `resnet`. `mobilenet` allows the 14 sub-layers of the
searches for 400 to 600 M multiply-accumulates, `mobilenet_16` the 16 of those for 800 M and 1 G.

ZenNAS: block_strings.py. Li, Yang, Bhardwaj, Marculescu. ZiCo: zero-shot NAS via inverse coefficient of variation on
gradients. ICLR 2023. arXiv:2301.11300. Lee, Ham. AZ-NAS: assembling zero-cost proxies for network architecture
search. CVPR 2024. arXiv:2403.19232
"""

from __future__ import annotations

from epochzero.plan.ops.conv import Conv
from epochzero.registry import spaces
from epochzero.spaces.block_networks import Block, Convs
from epochzero.spaces.block_strings import BlockStrings

SHAPES = {
    f"SuperResIDWE{expansion}K{kernel}": (expansion, kernel) for kernel in (3, 5, 7) for expansion in (1, 2, 4, 6)
}
START = (
    "SuperConvK3BNRELU(3,8,2,1)SuperResIDWE6K3(8,32,2,8,1)SuperResIDWE6K3(32,48,2,32,1)"
    "SuperResIDWE6K3(48,96,2,48,1)SuperResIDWE6K3(96,128,2,96,1)SuperConvK1BNRELU(128,2048,1,1)"
)


def sub_layer(block: Block, stride: int) -> tuple[Convs, ...]:
    """Returns two inverted bottlenecks, the first with the stride."""
    return _inverted(block.kind, block.bottleneck, stride), _inverted(block.kind, block.width, 1)


def _inverted(kind: str, width: int, stride: int) -> Convs:
    expansion, kernel = SHAPES[kind]
    inside = expansion * width
    return Conv(inside, 1), Conv(inside, kernel, stride, padding=kernel // 2, groups=inside), Conv(width, 1)


for _name, _max_layers in (("mobilenet", 14), ("mobilenet_16", 16)):
    _space = BlockStrings(
        _name,
        tuple(SHAPES),
        sub_layer,
        START,
        _max_layers,
        free_last=False,
        classes=1000,
        side=224,
        about=f"MobileNet-like strings of inverted bottlenecks (ZenNAS, ZiCo, AZ-NAS), up to {_max_layers} layers",
    )
    spaces.register(_name, _space)
