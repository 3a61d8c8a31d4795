"""Trains many two-layer perceptrons of one width together on digits, and measures them during training.

    loss           mean over four batches
    FR             1/4 sum_i (theta . grad L(theta; D_i))^2, Fisher-Rao norm from gradients of batches, as in `sigeo`
    FR of samples  the mean over samples of (theta . grad l_n)^2, the empirical Fisher matrix as the paper writes it
    sum |g|        mean over the batches of sum_j |g_j|, the quantity of SiGeo's Theorem 2
    mean |g|       the same divided by the number of parameters

R perceptrons see the same batches, so that their first layers are one product of matrices; their losses are summed, so
each keeps its own gradient.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.func import jvp

from epochzero.data import npz
from epochzero.errors import DataError
from epochzero.plan import generator
from epochzero.registry import spaces
from epochzero.types import Origin

MEAN, STD = 0.4914, 0.2023
"""of CIFAR-10's first channel; the paper normalises MNIST with them"""
STATISTICS = ("loss", "FR", "FR of samples", "mean |g|", "sum |g|")
BATCHES = 4
"""batches of the statistics"""


@dataclass(frozen=True)
class Digits:
    """Digits to train on and to test with, in a batch order of their own."""

    x: Tensor
    y: Tensor
    test_x: Tensor
    test_y: Tensor
    batch_size: int
    seed: int

    @classmethod
    def read(cls, path: Path, batch_size: int, seed: int, device: str = "cpu") -> Digits:
        """Reads the digits of a file; one in five of each class is held out for testing."""
        samples = npz.read(path)
        if samples.y is None:
            raise DataError(f"{path} has no labels: give digits with labels, arrays x and y.")
        x = torch.from_numpy(np.ascontiguousarray(samples.x)).flatten(1).float() / 255  # [N, 784]
        x, y = ((x - MEAN) / STD).to(device), torch.from_numpy(samples.y).to(device)
        held_out = torch.zeros(len(y), dtype=torch.bool, device=device)
        for label in range(int(y.max()) + 1):
            held_out[torch.nonzero(y == label).flatten()[4::5]] = True
        if int((~held_out).sum()) < batch_size or not held_out.any():
            raise DataError(f"{path} has {len(y)} digits, too few to train with batches of {batch_size}: give more.")
        return cls(x[~held_out], y[~held_out], x[held_out], y[held_out], batch_size, seed)

    def batches(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yields batches without end: all digits in one random order after another, without incomplete batches."""
        drawn = generator(self.seed, "digits")
        while True:
            order = torch.randperm(len(self.y), generator=drawn).to(self.y.device)
            for first in range(0, len(order) - self.batch_size + 1, self.batch_size):
                chosen = order[first : first + self.batch_size]
                yield self.x[chosen], self.y[chosen]


class Perceptrons:
    """R perceptrons with the same hidden units, each with weights and a learning rate of its own."""

    def __init__(self, hidden: int, seeds: Sequence[int], rates: Sequence[float], digits: Digits) -> None:
        space, device = spaces["mlp"], digits.x.device
        plan = space.plan(hidden, int(digits.y.max()) + 1, (digits.x.shape[1],))
        drawn = [plan.module(Origin(seed=seed)).weights() for seed in seeds]
        names = ("hidden.weight", "hidden.bias", "classifier.weight", "classifier.bias")
        stacked = [torch.stack([weights[name].detach() for weights in drawn]).to(device) for name in names]
        self.weights = [weight.requires_grad_() for weight in stacked]  # [R, h, 784], [R, h], [R, K, h], [R, K]
        self.rates = torch.tensor(rates, device=device)  # [R]
        self.params: int = plan.params

    def losses(self, x: Tensor, y: Tensor) -> Tensor:
        """The mean cross-entropy of each: [R]."""
        return sample_losses(*self.weights, x=x, y=y).mean(0)

    def gradients(self, x: Tensor, y: Tensor) -> tuple[Tensor, list[Tensor]]:
        losses = self.losses(x, y)
        return losses.detach(), list(torch.autograd.grad(losses.sum(), self.weights))

    def step(self, x: Tensor, y: Tensor) -> None:
        """One step of plain SGD."""
        _, gradients = self.gradients(x, y)
        with torch.no_grad():
            for weight, gradient in zip(self.weights, gradients, strict=True):
                weight.sub_(self.rates.view(-1, *[1] * (weight.dim() - 1)) * gradient)

    def statistics(self, batches: Sequence[tuple[Tensor, Tensor]]) -> Tensor:
        """Returns `STATISTICS` at the present weights: [S, R]."""
        rows = []
        for x, y in batches:
            losses, gradients = self.gradients(x, y)
            pairs = list(zip(self.weights, gradients, strict=True))
            along = torch.stack([(w.detach() * g).flatten(1).sum(1) for w, g in pairs]).sum(0)  # [R]
            size = torch.stack([g.flatten(1).abs().sum(1) for _, g in pairs]).sum(0)  # [R]
            fisher = self._along_samples(x, y).square().mean(0)  # [R]
            rows.append(torch.stack([losses, along.square(), fisher, size / self.params, size]))
        return torch.stack(rows).mean(0)

    def _along_samples(self, x: Tensor, y: Tensor) -> Tensor:
        """The inner product of all weights with the gradient of each sample's loss: [B, R]."""
        weights = tuple(weight.detach() for weight in self.weights)
        products: Tensor = jvp(partial(sample_losses, x=x, y=y), weights, weights)[1]
        return products


def sample_losses(
    first: Tensor, first_bias: Tensor, second: Tensor, second_bias: Tensor, *, x: Tensor, y: Tensor
) -> Tensor:
    """The cross-entropy of each sample under each of R perceptrons: [B, R]."""
    count, hidden = first_bias.shape
    pre = (x @ first.flatten(0, 1).mT).view(len(x), count, hidden) + first_bias  # [B, R, h]
    logits = torch.einsum("brh,rkh->brk", pre.relu(), second) + second_bias  # [B, R, K]
    chosen = logits.log_softmax(2).gather(2, y[:, None, None].expand(-1, count, 1))  # [B, R, 1]
    return -chosen.squeeze(2)


@dataclass(frozen=True)
class History:
    """The measurements of R perceptrons of one width."""

    after: dict[int, Tensor]
    """by number of steps, the statistics [S, R] on the batches that follow"""
    train: Tensor
    """[R], the loss over all training digits after the last step"""
    test: Tensor
    """[R]"""


def follow(networks: Perceptrons, digits: Digits, levels: Sequence[int], steps: int) -> History:
    """Train for `steps` steps, and measure at the levels."""
    ahead: list[tuple[Tensor, Tensor]] = []
    stream = digits.batches()
    after = {}
    for step in range(steps + 1):
        while len(ahead) < BATCHES:
            ahead.append(next(stream))
        if step in levels:
            after[step] = networks.statistics(ahead)
        if step < steps:
            networks.step(*ahead.pop(0))
    with torch.no_grad():
        train, test = networks.losses(digits.x, digits.y), networks.losses(digits.test_x, digits.test_y)
    return History(after, train, test)
