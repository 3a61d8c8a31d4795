"""snip against the gradient of masks that multiply the weights."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.func import functional_call

from epochzero.engine import PlanNetwork
from tests.proxies.nets import (
    CONNECTED,
    Twin,
    assert_scores,
    batch_of,
    conv_net,
    cut_net,
    labels,
    linear_net,
    random_batch,
    score,
    value,
)

STEP = 1e-5


def masked(network: PlanNetwork) -> float:
    """Sum of |dL/dc| over masks c = 1, one for each weight of a conv or linear layer."""
    batch, twin = random_batch(), Twin(network)
    layers = {id(weight) for weight in twin.layer_weights}
    state = {name: p.detach() for name, p in twin.named_parameters()}
    masks = {name: torch.ones_like(p, requires_grad=True) for name, p in twin.named_parameters() if id(p) in layers}
    logits = functional_call(
        twin, state | {name: state[name] * c for name, c in masks.items()}, batch.part(0)[0].double()
    )
    felt = torch.autograd.grad(torch.nn.functional.cross_entropy(logits, labels(batch)), list(masks.values()))
    return sum(abs(float(g)) for gradient in felt for g in gradient.flatten())


def test_by_hand() -> None:
    # Logits (1*6 - 2*2, 0*6 + 1*2) = (2, 2), so p = (1/2, 1/2); the label is 1, so dL/dlogits = (1/2, -1/2):
    # the weights (1, -2) have the gradient (3, 1) and add 5, the weights (0, 1) have (-3, -1) and add 1.
    network = linear_net([[1.0, -2.0], [0.0, 1.0]])
    assert value(network, "snip", batch_of(([[6.0, 2.0]], [1]))) == pytest.approx(5 + 1, rel=1e-6)


def test_weights_are_made_positive_one_by_one_after_the_mean_over_samples() -> None:
    # The gradients of one sample under its labels are [[3, 1], [-3, -1]] and its negative; the mean is a third of it.
    network = linear_net([[1.0, -2.0], [0.0, 1.0]])
    assert value(network, "snip", batch_of(([[6.0, 2.0]] * 3, [1, 0, 1]))) == pytest.approx((3 + 2 + 0 + 1) / 3)


@pytest.mark.parametrize("make", CONNECTED)
def test_is_the_gradient_of_masks(make: Callable[[], PlanNetwork]) -> None:
    network = make()
    assert_scores(network, "snip", random_batch(), masked(network))


def test_is_what_the_loss_feels_when_each_connection_fades() -> None:
    network, batch = conv_net(), random_batch()
    twin = Twin(network)
    total = 0.0
    with torch.no_grad():
        for weight in twin.layer_weights:
            for i in range(weight.numel()):
                entry = weight.view(-1)[i : i + 1]
                whole = entry.clone()
                entry.copy_(whole * (1 + STEP))
                up = float(twin.loss(batch))
                entry.copy_(whole * (1 - STEP))
                down = float(twin.loss(batch))
                entry.copy_(whole)
                total += abs(up - down) / (2 * STEP)
    assert_scores(network, "snip", batch, total, double=1e-6)


def test_a_cut_network_feels_nothing() -> None:
    found = score(cut_net(), "snip", random_batch())
    assert (found.status, found.why) == ("degenerate", "no gradient of the loss reaches a conv or linear layer")
