"""dextr against its two terms, and its published variant against hooks on nested modules."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from epochzero.data import Batch
from epochzero.engine import PlanNetwork, parse
from epochzero.errors import UserError
from epochzero.plan import Builder, generator
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import GlobalAvgPool
from epochzero.plan.ops.wiring import Add, Zero
from tests.proxies.circles import Curve, by_differences, by_nested_jvp, kappa, mean_kappa, output_curve
from tests.proxies.nets import (
    CLASSES,
    CONNECTED,
    IMAGE,
    Mean,
    Twin,
    assert_scores,
    batch_of,
    chain,
    conv_net,
    cut_net,
    drawn,
    linear_net,
    random_batch,
    score,
    unlabelled,
    value,
    with_weights,
)
from tests.proxies.test_fmi import decomposed


def combined(one: float, other: float) -> float:
    """Half the harmonic mean."""
    return 1 / (1 / one + 1 / other)


def test_by_hand() -> None:
    """A network that turns the circle into an equal circle, and gives maps whose singular values can be read off.

    2x2 windows at stride 2 and padding 1 on a 2x2 image see one pixel each, every one under another of the four
    taps. With a channel for each input channel and tap, and weight 4, the mean over the four places gives back the
    eight inputs. So the curve is a circle of radius sqrt(8 q), 4 for q = 2; and the convolution's map [8, 4] has
    orthogonal columns, 4 times the lengths of the pixels' two channels: 5, 2, 1, 1 here, ratio 1/5.
    """
    plan = chain((2, 2, 2), Conv(8, 2, stride=2, padding=1), GlobalAvgPool())
    network = with_weights(plan, conv0=4 * torch.eye(8).view(8, 2, 2, 2))
    batch = batch_of(([[[[3.0, 0.0], [1.0, 0.0]], [[4.0, 2.0], [0.0, 1.0]]]], None))
    independence, bending = math.log(1 + 1 / 5), math.log(1 + 1 / 4)
    assert value(network, "fmi", batch) == pytest.approx(independence, rel=1e-6)
    assert value(network, "curvature(q=2)", batch) == pytest.approx(bending, rel=1e-5)
    expected = independence * bending / (independence + bending)
    assert value(network, "dextr(q=2)", batch) == pytest.approx(expected, rel=1e-5)


def oracle(network: PlanNetwork, batch: Batch, points: int = 4, q: float = 1.0, which: int = 0) -> float:
    """Singular values of sample `which`, and nested derivatives along circle `which`."""
    _, velocity, acceleration = by_nested_jvp(output_curve(Twin(network, "written"), IMAGE, points, q, draw=which))
    return combined(decomposed(network, batch, which), math.log(1 + mean_kappa(velocity, acceleration)))


@pytest.mark.parametrize("make", CONNECTED)
def test_is_singular_values_and_nested_derivatives(make: Callable[[], PlanNetwork]) -> None:
    network, batch = make(), random_batch()
    assert_scores(network, "dextr", unlabelled(batch), oracle(network, batch), double=1e-7)


@pytest.mark.parametrize(
    "settings",
    ["", "points=1", "points=6", "q=0.25", "points=3,q=2", "scale=24", "points=3,alone=true,outputs=10,scale=3"],
)
def test_combines_its_two_terms(settings: str) -> None:
    network, batch = conv_net(), random_batch()
    bending = value(network, f"curvature({settings})", batch, seed=4)
    expected = combined(value(network, "fmi", batch, seed=4), bending)
    assert value(network, f"dextr({settings})", batch, seed=4) == pytest.approx(expected, rel=1e-12)


def test_repeats_of_points_alone() -> None:
    network, batch = conv_net(), random_batch()
    parts = []
    for which in range(2):
        curve = output_curve(Twin(network, "written"), IMAGE, 3, 1.0, draw=which, alone=True)
        _, velocity, acceleration = by_nested_jvp(curve)
        parts.append(combined(decomposed(network, batch, which), math.log(1 + mean_kappa(velocity, acceleration))))
    assert_scores(network, "dextr(repeats=2,points=3,alone=true)", batch, sum(parts) / 2, double=1e-7)


@pytest.mark.parametrize("repeats", [2, 3])
def test_repeats_are_averaged_over_samples_and_circles(repeats: int) -> None:
    network, batch = conv_net(), random_batch()
    parts = [oracle(network, batch, points=2, which=which) for which in range(repeats)]
    assert len(set(parts)) == repeats
    assert_scores(network, f"dextr(repeats={repeats},points=2)", batch, sum(parts) / repeats, double=1e-7)


def test_more_repeats_than_samples() -> None:
    found = score(conv_net(), "dextr(repeats=9)", random_batch(size=8))
    assert found.status == "failed"
    assert "needs 9 samples" in found.why


@pytest.mark.parametrize("settings", ["repeats=0", "variant=papers", "points=0", "q=nan"])
def test_impossible_settings_are_refused(settings: str) -> None:
    with pytest.raises(UserError):
        _ = parse(f"dextr({settings})").needs


@pytest.mark.parametrize("variant", ["", "(variant=reference)"])
def test_a_cut_network(variant: str) -> None:
    """The published code gives the first term alone here, which ranks a cut network above connected ones."""
    found = score(cut_net(), f"dextr{variant}", random_batch())
    assert found.status == "degenerate"
    assert "no path connects them" in found.why


def test_a_network_of_vectors_has_no_feature_maps() -> None:
    found = score(linear_net([[1.0, 2.0], [3.0, 4.0]], [[1.0, 1.0]], relu=True), "dextr", random_batch((2,)))
    assert found.status == "degenerate"
    assert "channels and positions" in found.why


# ---- the published variant


def nested() -> tuple[PlanNetwork, nn.Sequential]:
    """The same network as a plan with blocks, and as modules within modules."""
    net = Builder()
    x = net.input(IMAGE)
    x = net.add(Conv(4, 3, padding=1), x, name="stem.conv")
    x = net.add(BatchNorm(), x, name="stem.norm")
    x = net.add(ReLU(), x, name="body.first.relu")
    x = net.add(Conv(4, 3, padding=1, bias=True), x, name="body.first.conv")
    x = net.add(BatchNorm(), x, name="body.first.norm")
    x = net.add(ReLU(), x, name="head.relu")
    x = net.add(GlobalAvgPool(), x, name="head.pool")
    net.add(Linear(3), x, name="head.linear")
    network = drawn(net.plan())
    layers = Twin(network, "written").parts
    first = nn.Sequential(*(layers[f"body/first/{name}"] for name in ("relu", "conv", "norm")))
    modules = nn.Sequential(
        nn.Sequential(layers["stem/conv"], layers["stem/norm"]),
        nn.Sequential(first),
        nn.Sequential(nn.ReLU(), Mean(), layers["head/linear"]),
    )
    return network, modules


def hooked(modules: nn.Module, x: Tensor) -> float:
    """sigma_min / sigma_max of the first sample's output of every module, containers and the root too."""
    ratios: list[float] = []

    def hook(_: nn.Module, __: object, output: Tensor) -> None:
        singular = torch.linalg.svdvals(output[0].reshape(len(output[0]), -1))
        ratios.append((singular[-1] / singular[0]).item() if singular[0] > 0 else 0.0)

    handles = [module.register_forward_hook(hook) for module in modules.modules()]
    with torch.no_grad():
        modules(x)
    for handle in handles:
        handle.remove()
    return math.log(1 + sum(ratios))


def published_circle(channels: int, classes: int, seed: int) -> tuple[Tensor, list[int]]:
    """Two axes [2, C, 64, 64] of a unit circle of images, and the ten outputs that are drawn with replacement."""
    rng = generator(seed, "dextr reference")
    basis = torch.linalg.svd(torch.randn(channels * 64 * 64, 2, generator=rng), full_matrices=False).U.double()
    assert torch.allclose(basis.mT @ basis, torch.eye(2, dtype=torch.float64), atol=1e-5)
    return basis.mT.reshape(2, channels, 64, 64), torch.randint(classes, (10,), generator=rng).tolist()


@pytest.mark.parametrize("derivatives", [by_nested_jvp, by_differences])
def test_the_published_variant(derivatives: Callable[[Curve], tuple[Tensor, Tensor, Tensor]]) -> None:
    """At the one point where the circle starts, for that point alone."""
    network, modules = nested()
    batch = random_batch()
    (first, second), outputs = published_circle(IMAGE[0], CLASSES, seed=7)

    def curve(angle: Tensor) -> Tensor:
        logits: Tensor = modules((first * angle.cos() + second * angle.sin())[None])
        return logits

    _, velocity, acceleration = derivatives(curve)
    bend = kappa([velocity[0, k].item() for k in outputs], [acceleration[0, k].item() for k in outputs])
    expected = combined(hooked(modules, batch.part(0)[0][:1].double()), math.log(1 + bend))
    double = 1e-6 if derivatives is by_nested_jvp else 1e-4
    assert_scores(network, "dextr(variant=reference)", batch, expected, double=double, seed=7)


def test_the_published_variant_counts_vectors_and_blocks() -> None:
    """By hand: the map diag(3, 4), a cut edge, and a vector.

    The 1x1 convolution keeps 3/4; the cut edge adds 0; their block ends with it, 0 again. Pooling gives a vector,
    ratio 1, and ends its block and the network: 3 in all.
    The logits are the mean pixels, so at the start of the circle v = mean of the second axis, a = - mean of the first.
    """
    net = Builder()
    x = net.input((2, 1, 2))
    x = net.add(Conv(2, 1), x, name="stem.conv")
    cut = net.add(Zero(), x, name="stem.zero")
    x = net.add(Add(), x, cut, name="sum")
    net.add(GlobalAvgPool(), x, name="head.pool")
    network = with_weights(net.plan(), **{"stem.conv": [[[[1.0]], [[0.0]]], [[[0.0]], [[1.0]]]]})
    batch = batch_of(([[[[3.0, 0.0]], [[0.0, 4.0]]]], None))
    (first, second), outputs = published_circle(2, 2, seed=0)
    bend = kappa([second[k].mean().item() for k in outputs], [-first[k].mean().item() for k in outputs])
    expected = combined(math.log(1 + 3 / 4 + 3), math.log(1 + bend))
    assert value(network, "dextr(variant=reference)", batch) == pytest.approx(expected, rel=1e-4)
