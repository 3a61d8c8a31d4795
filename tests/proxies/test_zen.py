"""zen against torch's own batch norms, whose running variance is read after two runs in training."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from epochzero.engine import PlanNetwork, parse, score_network
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.errors import UserError
from epochzero.plan import generator
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import GlobalAvgPool
from epochzero.types import Origin
from tests.proxies.nets import (
    CONNECTED,
    IMAGE,
    Mean,
    Twin,
    assert_scores,
    chain,
    conv_net,
    cut_net,
    drawn,
    linear_net,
    random_batch,
    score,
    unlabelled,
    value,
)

SIZE = 8


def inputs(seed: int, which: int = 0) -> tuple[Tensor, Tensor]:
    """Noise, and the same with a hundredth of other noise added."""
    x = torch.randn(SIZE, *IMAGE, generator=generator(seed, "noise", which)).double()
    e = torch.randn(SIZE, *IMAGE, generator=generator(seed, "zen", which)).double()
    return x, x + 0.01 * e


def redrawn(network: PlanNetwork, seed: int, which: int = 0) -> PlanNetwork:
    """Draws are a million and three seeds apart."""
    return PlanNetwork(network.plan, Origin("normal", seed + which * 1_000_003))


def tracking(twin: Twin) -> list[nn.BatchNorm2d]:
    """The twin's norms, replaced by ones that remember: fresh ones, with scale 1 and shift 0."""
    found = []
    for name, part in twin.parts.items():
        if isinstance(part, nn.BatchNorm2d):
            twin.parts[name] = nn.BatchNorm2d(part.num_features, part.eps, momentum=0.1).double().train()
            found.append(twin.parts[name])
    return found  # type: ignore[return-value]


def before_pooling(twin: Twin, x: Tensor) -> Tensor:
    with torch.no_grad():
        twin(x)
    return next(given for part, given, _ in twin.outputs if isinstance(part, Mean))


def oracle(network: PlanNetwork, seed: int = 0, which: int = 0) -> float:
    twin = Twin(redrawn(network, seed, which))
    norms = tracking(twin)
    before, after = (before_pooling(twin, x) for x in inputs(seed, which))
    moved = sum((one - other).abs().sum().item() for one, other in zip(before, after, strict=True)) / SIZE
    scales = 0.0
    for norm in norms:
        assert norm.running_var is not None
        assert norm.num_batches_tracked == 2
        scales += math.log(math.sqrt(norm.running_var.mean().item()))
    return math.log(moved) + scales


@pytest.mark.parametrize("seed", [0, 4])
@pytest.mark.parametrize("make", CONNECTED)
def test_is_two_runs_in_training(make: Callable[[], PlanNetwork], seed: int) -> None:
    """The affine-free norms of the networks are at scale 1 and shift 0, as all are here."""
    network, batch = make(), random_batch(size=SIZE)
    assert_scores(network, "zen", unlabelled(batch), oracle(network, seed), seed=seed)


def test_by_hand() -> None:
    """A norm on the input itself: its variance in numpy, and features that move as far as the standardised noise."""
    network = drawn(chain(IMAGE, BatchNorm(), GlobalAvgPool(), Linear(3)))
    one, other = (x.numpy().transpose(1, 0, 2, 3).reshape(IMAGE[0], -1) for x in inputs(0))  # [C, B*H*W]
    running = 0.81 + 0.09 * one.var(1, ddof=1) + 0.1 * other.var(1, ddof=1)  # [C]
    one, other = ((x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) for x in (one, other))
    expected = math.log(np.abs(one - other).sum() / SIZE) + math.log(running.mean()) / 2
    assert_scores(network, "zen", random_batch(size=SIZE), float(expected))


def test_without_a_norm_only_the_features_count() -> None:
    """A convolution is linear: what moves is a hundredth of it on the noise that was added."""
    network = drawn(chain(IMAGE, Conv(4, 3), GlobalAvgPool(), Linear(3)))
    conv = nn.functional.conv2d
    x, nudged = inputs(0)
    moved = conv(nudged - x, redrawn(network, 0).weights["conv0.weight"].double()).abs().sum().item() / SIZE
    assert_scores(network, "zen", random_batch(size=SIZE), math.log(moved))


def test_repeats_are_averaged_over_weights_and_inputs() -> None:
    network, batch = conv_net(), random_batch(size=SIZE)
    each = [oracle(network, seed=2, which=which) for which in range(3)]
    assert len({round(score, 3) for score in each}) == 3
    assert_scores(network, "zen(repeats=3)", batch, sum(each) / 3, seed=2)


def test_neither_the_weights_nor_the_data_matter() -> None:
    network = conv_net()
    before = value(network, "zen", random_batch(size=SIZE))
    network.weights["stem.conv.weight"] = network.weights["stem.conv.weight"] * 3
    assert value(network, "zen", random_batch(size=SIZE, seed=7)) == before


def test_pooling_to_one_place_is_no_feature_map() -> None:
    """`nn.AdaptiveAvgPool2d(1)` gives [C, 1, 1] where a plan's pooling gives [C]; the features lie before either."""
    network = drawn(chain(IMAGE, Conv(4, 3), ReLU(), GlobalAvgPool(), Linear(3)))
    batch = random_batch(size=SIZE)
    layers = OrderedDict[str, nn.Module](
        conv0=nn.Conv2d(2, 4, 3, bias=False),
        relu1=nn.ReLU(),
        pool=nn.AdaptiveAvgPool2d(1),
        flat=nn.Flatten(),
        linear3=nn.Linear(4, 3),
    )
    found = score_network(ModuleNetwork(nn.Sequential(layers), batch), [parse("zen")], batch, 0).scores["zen"]
    assert found.value == pytest.approx(value(network, "zen", batch), rel=1e-5)


def test_a_cut_network() -> None:
    found = score(cut_net(), "zen", random_batch(size=SIZE))
    assert found.status == "degenerate"
    assert "no path connects them" in found.why


def test_a_network_of_vectors_has_no_feature_maps() -> None:
    found = score(linear_net([[1.0, 2.0], [3.0, 4.0]], [[1.0, 1.0]], relu=True), "zen", random_batch((2,)))
    assert found.status == "degenerate"
    assert "channels and positions" in found.why


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(UserError, match="at least 1, not 0"):
        _ = parse("zen(repeats=0)").needs
