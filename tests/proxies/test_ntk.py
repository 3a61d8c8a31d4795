"""ntk_trace and ntk_cond against autograd on one number at a time, for all samples together and for each alone."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

import epochzero as ez
from epochzero.data import Batch
from epochzero.engine import Handle, PlanNetwork, parse
from epochzero.engine.layer_kernel import layer_kernel
from epochzero.errors import UserError
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.pool import GlobalAvgPool
from tests.proxies.gradients import gram, rows_alone, rows_together
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
    labels,
    layerless_net,
    linear_net,
    random_batch,
    score,
    unlabelled,
    value,
)

OF = ["label", "sum", "outputs"]


def small_batch(size: int = 4) -> Batch:
    return random_batch(size=size)


def condition(theta: torch.Tensor) -> float:
    return float(np.linalg.cond(theta.detach().numpy(), 2))


def test_by_hand() -> None:
    # logits W x, W 2 x 2. The gradient of the label's logit is x in the label's row, that of the sum x in both rows.
    # x = (1, 0) and (0, 2), both of label 0: Theta = diag(1, 4), doubled for the sum; every logit: diag(1, 1, 4, 4).
    network = linear_net([[1.0, 2.0], [3.0, 4.0]])
    batch = batch_of(([[1.0, 0.0], [0.0, 2.0]], [0, 0]))
    for of, trace in (("label", 5), ("sum", 10), ("outputs", 10)):
        assert value(network, f"ntk_trace(of={of})", batch) == trace
        assert value(network, f"ntk_cond(of={of})", batch) == pytest.approx(4)
    # x = (1, 0) and (1, 1) of one label: [[1, 1], [1, 2]], eigenvalues (3 +- sqrt 5)/2. Of different ones: diag(1, 2).
    batch = batch_of(([[1.0, 0.0], [1.0, 1.0]], [1, 1]))
    assert value(network, "ntk_cond", batch) == pytest.approx((3 + 5**0.5) / (3 - 5**0.5), rel=1e-6)
    assert value(network, "ntk_cond", batch_of(([[1.0, 0.0], [1.0, 1.0]], [1, 0]))) == pytest.approx(2)


@pytest.mark.parametrize("of", OF)
@pytest.mark.parametrize("make", CONNECTED)
def test_is_autograd_one_number_at_a_time(make: Callable[[], PlanNetwork], of: str) -> None:
    """Batch norm sees all samples; every trainable number counts, one that is used twice once."""
    network, batch = make(), small_batch()
    theta = gram(rows_together(Twin(network), batch, of))
    assert_scores(network, f"ntk_trace(of={of})", batch, theta.trace().item())
    assert_scores(network, f"ntk_cond(of={of})", batch, condition(theta), single=1e-2, double=1e-6)


@pytest.mark.parametrize("of", OF)
@pytest.mark.parametrize("make", CONNECTED)
def test_without_the_batchs_statistics_samples_may_run_alone(make: Callable[[], PlanNetwork], of: str) -> None:
    network, batch = make(), small_batch()
    twin = Twin(network, "eval")
    alone, together = gram(rows_alone(twin, batch, of)), gram(rows_together(twin, batch, of))
    assert torch.allclose(alone, together, rtol=1e-10)
    assert_scores(network, f"ntk_trace(of={of},norm=eval)", batch, alone.trace().item())
    assert_scores(network, f"ntk_cond(of={of},norm=eval)", batch, condition(alone), single=1e-2, double=1e-6)


@pytest.mark.parametrize("of", OF)
def test_batch_norm_in_training_couples_the_samples(of: str) -> None:
    """Running each sample alone gives another number, and so do remembered statistics.

    Alone, a sample is scaled to variance 1; beside louder ones it stays quiet.
    """
    network, batch = conv_net(), small_batch()
    louder = torch.arange(1.0, 5.0).view(-1, 1, 1, 1)
    batch = batch_of((batch.part(0)[0] * louder, labels(batch).tolist()))
    together = gram(rows_together(Twin(network), batch, of))
    assert_scores(network, f"ntk_trace(of={of})", batch, together.trace().item())
    alone = gram(rows_alone(Twin(network), batch, of))
    exact = value(network, f"ntk_trace(of={of})", batch)
    assert abs(alone.trace().item() - exact) > 0.01 * exact
    kappa = value(network, f"ntk_cond(of={of})", batch)
    assert abs(condition(alone) - kappa) > 0.3 * kappa
    assert value(network, f"ntk_trace(of={of},norm=eval)", batch) != pytest.approx(exact, rel=0.05)


def test_without_a_norm_nothing_couples_them() -> None:
    network = drawn(chain(IMAGE, Conv(4, 3, bias=True), ReLU(), GlobalAvgPool(), Linear(3)))
    batch = small_batch()
    alone = gram(rows_alone(Twin(network), batch, "label"))
    assert_scores(network, "ntk_trace", batch, alone.trace().item())


def test_a_cut_network_learns_its_biases_only() -> None:
    """A bias has gradient 1 for its own logit. Equal labels have equal gradients, so there is no condition number."""
    network, batch = cut_net(), random_batch(size=8)
    for of, trace in (("label", 8), ("sum", 24), ("outputs", 24)):
        assert value(network, f"ntk_trace(of={of})", batch) == pytest.approx(trace)
        found = score(network, f"ntk_cond(of={of})", batch)
        assert found.status == "degenerate"
        assert "singular" in found.why


def test_nothing_to_train() -> None:
    network, batch = layerless_net(), random_batch((3, 6, 6))
    assert value(network, "ntk_trace", batch) == 0
    assert score(network, "ntk_cond", batch).status == "degenerate"


@pytest.mark.parametrize("make", CONNECTED)
def test_of_layers_as_the_published_code(make: Callable[[], PlanNetwork]) -> None:
    """`tests/engine/test_layer_kernel.py` checks the kernel; a module has no layers that could run again."""
    network, batch = make(), random_batch(size=5)
    x, y = batch.part(0)
    assert y is not None
    expected = layer_kernel(
        Handle(network, {name: w.double() for name, w in network.weights.items()}, x.double(), y, 0, "train")
    )
    assert_scores(network, "ntk_trace(of=layers)", batch, expected.trace().item())
    assert_scores(network, "ntk_cond(of=layers)", batch, condition(expected), single=1e-2, double=1e-2)
    kappa, m = condition(expected), math.sqrt(expected.trace().item() / 5)
    assert value(network, "hnas(kernel=layers)", batch) == pytest.approx(kappa / m, rel=1e-2)
    module = nn.Sequential(nn.Flatten(), nn.Linear(72, 3))
    found = ez.score(module, "ntk_cond(of=layers)", data=batch)["ntk_cond(of=layers)"]
    assert found.status == "failed" and "this is a module" in found.why


def test_equal_samples_have_no_condition_number() -> None:
    x = random_batch(size=3).part(0)[0]
    found = score(conv_net(), "ntk_cond", batch_of((x[[0, 1, 2, 1]], [0, 1, 2, 1])))
    assert found.status == "degenerate"
    assert "rounding" in found.why


def test_one_sample_has_no_condition_number_but_its_outputs_have() -> None:
    found = score(conv_net(), "ntk_cond", random_batch(size=1))
    assert (found.status, found.why) == ("failed", "needs at least 2 samples, and the batch has 1")
    assert value(conv_net(), "ntk_cond(of=outputs)", random_batch(size=1)) > 1


def test_labels_are_needed_for_their_logits_only() -> None:
    network, batch = conv_net(), small_batch()
    for of in ("sum", "outputs"):
        assert value(network, f"ntk_trace(of={of})", unlabelled(batch)) == value(network, f"ntk_trace(of={of})", batch)
    assert score(network, "ntk_trace", unlabelled(batch)).status == "failed"


def test_which_way_is_better() -> None:
    assert parse("ntk_trace").higher_is_better
    assert not parse("ntk_cond").higher_is_better


@pytest.mark.parametrize("proxy", ["ntk_trace", "ntk_cond"])
@pytest.mark.parametrize("settings", ["of=logits", "norm=off", "of=loss"])
def test_impossible_settings_are_refused(proxy: str, settings: str) -> None:
    with pytest.raises(UserError, match="of=label, sum, outputs, layers"):
        _ = parse(f"{proxy}({settings})").needs
