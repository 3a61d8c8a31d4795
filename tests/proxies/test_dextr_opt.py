"""dextr_opt against the singular values of some channels of every layer."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from epochzero.data import Batch
from epochzero.engine import PlanNetwork, parse
from epochzero.errors import UserError
from epochzero.plan import generator
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.pool import GlobalAvgPool
from tests.proxies.circles import by_nested_jvp, mean_kappa, output_curve
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
from tests.proxies.test_dextr import combined


def independence(network: PlanNetwork, batch: Batch, channels: int, seed: int = 0) -> float:
    """log(1 + sum of C/channels * sigma_min/sigma_max) over the same random channels for layers of one width."""
    twin = Twin(network)
    with torch.no_grad():
        twin(batch.part(0)[0][:1].double())
    total = 0.0
    for _, _, output in twin.outputs:
        if output.dim() > 2 and 1 not in output[0].flatten(1).shape:
            x = output[0].flatten(1)  # [C, H*W]
            chosen = torch.randperm(len(x), generator=generator(seed, "channels", len(x)))[:channels]
            singular = torch.linalg.svdvals(x[chosen])  # [min(channels, H*W)], descending
            total += len(x) / len(chosen) * ((singular[-1] / singular[0]).item() if singular[0] > 0 else 0.0)
    return math.log(1 + total)


def oracle(network: PlanNetwork, batch: Batch, channels: int, points: int = 4, q: float = 1, seed: int = 0) -> float:
    curve = output_curve(Twin(network, "written"), IMAGE, points, q, seed)
    _, velocity, acceleration = by_nested_jvp(curve)
    return combined(independence(network, batch, channels, seed), math.log(1 + mean_kappa(velocity, acceleration)))


def test_by_hand() -> None:
    """Channels that are orthogonal and equally long are so in any choice: the ratio is 1, times 4/2 or 4/3.

    The convolution keeps the four channels of a 2x2 image, each of which lights one place. Its mean over places is a
    quarter of the sum, so the curve is some ellipse: the bend is read from `curvature`.
    """
    plan = chain((4, 2, 2), Conv(4, 1), GlobalAvgPool())
    network = with_weights(plan, conv0=torch.eye(4)[:, :, None, None])
    batch = batch_of((torch.eye(4).view(1, 4, 2, 2), None))
    bending = value(network, "curvature", batch)
    for channels, ratio in ((2, 4 / 2), (3, 4 / 3), (4, 1.0), (8, 1.0)):
        expected = combined(math.log(1 + ratio), bending)
        assert value(network, f"dextr_opt(channels={channels})", batch) == pytest.approx(expected, rel=1e-6)


def test_more_channels_than_places() -> None:
    """Eight channels of four places have four singular values, 5, 2, 1 and 1 times 4: see `test_dextr`."""
    plan = chain((2, 2, 2), Conv(8, 2, stride=2, padding=1), GlobalAvgPool())
    network = with_weights(plan, conv0=4 * torch.eye(8).view(8, 2, 2, 2))
    batch = batch_of(([[[[3.0, 0.0], [1.0, 0.0]], [[4.0, 2.0], [0.0, 1.0]]]], None))
    expected = combined(math.log(1 + 1 / 5), math.log(1 + 1 / 4))
    assert value(network, "dextr_opt(q=2)", batch) == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("channels", [2, 3])
@pytest.mark.parametrize("make", CONNECTED)
def test_is_singular_values_of_some_channels(make: Callable[[], PlanNetwork], channels: int) -> None:
    network, batch = make(), random_batch()
    for seed in (0, 3):
        expected = oracle(network, batch, channels, seed=seed)
        assert_scores(network, f"dextr_opt(channels={channels})", unlabelled(batch), expected, double=1e-7, seed=seed)


def test_the_circle_has_settings() -> None:
    network, batch = conv_net(), random_batch()
    expected = oracle(network, batch, 2, points=3, q=0.5)
    assert_scores(network, "dextr_opt(channels=2,points=3,q=0.5)", batch, expected, double=1e-7)


def test_all_channels_are_dextr() -> None:
    network, batch = conv_net(), random_batch()
    assert value(network, "dextr_opt", batch) == pytest.approx(value(network, "dextr", batch), rel=1e-7)


def test_the_scale_is_of_kappa() -> None:
    network, batch = conv_net(), random_batch()
    _, velocity, acceleration = by_nested_jvp(output_curve(Twin(network, "written"), IMAGE, 4, 1, 0))
    bending = math.log(1 + 5 * mean_kappa(velocity, acceleration))
    expected = combined(independence(network, batch, 2), bending)
    assert_scores(network, "dextr_opt(channels=2,scale=5)", batch, expected, double=1e-7)


def test_a_cut_network() -> None:
    found = score(cut_net(), "dextr_opt", random_batch())
    assert found.status == "degenerate"
    assert "no path connects them" in found.why


def test_a_network_of_vectors_has_no_feature_maps() -> None:
    found = score(linear_net([[1.0, 2.0], [3.0, 4.0]], [[1.0, 1.0]], relu=True), "dextr_opt", random_batch((2,)))
    assert found.status == "degenerate"
    assert "channels and positions" in found.why


@pytest.mark.parametrize("settings", ["channels=1", "points=0", "q=-1", "q=inf"])
def test_impossible_settings_are_refused(settings: str) -> None:
    with pytest.raises(UserError):
        _ = parse(f"dextr_opt({settings})").needs
