"""wpca against principal components by numpy."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from epochzero.api import as_network
from epochzero.engine import PlanNetwork, parse
from epochzero.errors import UserError
from epochzero.registry import spaces
from tests.engine.modules.any_nets import ViT
from tests.proxies.nets import batch_of, conv_net, linear_net, precisely, random_batch, score, unlabelled, value


def components(rows: Tensor, eta: float) -> int:
    values = np.array(rows.tolist())
    variances = np.linalg.svd(values - values.mean(0), compute_uv=False) ** 2
    return next(k for k in range(1, len(variances) + 1) if variances[:k].sum() >= eta * variances.sum())


class FeedForward(nn.Module):
    """Two feed-forward layers on tokens, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.back, self.second = nn.Linear(5, 12), nn.Linear(12, 5), nn.Linear(5, 8)
        self.head = nn.Linear(8, 3)
        self.seen: list[Tensor] = []

    def forward(self, x: Tensor) -> Tensor:
        y = self.first(x)
        z = self.second(x + self.back(nn.functional.gelu(y)))
        self.seen = [y, z]
        out: Tensor = self.head(nn.functional.relu(z).mean(1))
        return out


@pytest.mark.parametrize(("samples", "eta"), [(4, 0.99), (1, 0.9), (8, 0.5)])
def test_is_the_number_of_components(samples: int, eta: float) -> None:
    torch.manual_seed(0)
    module, batch = FeedForward(), random_batch((6, 5))
    found = value(as_network(module, batch), f"wpca(samples={samples},eta={eta})", unlabelled(batch))
    module(batch.part(0)[0][:samples])
    expected = sum(components(seen.detach().double().flatten(0, 1), eta) for seen in module.seen)
    assert found == expected * sum(p.numel() for p in module.parameters())


def test_by_hand() -> None:
    # Tokens 3 and -3 along the first axis, 1 and -1 along the second: variances 9 and 1, shares .9 and 1.
    tokens = torch.tensor([[[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]]])
    module = nn.Sequential(nn.GELU(), nn.Flatten(), nn.Linear(8, 3))
    network = as_network(module, batch_of((tokens, None)))
    for eta, count in ((0.5, 1), (0.89, 1), (0.91, 2)):
        assert value(network, f"wpca(samples=1,eta={eta})", batch_of((tokens, None))) == count * 27


def test_a_plan_and_its_module_agree() -> None:
    plan = spaces["autoformer_tiny"].plan(spaces["autoformer_tiny"].smallest(), 3, (3, 32, 32))
    batch = random_batch((3, 32, 32), size=4)
    planned = PlanNetwork(plan)
    code: dict[str, object] = {}
    exec(compile(plan.code(), "printed", "exec"), code)
    printed = code["Network"]()  # type: ignore[operator]
    printed.load_state_dict(planned.weights)
    assert value(planned, precisely("wpca"), batch) == value(as_network(printed, batch), precisely("wpca"), batch)
    assert spaces["autoformer_tiny"].sample(Random(0)) != spaces["autoformer_tiny"].smallest()
    images = random_batch((3, 16, 16), size=4)
    assert value(as_network(ViT(), images), "wpca", images) > 0


def test_networks_without_a_score() -> None:
    for network, batch in (
        (conv_net(), random_batch()),
        (linear_net([[1.0, 2.0]] * 2, [[1.0, 2.0]] * 3, relu=True), random_batch((2,))),
    ):
        assert "is for transformers" in score(network, "wpca", batch).why
    equal = batch_of((torch.ones(1, 4, 2), None))
    still = as_network(nn.Sequential(nn.GELU(), nn.Flatten(), nn.Linear(8, 3)), equal)
    assert "no feed-forward layer varies" in score(still, "wpca(samples=1)", equal).why


@pytest.mark.parametrize("proxy", ["wpca(samples=0)", "wpca(eta=0)", "wpca(eta=1)", "wpca(eta=nan)"])
def test_impossible_settings_are_refused(proxy: str) -> None:
    with pytest.raises(UserError, match="wpca takes"):
        _ = parse(proxy).needs
