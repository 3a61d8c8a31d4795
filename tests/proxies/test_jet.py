"""Second-order Taylor mode (`execute_jet`) against nested derivatives, in double precision."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
import torch
from torch import Tensor

from epochzero.engine import PlanNetwork
from epochzero.plan import execute_jet
from epochzero.spaces.nb201 import NB201
from tests.proxies.circles import by_nested_jvp
from tests.proxies.nets import CONNECTED, IMAGE, Twin, cut_net, drawn

EVERY_OP = "|nor_conv_3x3~0|+|avg_pool_3x3~0|nor_conv_1x1~1|+|skip_connect~0|none~1|nor_conv_3x3~2|"


def assert_jet(network: PlanNetwork, norm: str, shape: tuple[int, ...]) -> None:
    """Along x + t v + t^2/2 a for random x, v and a."""
    rng = torch.Generator().manual_seed(0)
    x, v, a = (torch.randn(3, *shape, generator=rng, dtype=torch.float64) for _ in range(3))
    twin = Twin(network, "written" if norm == "train" else norm)

    def along(t: Tensor) -> Tensor:
        logits: Tensor = twin(x + t * v + t * t / 2 * a)
        return logits

    variants = {"train": network.plan.with_statistics("batch"), "eval": network.plan.with_statistics("running")}
    plan = variants.get(norm, network.plan.without_norms)
    weights = {name: weight.double() for name, weight in network.weights.items()}
    for found, expected in zip(execute_jet(plan, weights, [(x, v, a)]), by_nested_jvp(along), strict=True):
        assert torch.allclose(found, expected, rtol=1e-10, atol=1e-10 * expected.abs().max().item())


@pytest.mark.parametrize("arch", [EVERY_OP, NB201().text(NB201().sample(Random(0)))])
def test_cells_of_nb201(arch: str) -> None:
    space = NB201()
    network = drawn(space.plan(space.parse(arch), input_shape=(3, 8, 8)))
    assert_jet(network, "train", (3, 8, 8))


@pytest.mark.parametrize("norm", ["train", "eval", "off"])
@pytest.mark.parametrize("make", [*CONNECTED, cut_net])
def test_small_networks_in_every_mode(make: Callable[[], PlanNetwork], norm: str) -> None:
    network = make()
    for name, weight in network.weights.items():
        if name.endswith("running_var"):
            network.weights[name] = weight.abs() + 0.5
    assert_jet(network, norm, IMAGE)
