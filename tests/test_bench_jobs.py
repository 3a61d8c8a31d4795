"""benchmarks/jobs.py: fronts and their area against slow versions, and which differences count."""

from __future__ import annotations

from random import Random

import numpy as np

from tests.test_bench_scripts import ROOT, script

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


def test_the_readme_counts_what_the_page_shows() -> None:
    """On how many devices `auto` is ahead of chance, Dextr or FLOPs are as good, and FLOPs are better."""
    rows = [line.strip("| ").split(" | ") for line in (ROOT / "docs" / "jobs.md").read_text().splitlines()]
    devices = [(row[7], row[9], row[11]) for row in rows if len(row) == 12 and row[7] in ("ahead", "even", "behind")]
    assert [chance for chance, _, _ in devices] == ["ahead"] * 12
    better = sum("behind" in others for _, *others in devices)
    assert (better, sum("even" in others and "behind" not in others for _, *others in devices)) == (2, 9)
    said = " ".join((ROOT / "README.md").read_text().split())
    assert "On nine of them Dextr or counting FLOPs is as good, on two counting FLOPs is better." in said


def test_only_differences_beyond_their_interval_count() -> None:
    assert verdict([1.0, 1.1, 0.9]) == "ahead"
    assert verdict([-1.0, -1.1, -0.9]) == "behind"
    assert verdict([1.0, -1.1, 0.3]) == "even"
