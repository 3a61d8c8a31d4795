"""What every search promises."""

from __future__ import annotations

from typing import Any

from epochzero.registry import searches, spaces

ASKED = 60


def check_search(name: str, space_name: str = "nb201") -> None:
    """The same seed asks for the same; no repeats; networks without a score are bearable."""
    first, second, other = (_history(name, space_name, seed) for seed in (0, 0, 1))
    assert first == second, f"{name} asks for other architectures with the same seed"
    assert first != other, f"{name} does not depend on the seed"
    assert len(first) == len(set(first)) == ASKED, f"{name} asks for an architecture twice, or for too few"


def _history(name: str, space_name: str, seed: int) -> list[Any]:
    space = spaces[space_name]
    search = searches[name](space, seed)
    asked: list[Any] = []
    while len(asked) < ASKED:
        archs = search.ask(min(search.batch, ASKED - len(asked)))
        assert archs, f"{name} gives up after {len(asked)} architectures"
        search.tell(archs, [None if i % 3 == 0 else float(len(space.text(a))) for i, a in enumerate(archs)])
        asked += archs
    return asked
