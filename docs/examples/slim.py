"""A trained network made slimmer: fewer channels and blocks under a limit, with the weights of those that stay."""

import torch
from torch import nn

import epochzero as ez

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layers = nn.Sequential(
            *(nn.Conv2d(width, 4 * width, 1), nn.BatchNorm2d(4 * width), nn.ReLU()),
            *(nn.Conv2d(4 * width, width, 3, padding=1), nn.BatchNorm2d(width)),
        )

    def forward(self, x):
        return (x + self.layers(x)).relu()


blocks = (Block(16) for _ in range(4))
model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 2))
labels = torch.arange(128) % 2  # in place of your data
images = torch.randn(128, 3, 12, 12) + 0.5 * labels[:, None, None, None]


def train(net, steps):
    optimizer = torch.optim.Adam(net.train().parameters(), 0.003)
    for _ in range(steps):
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(images), labels).backward()
        optimizer.step()


def accuracy(net):
    with torch.no_grad():
        return (net.eval()(images).argmax(1) == labels).float().mean().item()


train(model, 12)
space = ez.slim(model, images, widths=[0.25, 0.5, 1.0], depths=[0.5, 1.0])
print(f"{space.count()} versions, such as {space.text(space.smallest())}")
found = ez.search(space, "naswot", budget=8, data=(images, labels), batch_size=32, max_params="20k")
slimmer = found.task.module(found.winner.arch)
before, after = (sum(weight.numel() for weight in net.parameters()) for net in (model, slimmer))
print(f"{found.winner.text}: {before:,} to {after:,} parameters")
print(f"accuracy {accuracy(model):.2f}, {accuracy(slimmer):.2f} and, ", end="")
train(slimmer, 6)
print(f"trained on, {accuracy(slimmer):.2f}")
