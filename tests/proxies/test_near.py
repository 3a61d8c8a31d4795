"""near against numpy's singular values, layer by layer."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from epochzero.data import Batch
from epochzero.engine import PlanNetwork, parse
from epochzero.errors import UserError
from epochzero.plan.ops.activation import GELU, Tanh
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.pool import GlobalAvgPool
from epochzero.plan.ops.wiring import Identity
from tests.proxies.nets import (
    CONNECTED,
    Twin,
    batch_of,
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

COUNTED = nn.Conv2d | nn.Linear | nn.BatchNorm2d | nn.ReLU | nn.GELU | nn.Tanh


def effective_rank(rows: list[list[float]]) -> float:
    singular = np.linalg.svd(np.array(rows), compute_uv=False)
    shares = [s / singular.sum() for s in singular if s > 1e-12 * singular.max()] if singular.any() else []
    return math.exp(-sum(p * math.log(p) for p in shares)) if shares else 0.0


def rows_of(output: torch.Tensor, size: int) -> list[list[float]]:
    """As many positions as there are channels, from the middle of the first sample on."""
    rows, middle = [], 0
    if output.dim() == 4:
        _, channels, height, width = output.shape
        rows = [output[b, :, i, j].tolist() for b in range(len(output)) for i in range(height) for j in range(width)]
        middle = height * width // 2
    else:
        channels = output.shape[1]
        rows = output.tolist()
    n = min(channels, len(rows), size)
    first = min(middle, len(rows) - n)
    return rows[first : first + n]


def oracle(network: PlanNetwork, batch: Batch, samples: int = 8, size: int = 64) -> float:
    twin = Twin(network)
    with torch.no_grad():
        twin(batch.part(0)[0][:samples].double())
    return sum(effective_rank(rows_of(out, size)) for part, _, out in twin.outputs if isinstance(part, COUNTED))


def test_by_hand() -> None:
    # The identity has two equal singular values, so two directions; its ReLU too. Then (1, -1) and (0, 2) - one row
    # more than channels - leave one direction of one channel.
    network = linear_net([[1.0, 0.0], [0.0, 1.0]], [[1.0, -1.0]], relu=True)
    batch = batch_of(([[1.0, 0.0], [0.0, 1.0]], None))
    assert value(network, "near(samples=2)", batch) == pytest.approx(2 + 2 + 1, rel=1e-12)
    # Singular values 3 and 1: shares 3/4 and 1/4.
    batch = batch_of(([[3.0, 0.0], [0.0, 1.0]], None))
    rank = math.exp(-(0.75 * math.log(0.75) + 0.25 * math.log(0.25)))
    assert value(network, "near(samples=2)", batch) == pytest.approx(2 * rank + 1, rel=1e-12)


@pytest.mark.parametrize("make", [*CONNECTED, cut_net])
@pytest.mark.parametrize("size", [2, 3, 64])
def test_is_the_sum_of_effective_ranks(make: Callable[[], PlanNetwork], size: int) -> None:
    network, batch = make(), random_batch()
    asked = f"near(samples=8,size={size})"
    assert value(network, precisely(asked), unlabelled(batch)) == pytest.approx(
        oracle(network, batch, 8, size), rel=1e-7
    )
    assert value(network, asked, batch) == pytest.approx(oracle(network, batch, 8, size), rel=1e-3)


@pytest.mark.parametrize("activation", [GELU(), Tanh()])
def test_any_activation_counts(activation: GELU | Tanh) -> None:
    network, batch = drawn(chain((5,), Linear(4), activation, Linear(3))), random_batch((5,))
    assert value(network, precisely("near(samples=4)"), batch) == pytest.approx(oracle(network, batch, 4), rel=1e-7)


def test_equal_samples_fill_one_direction() -> None:
    network = drawn(chain((5,), Linear(4), Linear(3)))
    assert value(network, "near(samples=2)", batch_of((torch.ones(2, 5), None))) == pytest.approx(2, rel=1e-6)


def test_a_network_without_such_layers() -> None:
    found = score(
        PlanNetwork(chain((3, 4, 4), Identity(), GlobalAvgPool())), "near(samples=4)", random_batch((3, 4, 4))
    )
    assert found.status == "degenerate"
    assert "no conv, linear, norm or activation" in found.why


@pytest.mark.parametrize("proxy", ["near(samples=1)", "near(size=1)"])
def test_impossible_settings_are_refused(proxy: str) -> None:
    with pytest.raises(UserError, match="at least 2"):
        _ = parse(proxy).needs
