"""lswag against standard deviations in loops and a set of patterns."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from epochzero.data import Batch
from epochzero.engine import PlanNetwork, parse
from epochzero.errors import UserError
from epochzero.plan.ops.activation import GELU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.pool import GlobalAvgPool
from tests.proxies.nets import (
    CONNECTED,
    Twin,
    chain,
    cut_net,
    drawn,
    linear_net,
    precisely,
    random_batch,
    score,
    unlabelled,
    value,
)
from tests.proxies.test_swap import RECTIFIERS


def gradient_part(network: PlanNetwork, batch: Batch, batches: int) -> float:
    twin, total = Twin(network), 0.0
    for layer in zip(*(twin.gradients(batch, part) for part in range(batches)), strict=True):
        steady = 0.0
        for entries in zip(*(g.flatten().tolist() for g in layer), strict=True):
            sizes = [abs(entry) for entry in entries]
            mean = sum(sizes) / batches
            deviation = math.sqrt(sum((size - mean) ** 2 for size in sizes) / batches)
            steady += 1 / deviation if deviation else 0
        total += math.log(steady) if steady else 0
    return total


def pattern_part(network: PlanNetwork, batch: Batch, samples: int) -> int:
    """Different answers to which samples switch a unit on, with the network's own weights."""
    twin = Twin(network)
    with torch.no_grad():
        twin(batch.part(0)[0][:samples].double())
    shown = set()
    for part, given, _ in twin.outputs:
        if isinstance(part, RECTIFIERS) and given.dim() == 4:
            shown |= {tuple(unit.tolist()) for unit in (given > 0).flatten(1).unbind(1)}
    return len(shown)


def gelu_net() -> PlanNetwork:
    return drawn(chain((2, 6, 6), Conv(3, 3), GELU(), GlobalAvgPool(), Linear(3)))


@pytest.mark.parametrize("make", [*CONNECTED, gelu_net])
@pytest.mark.parametrize("batches", [2, 3])
def test_is_the_product_of_both_parts(make: Callable[[], PlanNetwork], batches: int) -> None:
    network, batch = make(), random_batch()
    expected = gradient_part(network, batch, batches) * pattern_part(network, batch, 6)
    asked = f"lswag(batches={batches},samples=6)"
    assert value(network, precisely(asked), batch) == pytest.approx(expected, rel=1e-6)
    assert value(network, asked, batch) == pytest.approx(expected, rel=1e-2)


@pytest.mark.parametrize(
    ("network", "batch", "why"),
    [
        (cut_net(), random_batch(), "no gradient of the loss"),
        (linear_net([[1.0, 2.0]] * 2, [[1.0, 2.0]] * 3, relu=True), random_batch((2,)), "no ReLU on feature maps"),
        (gelu_net(), unlabelled(random_batch()), "needs labels"),
    ],
)
def test_networks_without_a_score(network: PlanNetwork, batch: Batch, why: str) -> None:
    assert why in score(network, "lswag(samples=8)", batch).why


@pytest.mark.parametrize("proxy", ["lswag(batches=1)", "lswag(samples=0)", "lswag(samples=63)"])
def test_impossible_settings_are_refused(proxy: str) -> None:
    with pytest.raises(UserError, match="lswag takes"):
        _ = parse(proxy).needs
