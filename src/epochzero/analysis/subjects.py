"""Networks whose loss is looked at around some weights: one alone, or many side by side.

`Alone` is any network of the engine's, a user's module too. `SideBySide` is a population of plans that runs as one
(`engine.population.merge`): its weights are those of P networks, joined along the first axis, and no network's loss
depends on another's weights. Both give losses [P] and gradients at given weights, so nothing else tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from epochzero.engine import Network, Pass, PlanNetwork
from epochzero.engine.loss import check_labels, label_loss
from epochzero.engine.passes import Norm
from epochzero.engine.population.population import Population
from epochzero.engine.population.tape import Tape
from epochzero.errors import UserError
from epochzero.plan import Plan, execute, generator

Weights = Mapping[str, Tensor]


class Subject(Protocol):
    """P networks and where they stand."""

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


class Alone:
    """One network."""

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
        found = torch.autograd.grad(loss, list(own.values()), allow_unused=True)
        return {name: g for name, g in zip(own, found, strict=True) if g is not None}

    def _loss(self, weights: Weights, x: Tensor, y: Tensor) -> Tensor:
        logits = self.network.forward(x, weights, self.norm)
        check_labels(logits.shape, y)
        return label_loss(logits, y, "mean")

    def squared_norms(self, tensors: Weights) -> Tensor:
        return torch.stack([tensor.double().square().sum() for tensor in tensors.values()]).sum().unsqueeze(0)

    def drawn(self, seed: int, which: int) -> dict[str, Tensor]:
        return {name: _normal(seed, which, name, self.weights[name]) for name in self.trainable}


class SideBySide:
    """Networks of one input and output shape, run as one plan."""

    def __init__(self, networks: Sequence[PlanNetwork], norm: Norm = "eval") -> None:
        self.population = Population(networks)
        self.count = len(networks)
        self.plan = self.population.variant(Pass(norm=norm))
        merged = self.population.merged
        self.weights = {name: weight.clone() for name, weight in self.population.packed(Pass(), 0, merged.plan).items()}
        self.trainable = tuple(name for name, param in merged.plan.weights.items() if param.trainable)

    def logits(self, weights: Weights, x: Tensor, plan: Plan | None = None) -> Tensor:
        """[P, B, K]"""
        with torch.no_grad():
            return self.population.by_network(execute(plan or self.plan, weights, (self._tiled(x),)))

    def losses(self, weights: Weights, x: Tensor, y: Tensor) -> Tensor:
        return self.each_loss(self.logits(weights, x), y)

    def gradients(self, weights: Weights, x: Tensor, y: Tensor, plan: Plan | None = None) -> dict[str, Tensor]:
        return self.losses_and_gradients(weights, x, y, plan)[1]

    def losses_and_gradients(
        self, weights: Weights, x: Tensor, y: Tensor, plan: Plan | None = None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """Losses [P], and the gradients of the weights that any of them depends on."""
        tape = Tape(plan or self.plan, weights, (self._tiled(x),), self.trainable, sums=self.population.back_sums)
        with torch.enable_grad():
            joint = tape.output.detach().requires_grad_()  # [B, P*K]
            losses = self.each_loss(self.population.by_network(joint), y)
            (start,) = torch.autograd.grad(losses.sum(), [joint])
        return losses.detach(), tape.gradients(start, self.trainable)

    def squared_norms(self, tensors: Weights) -> Tensor:
        found = torch.zeros(self.count, dtype=torch.float64, device=self.population.device)
        for name, tensor in tensors.items():
            owners = self._owners[name]
            found.index_add_(0, owners, tensor.view(len(owners), -1).double().square().sum(1))
        return found

    def drawn(self, seed: int, which: int) -> dict[str, Tensor]:
        return {
            name: torch.cat(
                [
                    _normal(seed, which, own, part)
                    for (_, own), part in zip(
                        self.population.merged.packs[name], self._parts(self.weights[name], name), strict=True
                    )
                ]
            )
            for name in self.trainable
        }

    def of_each(self, values: Tensor, name: str) -> Tensor:
        """A value [P] for each network, spread over the rows of a joined weight, to multiply it with."""
        weight = self.weights[name]
        spread = values[self._owners[name]].repeat_interleave(len(weight) // len(self._owners[name]))
        return spread.view(-1, *(1 for _ in weight.shape[1:]))

    def unpacked(self, weights: Weights) -> list[dict[str, Tensor]]:
        """Each network's own weights, by their own names."""
        found: list[dict[str, Tensor]] = [{} for _ in range(self.count)]
        for name, parts in self.population.merged.packs.items():
            for (p, own), part in zip(parts, self._parts(weights[name], name), strict=True):
                found[p][own] = part.clone()
        return found

    @staticmethod
    def each_loss(logits: Tensor, y: Tensor) -> Tensor:
        """[P, B, K] and labels [B] to the mean cross-entropy of each network: [P]"""
        many = y.expand(len(logits), -1).flatten()
        return cross_entropy(logits.flatten(0, 1), many, reduction="none").view(len(logits), -1).mean(1)

    def _parts(self, weight: Tensor, name: str) -> Sequence[Tensor]:
        return weight.chunk(len(self.population.merged.packs[name]))

    def _tiled(self, x: Tensor) -> Tensor:
        return x.repeat(1, self.count, *(1 for _ in x.shape[2:]))  # [B, P*C, ...]

    @cached_property
    def _owners(self) -> dict[str, Tensor]:
        """For each joined weight, whose its parts are."""
        packs = self.population.merged.packs
        return {
            name: torch.tensor([p for p, _ in parts], device=self.population.device) for name, parts in packs.items()
        }


def _normal(seed: int, which: int, name: str, like: Tensor) -> Tensor:
    drawn = torch.randn(like.shape, generator=generator(seed, "direction", which, name))
    return drawn.to(like)
