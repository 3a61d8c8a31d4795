"""Modules that cannot be scored for their weights: a proxy says why, and the counts still count."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import epochzero as ez
from epochzero import data
from epochzero.engine import parse
from epochzero.registry import proxies
from tests.engine.modules.any_nets import CLASSES, DENSE, ROWS, TABLES, Recommender, residual
from tests.engine.modules.module_nets import seeded

ALL = sorted(proxies)
IMAGES = data.pink((3, 16, 16), CLASSES, size=16)
DEAD = "no gradient of the loss reaches a conv or linear layer"


@pytest.mark.parametrize(
    ("name", "number"), [("0.0.weight", "nan"), ("5.bias", "-inf"), ("1.norm2.running_var", "nan")]
)
def test_a_weight_that_is_no_number(name: str, number: str) -> None:
    module = seeded(residual)
    with torch.no_grad():
        module.state_dict()[name].view(-1)[0] = float(number)
    found = ez.score(module, ALL, data=IMAGES)
    assert {proxy for proxy, score in found.items() if score.ok} == {name for name in proxies if parse(name).free}
    assert {(score.status, score.why) for score in found.values() if not score.ok} == {
        ("failed", f"the weight '{name}' holds {number.removeprefix('-')}")
    }


class Masked(nn.Module):
    """Attention to what came before only, with the usual mask: a buffer of zeros and -inf."""

    mask: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(4, 8)
        self.head = nn.Linear(8, 3)
        self.register_buffer("mask", torch.full((5, 5), float("-inf")).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.inner(x))  # [B, T, C]
        logits: Tensor = self.head((torch.softmax(x @ x.mT + self.mask, -1) @ x).mean(1))
        return logits


def test_a_mask_of_minus_infinity_is_no_fault() -> None:
    x = torch.randn(8, 5, 4, generator=torch.Generator().manual_seed(0))
    module, y = Masked(), torch.arange(8) % 3
    assert ez.score(module, "snip", data=(x, y))["snip"].ok
    module.mask[0, 0] = float("inf")
    assert ez.score(module, "snip", data=(x, y))["snip"].why == "the weight 'mask' holds inf"


class Blind(nn.Module):
    """Its head sees zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(torch.relu(self.conv(x)).mean((2, 3)) * 0)
        return logits


def test_a_head_that_sees_nothing() -> None:
    found = ez.score(seeded(Blind), "fisher,grad_norm,grasp,plain,snip,zico,sigeo,nasi_trace,ntk_trace", data=IMAGES)
    assert {proxy for proxy, score in found.items() if (score.status, score.why) == ("degenerate", DEAD)} == {
        *("fisher", "grad_norm", "grasp", "plain", "snip", "zico", "sigeo")
    }
    assert found["nasi_trace"].value > 0
    assert found["ntk_trace"].value == 16, "of each sample one bias, with gradient 1"


def test_a_recommender_of_clicks() -> None:
    """One logit: the same as two of which the first is 0, since the softmax of (0, a) is the sigmoid of a."""
    chance = torch.Generator().manual_seed(0)
    dense, ids = torch.randn(16, DENSE, generator=chance), torch.randint(ROWS, (16, TABLES, 2), generator=chance)
    y = torch.randint(2, (16,), generator=chance)
    two, click = seeded(Recommender), seeded(Recommender)
    pair, single = nn.Linear(8, 2), nn.Linear(8, 1)
    with torch.no_grad():
        pair.weight[0], pair.bias[0] = 0, 0
        single.weight.copy_(pair.weight[1:])
        single.bias.copy_(pair.bias[1:])
    for module, head in ((two, pair), (click, single)):
        top = module.get_submodule("top")
        assert isinstance(top, nn.Sequential)
        top[2] = head
    found = ez.score(click, "snip,grad_norm,nasi_trace,knas,ntk_trace,fisher,hnas", data=(dense, ids), y=y)
    assert {name: score.why for name, score in found.items() if not score.ok} == {}
    expected = ez.score(two, "snip", data=(dense, ids), y=y)["snip"]
    assert found["snip"].value == pytest.approx(expected.value, rel=1e-4), "a weight of 0 adds nothing"


def test_a_module_that_adds_hooks_in_its_first_run() -> None:
    """As models of transformers do, which record what their layers return."""

    class Recording(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body, self.head = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), nn.Linear(4, CLASSES)
            self.installed = False
            self.seen: list[Tensor] = []

        def forward(self, x: Tensor) -> Tensor:
            if not self.installed:
                self.body.register_forward_hook(lambda part, given, output: self.seen.append(output))
                self.installed = True
            self.seen.clear()
            self.body(x)
            (only,) = self.seen
            logits: Tensor = self.head(only.mean((2, 3)))
            return logits

    module = Recording()
    scores = ez.score(module, ["snip", "naswot"], data=IMAGES)
    assert scores["snip"].ok and scores["naswot"].ok
    assert not module.installed and not module.body._forward_hooks
