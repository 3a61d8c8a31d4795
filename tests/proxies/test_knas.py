"""knas against the gradients of each sample, and its published variant against a loop over single coordinates."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from epochzero.data import Batch
from epochzero.engine import PlanNetwork, parse
from epochzero.errors import UserError
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.base import Op
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import GlobalAvgPool
from tests.proxies.gradients import gram, rows_together, sample_losses
from tests.proxies.nets import (
    CONNECTED,
    Twin,
    assert_scores,
    batch_of,
    chain,
    conv_net,
    cut_net,
    drawn,
    labels,
    linear_net,
    random_batch,
    score,
    shared_net,
    unlabelled,
    value,
)

REFERENCE = "knas(variant=reference)"


def test_by_hand() -> None:
    # Weights 0: the gradient is (x/2, -x/2) for label 1, its negative for label 0, so g.g' = +- x.x'/2.
    # x = (1, 2) of label 1 and (3, -1) of label 0: 5/2, -1/2, -1/2, 10/2; the mean is 13/8.
    network = linear_net([[0.0, 0.0], [0.0, 0.0]])
    batch = batch_of(([[1.0, 2.0], [3.0, -1.0]], [1, 0]))
    assert value(network, "knas", batch) == pytest.approx(13 / 8)


@pytest.mark.parametrize("make", [*CONNECTED, cut_net])
def test_is_the_mean_over_all_pairs(make: Callable[[], PlanNetwork]) -> None:
    network, batch = make(), random_batch()
    rows = rows_together(Twin(network), batch, "loss")
    products = [(one * other).sum().item() for one in rows for other in rows]
    assert_scores(network, "knas", batch, sum(products) / len(products))


@pytest.mark.parametrize("make", CONNECTED)
def test_of_the_labels_logits(make: Callable[[], PlanNetwork]) -> None:
    network, batch = make(), random_batch()
    products = gram(rows_together(Twin(network), batch, "label")).detach()
    assert_scores(network, "knas(variant=label)", batch, products.mean().item())


@pytest.mark.parametrize("make", CONNECTED)
def test_is_the_squared_length_of_the_mean_gradient(make: Callable[[], PlanNetwork]) -> None:
    """mean_ij g_i.g_j = |mean_i g_i|^2: what NASI approximates its trace by, at a fraction of the work."""
    network, batch = make(), random_batch()
    assert value(network, "knas", batch) == pytest.approx(value(network, "nasi_trace", batch), rel=1e-4)


# ---- the published variant


def looped(network: PlanNetwork, batch: Batch) -> float:
    """Each sample in a batch of its own; one coordinate of one tensor at a time."""
    twin = Twin(network)
    count = min(batch.size, 50) // 2 * 2
    chosen = [p for p in twin.parameters() if p.numel() >= 50][:11]
    seen: list[list[list[float]]] = []
    for i in range(count):
        logits = twin(batch.part(0)[0][i : i + 1].double())
        loss = sample_losses(logits, labels(batch)[i : i + 1])[0]
        found = torch.autograd.grad(loss, chosen, allow_unused=True)
        seen.append([[0.0] * 50 if g is None else g.flatten().tolist()[:50] for g in found])
    total = 0.0
    for tensor in range(len(chosen)):
        for coordinate in range(50):
            along = [sample[tensor][coordinate] for sample in seen]
            u, w = along[: count // 2], along[count // 2 :]
            u_mean, w_mean = sum(u) / len(u), sum(w) / len(w)
            total += sum((a - u_mean) * (b - w_mean) for a, b in zip(u, w, strict=True))
    return total / (count * 50)


def test_the_published_variant_by_hand() -> None:
    # 25 inputs and 2 outputs, weights 0: the 50 gradients are s/2 and -s/2 for x = (s, ..., s) of label 1.
    # First half s = 1, 3: less the mean -1, 1. Second half 2, 6: -2, 2. Each coordinate: (2 + 2)/4 = 1.
    # 50 coordinates over 4 samples of 50.
    network = linear_net([[0.0] * 25, [0.0] * 25])
    batch = batch_of(([[s] * 25 for s in (1.0, 3.0, 2.0, 6.0)], [1] * 4))
    assert value(network, REFERENCE, batch) == pytest.approx(50 / 200)


def deep_net() -> PlanNetwork:
    """Thirteen tensors of at least 50 numbers, smaller ones between them."""
    ops: list[Op] = [Conv(4, 3, padding=1, bias=True)]
    for _ in range(12):
        ops += [BatchNorm(), ReLU(), Conv(4, 3, padding=1)]
    return drawn(chain((2, 3, 3), *ops, GlobalAvgPool(), Linear(3)))


@pytest.mark.parametrize("size", [6, 7])
def test_the_published_variant_takes_eleven_tensors(size: int) -> None:
    """And leaves out an odd sample. Batch norm sees the places of one sample."""
    network, batch = deep_net(), random_batch((2, 3, 3), size=size)
    assert sum(p.numel() >= 50 for p in Twin(network).parameters()) == 13
    assert_scores(network, REFERENCE, batch, looped(network, batch), single=1e-3, double=1e-8)


def test_the_published_variant_takes_fifty_samples() -> None:
    network = drawn(chain((8,), Linear(8), ReLU(), Linear(3)))
    batch = random_batch((8,), size=53)
    first = batch_of((batch.part(0)[0][:50], labels(batch)[:50].tolist()))
    assert_scores(network, REFERENCE, batch, looped(network, batch), single=1e-3)
    assert value(network, REFERENCE, batch) == value(network, REFERENCE, first)


def test_the_published_variant_takes_a_shared_tensor_once() -> None:
    network, batch = shared_net(), random_batch()
    assert_scores(network, REFERENCE, batch, looped(network, batch), single=1e-3)


def test_the_published_variant_on_a_cut_network() -> None:
    """No gradient reaches its one large tensor."""
    found = score(cut_net(), REFERENCE, random_batch())
    assert found.status == "degenerate"
    assert "does not depend" in found.why


def test_too_small_for_the_published_variant() -> None:
    found = score(conv_net(), REFERENCE, random_batch(size=3))
    assert (found.status, found.why) == ("failed", "needs at least 4 samples, and the batch has 3")
    found = score(linear_net([[1.0, 2.0]] * 3), REFERENCE, random_batch((2,)))
    assert (found.status, found.why) == ("degenerate", "needs a parameter tensor with 50 numbers")


@pytest.mark.parametrize("proxy", ["knas", REFERENCE])
def test_labels_that_do_not_fit(proxy: str) -> None:
    assert score(conv_net(), proxy, unlabelled(random_batch())).status == "failed"
    found = score(linear_net([[0.0] * 25, [0.0] * 25]), proxy, random_batch((25,)))
    assert found.status == "failed"
    assert "2 outputs" in found.why


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(UserError, match="variant=reference"):
        _ = parse("knas(variant=published)").needs
