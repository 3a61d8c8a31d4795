"""sigeo against its three terms, each from a loop over batches."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from epochzero.data import Batch
from epochzero.engine import PlanNetwork, parse
from epochzero.errors import UserError
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import GlobalAvgPool
from tests.proxies.gradients import gradient
from tests.proxies.nets import (
    CONNECTED,
    IMAGE,
    Twin,
    assert_scores,
    batch_of,
    chain,
    conv_net,
    cut_net,
    drawn,
    layerless_net,
    linear_net,
    random_batch,
    score,
    unlabelled,
    value,
)


def ratios(network: PlanNetwork, batch: Batch, batches: int) -> list[float]:
    """sum_w mean|g_w| / std(g_w) of each layer."""
    twin = Twin(network)
    layers = []
    for of_layer in zip(*(twin.gradients(batch, part) for part in range(batches)), strict=True):
        g = np.array([gradient.flatten().tolist() for gradient in of_layer])  # [k, W]
        mean, std = np.abs(g).mean(0), g.std(0)
        layers.append(sum(m / s for m, s in zip(mean.tolist(), std.tolist(), strict=True) if s != 0))
    return layers


def fisher_rao(network: PlanNetwork, batch: Batch, batches: int) -> float:
    """The mean over batches of (theta . g)^2 with theta everything trainable."""
    twin = Twin(network)
    theta = [number for p in twin.parameters() for number in p.flatten().tolist()]
    along = []
    for part in range(batches):
        g = gradient(twin.loss(batch, part), twin).tolist()
        along.append(sum(one * other for one, other in zip(theta, g, strict=True)))
    return float(np.mean(np.square(along)))


def oracle(
    network: PlanNetwork, batch: Batch, batches: int, l1: float, l2: float, l3: float, neuron: bool = False
) -> float:
    found = ratios(network, batch, batches)
    steady = math.log(sum(found)) if neuron else sum(math.log(ratio) for ratio in found if ratio)
    loss = Twin(network).loss(batch, batches - 1).item()
    return l1 * steady + l2 * math.log(fisher_rao(network, batch, batches)) - l3 * loss


def test_by_hand() -> None:
    # Logits (x, -x), label 1: with p the share of the wrong class, the gradient is (p x, -p x) and theta . g = 2 p x.
    # x = log(3)/2: p = 3/4. x = -log(3)/2: p = 1/4. In units of log(3)/8 the gradients are 3 and -1 (and -3 and 1),
    # mean 2, deviation 2, so two ratios of 1; theta . g is 6 and -2, so FR = 20. The last loss is -log(3/4).
    network = linear_net([[1.0], [-1.0]])
    half = math.log(3) / 2
    batch = batch_of(([[half]], [1]), ([[-half]], [1]))
    steady, bent, loss = math.log(2), math.log(20 * (math.log(3) / 8) ** 2), math.log(4 / 3)
    for weights, expected in (
        ("zero_shot", steady + bent),
        ("warm_vision", steady + 50 * bent - loss),
        ("warm_recommender", steady + bent - loss),
        ("2/0.5/3", 2 * steady + 0.5 * bent - 3 * loss),
        ("0/0/1", -loss),
    ):
        found = value(network, f"sigeo(batches=2,weights={weights})", batch)
        assert found == pytest.approx(expected, rel=1e-5), weights


@pytest.mark.parametrize("batches", [2, 4])
@pytest.mark.parametrize("make", CONNECTED)
def test_is_the_sum_of_three_loops(make: Callable[[], PlanNetwork], batches: int) -> None:
    """Single precision is left more room: where the gradients of two batches almost agree, their ratio is large."""
    network, batch = make(), random_batch(parts=4)
    expected = oracle(network, batch, batches, 1, 1, 0)
    assert_scores(network, f"sigeo(batches={batches})", batch, expected, single=1e-3, double=1e-8)
    expected = oracle(network, batch, batches, 1, 0.5, 7, neuron=True)
    written = f"sigeo(batches={batches},weights=1/0.5/7,form=neuron)"
    assert_scores(network, written, batch, expected, single=1e-3, double=1e-8)


@pytest.mark.parametrize(
    ("preset", "written"), [("zero_shot", "1/1/0"), ("warm_vision", "1/50/1"), ("warm_recommender", "1/1/1")]
)
def test_presets_are_names_of_numbers(preset: str, written: str) -> None:
    network, batch = conv_net(), random_batch(parts=4)
    found = value(network, f"sigeo(weights={preset})", batch)
    assert found == value(network, f"sigeo(weights={written})", batch)
    l1, l2, l3 = map(float, written.split("/"))
    assert found == pytest.approx(oracle(network, batch, 4, l1, l2, l3), rel=1e-3)


def test_four_batches_and_no_loss_unless_told() -> None:
    network, batch = conv_net(), random_batch(parts=4)
    assert value(network, "sigeo", batch) == value(network, "sigeo(batches=4,weights=1/1/0,form=module)", batch)


def test_the_loss_is_that_of_the_last_batch() -> None:
    network, batch = conv_net(), random_batch(parts=3)
    losses = [Twin(network).loss(batch, part).item() for part in range(3)]
    assert len({round(loss, 3) for loss in losses}) == 3
    without = value(network, "sigeo(batches=3)", batch)
    assert without - value(network, "sigeo(batches=3,weights=1/1/1)", batch) == pytest.approx(losses[2], rel=1e-5)


def test_the_mean_loss() -> None:
    network, batch = conv_net(), random_batch(parts=3)
    losses = [Twin(network).loss(batch, part).item() for part in range(3)]
    assert_scores(network, "sigeo(batches=3,weights=0/0/1,loss=mean)", batch, -sum(losses) / 3)
    whole = oracle(network, batch, 3, 1, 50, 0) - sum(losses) / 3
    assert_scores(network, "sigeo(batches=3,weights=warm_vision,loss=mean)", batch, whole, single=1e-3, double=1e-8)


def test_the_terms_add_up() -> None:
    network, batch = conv_net(), random_batch(parts=4)
    terms = [value(network, f"sigeo(weights={of})", batch) for of in ("1/0/0", "0/1/0", "0/0/1")]
    whole = value(network, "sigeo(weights=warm_vision)", batch)
    assert whole == pytest.approx(terms[0] + 50 * terms[1] + terms[2], rel=1e-6)


def test_the_first_term_alone_is_zico() -> None:
    network, batch = conv_net(), random_batch(parts=4)
    alone = value(network, "sigeo(weights=1/0/0)", batch)
    assert alone == pytest.approx(value(network, "zico(batches=4)", batch), rel=1e-6)


def test_a_layer_before_a_norm_adds_nothing_to_fisher_rao() -> None:
    """The norm undoes any scale of the layer, so the loss is flat along its weights: all that is left is rounding."""
    plan = chain(IMAGE, Conv(3, 3, padding=1), BatchNorm(eps=1e-14, affine=False), ReLU(), GlobalAvgPool())
    assert fisher_rao(drawn(plan), random_batch(), 2) < 1e-24


def test_biases_and_norms_count_in_fisher_rao() -> None:
    network, batch = conv_net(), random_batch(parts=2)
    for name in ("head.linear.bias", "stem.norm.weight", "down.conv.bias"):
        before = value(network, "sigeo(batches=2)", batch)
        network.weights[name] = network.weights[name] * 2
        expected = oracle(network, batch, 2, 1, 1, 0)
        assert value(network, "sigeo(batches=2)", batch) == pytest.approx(expected, rel=1e-3)
        assert value(network, "sigeo(batches=2)", batch) != pytest.approx(before, rel=1e-3)


def test_weights_of_zero_do_not_bend_the_loss() -> None:
    network = linear_net([[0.0], [0.0]])
    batch = batch_of(([[2.0]], [1]), ([[4.0]], [1]))
    found = score(network, "sigeo(batches=2)", batch)
    assert found.status == "degenerate"
    assert "Fisher-Rao" in found.why
    assert score(network, "sigeo(batches=2,weights=1/0/1)", batch).ok


def test_networks_without_a_score() -> None:
    for network, shape, why in (
        (cut_net(), IMAGE, "no gradient of the loss"),
        (layerless_net(), (3, 6, 6), "has no conv or linear layer"),
    ):
        found = score(network, "sigeo", random_batch(shape, parts=4))
        assert found.status == "degenerate"
        assert why in found.why


def test_data_that_does_not_suffice() -> None:
    found = score(conv_net(), "sigeo", random_batch(parts=3))
    assert found.status == "failed"
    assert "3 parts" in found.why
    assert "needs labels" in score(conv_net(), "sigeo", unlabelled(random_batch(parts=4))).why


@pytest.mark.parametrize(
    "settings",
    ["batches=1", "form=layer", "weights=warm", "weights=1/1", "weights=1/1/1/1", "weights=1/nan/1", "loss=first"],
)
def test_impossible_settings_are_refused(settings: str) -> None:
    with pytest.raises(UserError, match="sigeo takes"):
        _ = parse(f"sigeo({settings})").needs
