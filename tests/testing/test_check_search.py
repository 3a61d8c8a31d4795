"""`check_search` names each promise that a search breaks."""

from __future__ import annotations

import random
from collections.abc import Sequence
from random import Random
from typing import Any

import pytest

from epochzero.registry import searches
from epochzero.testing import check_search


class Honest:
    """Random search without repeats."""

    batch = 7

    def __init__(self, space: Any, seed: int) -> None:
        self.space, self.rng, self.seen = space, Random(seed), set[Any]()

    def ask(self, n: int) -> list[Any]:
        asked: list[Any] = []
        while len(asked) < n:
            arch = self.space.sample(self.rng)
            if arch not in self.seen:
                self.seen.add(arch)
                asked.append(arch)
        return asked

    def tell(self, archs: Sequence[Any], merits: Sequence[float | None]) -> None:
        assert len(archs) == len(merits)


class Unseeded(Honest):
    def __init__(self, space: Any, seed: int) -> None:
        super().__init__(space, seed)
        self.rng = random  # type: ignore[assignment]


class Deaf(Honest):
    def __init__(self, space: Any, seed: int) -> None:
        super().__init__(space, 0)


class Repeating(Honest):
    def ask(self, n: int) -> list[Any]:
        self.seen.clear()
        return [self.space.sample(self.rng)] * n


class Lazy(Honest):
    def ask(self, n: int) -> list[Any]:
        return super().ask(n) if len(self.seen) < 20 else []


class Vain(Honest):
    """Wants a score of everything."""

    def tell(self, archs: Sequence[Any], merits: Sequence[float | None]) -> None:
        assert None not in merits, "a merit is missing"


def test_a_search_that_keeps_every_promise_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(searches._members, "made_up", Honest)
    check_search("made_up")


@pytest.mark.parametrize(
    ("search", "says"),
    [
        (Unseeded, "made_up asks for other architectures with the same seed"),
        (Deaf, "made_up does not depend on the seed"),
        (Repeating, "made_up asks for an architecture twice, or for too few"),
        (Lazy, "made_up gives up after 21 architectures"),
        (Vain, "a merit is missing"),
    ],
)
def test_a_broken_promise_is_named(search: type, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(searches._members, "made_up", search)
    with pytest.raises(AssertionError, match=says):
        check_search("made_up")
