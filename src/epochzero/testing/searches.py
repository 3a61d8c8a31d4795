"""The contract of search methods."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np

from epochzero.registry import options_of, searches, spaces
from epochzero.study.methods.base import Pool, Pooling

ASKED = 60


def check_search(name: str, space_name: str = "nb201") -> None:
    """The same seed asks for the same; no repeats; networks without a score are bearable.

    One that says that it overlaps keeps to this also when it is asked before it is told.
    """
    for ahead in (0, 2) if getattr(searches[name], "overlaps", False) else (0,):
        _check(name, space_name, ahead)


def _check(name: str, space_name: str, ahead: int) -> None:
    first, second, other = (_history(name, space_name, seed, ahead) for seed in (0, 0, 1))
    assert first == second, f"{name} asks for other architectures with the same seed"
    assert first != other, f"{name} does not depend on the seed"
    assert len(first) == len(set(first)) == ASKED, f"{name} asks for an architecture twice, or for too few"


def _history(name: str, space_name: str, seed: int, ahead: int) -> list[Any]:
    """The architectures that are asked for, each batch before the merits of the `ahead` batches before it are told."""
    space = spaces[space_name]
    search = _made(name, space, seed)
    assert hasattr(search, "batch"), f"{name} lacks the attribute `batch`: how many networks it asks for at a time"
    asked: list[Any] = []
    waiting: list[list[Any]] = []
    while len(asked) < ASKED or waiting:
        if len(asked) < ASKED:
            archs = search.ask(min(search.batch, ASKED - len(asked)))
            assert archs, f"{name} gives up after {len(asked)} architectures"
            asked += archs
            waiting.append(archs)
        if len(waiting) > ahead or len(asked) == ASKED:
            archs = waiting.pop(0)
            search.tell(archs, [None if i % 3 == 0 else float(len(space.text(a))) for i, a in enumerate(archs)])
    return asked


def _made(name: str, space: Any, seed: int) -> Any:
    """The search; one that chooses from a pool gets some networks, each with positive scores by all it wants."""
    maker = searches[name]
    if not isinstance(maker, Pooling):
        return maker(space, seed)
    wanted = maker.wants(options_of(maker))  # type: ignore[arg-type]
    rng = Random(seed)
    archs = list(dict.fromkeys(space.sample(rng) for _ in range(4 * ASKED)))
    values = {proxy: np.array([1 + 9 * rng.random() for _ in archs]) for proxy in wanted.proxies}
    made: Any = maker
    return made(space, seed, Pool(archs, values, dict.fromkeys(values, True)))
