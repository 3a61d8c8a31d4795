"""Segmentation: one class for each pixel, from a small U-Net whose width and depth are searched."""

import torch
from torch import nn

import epochzero as ez

images, masks = torch.rand(64, 3, 16, 16), torch.randint(4, (64, 16, 16))  # in place of yours


def double(before, after):
    conv = nn.Conv2d(before, after, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(after), nn.ReLU(), nn.Conv2d(after, after, 3, padding=1), nn.ReLU())


class UNet(nn.Module):
    def __init__(self, width, levels):
        super().__init__()
        widths = [width * 2**level for level in range(levels + 1)]
        self.down = nn.ModuleList(map(double, [3, *widths[:-1]], widths))
        self.up = nn.ModuleList(double(3 * width, width) for width in reversed(widths[:-1]))
        self.head = nn.Conv2d(width, 4, 1)

    def forward(self, x):
        skips = []
        for number, block in enumerate(self.down):
            x = block(x if number == 0 else nn.functional.max_pool2d(x, 2))
            skips.append(x)
        for block, skip in zip(self.up, reversed(skips[:-1]), strict=True):
            x = block(torch.cat([nn.functional.interpolate(x, scale_factor=2.0), skip], 1))
        return {"out": self.head(x)}


space = ez.choices(UNet, width=[4, 8], levels=[1, 2])
found = ez.search(space, "snip", budget=4, data=(images, masks), batch_size=16, loss="segmentation", max_params="50k")
print(found.winner.text, found.winner.score.value)
