"""vkdnw against Fisher information of offsets, by autograd of each sample's loss."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from epochzero.data import Batch
from epochzero.engine import PlanNetwork, parse
from epochzero.errors import UserError
from tests.proxies.nets import (
    CONNECTED,
    Twin,
    batch_of,
    conv_net,
    cut_net,
    dead_path_net,
    labels,
    layerless_net,
    linear_net,
    precisely,
    random_batch,
    score,
    unlabelled,
    value,
)


def gradients(network: PlanNetwork, batch: Batch) -> list[list[float]]:
    """For each layer, the gradient of the loss for an offset of its first channel at each sample alone."""
    twin, offsets = Twin(network), []

    def shifted(part: nn.Module, _: object, output: torch.Tensor) -> torch.Tensor:
        offset = torch.zeros(len(output), dtype=output.dtype, requires_grad=True)
        offsets.append(offset)
        first = torch.zeros_like(output)
        first[:, 0] = 1
        return output + first * offset.view(-1, *(1,) * (output.dim() - 1))

    for part in twin.parts.values():
        if isinstance(part, nn.Conv2d | nn.Linear):
            part.register_forward_hook(shifted)
    loss = nn.functional.cross_entropy(twin(batch.part(0)[0].double()), labels(batch))
    found = torch.autograd.grad(loss, offsets, allow_unused=True)
    return [[0.0] * batch.size if g is None else g.tolist() for g in found]


def entropy(rows: list[list[float]]) -> float:
    g = np.array(rows)  # [L, B]
    spectrum = np.linalg.eigvalsh(g @ g.T / g.shape[1]).clip(min=0)
    deciles = np.quantile(spectrum, [k / 10 for k in range(1, 10)])
    shares: list[float] = (deciles / deciles.sum()).tolist()
    return -sum(p * math.log(p) for p in shares if p > 0)


@pytest.mark.parametrize("make", CONNECTED)
@pytest.mark.parametrize("size", [8, 3])
def test_is_the_entropy_of_the_deciles(make: Callable[[], PlanNetwork], size: int) -> None:
    """With three samples, F has more eigenvalues than its products have."""
    network, batch = make(), random_batch(size=size)
    expected = entropy(gradients(network, batch))
    assert value(network, precisely("vkdnw(part=entropy)"), batch) == pytest.approx(expected, abs=1e-9)
    whole = value(network, precisely("vkdnw"), batch)
    weighted = [node for node in network.plan.nodes if node.op.kind in ("conv", "linear")]
    assert whole == pytest.approx(len(weighted) + expected, abs=1e-9)


def test_by_hand() -> None:
    # One layer: one eigenvalue, nine equal deciles.
    network = linear_net([[1.0, 0.0], [0.0, 1.0]])
    batch = batch_of(([[1.0, 0.0], [0.5, 2.0]], [0, 1]))
    assert value(network, "vkdnw(part=entropy)", batch) == pytest.approx(math.log(9), rel=1e-9)
    assert value(network, "vkdnw", batch) == pytest.approx(1 + math.log(9), rel=1e-9)


def test_networks_without_a_score() -> None:
    for network, batch, why in (
        (layerless_net(), random_batch((3, 6, 6)), "no conv or linear layer"),
        (cut_net(), random_batch(), "no gradient of the loss"),
        (conv_net(), unlabelled(random_batch()), "needs labels"),
    ):
        assert why in score(network, "vkdnw", batch).why


def test_what_no_gradient_reaches_is_an_eigenvalue_of_zero() -> None:
    """Of four layers the second convolution leads nowhere."""
    rows = gradients(dead_path_net(), random_batch())
    assert [any(row) for row in rows] == [True, True, False, True]
    assert entropy(rows) < entropy([row for row in rows if any(row)])


def test_impossible_settings_are_refused() -> None:
    with pytest.raises(UserError, match="part=single or part=entropy"):
        _ = parse("vkdnw(part=sum)").needs
