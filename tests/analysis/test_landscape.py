"""Loss and gradient variance on a plane through the weights, against modules whose weights are moved by hand."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from epochzero.analysis.gradient_variance import gradient_variance
from epochzero.analysis.landscape import Plane, axis_of, directions, filter_normalised, on_plane
from epochzero.analysis.subjects import SingleSubject
from epochzero.data import from_tensors
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.errors import UserError
from epochzero.plan import generator


@pytest.fixture
def data() -> tuple[Tensor, Tensor]:
    return torch.randn(6, 3, 8, 8, generator=generator(0, "x")), torch.arange(6) % 3


def module() -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3)).eval()


def test_a_module_is_moved_as_by_hand(data: tuple[Tensor, Tensor]) -> None:
    x, y = data
    net = module()
    subject = SingleSubject(ModuleNetwork(net, from_tensors(x, y)))
    plane = on_plane(subject, axis_of(0.5, 3), 7, lambda weights: subject.losses(weights, x, y))
    one, two = directions(subject, 7)
    assert plane.axis == [-0.5, 0, 0.5]
    for i, a in enumerate(plane.axis):
        for j, b in enumerate(plane.axis):
            moved = copy.deepcopy(net)
            with torch.no_grad():
                for name, weight in moved.named_parameters():
                    weight.add_(a * one[name] + b * two[name])
                loss = cross_entropy(moved(x), y)
            assert plane.values[0][i][j] == pytest.approx(float(loss), rel=1e-5)
    assert plane.values[0][0][0] != plane.values[0][2][2]


def test_directions_are_as_long_as_the_filters_and_leave_biases_alone() -> None:
    net = module()
    one, two = directions(SingleSubject(ModuleNetwork(net, from_tensors(torch.randn(2, 3, 8, 8)))), 0)
    for direction in (one, two):
        torch.testing.assert_close(direction["0.weight"].flatten(1).norm(dim=1), net[0].weight.flatten(1).norm(dim=1))  # type: ignore[index]
        torch.testing.assert_close(direction["4.weight"].norm(dim=1), net[4].weight.norm(dim=1))  # type: ignore[index]
        assert not any(direction[name].any() for name in ("0.bias", "1.weight", "1.bias", "4.bias"))
    assert not torch.equal(one["0.weight"], two["0.weight"])
    assert not filter_normalised(torch.zeros(2, 2), torch.ones(2, 2)).isnan().any()


def test_variance_of_single_samples_is_the_textbook_one(data: tuple[Tensor, Tensor]) -> None:
    x, y = data
    net = module()
    subject = SingleSubject(ModuleNetwork(net, from_tensors(x, y)))
    rows = []
    for i in range(len(x)):
        loss = cross_entropy(net(x[i : i + 1]), y[i : i + 1])
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, list(net.parameters()))]))
    gradients = torch.stack(rows).double()
    expected = float(gradients.var(0, correction=1).sum())
    assert float(gradient_variance(subject, subject.weights, x, y, 6)[0]) == pytest.approx(expected, rel=1e-5)
    pairs = gradients.view(3, 2, -1).mean(1)
    expected = 2 * float(pairs.var(0, correction=1).sum())
    assert float(gradient_variance(subject, subject.weights, x, y, 3)[0]) == pytest.approx(expected, rel=1e-5)


def test_the_numbers_of_a_plane() -> None:
    plane = Plane([-1, 0, 1], [[[9, 3, math.inf], [1.5, 1, 2], [math.nan, 2.5, 4]]])
    assert plane.middle == 1
    assert plane.near == pytest.approx(3 / 9), "1.5, 1 and 2"
    assert plane.steepest == 7.5


def test_what_cannot_be_is_refused(data: tuple[Tensor, Tensor]) -> None:
    x, y = data
    for across, span in ((4, 1.0), (1, 1.0), (3, 0.0), (3, math.inf)):
        with pytest.raises(UserError, match="odd number of points"):
            axis_of(span, across)
    with pytest.raises(UserError, match="nothing to train"):
        SingleSubject(ModuleNetwork(nn.Flatten(), from_tensors(x, y)))
    with pytest.raises(UserError, match="at least 2 parts"):
        subject = SingleSubject(ModuleNetwork(module(), from_tensors(x, y)))
        gradient_variance(subject, subject.weights, x, y, 7)
