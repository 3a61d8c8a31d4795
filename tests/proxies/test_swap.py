"""swap and swap_reg against a set of patterns."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from epochzero.api import as_network
from epochzero.data import Batch
from epochzero.engine import PlanNetwork, parse
from epochzero.errors import UserError
from epochzero.plan.ops.activation import GELU, Activation, Hardswish, ReLU, ReLU6, SiLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.pool import GlobalAvgPool
from epochzero.plan.ops.wiring import Identity
from epochzero.types import Origin
from tests.proxies.nets import (
    CONNECTED,
    Twin,
    batch_of,
    chain,
    conv_net,
    cut_net,
    drawn,
    linear_net,
    precisely,
    random_batch,
    score,
    unlabelled,
    value,
)

RECTIFIERS = nn.ReLU | nn.ReLU6 | nn.GELU | nn.SiLU | nn.Hardswish


def counted(network: PlanNetwork, batch: Batch, samples: int, seed: int = 0, which: int = 0) -> int:
    """For every unit of every ReLU on maps, on which samples it is on: how many different answers."""
    twin = Twin(PlanNetwork(network.plan, Origin("normal", seed + which * 1_000_003)))
    with torch.no_grad():
        twin(batch.part(0)[0][:samples].double())
    found = set()
    for part, given, _ in twin.outputs:
        if isinstance(part, RECTIFIERS) and given.dim() == 4:
            for unit in (given > 0).flatten(1).unbind(1):
                found.add(tuple(unit.tolist()))
    return len(found)


def images(*rows: list[float]) -> Batch:
    """Samples of one channel and one row of pixels."""
    return batch_of(([[[row]] for row in rows], None))


def test_by_hand() -> None:
    # Four units, on for: both samples, the second, the first, none. A second ReLU shows two of these patterns again:
    # nothing new. Without the last sample: on or off.
    network = drawn(chain((1, 1, 4), ReLU(), Identity(), ReLU(), GlobalAvgPool(), Linear(3)))
    batch = images([1.0, -1.0, 1.0, -1.0], [1.0, 2.0, -1.0, 0.0])
    assert value(network, "swap(samples=2)", batch) == 4
    assert value(network, "swap(samples=1)", batch) == 2
    # The network has 6 parameters: 0.006 thousand.
    expected = 4 * math.exp(-((0.006 - 1.006) ** 2) / 2)
    assert network.plan.params == 6
    assert value(network, "swap_reg(samples=2,mu=1.006,sigma=2)", batch) == pytest.approx(expected, rel=1e-6)


def test_every_sample_is_told_apart() -> None:
    """62 units, each on for one sample alone: as many as fit into one whole number."""
    network = drawn(chain((1, 1, 62), ReLU(), GlobalAvgPool(), Linear(3)))
    batch = images(*(2 * torch.eye(62) - 1).tolist())
    assert value(network, "swap(samples=62,repeats=1)", batch) == 62


@pytest.mark.parametrize("make", [*CONNECTED, cut_net])
def test_is_the_number_of_patterns(make: Callable[[], PlanNetwork]) -> None:
    """Averaged over draws of the weights. A network that is cut still has the patterns of its stem."""
    network, batch = make(), random_batch(size=9)
    each = [counted(network, batch, 8, seed=3, which=which) for which in range(4)]
    assert len(set(each)) > 1
    assert value(network, precisely("swap(repeats=4,samples=8)"), unlabelled(batch), seed=3) == sum(each) / 4
    assert value(network, "swap(repeats=4,samples=8)", batch, seed=3) == pytest.approx(sum(each) / 4, rel=0.02)


def test_size_is_in_thousands_of_parameters() -> None:
    network, batch = conv_net(), random_batch(size=16)
    patterns, size = value(network, "swap", batch), network.params / 1000
    expected = patterns * math.exp(-((size - 1500) ** 2) / 1e6)
    assert value(network, "swap_reg", batch) == pytest.approx(expected, rel=1e-6)
    assert value(network, f"swap_reg(mu={size})", batch) == pytest.approx(patterns, rel=1e-6)


def test_as_published() -> None:
    """32 draws and 16 samples."""
    network, batch = conv_net(), random_batch(size=16)
    assert value(network, "swap", batch) == value(network, "swap(repeats=32,samples=16)", batch)


@pytest.mark.parametrize("also", [ReLU6(), GELU(), SiLU(), Hardswish()])
def test_other_rectifiers_show_patterns(also: Activation) -> None:
    """Beside a ReLU, and on tokens."""
    batch = random_batch((2, 4, 4), size=5)
    network = drawn(chain((2, 4, 4), Conv(3, 1), ReLU(), Conv(2, 3), also, GlobalAvgPool(), Linear(3)))
    assert value(network, precisely("swap(samples=5,repeats=1)"), batch) == counted(network, batch, 5)
    tokens = random_batch((4, 3), size=5)
    module = nn.Sequential(nn.Linear(3, 6), getattr(nn, type(also).__name__)(), nn.Flatten(), nn.Linear(24, 3))
    of_tokens = as_network(module, tokens)
    before = nn.functional.linear(tokens.part(0)[0], *list(of_tokens.redrawn(Origin("normal", 0)).values())[:2])
    expected = len({tuple(unit.tolist()) for unit in (before > 0).flatten(1).unbind(1)})
    assert value(of_tokens, "swap(samples=5,repeats=1)", tokens) == expected


@pytest.mark.parametrize("proxy", ["swap", "swap_reg"])
def test_networks_without_a_score(proxy: str) -> None:
    of_vectors = linear_net([[1.0, 2.0], [3.0, 4.0]], [[1.0, 1.0]], relu=True)
    found = score(of_vectors, proxy, random_batch((2,), size=16))
    assert found.status == "degenerate"
    assert "no ReLU on feature maps" in found.why
    found = score(conv_net(), proxy, random_batch(size=8))
    assert found.status == "failed"
    assert "needs 16 samples" in found.why


@pytest.mark.parametrize(
    "proxy",
    [
        *("swap(repeats=0)", "swap(samples=0)", "swap(samples=63)", "swap_reg(samples=63)"),
        *("swap_reg(sigma=0)", "swap_reg(sigma=-1)", "swap_reg(mu=nan)", "swap_reg(sigma=inf)"),
    ],
)
def test_impossible_settings_are_refused(proxy: str) -> None:
    with pytest.raises(UserError, match="takes"):
        _ = parse(proxy).needs
