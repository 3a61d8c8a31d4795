"""Training of populations: each network ends as if it had been trained one at a time."""

from __future__ import annotations

from random import Random

import pytest
import torch
from torch.nn.functional import cross_entropy

from epochzero.analysis.gradient_variance import gradient_variance
from epochzero.analysis.landscape import Plane, axis_of, on_plane
from epochzero.analysis.subjects import SingleSubject, Subject
from epochzero.analysis.topology import KNOWN, random_connections
from epochzero.engine import PlanNetwork
from epochzero.plan import generator
from epochzero.registry import spaces
from epochzero.spaces.darts import Darts
from epochzero.types import Origin
from epochzero_papers.harness.population import (
    SGD,
    JoinedNetworks,
    JoinedSubject,
    PopulationSGD,
    train_network,
    train_population,
)

SHAPE, CLASSES = (3, 8, 8), 4


def networks(count: int) -> list[PlanNetwork]:
    space, rng = spaces["nb201"], Random(0)
    plans = [space.plan(space.sample(rng), CLASSES, SHAPE) for _ in range(count)]
    return [PlanNetwork(plan, Origin(seed=place)) for place, plan in enumerate(plans)]


def batches(count: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    rng = torch.Generator().manual_seed(0)
    return [
        (torch.randn(6, *SHAPE, generator=rng).double(), torch.randint(CLASSES, (6,), generator=rng))
        for _ in range(count)
    ]


@pytest.mark.parametrize("optimiser", [SGD(), SGD(0.05, 0.9, 3e-4, nesterov=False)], ids=str)
def test_a_population_trains_each_network_as_if_it_were_the_only_one(optimiser: SGD) -> None:
    data = batches(2)
    (_, start), (_, end) = train_population(networks(3), data, [0, 3], optimiser)
    for place, network in enumerate(networks(3)):
        module = network.plan.module(Origin(seed=place)).double()
        (_, alone_start), (_, alone_end) = train_network(module, data, [0, 3], optimiser)
        for name, weight in alone_end.items():
            torch.testing.assert_close(start[place][name], alone_start[name], rtol=0, atol=0)
            torch.testing.assert_close(end[place][name], weight, rtol=1e-9, atol=1e-12)


def test_each_network_has_its_own_learning_rate_and_a_share_scales_it() -> None:
    """One step without momentum, by hand: w - share rate (g + decay w)."""
    ((x, y),) = batches(1)
    rates, share, decay = [0.1, 0.01], 0.5, 0.01
    joined = JoinedNetworks(networks(2), torch.float64)
    before = joined.unpacked(joined.weights)
    losses = PopulationSGD(joined, SGD(1.0, 0.0, decay, nesterov=False), rates).step(x, y, torch.tensor(share))
    after = joined.unpacked(joined.weights)
    for place, network in enumerate(networks(2)):
        module = network.plan.module(Origin(seed=place)).double().train()
        loss = cross_entropy(module(x), y)
        torch.testing.assert_close(losses[place], loss.detach())
        name = "stem.conv.weight" if "stem.conv.weight" in before[place] else next(iter(network.trainable))
        (gradient,) = torch.autograd.grad(loss, [module.weights()[name]])
        expected = before[place][name] - share * rates[place] * (gradient + decay * before[place][name])
        torch.testing.assert_close(after[place][name], expected)


def test_the_optimiser_names_its_settings() -> None:
    assert str(SGD()) == "sgd(rate=0.025,momentum=0.9,decay=0.0005,nesterov)"
    assert str(SGD(nesterov=False)) == "sgd(rate=0.025,momentum=0.9,decay=0.0005)"


def landscape(subject: Subject, x: torch.Tensor, y: torch.Tensor) -> Plane:
    return on_plane(subject, axis_of(1.0, 3), 0, lambda weights: subject.losses(weights, x, y))


def variance(subject: Subject, x: torch.Tensor, y: torch.Tensor) -> Plane:
    return on_plane(subject, axis_of(1.0, 3), 0, lambda weights: gradient_variance(subject, weights, x, y, 3))


@pytest.mark.parametrize("norm", ["eval", "train"])
def test_side_by_side_is_as_alone(norm: str) -> None:
    space, rng = Darts("small", 2, 2), Random(0)
    archs = [KNOWN["DARTS"], *(random_connections(KNOWN["DARTS"], rng) for _ in range(2))]
    several = [PlanNetwork(space.plan(arch, 3, SHAPE), Origin(seed=i)) for i, arch in enumerate(archs)]
    x, y = torch.randn(6, *SHAPE, generator=generator(0, "x")), torch.arange(6) % 3
    together = JoinedSubject(several, norm)  # type: ignore[arg-type]
    seen, noise = landscape(together, x, y), variance(together, x, y)
    for place, network in enumerate(several):
        alone = SingleSubject(network, norm)  # type: ignore[arg-type]
        expected = landscape(alone, x, y).values[0]
        torch.testing.assert_close(torch.tensor(seen.values[place]), torch.tensor(expected), rtol=1e-4, atol=1e-5)
        expected = variance(alone, x, y).values[0]
        torch.testing.assert_close(torch.tensor(noise.values[place]), torch.tensor(expected), rtol=2e-3, atol=1e-5)
