"""Ensembles from a pool: greedily by held-out loss, and without any training."""

from __future__ import annotations

import pytest
import torch

from epochzero.ensemble.choosing import cka, distances_at_start, features_at_start, forward_greedy, training_free
from epochzero.ensemble.metrics import nll
from epochzero.errors import UserError
from epochzero.plan import generator
from epochzero.registry import spaces


def test_forward_greedy_adds_what_lowers_the_loss_most() -> None:
    rng = generator(0, "pool")
    predictions = torch.rand(6, 20, 3, generator=rng, dtype=torch.float64).softmax(2)
    labels = torch.randint(3, (20,), generator=rng)
    chosen = forward_greedy(predictions, labels, 4)
    assert len(set(chosen)) == 4, "without replacement"
    for count in range(1, 5):
        before = chosen[: count - 1]
        losses = {i: nll(predictions[[*before, i]], labels) for i in range(6) if i not in before}
        assert chosen[count - 1] == min(losses, key=lambda i: losses[i])


def test_greedy_prefers_what_completes_to_what_is_good_alone() -> None:
    labels = torch.tensor([0, 0, 0, 0])
    right = torch.tensor([[0.9, 0.9, 0.9, 0.2], [0.9, 0.9, 0.8, 0.2], [0.5, 0.5, 0.5, 0.99]])
    predictions = torch.stack([right, 1 - right], 2)
    assert forward_greedy(predictions, labels, 2) == [0, 2]


def test_training_free_by_hand() -> None:
    """Ranks of scores 1, 2/3, 1/3, 0; of distances from the first 0, 1/3, 2/3, 1: all others are worth 1."""
    scores = [9.0, 8.0, 7.0, float("nan")]
    distances = torch.tensor([[0.0, 0.1, 0.8, 0.9], [0.1, 0, 0.7, 0.7], [0.8, 0.7, 0, 0.2], [0.9, 0.7, 0.2, 0]])
    assert training_free(scores, distances, 2, weight=0.9) == [0, 1]
    assert training_free(scores, distances, 3, weight=0) == [0, 1, 2]
    assert training_free(scores, distances, 2, weight=10) == [0, 3]
    assert training_free(scores, distances, 3, weight=10) == [0, 3, 2], "2 is .2 from its nearest member, 1 is .1"


def test_cka_is_one_up_to_rotation_and_scale() -> None:
    x = torch.randn(12, 4, generator=generator(0, "x"), dtype=torch.float64)
    turned = torch.linalg.qr(torch.randn(4, 4, generator=generator(1, "q"), dtype=torch.float64)).Q
    other = torch.randn(12, 7, generator=generator(2, "y"), dtype=torch.float64)
    found = cka([x, 3 * x @ turned + 5, other, torch.ones(12, 3)])
    assert found[0, 1] == pytest.approx(1) and found[0, 0] == pytest.approx(1)
    a, b = x - x.mean(0), other - other.mean(0)
    expected = (b.mT @ a).norm() ** 2 / ((a.mT @ a).norm() * (b.mT @ b).norm())
    assert found[0, 2] == pytest.approx(float(expected))
    assert found[3].tolist() == [0, 0, 0, 0], "features that never change resemble nothing"


def test_distances_of_untrained_networks() -> None:
    space, x = spaces["nb201"], torch.randn(8, 3, 8, 8, generator=generator(0, "x"))
    archs = [("nor_conv_3x3",) * 6, ("nor_conv_3x3",) * 6, ("skip_connect",) * 6]
    plans = [space.plan(arch, 10, (3, 8, 8)) for arch in archs]
    assert features_at_start(plans[0], x).shape == (8, 64)
    distances = distances_at_start(plans, x)
    assert distances[0, 1] == pytest.approx(0, abs=1e-6)
    assert distances[0, 2] > 0.01
    assert torch.allclose(distances, distances.mT)


def test_refusals() -> None:
    with pytest.raises(UserError, match="a pool of 2 has 1 to 2 members, not 3"):
        forward_greedy(torch.rand(2, 4, 2), torch.zeros(4).long(), 3)
    with pytest.raises(UserError, match=r"2 scores need distances 2x2, not \[3, 3\]"):
        training_free([1.0, 2.0], torch.zeros(3, 3), 1)
