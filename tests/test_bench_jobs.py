"""benchmarks/jobs.py: fronts and their area against slow versions, and which differences count."""

from __future__ import annotations

from random import Random

import numpy as np

from tests.test_bench_scripts import script

JOBS = script("jobs")
area, front, verdict = JOBS.area, JOBS.front, JOBS.verdict


def numbers(seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = Random(seed)
    return np.array([rng.random() for _ in range(30)]), np.array([0.1 + rng.random() for _ in range(30)])


def test_a_front_is_what_no_other_network_beats() -> None:
    for seed in range(5):
        merit, speed = numbers(seed)
        slow = {i for i in range(30) if not any(merit[j] > merit[i] and speed[j] > speed[i] for j in range(30))}
        assert set(front(merit, speed)) == slow


def test_the_area_is_the_share_of_points_below() -> None:
    accuracy, speed = numbers(7)
    y, x = ((v - v.min()) / (v.max() - v.min()) for v in (accuracy, np.log(speed)))
    chosen, rng = [3, 8, 15], np.random.default_rng(0)
    points = rng.random((200_000, 2))
    below = np.zeros(len(points), bool)
    for i in chosen:
        below |= (points[:, 0] <= x[i]) & (points[:, 1] <= y[i])
    assert abs(area(accuracy, speed, chosen) - below.mean()) < 0.005


def test_only_differences_beyond_their_interval_count() -> None:
    assert verdict([1.0, 1.1, 0.9]) == "ahead"
    assert verdict([-1.0, -1.1, -0.9]) == "behind"
    assert verdict([1.0, -1.1, 0.3]) == "even"
