"""Values that are computed together at the end of a pass are those of each layer."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from epochzero import data
from epochzero.engine import PlanNetwork, parse_list, postponed
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.engine.network import Network
from epochzero.engine.passes import Item, Pass, Summed, together
from epochzero.engine.population import columns
from epochzero.engine.score import score_network, score_together
from epochzero.engine.single.run import run_pass
from epochzero.errors import DegenerateError
from epochzero.registry import spaces
from epochzero.types import Score

READERS = "fisher,naswot,dextr,fmi,meco,az_expressivity,near,vkdnw,zen,swap"
BATCH = data.pink((3, 16, 16), size=4, num_classes=3)


@pytest.fixture
def on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(postponed, "POSTPONE_ON", {"cpu"})


class Writing(nn.Module):
    """Overwrites the output of its first layer, which was seen before."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.last = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 6, 3), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        with torch.no_grad():
            x[:, 0] = 0
        x = torch.relu(self.second(torch.relu(x)))
        found: Tensor = self.last(x.mean((2, 3)))
        return found


def network(kind: str) -> Network:
    if kind == "module":
        return ModuleNetwork(Writing(), BATCH)
    space = spaces[kind]
    return PlanNetwork(space.plan(space.sample(Random(1)), 3, (3, 16, 16)))


def scores(kind: str, way: str, readers: str = READERS) -> dict[str, Score]:
    torch.manual_seed(0)
    asked = parse_list(readers)
    one = network(kind)
    if way == "tape":
        assert isinstance(one, PlanNetwork)
        return score_together([one], asked, BATCH, 0)[0]
    return score_network(one, asked, BATCH, 0).scores


@pytest.mark.parametrize(
    ("kind", "way"), [("nb201", "alone"), ("nb201", "tape"), ("darts_search", "tape"), ("module", "alone")]
)
def test_scores_are_the_same(kind: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    each = scores(kind, way)
    monkeypatch.setattr(postponed, "POSTPONE_ON", {"cpu"})
    for text, found in scores(kind, way).items():
        assert found.status == each[text].status, text
        assert not found.ok or found.value == pytest.approx(each[text].value, rel=1e-4), text


@pytest.mark.usefixtures("on")
def test_what_is_too_large_is_computed_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []

    def many(outputs: Tensor) -> Tensor:
        kept.append(outputs.shape[1])
        return outputs.sum((0, *range(2, outputs.dim())))

    @together(many)
    def one(output: Tensor) -> Tensor:
        kept.append(0)
        return output.sum()

    item = ("responses", one)
    run_pass(Pass(), [item], network("nb201"), BATCH, 0)
    assert 0 not in kept and max(kept) > 10, "layers of one shape together"
    kept.clear()
    monkeypatch.setattr(postponed, "MOST", 0)
    run_pass(Pass(), [item], network("nb201"), BATCH, 0)
    assert kept and set(kept) == {0}


@pytest.mark.usefixtures("on")
def test_sums_and_reasons() -> None:
    def many(outputs: Tensor) -> Tensor:
        return outputs.flatten(2).sum((0, 2))

    @together(many)
    def total(output: Tensor) -> Tensor:
        return output.sum()

    def refusing(outputs: Tensor) -> Tensor:
        raise DegenerateError("no value")

    @together(refusing)
    def never(output: Tensor) -> Tensor:
        return output.sum()

    items: list[Item] = [("responses", total), ("responses", Summed(total)), ("responses", never)]
    each, (summed,), why = run_pass(Pass(dtype="float64"), items, network("nb201"), BATCH, 0).values()
    assert torch.stack(each).sum().item() == pytest.approx(summed.item())
    assert isinstance(why, DegenerateError)


@pytest.mark.parametrize(("kind", "way"), [("nb201", "alone"), ("darts_search", "tape"), ("module", "alone")])
def test_functions_of_lists_are_those_of_layers(kind: str, way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    each = scores(kind, way, "grad_norm,snip,synflow,l2_norm,nasi_trace")
    found_at_once: list[bool] = []
    real = columns._of_lists

    def seen(function: Callable[..., Tensor], lists: Sequence[Sequence[Any]]) -> Tensor | None:
        found_at_once.append((values := real(function, lists)) is not None)
        return values

    monkeypatch.setattr(columns, "_of_lists", seen)
    monkeypatch.setattr(columns, "LISTS_ON", {"cpu"})
    for text, found in scores(kind, way, "grad_norm,snip,synflow,l2_norm,nasi_trace").items():
        assert found.status == each[text].status, text
        assert not found.ok or found.value == pytest.approx(each[text].value, rel=1e-5), text
    assert len(found_at_once) >= 5 and all(found_at_once)
