r"""SGD with Nesterov momentum on networks: one alone, or many side by side.

    g = dL/dw + decay w        v <- momentum v + g, at first g        w <- w - rate (g + momentum v)

A population is one merged plan whose packed weights are trained as those of one network are. Its loss
is the sum of the networks' mean cross-entropies, so each network's weights get their own gradient and end as if it had
been trained alone, but for rounding. In single precision that can grow from step to step, as it does between two
machines: it decides on which side of a ReLU's kink a value falls.

A weight that the output does not depend on, since every way from it is cut, has no gradient, and `torch.optim.SGD` lets
it be: it does not decay. Packed with weights of other networks, its part of the gradient is zero, and its decay has to
be zero too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from epochzero.data.batch import Part
from epochzero.engine import Pass, PlanNetwork
from epochzero.engine.population.population import Population
from epochzero.engine.population.tape import Tape
from epochzero.plan import Plan
from epochzero.plan.module import PlanModule
from epochzero.plan.ops.wiring import Zero


@dataclass(frozen=True)
class SGD:
    """How networks are trained."""

    rate: float = 0.025
    momentum: float = 0.9
    decay: float = 5e-4

    def __str__(self) -> str:
        return f"sgd(rate={self.rate:g},momentum={self.momentum:g},decay={self.decay:g},nesterov)"


def trained(
    module: PlanModule, batches: Sequence[Part], stops: Sequence[int], optimiser: SGD
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """The weights after each of so many steps; the batches are used in turn, over and over."""
    sgd = torch.optim.SGD(
        module.parameters(), optimiser.rate, optimiser.momentum, weight_decay=optimiser.decay, nesterov=True
    )
    module.train()

    def step(x: Tensor, y: Tensor) -> None:
        sgd.zero_grad()
        cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
        sgd.step()

    for stop in _run(step, batches, stops):
        weights = module.weights()
        yield stop, {name: weights[name].detach().clone() for name in module.plan.weights}


def trained_together(
    networks: Sequence[PlanNetwork], batches: Sequence[Part], stops: Sequence[int], optimiser: SGD
) -> Iterator[tuple[int, list[dict[str, Tensor]]]]:
    """The weights of each network after each of so many steps, as `trained` gives them for one.

    In the precision of the batches, which are where the networks are.
    """
    population = Population(networks)
    plan = population.merged.plan.with_statistics("tracked")
    dtype = batches[0][0].dtype
    packed = {name: weight.to(dtype, copy=True) for name, weight in population.packed(Pass(), 0, plan).items()}
    decays = _decays(population, packed, optimiser.decay)
    sgd = torch.optim.SGD([packed[name] for name in decays], optimiser.rate, optimiser.momentum, nesterov=True)

    def step(x: Tensor, y: Tensor) -> None:
        found = _gradients(population, plan, packed, list(decays), x, y)
        weights = [packed[name] for name in found]
        decayed = torch._foreach_addcmul(list(found.values()), weights, [decays[name] for name in found])
        for weight, gradient in zip(weights, decayed, strict=True):
            weight.grad = gradient
        sgd.step()

    for stop in _run(step, batches, stops):
        yield stop, _unpacked(population, packed)


def _run(step: Callable[[Tensor, Tensor], None], batches: Sequence[Part], stops: Sequence[int]) -> Iterator[int]:
    done = 0
    for stop in sorted(stops):
        for at in range(done, stop):
            x, y = batches[at % len(batches)]
            assert y is not None
            step(x, y)
        done = stop
        yield stop


def _gradients(
    population: Population, plan: Plan, packed: Mapping[str, Tensor], names: Sequence[str], x: Tensor, y: Tensor
) -> dict[str, Tensor]:
    """Of each network's loss, for those packed weights that any loss depends on."""
    inputs = x.repeat(1, population.size, *(1 for _ in x.shape[2:]))  # [B, P*C, ...]
    tape = Tape(plan, packed, (inputs,), names, sums=population.back_sums)
    with torch.enable_grad():
        joint = tape.output.detach().requires_grad_()  # [B, P*K]
        logits = population.by_network(joint).flatten(0, 1)  # [P*B, K]
        loss = cross_entropy(logits, y.repeat(population.size), reduction="sum") / len(y)
    (start,) = torch.autograd.grad(loss, [joint])
    return tape.gradients(start, names)


def _decays(population: Population, packed: Mapping[str, Tensor], decay: float) -> dict[str, Tensor]:
    """For each pack of trainable weights, how fast each number in it decays."""
    alive = [_alive(network.plan) for network in population.networks]
    params = population.merged.plan.weights
    return {
        name: torch.cat(
            [
                torch.full_like(own_weight, decay if own in alive[p] else 0)
                for (p, own), own_weight in zip(parts, packed[name].chunk(len(parts)), strict=True)
            ]
        )
        for name, parts in population.merged.packs.items()
        if params[name].trainable
    }


def _alive(plan: Plan) -> set[str]:
    """The weights that the output depends on: those with a way to it that no cut edge is on."""
    reached = {len(plan.nodes) - 1}
    for i in range(len(plan.nodes) - 1, -1, -1):
        if i in reached and not isinstance(plan.nodes[i].op, Zero):
            reached.update(plan.nodes[i].inputs)
    return {name for i in reached for name in plan.nodes[i].params}


def _unpacked(population: Population, packed: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """A copy of each network's own weights, in its plan's order."""
    found: list[dict[str, Tensor]] = [{} for _ in population.networks]
    for name, parts in population.merged.packs.items():
        for (p, own), weight in zip(parts, packed[name].clone().chunk(len(parts)), strict=True):
            found[p][own] = weight
    return [
        {name: own[name] for name in network.plan.weights}
        for network, own in zip(population.networks, found, strict=True)
    ]
