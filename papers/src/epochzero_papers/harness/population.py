r"""SGD with momentum on one network, or on many networks at once as one population.

    g = dL/dw + decay w        v <- momentum v + g, at first g        w <- w - rate (g + momentum v)

The last term is w - rate v without Nesterov momentum. A population is one plan (`Population.merged`) whose packed
weights are trained as those of one network are. Its loss is the sum of the networks' mean cross-entropies, so each
network's weights get their own gradient and end as if it had been trained one at a time, except for rounding. In single
precision the difference can grow from step to step, as it does between two machines, because rounding decides which
side of a ReLU's kink a value falls on.

`torch.optim.SGD` leaves a weight alone, without decay, if the output does not depend on it. Packed with those of other
networks, such a weight has the gradient zero, and its decay has to be zero too.

    networks = [PlanNetwork(space.plan(arch, 10, (3, 32, 32)), Origin(seed=0)) for arch in archs]
    for steps, weights in train_population(networks, batches, stops=[100, 200], optimiser=SGD()):
        ...
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from epochzero.analysis.subjects import Weights, normal
from epochzero.data.batch import Part
from epochzero.engine import Pass, PlanNetwork, foreach
from epochzero.engine.passes import Norm
from epochzero.engine.population.population import Population
from epochzero.engine.population.tape import Tape
from epochzero.plan import Plan, execute
from epochzero.plan.module import PlanModule
from epochzero.plan.ops.wiring import Zero


@dataclass(frozen=True)
class SGD:
    """The optimiser's settings."""

    rate: float = 0.025
    momentum: float = 0.9
    decay: float = 5e-4
    nesterov: bool = True

    def __str__(self) -> str:
        nesterov = ",nesterov" if self.nesterov else ""
        return f"sgd(rate={self.rate:g},momentum={self.momentum:g},decay={self.decay:g}{nesterov})"


class JoinedNetworks:
    """P networks of one input and output shape that run as one plan, with their weights joined along the first axis.

    No network's loss depends on another's weights.
    """

    def __init__(self, networks: Sequence[PlanNetwork], dtype: torch.dtype | None = None) -> None:
        self.population = Population(networks)
        self.count = len(networks)
        self.plan = self.population.merged.plan
        packed = self.population.packed(Pass(), 0, self.plan)
        self.weights = {name: weight.to(dtype or weight.dtype, copy=True) for name, weight in packed.items()}
        self.trainable = tuple(name for name, param in self.plan.weights.items() if param.trainable)

    def logits(self, weights: Weights, x: Tensor, plan: Plan | None = None) -> Tensor:
        """[P, B, K]"""
        with torch.no_grad():
            return self.population.by_network(execute(plan or self.plan, weights, (self._tiled(x),)))

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

    @staticmethod
    def each_loss(logits: Tensor, y: Tensor) -> Tensor:
        """[P, B, K] and labels [B] to the mean cross-entropy of each network: [P]"""
        many = y.expand(len(logits), -1).flatten()
        return cross_entropy(logits.flatten(0, 1), many, reduction="none").view(len(logits), -1).mean(1)

    def of_each(self, values: Tensor, name: str) -> Tensor:
        """A value [P] for each network, spread over the rows of a joined weight, to multiply it with."""
        weight = self.weights[name]
        spread = values[self.owners[name]].repeat_interleave(len(weight) // len(self.owners[name]))
        return spread.view(-1, *(1 for _ in weight.shape[1:]))

    def unpacked(self, weights: Weights) -> list[dict[str, Tensor]]:
        """A copy of each network's own weights, in its plan's order."""
        own: list[dict[str, Tensor]] = [{} for _ in range(self.count)]
        for name in self.population.merged.packs:
            for (p, own_name), part in self.parts(weights[name], name):
                own[p][own_name] = part.clone()
        plans = [network.plan for network in self.population.networks]
        return [{name: of[name] for name in plan.weights} for plan, of in zip(plans, own, strict=True)]

    def parts(self, weight: Tensor, name: str) -> Iterator[tuple[tuple[int, str], Tensor]]:
        """The parts of a joined weight, each with its network's number and its name in that network."""
        packs = self.population.merged.packs[name]
        return zip(packs, weight.chunk(len(packs)), strict=True)

    @cached_property
    def owners(self) -> dict[str, Tensor]:
        """For each joined weight, the numbers of the networks that its parts belong to."""
        packs, device = self.population.merged.packs, self.population.device
        return {name: torch.tensor([p for p, _ in parts], device=device) for name, parts in packs.items()}

    def _tiled(self, x: Tensor) -> Tensor:
        return x.repeat(1, self.count, *(1 for _ in x.shape[2:]))  # [B, P*C, ...]


class JoinedSubject(JoinedNetworks):
    """Joined networks whose loss is evaluated around given weights (`epochzero.analysis.subjects.Subject`)."""

    def __init__(self, networks: Sequence[PlanNetwork], norm: Norm = "eval") -> None:
        super().__init__(networks)
        self.plan = self.population.variant(Pass(norm=norm))

    def losses(self, weights: Weights, x: Tensor, y: Tensor) -> Tensor:
        return self.each_loss(self.logits(weights, x), y)

    def gradients(self, weights: Weights, x: Tensor, y: Tensor) -> dict[str, Tensor]:
        return self.losses_and_gradients(weights, x, y)[1]

    def squared_norms(self, tensors: Weights) -> Tensor:
        norms = torch.zeros(self.count, dtype=torch.float64, device=self.population.device)
        for name, tensor in tensors.items():
            owners = self.owners[name]
            norms.index_add_(0, owners, tensor.view(len(owners), -1).double().square().sum(1))
        return norms

    def drawn(self, seed: int, which: int) -> dict[str, Tensor]:
        return {
            name: torch.cat([normal(seed, which, own, part) for (_, own), part in self.parts(self.weights[name], name)])
            for name in self.trainable
        }


class PopulationSGD:
    """Trains joined networks step by step, each with its own learning rate."""

    def __init__(self, networks: JoinedNetworks, optimiser: SGD, rates: Sequence[float] | None = None) -> None:
        """`rates`: one for each network; default: that of the optimiser."""
        self.networks, self.optimiser = networks, optimiser
        self.plan = networks.plan.with_statistics("tracked")
        self.velocities = {name: torch.zeros_like(networks.weights[name]) for name in networks.trainable}
        of_each = torch.tensor(rates or [optimiser.rate] * networks.count, dtype=torch.float64)
        self.rates = {
            name: networks.of_each(of_each.to(velocity), name).expand_as(velocity).contiguous()
            for name, velocity in self.velocities.items()
        }
        self.decays = _decays(networks, optimiser.decay)

    def step(self, x: Tensor, y: Tensor, share: Tensor | None = None) -> Tensor:
        """One step, with a share of the learning rates; the losses [P] before it."""
        losses, gradients = self.networks.losses_and_gradients(self.networks.weights, x, y, self.plan)
        names = list(gradients)
        weights, velocities, rates, decays = (
            [of[name] for name in names] for of in (self.networks.weights, self.velocities, self.rates, self.decays)
        )
        steps = list(foreach.addcmul(list(gradients.values()), weights, decays))
        foreach.mul_(velocities, self.optimiser.momentum)
        foreach.add_(velocities, steps)
        if self.optimiser.nesterov:
            foreach.add_(steps, velocities, alpha=self.optimiser.momentum)
        else:
            steps = velocities
        shares = rates if share is None else foreach.mul(rates, share)
        foreach.addcmul_(weights, steps, shares, value=-1)
        return losses


def train_network(
    module: PlanModule, batches: Sequence[Part], stops: Sequence[int], optimiser: SGD
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """The weights after each number of steps in `stops`; the batches are used in turn, over and over."""
    sgd = torch.optim.SGD(
        module.parameters(),
        optimiser.rate,
        optimiser.momentum,
        weight_decay=optimiser.decay,
        nesterov=optimiser.nesterov,
    )
    module.train()

    def step(x: Tensor, y: Tensor) -> None:
        sgd.zero_grad()
        cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
        sgd.step()

    for stop in _run(step, batches, stops):
        weights = module.weights()
        yield stop, {name: weights[name].detach().clone() for name in module.plan.weights}


def train_population(
    networks: Sequence[PlanNetwork], batches: Sequence[Part], stops: Sequence[int], optimiser: SGD
) -> Iterator[tuple[int, list[dict[str, Tensor]]]]:
    """The weights of each network after each number of steps, as `train_network` gives them for one.

    Computed in the precision of the batches, which have to be on the networks' device.
    """
    joined = JoinedNetworks(networks, batches[0][0].dtype)
    sgd = PopulationSGD(joined, optimiser)
    for stop in _run(sgd.step, batches, stops):
        yield stop, joined.unpacked(joined.weights)


def _run(step: Callable[[Tensor, Tensor], object], batches: Sequence[Part], stops: Sequence[int]) -> Iterator[int]:
    done = 0
    for stop in sorted(stops):
        for number in range(done, stop):
            x, y = batches[number % len(batches)]
            assert y is not None
            step(x, y)
        done = stop
        yield stop


def _decays(networks: JoinedNetworks, decay: float) -> dict[str, Tensor]:
    """For each joined trainable weight, the decay of each of its numbers."""
    alive = [_alive(network.plan) for network in networks.population.networks]
    return {
        name: torch.cat(
            [
                torch.full_like(weight, decay if own in alive[p] else 0)
                for (p, own), weight in networks.parts(networks.weights[name], name)
            ]
        )
        for name in networks.trainable
    }


def _alive(plan: Plan) -> set[str]:
    """The weights that the output depends on: those with a path to it without a cut edge."""
    reached = {len(plan.nodes) - 1}
    for i in range(len(plan.nodes) - 1, -1, -1):
        if i in reached and not isinstance(plan.nodes[i].op, Zero):
            reached.update(plan.nodes[i].inputs)
    return {name for i in reached for name in plan.nodes[i].params}
