"""One network at a time on a GPU: as a population of one where its layers suit a tape."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
import torch

from epochzero import data
from epochzero.engine import PlanNetwork, parse_list
from epochzero.engine.network import Network
from epochzero.engine.population import scoring
from epochzero.engine.population.cost import suits_tape
from epochzero.engine.population.population import Population
from epochzero.engine.score import score_population
from epochzero.registry import spaces

BATCH = data.pink((3, 32, 32), size=4)
PROXIES = parse_list("grad_norm,fisher,naswot,synflow,dextr,jacov")


def networks(space: str, count: int = 2) -> list[PlanNetwork]:
    rng = Random(0)
    return [PlanNetwork(spaces[space].plan(spaces[space].sample(rng), 10, (3, 32, 32))) for _ in range(count)]


def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lets each network run alone, in the way of a GPU; returns the sizes of the populations that are formed."""
    formed: list[int] = []

    class Seen(Population):
        def __init__(self, members: Sequence[Any]) -> None:
            formed.append(len(members))
            super().__init__(members)

    monkeypatch.setattr(scoring, "in_groups", lambda given, *_: ([one] for one in given))
    monkeypatch.setattr(scoring, "Population", Seen)
    return formed


def scored(given: Sequence[Network]) -> list[dict[str, float]]:
    """Scores on the CPU by the way of a GPU: the first network's device is asked for only once."""

    class First(PlanNetwork):
        asked = 0

        @property
        def device(self) -> torch.device:
            First.asked += 1
            return torch.device("cuda:7" if First.asked == 1 else "cpu")

    first = given[0]
    assert isinstance(first, PlanNetwork)
    found = score_population([First(first.plan), *given[1:]], PROXIES, BATCH, 0)
    return [{text: score.value for text, score in one.scores.items()} for one in found]


@pytest.mark.parametrize(
    ("space", "tape"), [("darts_search", True), ("resnet", True), ("nb101_stem16", True), ("autoformer_tiny", False)]
)
def test_layers_with_a_backward_pass_of_their_own(space: str, tape: bool) -> None:
    assert all(suits_tape(one.plan) == tape for one in networks(space))


def test_a_lone_network_scores_the_same_by_tape(monkeypatch: pytest.MonkeyPatch) -> None:
    given = networks("nb101_stem16")
    usual = score_population(given, PROXIES, BATCH, 0)
    formed = as_on_a_gpu(monkeypatch)
    for own, before in zip(scored(given), usual, strict=True):
        assert own == pytest.approx({text: score.value for text, score in before.scores.items()}, rel=1e-3)
    assert formed == [1, 1]


def test_without_memory_for_a_tape_autograd_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    given = networks("nb101_stem16", 1)
    (usual,) = score_population(given, PROXIES, BATCH, 0)
    formed = as_on_a_gpu(monkeypatch)

    def full(*_: Any) -> None:
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(scoring, "run_together", full)
    assert scored(given) == [{text: score.value for text, score in usual.scores.items()}]
    assert formed == [1]
