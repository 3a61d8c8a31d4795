"""Regression on a table of numbers: networks are ranked by the gradients of the squared error."""

import torch
from torch import nn

import epochzero as ez

x = torch.randn(256, 12)  # in place of your table
y = x[:, :3].sin().sum(1) + x[:, 3] * x[:, 4]


def mlp(width, depth):
    def make():
        layers = [nn.Linear(12, width), nn.SiLU()]
        for _ in range(depth - 1):
            layers += [nn.Linear(width, width), nn.SiLU()]
        return nn.Sequential(*layers, nn.Linear(width, 1))

    return make


networks = {f"{depth} x {width}": mlp(width, depth) for width in (16, 64) for depth in (1, 3)}
ranking = ez.rank(networks, (x, y), proxy="grad_norm", loss="mse", batch_size=64)
for row in ranking:
    print(f"{row.name:7} {row.params:6,} {row.value:.4f} ± {row.spread:.4f}")
scores = ez.score(mlp(64, 3)(), ["snip", "epe_nas"], data=(x, y), loss=nn.functional.huber_loss)
print(scores["snip"].value, "|", scores["epe_nas"].why)
