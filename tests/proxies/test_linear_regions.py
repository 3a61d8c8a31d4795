"""linear_regions against a list of codes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from epochzero.data import Batch
from epochzero.engine import PlanNetwork
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.pool import GlobalAvgPool
from tests.proxies.nets import (
    CONNECTED,
    Twin,
    batch_of,
    chain,
    cut_net,
    drawn,
    linear_net,
    random_batch,
    score,
    unlabelled,
    value,
)


def regions(network: PlanNetwork, batch: Batch) -> float:
    """One over how many samples share each sample's code, added up."""
    twin = Twin(network)
    with torch.no_grad():
        twin(batch.part(0)[0].double())
    on = [(given > 0).flatten(1) for part, given, _ in twin.outputs if isinstance(part, nn.ReLU)]
    codes = [tuple(code.tolist()) for code in torch.cat(on, 1)]
    return sum(1 / codes.count(code) for code in codes)


def test_by_hand() -> None:
    # Two units that look at one number each: signs (+, +), (+, -), (+, +), (+, +): two regions.
    network = linear_net([[1.0, 0.0], [0.0, 1.0]], [[1.0, 1.0]], relu=True)
    batch = batch_of(([[1.0, 1.0], [2.0, -1.0], [3.0, 0.5], [9.0, 9.0]], None))
    assert value(network, "linear_regions", batch) == pytest.approx(2)
    # A unit at 0 is off, as one below it.
    batch = batch_of(([[1.0, 1.0], [1.0, 0.0], [1.0, -1.0]], None))
    assert value(network, "linear_regions", batch) == pytest.approx(2)


@pytest.mark.parametrize("make", [*CONNECTED, cut_net])
def test_is_the_number_of_different_codes(make: Callable[[], PlanNetwork]) -> None:
    """All samples of a random batch differ; copies do not count twice. Labels are not needed."""
    network, batch = make(), random_batch()
    assert value(network, "linear_regions", unlabelled(batch)) == pytest.approx(8)
    x = batch.part(0)[0]
    copies = batch_of((x[[0, 1, 0, 2, 1, 0]], None))
    assert value(network, "linear_regions", copies) == pytest.approx(3)


def test_a_thin_network() -> None:
    """Few units, so that codes repeat: as TE-NAS counts them."""
    network = drawn(chain((1, 3, 3), Conv(1, 3, padding=1), ReLU(), Conv(1, 3), ReLU(), GlobalAvgPool(), Linear(3)))
    batch = random_batch((1, 3, 3), size=100)
    expected = regions(network, batch)
    assert expected < 100
    assert value(network, "linear_regions", batch) == pytest.approx(expected)


def test_without_a_relu() -> None:
    found = score(linear_net([[1.0, 2.0]]), "linear_regions", random_batch((2,)))
    assert found.status == "degenerate"
    assert "no ReLU" in found.why
