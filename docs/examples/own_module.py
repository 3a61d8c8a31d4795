"""A network of your own: scored, trained and exported as a program that needs torch alone."""

import importlib
import sys

import numpy as np
import torch
from torch import nn

import epochzero as ez

rng = np.random.default_rng(0)
y = np.arange(96) % 3
x = (rng.integers(0, 100, (96, 3, 16, 16)) + 50 * y[:, None, None, None]).astype(np.uint8)
np.savez("mine.npz", x_train=x[:64], y_train=y[:64], x_test=x[64:], y_test=y[64:])


def small(num_classes):
    conv = nn.Conv2d(3, 8, 3, padding=1, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(8), nn.Hardswish(), nn.Flatten(), nn.Linear(8 * 256, num_classes))


def residual(num_classes):
    class Residual(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem, self.conv = nn.Conv2d(3, 8, 1), nn.Conv2d(8, 8, 3, padding=1)
            self.head = nn.Linear(8, num_classes)

        def forward(self, x):
            x = self.stem(x)
            return self.head((x + self.conv(x.relu())).mean((2, 3)))

    return Residual()


print(ez.score(small(3), ["snip", "naswot"], data="mine.npz", batch_size=16))
ranking = ez.rank({"small": small, "residual": residual}, "mine.npz", proxy="naswot", batch_size=16)
trained = ranking.train("mine.npz", top=2, epochs=1, batch_size=16, folder="trained")
best = next(iter(trained))
print(best, {name: round(one.history[-1]["test_accuracy"], 2) for name, one in trained.items()})

place = [row.name for row in ranking].index(best) + 1
ranking.export("product", name=best, weights=f"trained/{place}")  # model.py, model.pt2, ONNX, a model card
sys.path.insert(0, "product")
load = importlib.import_module("model").load
print("exported", tuple(load()(torch.randn(2, 3, 16, 16)).shape))
