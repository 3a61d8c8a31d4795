"""curvature against nested derivatives and against differences along the circle."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from epochzero.engine import PlanNetwork, parse
from epochzero.engine.circle import circle
from epochzero.errors import UserError
from epochzero.plan import generator
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.pool import GlobalAvgPool
from epochzero.testing.proxies import check_population_does_not_matter
from tests.proxies.circles import by_differences, by_nested_jvp, kappa, mean_kappa, output_curve
from tests.proxies.nets import (
    CONNECTED,
    IMAGE,
    Twin,
    assert_scores,
    batch_of,
    chain,
    conv_net,
    cut_net,
    linear_net,
    random_batch,
    score,
    unlabelled,
    value,
    with_weights,
)

ROTATION = [[0.6, -0.8], [0.8, 0.6]]


@pytest.mark.parametrize(("q", "radius"), [(1.0, math.sqrt(2)), (8.0, 4.0)])
def test_by_hand(q: float, radius: float) -> None:
    """A rotation makes a circle of a circle, and a circle of radius R bends by 1/R everywhere."""
    network = linear_net(ROTATION)
    for points in (1, 4, 7):
        found = value(network, f"curvature(points={points},q={q})", random_batch((2,)))
        assert found == pytest.approx(math.log(1 + 1 / radius), rel=1e-5)


def test_larger_weights_bend_less() -> None:
    # Four times the rotation, onto a circle of radius 4 sqrt(2) in the plane of two of three logits.
    network = linear_net([*[[4 * w for w in row] for row in ROTATION], [0.0, 0.0]])
    expected = math.log(1 + 1 / (4 * math.sqrt(2)))
    assert value(network, "curvature", random_batch((2,))) == pytest.approx(expected, rel=1e-5)


def test_an_ellipse_by_hand() -> None:
    # (2 R cos s, R sin s) bends by 2 / (R (4 sin^2 s + cos^2 s)^(3/2)); the angle s of each point is read off it.
    network = linear_net([[2.0, 0.0], [0.0, 1.0]])
    bends = []
    for x, y in circle((2,), 5, 1.0, 0, 0)[0].tolist():
        s = math.atan2(y, x)
        bends.append(2 / (math.sqrt(2) * (4 * math.sin(s) ** 2 + math.cos(s) ** 2) ** 1.5))
    expected = math.log(1 + sum(bends) / 5)
    assert value(network, "curvature(points=5)", random_batch((2,))) == pytest.approx(expected, rel=1e-5)


def test_a_curve_on_a_line_does_not_bend() -> None:
    found = value(linear_net([[1.0, 2.0], [-2.0, -4.0]]), "curvature", random_batch((2,)))
    assert found == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("points", [1, 4, 6])
@pytest.mark.parametrize("make", CONNECTED)
def test_is_nested_derivatives(make: Callable[[], PlanNetwork], points: int) -> None:
    """Neither the data nor labels have a say, only their shape."""
    network = make()
    _, velocity, acceleration = by_nested_jvp(output_curve(Twin(network, "written"), IMAGE, points, 1.0))
    expected = math.log(1 + mean_kappa(velocity, acceleration))
    assert_scores(network, f"curvature(points={points})", unlabelled(random_batch()), expected)


@pytest.mark.parametrize("make", CONNECTED)
def test_is_differences_along_the_circle(make: Callable[[], PlanNetwork]) -> None:
    network = make()
    _, velocity, acceleration = by_differences(output_curve(Twin(network), IMAGE, 4, 0.5, seed=3))
    expected = math.log(1 + mean_kappa(velocity, acceleration))
    assert_scores(network, "curvature(q=0.5)", random_batch(), expected, double=1e-4, seed=3)


@pytest.mark.parametrize("points", [1, 3])
@pytest.mark.parametrize("make", CONNECTED)
def test_points_alone(make: Callable[[], PlanNetwork], points: int) -> None:
    """Each point is a batch of its own, so that batch norms do not see the others."""
    network = make()
    for derivatives, double in ((by_nested_jvp, 1e-7), (by_differences, 1e-3)):
        _, velocity, acceleration = derivatives(output_curve(Twin(network, "written"), IMAGE, points, 1.0, alone=True))
        expected = math.log(1 + mean_kappa(velocity, acceleration))
        assert_scores(
            network, f"curvature(points={points},alone=true)", unlabelled(random_batch()), expected, double=double
        )


def test_batch_norms_see_all_points_unless_alone() -> None:
    network, batch = conv_net(), random_batch()
    together, alone = (value(network, f"curvature(alone={one})", batch) for one in ("false", "true"))
    assert abs(together - alone) > 1e-3
    assert value(network, "curvature(points=1,alone=true)", batch) == value(network, "curvature(points=1)", batch)


@pytest.mark.parametrize("alone", ["false", "true"])
def test_drawn_outputs(alone: str) -> None:
    """The same logits at every point, some of them more than once."""
    network, batch = conv_net(), random_batch()
    curve = output_curve(Twin(network, "written"), IMAGE, 3, 1.0, seed=5, alone=alone == "true")
    _, velocity, acceleration = by_nested_jvp(curve)
    drawn = torch.randint(velocity.shape[1], (10,), generator=generator(5, "drawn outputs", 0)).tolist()
    bent = [
        kappa([v[k] for k in drawn], [a[k] for k in drawn])
        for v, a in zip(velocity.tolist(), acceleration.tolist(), strict=True)
    ]
    expected = math.log(1 + sum(bent) / 3)
    assert_scores(network, f"curvature(points=3,outputs=10,alone={alone})", batch, expected, double=1e-7, seed=5)


def test_points_alone_in_a_population() -> None:
    check_population_does_not_matter("curvature(points=3,alone=true,outputs=4)")


def test_the_scale_makes_a_sum_of_a_mean() -> None:
    network, batch = conv_net(), random_batch()
    _, velocity, acceleration = by_nested_jvp(output_curve(Twin(network, "written"), IMAGE, 3, 1.0))
    total = sum(kappa(v, a) for v, a in zip(velocity.tolist(), acceleration.tolist(), strict=True))
    assert_scores(network, "curvature(points=3,scale=3)", batch, math.log(1 + total), double=1e-7)


def test_the_seed_draws_the_circle() -> None:
    network, batch = CONNECTED[0](), random_batch()
    assert value(network, "curvature", batch, seed=1) == value(network, "curvature", batch, seed=1)
    assert value(network, "curvature", batch, seed=1) != value(network, "curvature", batch, seed=2)


def test_a_cut_network_has_no_curve() -> None:
    found = score(cut_net(), "curvature", random_batch())
    assert found.status == "degenerate"
    assert "no path connects them" in found.why


def test_dead_relus_cut_a_network_too() -> None:
    network = linear_net([[0.0, 0.0]], [[1.0], [2.0]], relu=True)
    assert score(network, "curvature", random_batch((2,))).status == "degenerate"


def test_a_convolution_can_be_the_rotation() -> None:
    """A kernel as large as the image, on an image of four pixels: the circle lies somewhere in four dimensions."""
    network = with_weights(chain((1, 2, 2), Conv(4, 2), GlobalAvgPool()), conv0=torch.eye(4).view(4, 1, 2, 2))
    batch = batch_of((torch.zeros(2, 1, 2, 2), None))
    assert value(network, "curvature", batch) == pytest.approx(math.log(1 + 1 / 2), rel=1e-5)


@pytest.mark.parametrize("settings", ["outputs=-1", "scale=0", "scale=-2", "scale=inf", "scale=nan"])
def test_impossible_outputs_and_scales_are_refused(settings: str) -> None:
    with pytest.raises(UserError, match="scale"):
        _ = parse(f"curvature({settings})").needs


@pytest.mark.parametrize("settings", ["points=0", "q=0", "q=-1", "q=nan", "q=inf"])
def test_impossible_circles_are_refused(settings: str) -> None:
    with pytest.raises(UserError, match="circle"):
        _ = parse(f"curvature({settings})").needs


@pytest.mark.parametrize("points", [1, 3, 8])
def test_the_circle_is_a_circle(points: int) -> None:
    q, shape = 0.25, (3, 4, 5)
    place, velocity, acceleration = (part.double().flatten(1) for part in circle(shape, points, q, 5, 0))  # [points, N]
    radius = math.sqrt(60 * q)
    assert place.shape == (points, 60)
    assert torch.allclose(place.norm(dim=1), torch.full((points,), radius, dtype=torch.float64), rtol=1e-6)
    assert torch.allclose(velocity.norm(dim=1), place.norm(dim=1), rtol=1e-6)
    assert torch.allclose((place * velocity).sum(1), torch.zeros(points, dtype=torch.float64), atol=1e-5)
    assert torch.equal(acceleration, -place)
    turn = 2 * math.pi / points
    following = place * math.cos(turn) + velocity * math.sin(turn)
    assert torch.allclose(following, place.roll(-1, 0), atol=1e-5)


def test_circles_are_drawn_apart() -> None:
    drawn = [circle(IMAGE, 4, 1.0, seed, draw)[0] for seed, draw in ((0, 0), (0, 1), (1, 0), (1, 1))]
    for i, one in enumerate(drawn):
        assert all(not torch.allclose(one, other) for other in drawn[:i])


def test_a_single_output_cannot_bend() -> None:
    found = score(linear_net([[1.0, 2.0], [3.0, 4.0]], [[1.0, -1.0]], relu=True), "curvature", random_batch((2,)))
    assert (found.status, found.why) == (
        "degenerate",
        "the network has one output, and a curve on a line does not bend",
    )
