"""Batches are cut for many workers."""

from __future__ import annotations

import pytest

from epochzero.executors.base import rounds_of


@pytest.mark.parametrize(
    ("networks", "workers", "seconds", "rounds"),
    [
        (8, 8, 0.2, 4),  # chunks of single networks
        (32, 8, 0.2, 8),  # single networks are long enough
        (32, 8, 0.0, 1),  # nothing is known yet
        (64, 8, 0.01, 1),
        (4000, 1000, 0.2, 1),  # the parent sends a thousand chunks in a second
        (4000, 1000, 2.0, 4),
        (3, 8, 1.0, 7),
        (1000, 1, 9.0, 8),
    ],
)
def test_chunks_keep_workers_busy_and_the_parent_idle(networks: int, workers: int, seconds: float, rounds: int) -> None:
    found = rounds_of(networks, workers, seconds, 0.001)
    assert found == rounds
    if found > 1:  # the parent is busy for half of the time at most
        assert workers * 0.001 <= 0.5 * networks / (workers * found) * seconds
