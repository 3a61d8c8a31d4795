r"""AutoAugment's policy for CIFAR-10, on bytes, one batch per call, on the images' device.

Each image gets one of 25 pairs of operations; each of the two happens with its probability and its strength, turned
around half of the time where the operation has a direction. Strengths are in tenths of their range:

    shear 0 to .3, translate 0 to 150/331 of the side, rotate 0 to 30 degrees, brightness, color, contrast and sharpness
    1 +- 0 to .9, posterize to 8 down to 4 bits, solarize from 256 down to 0

Operations are Pillow's to the byte or nearly so; pixels from outside the image are grey (128).

Cubuk, Zoph, Mane, Vasudevan, Le. AutoAugment: learning augmentation strategies from data. CVPR 2019. arXiv:1805.09501
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

from epochzero.train.augment import grey

GREY = 128

Operation = Callable[[Tensor, Tensor], Tensor]
"""bytes [n, C, H, W] and strengths [n], from 0 to .9 or the negative of that, to bytes"""

PAIRS = """
invert .1 7  contrast .2 6 | rotate .7 2  translate_x .3 9 | sharpness .8 1  sharpness .9 3
shear_y .5 8  translate_y .7 9 | auto_contrast .5 8  equalize .9 2 | shear_y .2 7  posterize .3 7
color .4 3  brightness .6 7 | sharpness .3 9  brightness .7 9 | equalize .6 5  equalize .5 1
contrast .6 7  sharpness .6 5 | color .7 7  translate_x .5 8 | equalize .3 7  auto_contrast .4 8
translate_y .4 3  sharpness .2 6 | brightness .9 6  color .2 8 | solarize .5 2  invert .0 3
equalize .2 0  auto_contrast .6 0 | equalize .2 8  equalize .6 4 | color .9 9  equalize .6 6
auto_contrast .8 4  solarize .2 8 | brightness .1 3  color .7 0 | solarize .4 5  auto_contrast .9 3
translate_y .9 9  translate_y .7 9 | auto_contrast .9 2  solarize .8 3 | equalize .8 8  invert .1 3
translate_y .7 9  auto_contrast .9 1
"""
"""operation, probability and strength in ninths, twice"""


def auto_augment(x: Tensor, rng: Generator) -> Tensor:
    """Images [B, C, H, W] of bytes, changed at random."""
    B = len(x)
    pair = torch.randint(len(POLICY), (B,), generator=rng)
    chance, turned = torch.rand(2, B, generator=rng), torch.randint(2, (2, B), generator=rng)
    for stage in range(2):
        name, often, strength = (column[pair] for column in TABLE[stage])  # [B] each
        strength = torch.where(turned[stage] > 0, -strength, strength)
        happens = chance[stage] < often
        for place, operation in enumerate(OPERATIONS.values()):
            rows = (happens & (name == place)).nonzero()[:, 0]  # [n]
            if len(rows):
                some, by = (t.to(x.device, non_blocking=True) for t in (rows, strength[rows]))
                x = x.index_copy(0, some, operation(x[some], by))
    return x


# Colours


def _bytes(x: Tensor) -> Tensor:
    return x.clamp(0, 255).to(torch.uint8)


def _blend(x: Tensor, other: Tensor, by: Tensor) -> Tensor:
    """`other` for a strength of -1, the image for 0, beyond it for more."""
    return _bytes(other + (1 + by)[:, None, None, None] * (x - other))


def brightness(x: Tensor, by: Tensor) -> Tensor:
    return _blend(x, x.new_zeros((), dtype=torch.float32), by)


def color(x: Tensor, by: Tensor) -> Tensor:
    return _blend(x, grey(x.float()).round(), by)


def contrast(x: Tensor, by: Tensor) -> Tensor:
    return _blend(x, (grey(x.float()).round().mean((1, 2, 3), keepdim=True) + 0.5).floor(), by)


def sharpness(x: Tensor, by: Tensor) -> Tensor:
    """The border, which has no neighbours all around, stays as it is."""
    C = x.shape[1]
    kernel = torch.ones(3, 3, device=x.device)
    kernel[1, 1] = 5
    inner = F.conv2d(x.float(), (kernel / 13).expand(C, 1, 3, 3), groups=C)  # [n, C, H - 2, W - 2]
    smooth = x.float()
    smooth[:, :, 1:-1, 1:-1] = (inner + 0.5).floor()
    return _blend(x, smooth, by)


def posterize(x: Tensor, by: Tensor) -> Tensor:
    dropped = (by.abs() * 10 / 9 * 4).round()  # bits, 0 to 4
    step = (2**dropped).to(torch.uint8)[:, None, None, None]
    return x - x % step


def solarize(x: Tensor, by: Tensor) -> Tensor:
    least = 256 * (1 - by.abs() / 0.9)[:, None, None, None]
    return torch.where(x < least, x, 255 - x)


def invert(x: Tensor, by: Tensor) -> Tensor:
    return 255 - x


def auto_contrast(x: Tensor, by: Tensor) -> Tensor:
    """Each channel from its darkest and lightest value to 0 and 255."""
    low, high = (x.float().flatten(2).aminmax(dim=2)[i][:, :, None, None] for i in (0, 1))  # [n, C, 1, 1]
    spread = _bytes((x - low) * 255 / (high - low).clamp_min(1))
    return torch.where(high > low, spread, x)


def equalize(x: Tensor, by: Tensor) -> Tensor:
    """Each channel so that all values are about as frequent."""
    n, C, H, W = x.shape
    flat = x.flatten(2).long()  # [n, C, H * W]
    counts = flat.new_zeros(n, C, 256).scatter_add(2, flat, torch.ones_like(flat))
    last = counts.gather(2, flat.amax(2, keepdim=True))  # [n, C, 1]: how often the lightest comes up
    step = (H * W - last) // 255
    before = counts.cumsum(2) - counts
    table = ((before + step // 2) // step.clamp_min(1)).clamp_max(255)  # [n, C, 256]
    equalized = table.gather(2, flat).view(n, C, H, W).to(torch.uint8)
    return torch.where((step > 0)[..., None], equalized, x)


# Places


def _moved(x: Tensor, matrix: list[list[Tensor | float]]) -> Tensor:
    """The pixel at (column, row) comes from `matrix` times (column, row, 1), of the nearest pixel there."""
    n, C, H, W = x.shape
    row = torch.arange(H, device=x.device)[None, :, None] + 0.5
    column = torch.arange(W, device=x.device)[None, None, :] + 0.5

    def source(line: list[Tensor | float]) -> Tensor:
        a, b, c = (v[:, None, None] if isinstance(v, Tensor) else v for v in line)
        return (a * column + b * row + c).floor().long().expand(n, H, W)

    left, top = source(matrix[0]), source(matrix[1])
    inside = (left >= 0) & (left < W) & (top >= 0) & (top < H)
    place = top.clamp(0, H - 1) * W + left.clamp(0, W - 1)  # [n, H, W]
    moved = x.flatten(2).gather(2, place.flatten(1)[:, None].expand(n, C, H * W)).view_as(x)
    return torch.where(inside[:, None], moved, GREY)


def shear_y(x: Tensor, by: Tensor) -> Tensor:
    return _moved(x, [[1.0, 0.0, 0.0], [by / 3, 1.0, 0.0]])


def translate_x(x: Tensor, by: Tensor) -> Tensor:
    return _moved(x, [[1.0, 0.0, (by / 0.9 * 150 / 331 * x.shape[3]).trunc()], [0.0, 1.0, 0.0]])


def translate_y(x: Tensor, by: Tensor) -> Tensor:
    return _moved(x, [[1.0, 0.0, 0.0], [0.0, 1.0, (by / 0.9 * 150 / 331 * x.shape[2]).trunc()]])


def rotate(x: Tensor, by: Tensor) -> Tensor:
    """Around the middle."""
    angle = by / 0.9 * math.pi / 6
    cos, sin = angle.cos(), angle.sin()
    right, down = x.shape[3] / 2, x.shape[2] / 2
    return _moved(x, [[cos, -sin, right - cos * right + sin * down], [sin, cos, down - sin * right - cos * down]])


OPERATIONS: dict[str, Operation] = {
    operation.__name__: operation
    for operation in (
        brightness,
        color,
        contrast,
        sharpness,
        posterize,
        solarize,
        invert,
        auto_contrast,
        equalize,
        shear_y,
        translate_x,
        translate_y,
        rotate,
    )
}


def _read(text: str) -> list[tuple[tuple[str, float, int], ...]]:
    pairs = [line.split() for line in text.strip().replace("\n", "|").split("|")]
    return [tuple((part[i], float(part[i + 1]), int(part[i + 2])) for i in (0, 3)) for part in pairs]


POLICY = _read(PAIRS)
TABLE = [
    (
        torch.tensor([list(OPERATIONS).index(pair[stage][0]) for pair in POLICY]),
        torch.tensor([pair[stage][1] for pair in POLICY]),
        torch.tensor([pair[stage][2] / 10 for pair in POLICY]),
    )
    for stage in range(2)
]
"""of the first and of the second of each pair: operation, probability, strength"""
