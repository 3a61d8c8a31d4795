"""The measures of an ensemble: by hand, and against slow loops."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from epochzero.ensemble import metrics
from epochzero.errors import UserError


def drawn(members: int, samples: int, classes: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(members, samples, classes, generator=rng)
    return logits.softmax(2), torch.randint(classes, (samples,), generator=rng)


def test_two_members_by_hand() -> None:
    """Three samples, two classes: the members are right on samples {0, 1} and {0, 2}, and the mean on {0, 1}."""
    p = torch.tensor([[[0.9, 0.1], [0.2, 0.8], [0.6, 0.4]], [[0.6, 0.4], [0.6, 0.4], [0.45, 0.55]]])
    y = torch.tensor([0, 1, 1])
    found = metrics.measure(p, y)
    assert found.error == pytest.approx(1 / 3)
    assert found.accuracy == pytest.approx(2 / 3)
    assert found.ate == pytest.approx(1 / 3)
    assert found.ppd == pytest.approx(2 / 3)
    assert found.nll == pytest.approx(-(math.log(0.75) + math.log(0.6) + math.log(0.475)) / 3)
    # confidences .75 (right), .6 (right), .525 (wrong) lie in three bins of width 1/15: |1-.75|, |1-.6|, |0-.525|
    assert found.ece == pytest.approx((0.25 + 0.4 + 0.525) / 3)
    assert found.as_json().keys() == {"accuracy", "error", "ate", "ppd", "ece", "nll"}


@pytest.mark.parametrize("seed", range(5))
def test_against_loops(seed: int) -> None:
    p, y = drawn(4, 50, 5, seed)
    wrong = sum(int(max(range(5), key=lambda c: float(p[m, i, c])) != y[i]) for m in range(4) for i in range(50))
    assert metrics.averaged_test_error(p, y) == pytest.approx(wrong / 200)
    pairs = [(m, k) for m in range(4) for k in range(m + 1, 4)]
    differ = sum(int(p[m, i].argmax() != p[k, i].argmax()) for m, k in pairs for i in range(50))
    assert metrics.pairwise_disagreement(p) == pytest.approx(differ / (50 * len(pairs)))
    mean = [[sum(float(p[m, i, c]) for m in range(4)) / 4 for c in range(5)] for i in range(50)]
    expected = 0.0
    for b in range(15):
        inside = [i for i in range(50) if b / 15 < max(mean[i]) <= (b + 1) / 15]
        if inside:
            right = sum(mean[i].index(max(mean[i])) == int(y[i]) for i in inside) / len(inside)
            sure = sum(max(mean[i]) for i in inside) / len(inside)
            expected += len(inside) / 50 * abs(right - sure)
    assert metrics.calibration_error(p, y) == pytest.approx(expected, abs=1e-9)


def test_the_order_of_the_members_does_not_matter_and_copies_agree() -> None:
    p, y = drawn(3, 40, 4)
    assert metrics.measure(p, y).as_json() == pytest.approx(metrics.measure(p.flip(0), y).as_json())
    copies = metrics.measure(p[:1].expand(3, -1, -1), y)
    assert copies.ppd == 0 and copies.ate == pytest.approx(copies.error)
    assert metrics.measure(p[:1], y).ppd == 0


def test_what_is_certain() -> None:
    """Probability 1 of what is right costs nothing; probability 0 of it is a large number and not infinity."""
    y = torch.tensor([0, 2])
    sure = torch.eye(3)[y][None]
    assert metrics.measure(sure, y).as_json() == {"accuracy": 1, "error": 0, "ate": 0, "ppd": 0, "ece": 0, "nll": 0}
    lost = metrics.measure(sure, torch.tensor([1, 1]))
    assert lost.ece == 1 and 100 < lost.nll < math.inf


@pytest.mark.parametrize(("p", "y"), [((4, 3), (4,)), ((2, 4, 3), (3,)), ((2, 0, 3), (0,))])
def test_shapes_that_do_not_fit(p: tuple[int, ...], y: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match="probabilities \\[members, samples, classes\\]"):
        metrics.measure(torch.ones(p), torch.zeros(y, dtype=torch.long))
