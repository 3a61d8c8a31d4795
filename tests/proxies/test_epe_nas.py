"""epe_nas against numpy's correlations, class by class and pair by pair."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch

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
    labels,
    linear_net,
    random_batch,
    score,
    unlabelled,
    value,
)

K = 1e-5


def by_class(network: PlanNetwork, batch: Batch) -> dict[int, list[float]]:
    """log(|correlation| + k) of every pair of samples of a class, a sample with itself too."""
    x = batch.part(0)[0].double().requires_grad_()
    summed = torch.stack([logit for row in Twin(network)(x) for logit in row]).sum()
    rows = torch.autograd.grad(summed, x)[0].flatten(1).numpy()  # [B, N]
    found: dict[int, list[float]] = {}
    for one, label in zip(rows, labels(batch).tolist(), strict=True):
        for other, also in zip(rows, labels(batch).tolist(), strict=True):
            if label == also:
                found.setdefault(label, []).append(math.log(abs(np.corrcoef(one, other)[0, 1]) + K))
    return found


def few_classes(network: PlanNetwork, batch: Batch) -> float:
    return sum(abs(sum(pairs)) for pairs in by_class(network, batch).values())


def many_classes(network: PlanNetwork, batch: Batch) -> float:
    """A class of n samples has n^2 pairs, and its sum is divided by n."""
    sums = [sum(pairs) / math.sqrt(len(pairs)) for pairs in by_class(network, batch).values()]
    return sum(abs(one - other) for one in sums for other in sums) / len(sums)


def two_regions() -> PlanNetwork:
    """Where the first unit is on the output has gradient (1, -1, 0); where the second is, (1, 0, -1)."""
    return linear_net([[1.0, -1.0, 0.0], [1.0, 0.0, -1.0]], [[1.0, 1.0], [0.0, 0.0]], relu=True)


def test_by_hand() -> None:
    # The two gradients correlate by 1/2, each with itself by 1.
    batch = batch_of(([[0.0, -1.0, 5.0], [0.0, 5.0, -1.0]], [0, 0]))
    same, half = math.log(1 + K), math.log(1 / 2 + K)
    assert value(two_regions(), "epe_nas", batch) == pytest.approx(abs(2 * same + 2 * half), rel=1e-6)
    # Of different classes they do not meet: twice one sample with itself.
    batch = batch_of(([[0.0, -1.0, 5.0], [0.0, 5.0, -1.0]], [0, 1]))
    assert value(two_regions(), "epe_nas", batch) == pytest.approx(2 * same, rel=1e-6)


def test_many_classes_by_hand() -> None:
    # Class 0 holds both kinds, class 1 one sample: s = (2 log(1 + k) + 2 log(1/2 + k))/2 and log(1 + k).
    batch = batch_of(([[0.0, -1.0, 5.0], [0.0, 5.0, -1.0], [0.0, 5.0, -1.0]], [0, 0, 1]))
    same, half = math.log(1 + K), math.log(1 / 2 + K)
    expected = 2 * abs((same + half) - same) / 2
    assert value(two_regions(), "epe_nas(classes=101)", batch) == pytest.approx(expected, rel=1e-6)
    assert value(two_regions(), "epe_nas(classes=100)", batch) == value(two_regions(), "epe_nas", batch)


@pytest.mark.parametrize("make", CONNECTED)
def test_is_numpy_for_each_pair(make: Callable[[], PlanNetwork]) -> None:
    network, batch = make(), random_batch()
    assert_scores(network, "epe_nas", batch, few_classes(network, batch))
    assert_scores(network, "epe_nas(classes=10)", batch, few_classes(network, batch))
    assert_scores(network, "epe_nas(classes=1000)", batch, many_classes(network, batch))


def test_the_number_of_logits_decides() -> None:
    """A network of 101 outputs uses the form for many classes by default."""
    rng = torch.Generator().manual_seed(0)
    network = linear_net(
        torch.randn(6, 4, generator=rng).tolist(), torch.randn(101, 6, generator=rng).tolist(), relu=True
    )
    batch = random_batch((4,))
    assert_scores(network, "epe_nas", batch, many_classes(network, batch))
    assert_scores(network, "epe_nas(classes=10)", batch, few_classes(network, batch))


def test_one_class_has_no_differences() -> None:
    x = random_batch().part(0)[0]
    assert value(conv_net(), "epe_nas(classes=101)", batch_of((x, [2] * 8))) == 0


def test_a_cut_network() -> None:
    found = score(cut_net(), "epe_nas", random_batch())
    assert found.status == "degenerate"
    assert "response to input 0" in found.why


def test_an_input_that_reaches_no_unit() -> None:
    found = score(two_regions(), "epe_nas", batch_of(([[0.0, -1.0, 5.0], [-1.0, 0.0, 0.0]], [0, 0])))
    assert found.status == "degenerate"
    assert "response to input 1" in found.why


def test_labels_are_needed() -> None:
    found = score(conv_net(), "epe_nas", unlabelled(random_batch()))
    assert found.status == "failed"
    assert "needs labels" in found.why


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(UserError, match="number of classes"):
        _ = parse("epe_nas(classes=-1)").needs
