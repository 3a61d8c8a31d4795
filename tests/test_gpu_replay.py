"""Draws that are played from a recording score as those that are run; skipped where there is no GPU.

Written for `unittest`, so that a bare GPU image can run it too:

    PYTHONPATH=src python -m unittest tests.test_gpu_replay
"""

from __future__ import annotations

import unittest
from random import Random
from unittest.mock import patch

import torch

from epochzero import data
from epochzero.engine import PlanNetwork, parse, score_population
from epochzero.engine.gpu import replay
from epochzero.registry import spaces

SHAPE = (3, 16, 16)


@unittest.skipUnless(torch.cuda.is_available(), "no GPU here")
class TestReplay(unittest.TestCase):
    def scores(self, plain: int) -> list[dict[str, float]]:
        space, rng = spaces["nb201"], Random(0)
        plans = [space.plan(space.sample(rng), 3, SHAPE) for _ in range(5)]
        batch = data.load("pink", input_shape=SHAPE, num_classes=3, size=16)
        asked = [parse("swap(repeats=6,samples=8)"), parse("zen(repeats=4)")]
        with patch.object(replay, "PLAIN", plain):
            found = score_population([PlanNetwork(plan, device="cuda") for plan in plans], asked, batch, 0, "always")
        return [{name: score.value for name, score in one.scores.items()} for one in found]

    def test_recorded_or_not(self) -> None:
        recorded = 0
        record = replay.Replay._record

        def counted(*given: object) -> None:
            nonlocal recorded
            recorded += 1
            record(*given)  # type: ignore[arg-type]

        with patch.object(replay.Replay, "_record", counted):
            played = self.scores(plain=2)
        self.assertEqual(recorded, 3, "swap's draws, and zen's with and without the nudge")
        for one, other in zip(played, self.scores(plain=100), strict=True):
            for name in one:
                self.assertAlmostEqual(one[name] / other[name], 1, places=4)


if __name__ == "__main__":
    unittest.main()
