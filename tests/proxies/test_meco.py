"""meco and meco_opt against numpy's correlations and eigenvalues, layer by layer."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from epochzero.data import Batch
from epochzero.engine import PlanNetwork, parse, score_network
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.errors import UserError
from epochzero.plan import generator
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.pool import GlobalAvgPool
from epochzero.plan.ops.wiring import Identity, Zero
from epochzero.proxies import meco
from tests.proxies.nets import (
    CONNECTED,
    IMAGE,
    Twin,
    assert_scores,
    batch_of,
    chain,
    conv_net,
    cut_net,
    dead_path_net,
    drawn,
    linear_net,
    random_batch,
    score,
    unlabelled,
    value,
    with_weights,
)


def least(channels: np.ndarray) -> float:
    """The smallest eigenvalue of the correlations between rows, 0 for those with a constant row."""
    with np.errstate(divide="ignore", invalid="ignore"):
        correlations = np.nan_to_num(np.corrcoef(channels), nan=0, posinf=0, neginf=0)
    return float(np.linalg.eigvals(correlations).real.min())


def oracle(network: PlanNetwork, batch: Batch, channels: int | None = None, seed: int = 0) -> float:
    """All channels, or a number of random ones of each width. Vectors and single channels correlate with nothing."""
    twin = Twin(network)
    with torch.no_grad():
        twin(batch.part(0)[0][:1].double())
    total = 0.0
    for _, _, output in twin.outputs:
        x = output[0].flatten(1).numpy() if output.dim() > 2 else np.zeros((1, 1))  # [C, H*W]
        if 1 in x.shape:
            continue
        order = torch.randperm(len(x), generator=generator(seed, "channels", len(x))).tolist()
        kept = order[: channels or len(x)]
        total += least(x[kept]) * len(x) / len(kept)
    return total


def test_by_hand() -> None:
    # Centred channels (1, -1, 0) and (1, 0, -1) correlate by 1/2: eigenvalues 3/2 and 1/2. A 1x1 convolution to their
    # sum (2, -1, -1) and difference (0, -1, 1) makes them independent: 1 and 1. The skip adds 1/2 again.
    plan = chain((2, 1, 3), Identity(), Conv(2, 1), GlobalAvgPool(), Linear(3))
    network = with_weights(plan, conv1=[[[[1.0]], [[1.0]]], [[[1.0]], [[-1.0]]]])
    batch = batch_of(([[[[8.0, 6.0, 7.0]], [[2.0, 1.0, 0.0]]]], None))
    assert value(network, "meco", batch) == pytest.approx(0.5 + 1, rel=1e-6)
    # Copies and opposites: one eigenvalue is 0.
    for times in (2.0, -1.0):
        network = with_weights(plan, conv1=[[[[1.0]], [[0.0]]], [[[times]], [[0.0]]]])
        assert value(network, "meco", batch) == pytest.approx(0.5, rel=1e-6)


def test_a_constant_channel_has_no_correlation_with_itself() -> None:
    # Channels (1, -1, 0) and (5, 5, 5): the matrix is diag(1, 0). A cut edge has only constant channels.
    plan = chain((2, 1, 3), Identity(), Zero(), GlobalAvgPool(), Linear(3))
    batch = batch_of(([[[[1.0, -1.0, 0.0]], [[5.0, 5.0, 5.0]]]], None))
    assert value(drawn(plan), "meco", batch) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("make", [*CONNECTED, cut_net])
def test_is_numpy_for_each_layer(make: Callable[[], PlanNetwork]) -> None:
    """Paths that lead nowhere have feature maps too, a layer that runs twice has two; no labels are needed."""
    network, batch = make(), random_batch()
    expected = oracle(network, batch)
    assert value(network, "meco", unlabelled(batch)) == pytest.approx(expected, rel=1e-4, abs=1e-5)
    assert_scores(network, "meco_opt(channels=3)", unlabelled(batch), oracle(network, batch, 3), double=1e-7)


@pytest.mark.parametrize("channels", [2, 3])
@pytest.mark.parametrize("make", [conv_net, dead_path_net])
def test_some_channels(make: Callable[[], PlanNetwork], channels: int) -> None:
    network, batch = make(), random_batch()
    for seed in (0, 5):
        expected = oracle(network, batch, channels, seed)
        found = value(network, f"meco_opt(channels={channels})", batch, seed)
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-5)


def test_some_channels_by_hand() -> None:
    # Channels (1, 1, -1, -1), (1, -1, 1, -1), (1, -1, -1, 1) are independent, so any two of them give 1, times 3/2.
    plan = chain((3, 2, 2), Identity(), GlobalAvgPool(), Linear(3))
    rows = [[1.0, 1.0, -1.0, -1.0], [1.0, -1.0, 1.0, -1.0], [1.0, -1.0, -1.0, 1.0]]
    batch = batch_of((torch.tensor(rows).view(1, 3, 2, 2), None))
    assert value(drawn(plan), "meco", batch) == pytest.approx(1)
    assert value(drawn(plan), "meco_opt(channels=2)", batch) == pytest.approx(1.5)


def test_no_more_channels_than_there_are() -> None:
    network, batch = conv_net(), random_batch()
    assert value(network, "meco_opt", batch) == pytest.approx(value(network, "meco", batch), rel=1e-9)


def test_the_order_of_layers_does_not_matter() -> None:
    """Two branches of one network, written the other way round as a module."""
    network, batch = drawn(chain(IMAGE, Conv(6, 3), ReLU(), GlobalAvgPool(), Linear(3))), random_batch()
    layers = Twin(network).parts.float()

    class Branches(nn.Module):
        def __init__(self, relu_first: bool) -> None:
            super().__init__()
            self.parts, self.relu_first = layers, relu_first

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.parts["conv0"](x)
            if self.relu_first:
                on, pooled = torch.relu(x), nn.functional.avg_pool2d(x, 3, 1, 1)
            else:
                pooled, on = nn.functional.avg_pool2d(x, 3, 1, 1), torch.relu(x)
            logits: torch.Tensor = self.parts["linear3"]((on + pooled).mean((2, 3)))
            return logits

    one, other = (
        score_network(ModuleNetwork(Branches(first), batch), [parse("meco_opt(channels=2)")], batch, 0)
        for first in (True, False)
    )
    assert [s.value for s in one.scores.values()] == pytest.approx([s.value for s in other.scores.values()], rel=1e-9)


def test_sees_the_first_sample_alone() -> None:
    network, batch = conv_net(), random_batch()
    x = batch.part(0)[0]
    assert value(network, "meco", batch) == value(network, "meco", batch_of((torch.cat([x[:1], -x[1:]]), None)))


@pytest.mark.parametrize("proxy", ["meco", "meco_opt"])
def test_a_network_of_vectors_has_no_feature_maps(proxy: str) -> None:
    found = score(linear_net([[1.0, 2.0], [3.0, 4.0]], [[1.0, 1.0]], relu=True), proxy, random_batch((2,)))
    assert found.status == "degenerate"
    assert "channels and positions" in found.why


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(UserError, match="at least 2, not 1"):
        _ = parse("meco_opt(channels=1)").needs


@pytest.mark.parametrize("channels", [3, 4, 9])
def test_a_layer_with_as_many_channels_as_positions_adds_zero(channels: int) -> None:
    output = torch.randn(2, channels, 2, 2, generator=torch.Generator().manual_seed(0))
    matrix = meco.correlation(output)
    assert matrix is not None
    assert (len(matrix) == 1) is (channels >= 4)
    assert float(meco.least_eigenvalue(matrix)) == pytest.approx(least(output[0].flatten(1).numpy()), abs=1e-7)
    output[0, 0, 0, 0] = torch.nan
    broken = meco.correlation(output)
    assert broken is not None and broken.isnan().any()
