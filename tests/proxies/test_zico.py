"""zico against numpy, one weight at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from epochzero.data import Batch
from epochzero.engine import PlanNetwork, parse
from epochzero.errors import UserError
from tests.proxies.nets import (
    CONNECTED,
    Twin,
    assert_scores,
    batch_of,
    conv_net,
    cut_net,
    linear_net,
    random_batch,
    score,
    value,
)


def looped(network: PlanNetwork, batch: Batch, batches: int) -> float:
    twin = Twin(network)
    by_batch = [twin.gradients(batch, part) for part in range(batches)]
    total = 0.0
    for of_layer in zip(*by_batch, strict=True):
        ratios = 0.0
        for of_weight in zip(*(gradient.flatten().tolist() for gradient in of_layer), strict=True):
            spread = float(np.std(of_weight))
            if spread != 0:
                ratios += float(np.mean(np.abs(of_weight))) / spread
        if ratios:
            total += math.log(ratios)
    return total


def test_by_hand() -> None:
    # Weights 0, so p = (1/2, 1/2) and the gradients are (x/2, -x/2) for label 1, its negative for label 0.
    # Batch 1: x = (6, 2, 4), label 1: (3, 1, 2). Batch 2: x = (2, 6, 4), label 1: (1, 3, 2).
    # First weight: mean 2, deviation 1; second alike; the third does not vary and is left out. Both rows: 4 * 2.
    network = linear_net([[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    batch = batch_of(([[6.0, 2.0, 4.0]], [1]), ([[2.0, 6.0, 4.0]], [1]))
    assert value(network, "zico", batch) == pytest.approx(math.log(8), rel=1e-6)
    # With label 0 in batch 2: (-1, -3, -2). Means of |g| stay 2, deviations are 2, 2, 2: six weights of ratio 1.
    batch = batch_of(([[6.0, 2.0, 4.0]], [1]), ([[2.0, 6.0, 4.0]], [0]))
    assert value(network, "zico", batch) == pytest.approx(math.log(6), rel=1e-6)


def test_the_deviation_is_the_populations() -> None:
    # Gradients 1, 2, 3 and their negatives: mean 2, variance 2/3 (1 if divided by k - 1). Two weights.
    network = linear_net([[0.0], [0.0]])
    batch = batch_of(([[2.0]], [1]), ([[4.0]], [1]), ([[6.0]], [1]))
    assert value(network, "zico(batches=3)", batch) == pytest.approx(math.log(2 * 2 / math.sqrt(2 / 3)), rel=1e-6)


def test_a_layer_that_does_not_vary_is_left_out() -> None:
    # The first layer's weight is 0, so the second's gradient is 0 on either batch. The first's is dL/dh * x with
    # dL/dh = (2 + 2)/2: 2 x = 2 and 6, mean 4, deviation 2.
    network = linear_net([[0.0]], [[2.0], [-2.0]])
    batch = batch_of(([[1.0]], [1]), ([[3.0]], [1]))
    assert value(network, "zico", batch) == pytest.approx(math.log(2), rel=1e-6)


@pytest.mark.parametrize("batches", [2, 3])
@pytest.mark.parametrize("make", CONNECTED)
def test_is_numpy_for_each_weight(make: Callable[[], PlanNetwork], batches: int) -> None:
    """Single precision is left more room: where the gradients of two batches almost agree, their ratio is large."""
    network, batch = make(), random_batch()
    expected = looped(network, batch, batches)
    assert_scores(network, f"zico(batches={batches})", batch, expected, single=1e-3)


def test_the_batches_differ_and_count() -> None:
    network, batch = CONNECTED[0](), random_batch()
    assert value(network, "zico", batch) == value(network, "zico(batches=2)", batch)
    assert value(network, "zico", batch) != pytest.approx(value(network, "zico(batches=3)", batch), rel=1e-2)


def test_gradients_that_never_vary() -> None:
    part = random_batch().part(0)
    assert part[1] is not None
    found = score(CONNECTED[0](), "zico", batch_of(*[(part[0], part[1].tolist())] * 2))
    assert found.status == "degenerate"
    assert "varies" in found.why


def test_a_cut_network() -> None:
    found = score(cut_net(), "zico", random_batch())
    assert found.status == "degenerate"
    assert "no gradient of the loss" in found.why


def test_a_gradient_that_is_the_same_on_every_batch() -> None:
    x, y = random_batch().part(0)
    assert y is not None
    found = score(conv_net(), "zico", batch_of((x, y.tolist()), (x, y.tolist())))
    assert found.status == "degenerate"
    assert "varies" in found.why


def test_too_few_batches() -> None:
    found = score(CONNECTED[0](), "zico(batches=4)", random_batch(parts=3))
    assert found.status == "failed"
    assert "3 parts" in found.why
    with pytest.raises(UserError, match="at least 2, not 1"):
        _ = parse("zico(batches=1)").needs
