r"""Images changed at random, a whole batch at a time, on the device that they are on.

Every function takes images x [B, C, H, W] and a generator on the CPU that all of its draws come from, so that what
happens to an image does not depend on the device.

    crop      black around the image, and a window of its own size at a random place
    flip      left for right, every other image
    cutout    a square around a random pixel becomes 0, clipped at the border
    erase     a random rectangle of 2 to 33 % of the area becomes 0
    mixup     l x_i + (1 - l) x_j with the labels alike, l ~ Beta(a, a), one l for the batch

DeVries, Taylor. Improved regularization with cutout. 2017. arXiv:1708.04552
Zhong, Zheng, Kang, Li, Yang. Random erasing data augmentation. AAAI 2020. arXiv:1708.04896
Zhang, Cisse, Dauphin, Lopez-Paz. mixup: beyond empirical risk minimization. ICLR 2018. arXiv:1710.09412
"""

from __future__ import annotations

import math
from random import Random
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

AREA = (0.02, 0.33)
"""of an erased rectangle, as a share of the image"""
ASPECT = (0.3, 3.3)
"""its height over its width"""


def crop(x: Tensor, pad: int, rng: Generator) -> Tensor:
    B, C, H, W = x.shape
    down, right = torch.randint(2 * pad + 1, (2, B), generator=rng).to(x.device)  # [B], [B]
    rows = down[:, None] + torch.arange(H, device=x.device)  # [B, H]
    columns = right[:, None] + torch.arange(W, device=x.device)  # [B, W]
    samples = torch.arange(B, device=x.device)[:, None, None, None]
    channels = torch.arange(C, device=x.device)[None, :, None, None]
    return F.pad(x, (pad,) * 4)[samples, channels, rows[:, None, :, None], columns[:, None, None, :]]


def flip(x: Tensor, rng: Generator) -> Tensor:
    turned = torch.randint(2, (len(x),), generator=rng).bool().to(x.device)
    return torch.where(turned[:, None, None, None], x.flip(3), x)


def cutout(x: Tensor, side: int, rng: Generator) -> Tensor:
    B, _, H, W = x.shape
    row, column = (torch.randint(size, (B,), generator=rng) for size in (H, W))
    return _blanked(x, row - side // 2, row - side // 2 + side, column - side // 2, column - side // 2 + side)


def erase(x: Tensor, often: float, rng: Generator) -> Tensor:
    B, _, H, W = x.shape
    drawn = torch.rand(5, B, generator=rng)  # [5, B]
    area = H * W * (AREA[0] + (AREA[1] - AREA[0]) * drawn[0])
    aspect = torch.exp(math.log(ASPECT[0]) + math.log(ASPECT[1] / ASPECT[0]) * drawn[1])
    height = (area * aspect).sqrt().round().clamp(1, H)
    width = (area / aspect).sqrt().round().clamp(1, W)
    top, left = (drawn[2] * (H - height + 1)).floor(), (drawn[3] * (W - width + 1)).floor()
    height = torch.where(drawn[4] < often, height, 0.0)
    return _blanked(x, top, top + height, left, left + width)


def _blanked(x: Tensor, top: Tensor, bottom: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """The images with 0 in rows top <= i < bottom and columns left <= j < right."""
    top, bottom, left, right = (edge.to(x.device)[:, None] for edge in (top, bottom, left, right))
    rows, columns = (torch.arange(size, device=x.device) for size in x.shape[2:])
    inside_rows = (rows >= top) & (rows < bottom)  # [B, H]
    inside_columns = (columns >= left) & (columns < right)  # [B, W]
    inside = inside_rows[:, :, None] & inside_columns[:, None, :]  # [B, H, W]
    return x.masked_fill(inside[:, None], 0.0)


class Mixed(NamedTuple):
    """Images, and the labels of the two that each is made of."""

    x: Tensor
    partner: Tensor
    """[B], for each image the place of the second"""
    share: float
    """of the first"""


def mixup(x: Tensor, alpha: float, rng: Generator) -> Mixed:
    partner = torch.randperm(len(x), generator=rng).to(x.device)
    share = Random(int(torch.randint(2**62, (), generator=rng))).betavariate(alpha, alpha)
    return Mixed(share * x + (1 - share) * x[partner], partner, share)
