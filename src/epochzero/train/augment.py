r"""Images changed at random, one batch per call, on the images' device.

Every function takes images x [B, C, H, W] and a generator on the CPU that all of its draws come from, so that what
happens to an image does not depend on the device. Draws go to the device without waiting for it.

    crop      black around the image, and a window of its own size at a random place
    flip      left for right, every other image
    cutout    a square around a random pixel becomes 0, clipped at the border
    erase     a random rectangle of 2 to 33 % of the area becomes 0
    zoom      a random window of this share of the area at least, 3:4 to 4:3, scaled to the image's size
    jitter    brightness, contrast and saturation times 1 - s to 1 + s
    hue       hues turned by up to this share of their circle; images that are not of three colours stay
    mixup     l x_i + (1 - l) x_j with the labels alike, l ~ Beta(a, a), one l for the batch

DeVries, Taylor. Improved regularization with cutout. 2017. arXiv:1708.04552
Zhong, Zheng, Kang, Li, Yang. Random erasing data augmentation. AAAI 2020. arXiv:1708.04896
Zhang, Cisse, Dauphin, Lopez-Paz. mixup: beyond empirical risk minimization. ICLR 2018. arXiv:1710.09412
"""

from __future__ import annotations

import math
from random import Random

import torch
import torch.nn.functional as F
from torch import Generator, Tensor

AREA = (0.02, 0.33)
"""of an erased rectangle, as a share of the image"""
ASPECT = (0.3, 3.3)
"""height over width of an erased rectangle"""
WINDOW = (3 / 4, 4 / 3)
"""height over width of a window that is zoomed into"""
LUMA = (0.299, 0.587, 0.114)
"""luminance of red, green and blue"""


def crop(x: Tensor, pad: int, rng: Generator) -> Tensor:
    B, C, H, W = x.shape
    down, right = torch.randint(2 * pad + 1, (2, B), generator=rng).to(x.device, non_blocking=True)  # [B], [B]
    rows = down[:, None] + torch.arange(H, device=x.device)  # [B, H]
    columns = right[:, None] + torch.arange(W, device=x.device)  # [B, W]
    samples = torch.arange(B, device=x.device)[:, None, None, None]
    channels = torch.arange(C, device=x.device)[None, :, None, None]
    return F.pad(x, (pad,) * 4)[samples, channels, rows[:, None, :, None], columns[:, None, None, :]]


def flip(x: Tensor, rng: Generator) -> Tensor:
    turned = torch.randint(2, (len(x),), generator=rng).bool().to(x.device, non_blocking=True)
    return torch.where(turned[:, None, None, None], x.flip(3), x)


def zoom(x: Tensor, least: float, rng: Generator) -> Tensor:
    drawn = torch.rand(4, len(x), generator=rng).to(x.device, non_blocking=True)  # [4, B]
    area = least + (1 - least) * drawn[0]
    aspect = torch.exp(math.log(WINDOW[0]) + math.log(WINDOW[1] / WINDOW[0]) * drawn[1])
    height, width = (area * aspect).sqrt().clamp_max(1), (area / aspect).sqrt().clamp_max(1)
    down, right = (1 - height) * (2 * drawn[2] - 1), (1 - width) * (2 * drawn[3] - 1)  # of its middle, -1 to 1
    zero = torch.zeros_like(height)
    window = torch.stack((torch.stack((width, zero, right), 1), torch.stack((zero, height, down), 1)), 1)  # [B, 2, 3]
    grid = F.affine_grid(window, list(x.shape), align_corners=False)  # [B, H, W, 2]
    return _as_before(F.grid_sample(x.float(), grid, padding_mode="border", align_corners=False), x)


def jitter(x: Tensor, strength: float, rng: Generator) -> Tensor:
    drawn = 1 + strength * (2 * torch.rand(3, len(x), 1, 1, 1, generator=rng) - 1)
    bright, contrast, saturation = drawn.to(x.device, non_blocking=True)  # [B, 1, 1, 1] each
    lit = _as_before(x * bright, x).float()
    mean = grey(lit).mean((2, 3), keepdim=True)
    stronger = _as_before(mean + contrast * (lit - mean), x).float()
    pale = grey(stronger)
    return _as_before(pale + saturation * (stronger - pale), x)


def hue(x: Tensor, most: float, rng: Generator) -> Tensor:
    turn = 6 * most * (2 * torch.rand(len(x), 1, 1, 1, generator=rng) - 1).to(x.device, non_blocking=True)
    if x.shape[1] != 3:
        return x
    colours = x.float()
    value, brightest = colours.max(1, keepdim=True)  # [B, 1, H, W]
    chroma = value - colours.amin(1, keepdim=True)
    sides = (colours.roll(-1, 1) - colours.roll(-2, 1)) / chroma.clamp_min(torch.finfo(colours.dtype).tiny)
    angle = (sides + colours.new_tensor((0, 2, 4))[:, None, None]).gather(1, brightest)  # [B, 1, H, W], of six
    place = (angle + turn + colours.new_tensor((5, 3, 1))[:, None, None]) % 6  # [B, 3, H, W]
    return _as_before(value - chroma * torch.minimum(place, 4 - place).clamp(0, 1), x)


def grey(x: Tensor) -> Tensor:
    """Brightness [B, 1, H, W] of images of floats."""
    if x.shape[1] != len(LUMA):
        return x.mean(1, keepdim=True)
    return (x * x.new_tensor(LUMA)[:, None, None]).sum(1, keepdim=True)


def _as_before(x: Tensor, before: Tensor) -> Tensor:
    """Bytes where there were bytes."""
    return x.round().clamp(0, 255).to(torch.uint8) if before.dtype == torch.uint8 else x


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
    top, bottom, left, right = (edge.to(x.device, non_blocking=True)[:, None] for edge in (top, bottom, left, right))
    rows, columns = (torch.arange(size, device=x.device) for size in x.shape[2:])
    inside_rows = (rows >= top) & (rows < bottom)  # [B, H]
    inside_columns = (columns >= left) & (columns < right)  # [B, W]
    inside = inside_rows[:, :, None] & inside_columns[:, None, :]  # [B, H, W]
    return x.masked_fill(inside[:, None], 0.0)


def mixup(x: Tensor, alpha: float, rng: Generator) -> tuple[Tensor, Tensor, float]:
    """The mixed images, for each the place of its partner [B], and its own share."""
    partner = torch.randperm(len(x), generator=rng).to(x.device, non_blocking=True)
    share = Random(int(torch.randint(2**62, (), generator=rng))).betavariate(alpha, alpha)
    return share * x + (1 - share) * x[partner], partner, share
