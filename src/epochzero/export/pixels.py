"""Preprocessing of images as a module: the text of this file is part of every exported `model.py`.

The same numbers as `epochzero.data.image_folder` gives by Pillow, to the last bit: the largest rectangle of the
network's form in the centre is scaled by a triangle filter, first along rows, then along columns, with weights of 22
bits and bytes in between. Products of them are exact in double precision.
"""

import torch
from torch import Tensor, nn


class Preprocess(nn.Module):
    """Bytes [batch, height, width, channels] of any size to the network's input [batch, channels, *size]."""

    mean: Tensor
    std: Tensor

    def __init__(self, size: tuple[int, int], mean: list[float], std: list[float]) -> None:
        """Mean and standard deviation of each channel are those of pixels between 0 and 1."""
        super().__init__()
        self.size = size
        self.register_buffer("mean", 255 * torch.tensor(mean)[:, None, None], persistent=False)  # [C, 1, 1]
        self.register_buffer("std", 255 * torch.tensor(std)[:, None, None], persistent=False)

    def forward(self, pixels: Tensor) -> Tensor:
        x = pixels.permute(0, 3, 1, 2).double()  # [B, C, H, W]
        height, width = self.size
        tall, wide = torch.ones_like(x[0, 0, :, 0]).sum(), torch.ones_like(x[0, 0, 0]).sum()  # H and W
        across = torch.minimum(wide, (tall * width / height).floor().clamp(min=1))
        down = torch.minimum(tall, (wide * height / width).floor().clamp(min=1))
        x = self.rounded(x @ self.weights(x[0, 0, 0], wide, across, width).T)
        x = self.rounded(self.weights(x[0, 0, :, 0], tall, down, height) @ x)
        return (x.float() - self.mean) / self.std

    def weights(self, line: Tensor, length: Tensor, taken: Tensor, size: int) -> Tensor:
        """The weight of each pixel of a line [length] in each of `size` pixels, as whole numbers of 22 bits."""
        first, scale = ((length - taken) / 2).floor(), taken / size
        at = torch.ones_like(line).cumsum(0) - 0.5 - first  # [length], the middle of each pixel
        middle = (torch.arange(size, dtype=line.dtype, device=line.device) + 0.5) * scale  # [size]
        shares = (1 - (at - middle[:, None]).abs() / scale.clamp(min=1)).clamp(min=0)  # [size, length]
        shares = shares * ((at > 0) & (at < taken))
        return (shares / shares.sum(1, keepdim=True) * 2**22 + 0.5).floor()

    def rounded(self, x: Tensor) -> Tensor:
        return ((x + 2**21) / 2**22).floor().clamp(0, 255)
