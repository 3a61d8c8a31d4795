"""nasi_trace and nasi_trace_sum against the gradients of each sample's loss."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from epochzero.engine import PlanNetwork
from tests.proxies.gradients import gradient, rows_alone, rows_together
from tests.proxies.nets import (
    CONNECTED,
    Twin,
    assert_scores,
    batch_of,
    conv_net,
    cut_net,
    labels,
    layerless_net,
    linear_net,
    random_batch,
    score,
    unlabelled,
    value,
)


def test_by_hand() -> None:
    # Weights 0: p = (1/2, 1/2) and the gradient is (x/2, -x/2), its negative for the other label. For x = (3, 4) its
    # square is 25/2. Two samples of different labels cancel in the mean, not in the sum.
    network = linear_net([[0.0, 0.0], [0.0, 0.0]])
    batch = batch_of(([[3.0, 4.0], [3.0, 4.0]], [0, 1]))
    assert value(network, "nasi_trace", batch) == 0
    assert value(network, "nasi_trace_sum", batch) == pytest.approx(25)
    # Of one label: the mean is the same as of one sample.
    batch = batch_of(([[3.0, 4.0], [3.0, 4.0]], [1, 1]))
    assert value(network, "nasi_trace", batch) == pytest.approx(12.5)
    assert value(network, "nasi_trace_sum", batch) == pytest.approx(25)


@pytest.mark.parametrize("make", [*CONNECTED, cut_net])
def test_is_autograd_on_each_sample(make: Callable[[], PlanNetwork]) -> None:
    network, batch = make(), random_batch()
    rows = rows_together(Twin(network), batch, "loss")
    mean = torch.stack(rows).sum(0) / len(rows)  # [P]
    assert_scores(network, "nasi_trace", batch, sum(g * g for g in mean.tolist()))
    assert_scores(network, "nasi_trace_sum", batch, sum(g.square().sum().item() for g in rows))


def test_the_mean_gradient_is_that_of_the_mean_loss() -> None:
    network, batch = conv_net(), random_batch()
    twin = Twin(network)
    assert_scores(network, "nasi_trace", batch, gradient(twin.loss(batch), twin).square().sum().item())


def test_samples_are_coupled_by_batch_norm() -> None:
    network, batch = conv_net(), random_batch()
    alone = sum(g.square().sum().item() for g in rows_alone(Twin(network), batch, "loss"))
    exact = value(network, "nasi_trace_sum", batch)
    assert abs(alone - exact) > 0.05 * exact


def test_a_cut_network_has_the_gradient_of_its_bias() -> None:
    """Softmax of the bias, less one for the label."""
    network, batch = cut_net(), random_batch()
    p = torch.softmax(network.weights["head.linear.bias"].double(), 0)
    apart = p - torch.eye(3, dtype=torch.float64)[labels(batch)]  # [B, 3]
    assert value(network, "nasi_trace", batch) == pytest.approx(apart.mean(0).square().sum().item(), rel=1e-5)
    assert value(network, "nasi_trace_sum", batch) == pytest.approx(apart.square().sum().item(), rel=1e-5)


def test_nothing_to_train() -> None:
    found = score(layerless_net(), "nasi_trace", random_batch((3, 6, 6)))
    assert found.status == "degenerate"
    assert "nothing to train" in found.why
    assert value(layerless_net(), "nasi_trace_sum", random_batch((3, 6, 6))) == 0


@pytest.mark.parametrize("proxy", ["nasi_trace", "nasi_trace_sum"])
def test_labels_are_needed(proxy: str) -> None:
    found = score(conv_net(), proxy, unlabelled(random_batch()))
    assert found.status == "failed"
    assert "needs labels" in found.why
