"""l2_norm against a loop over every weight."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from epochzero.engine import PlanNetwork
from epochzero.plan.ops.linear import Linear
from tests.proxies.nets import (
    CONNECTED,
    Twin,
    assert_scores,
    batch_of,
    chain,
    cut_net,
    linear_net,
    random_batch,
    unlabelled,
    value,
    with_weights,
)


def looped(network: PlanNetwork) -> float:
    return sum(math.sqrt(sum(w**2 for w in weight.flatten().tolist())) for weight in Twin(network).layer_weights)


def test_by_hand() -> None:
    # |(3, 4)| + |(1, -2, 2)|: the sum of the layers' norms, not the norm sqrt(25 + 9) of all
    network = linear_net([[3.0, 4.0]], [[1.0], [-2.0], [2.0]])
    assert value(network, "l2_norm", batch_of(([[1.0, 1.0]], [0]))) == 5 + 3


def test_biases_do_not_count() -> None:
    network = with_weights(chain((2,), Linear(3, bias=True)), linear0=[[0.0, 0.0], [0.0, 3.0], [4.0, 0.0]])
    assert network.weights["linear0.bias"].abs().sum() > 0
    assert value(network, "l2_norm", batch_of(([[1.0, 1.0]], [0]))) == 5


@pytest.mark.parametrize("make", [*CONNECTED, cut_net])
def test_is_the_loop_over_every_weight(make: Callable[[], PlanNetwork]) -> None:
    """Cut weights count like any other, a shared one once, a norm's scale and shift never; labels are not needed."""
    network = make()
    assert_scores(network, "l2_norm", unlabelled(random_batch()), looped(network), single=1e-6)
