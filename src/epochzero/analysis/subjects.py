"""Networks whose loss is evaluated around given weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor

from epochzero.engine import Network
from epochzero.engine.loss import LABEL
from epochzero.engine.passes import Norm
from epochzero.errors import UserError
from epochzero.plan import generator

Weights = Mapping[str, Tensor]


class Subject(Protocol):
    """P networks and their weights."""

    count: int
    weights: dict[str, Tensor]
    trainable: tuple[str, ...]

    def losses(self, weights: Weights, x: Tensor, y: Tensor) -> Tensor:
        """The mean cross-entropy of each network: [P]."""

    def gradients(self, weights: Weights, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        """Of the sum of these, by name."""

    def squared_norms(self, tensors: Weights) -> Tensor:
        """Of each network's share of such tensors: [P]."""

    def drawn(self, seed: int, which: int) -> dict[str, Tensor]:
        """A standard normal number for each trainable weight; weights of one name and shape get the same ones."""


class SingleSubject:
    """One network of the engine, perhaps a user's module."""

    count = 1

    def __init__(self, network: Network, norm: Norm = "eval") -> None:
        self.network, self.norm = network, norm
        self.weights = dict(network.weights)
        self.trainable = network.trainable
        if not self.trainable:
            raise UserError("The network has nothing to train, and so its loss has no landscape.")

    def losses(self, weights: Weights, x: Tensor, y: Tensor) -> Tensor:
        with torch.no_grad():
            return self._loss(weights, x, y).unsqueeze(0)

    def gradients(self, weights: Weights, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        own = {name: weights[name].detach().requires_grad_() for name in self.trainable}
        with torch.enable_grad():
            loss = self._loss({**weights, **own}, x, y)
        gradients = torch.autograd.grad(loss, list(own.values()), allow_unused=True)
        return {name: g for name, g in zip(own, gradients, strict=True) if g is not None}

    def _loss(self, weights: Weights, x: Tensor, y: Tensor) -> Tensor:
        logits = self.network.forward(x, weights, self.norm)
        return LABEL.mean(logits, y)

    def squared_norms(self, tensors: Weights) -> Tensor:
        return torch.stack([tensor.double().square().sum() for tensor in tensors.values()]).sum().unsqueeze(0)

    def drawn(self, seed: int, which: int) -> dict[str, Tensor]:
        return {name: normal(seed, which, name, self.weights[name]) for name in self.trainable}


def normal(seed: int, which: int, name: str, like: Tensor) -> Tensor:
    """Standard normal numbers in the shape of a tensor, which depend on its name."""
    drawn = torch.randn(like.shape, generator=generator(seed, "direction", which, name))
    return drawn.to(like)
