"""fmi against the singular values of every layer's output."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import nn

from epochzero.api import as_network
from epochzero.data import Batch
from epochzero.engine import PlanNetwork, parse, score_network
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.pool import GlobalAvgPool
from epochzero.plan.ops.wiring import Identity, Zero
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
    shared_net,
    unlabelled,
    value,
    with_weights,
)

DIAGONAL = [[[[3.0, 0.0]], [[0.0, 4.0]]]]
"""one sample of two channels and two places"""


def decomposed(network: PlanNetwork, batch: Batch, sample: int = 0) -> float:
    """Sums are no layers, so a twin does not list their outputs."""
    twin = Twin(network)
    total = 0.0
    with torch.no_grad():
        twin(batch.part(0)[0][sample : sample + 1].double())
    for _, _, output in twin.outputs:
        if output[0].dim() > 1:
            singular = torch.linalg.svdvals(output[0].flatten(1))  # [min(C, H*W)], descending
            total += (singular[-1] / singular[0]).item() if singular[0] > 0 else 0.0
    return math.log(1 + total)


def test_by_hand() -> None:
    # A skip keeps diag(3, 4), ratio 3/4; a 1x1 convolution with weights diag(1, 1/2) makes it diag(3, 2), ratio 2/3.
    # The outputs of global pooling and of the classifier are vectors and left out.
    plan = chain((2, 1, 2), Identity(), Conv(2, 1), GlobalAvgPool(), Linear(3))
    network = with_weights(plan, conv1=[[[[1.0]], [[0.0]]], [[[0.0]], [[0.5]]]])
    expected = math.log(1 + 3 / 4 + 2 / 3)
    assert value(network, "fmi", batch_of((DIAGONAL, None))) == pytest.approx(expected, rel=1e-6)


def test_more_channels_than_places_is_no_dependence() -> None:
    # Three channels (3, 0), (0, 4), (0, 0) of two places: the two singular values are 4 and 3.
    plan = chain((2, 1, 2), Conv(3, 1), GlobalAvgPool(), Linear(3))
    network = with_weights(plan, conv0=[[[[1.0]], [[0.0]]], [[[0.0]], [[1.0]]], [[[0.0]], [[0.0]]]])
    assert value(network, "fmi", batch_of((DIAGONAL, None))) == pytest.approx(math.log(1.75), rel=1e-6)


def test_dependent_channels_and_zeros_add_nothing() -> None:
    # Channels (-3, 0) and (0, 0) after the ReLU of their negatives; a cut edge gives zeros only.
    plan = chain((2, 1, 2), Conv(2, 1), ReLU(), Zero(), GlobalAvgPool(), Linear(3))
    network = with_weights(plan, conv0=[[[[1.0]], [[0.0]]], [[[2.0]], [[0.0]]]])
    assert value(network, "fmi", batch_of((DIAGONAL, None))) == pytest.approx(0, abs=1e-6)


@pytest.mark.parametrize("make", [*CONNECTED, cut_net])
def test_is_the_singular_values_of_each_layer(make: Callable[[], PlanNetwork]) -> None:
    """Paths that lead nowhere have feature maps too, a layer that runs twice has two; no labels are needed."""
    network, batch = make(), random_batch()
    assert_scores(network, "fmi", unlabelled(batch), decomposed(network, batch), double=1e-7)


def test_sees_the_first_sample_alone() -> None:
    """Batch norm reads the statistics of that one sample."""
    network, batch = conv_net(), random_batch()
    x = batch.part(0)[0]
    alone = batch_of((x[:1], None))
    others = batch_of((torch.cat([x[:1], -x[1:]]), None))
    assert value(network, "fmi", batch) == value(network, "fmi", alone) == value(network, "fmi", others)


def test_the_scale_of_a_layer_does_not_matter() -> None:
    plan = chain(IMAGE, Conv(4, 3), ReLU(), GlobalAvgPool(), Linear(3))
    network, batch = drawn(plan), random_batch()
    before = value(network, "fmi", batch)
    network.weights["conv0.weight"] = network.weights["conv0.weight"] * 1e-6
    assert value(network, "fmi", batch) == pytest.approx(before, rel=1e-5)


def test_a_pooled_map_is_a_vector_too() -> None:
    """`nn.AdaptiveAvgPool2d(1)` gives [C, 1, 1] where a plan's pooling gives [C]: one singular value either way."""
    network, batch = drawn(chain(IMAGE, Conv(4, 3), ReLU(), GlobalAvgPool(), Linear(3))), random_batch()
    layers = Twin(network).parts
    modules = nn.Sequential(
        layers["conv0"], nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), layers["linear3"]
    ).float()
    found = score_network(ModuleNetwork(modules, batch), [parse("fmi")], batch, 0).scores["fmi"]
    assert found.value == pytest.approx(value(network, "fmi", batch), rel=1e-6)


@pytest.mark.parametrize("make", [conv_net, dead_path_net, shared_net])
def test_a_plan_and_its_module_agree(make: Callable[[], PlanNetwork]) -> None:
    network, batch = make(), random_batch()
    module = network.plan.module()
    module.load_state_dict(network.weights)
    found = score_network(as_network(module, batch), [parse("fmi")], batch, 0).scores["fmi"]
    assert found.value == pytest.approx(value(network, "fmi", batch), rel=1e-6)


def test_a_network_of_vectors_has_no_feature_maps() -> None:
    found = score(linear_net([[1.0, 2.0], [3.0, 4.0]], [[1.0, 1.0]], relu=True), "fmi", random_batch((2,)))
    assert found.status == "degenerate"
    assert "channels and positions" in found.why
