"""Training steps that are played from a recording are those that are run; skipped where there is no GPU.

Written for `unittest`, so that a bare GPU image can run it too:

    PYTHONPATH=src python -m unittest tests.test_gpu_training
"""

from __future__ import annotations

import unittest
from dataclasses import replace

import torch

from epochzero.ensemble.posterior import fit_posterior
from epochzero.registry import spaces
from epochzero.supernet import SharedWeights, shared
from epochzero.train.image_data import Images
from epochzero.train.loop import Training
from epochzero.train.processes import Processes
from epochzero.train.recipes import Recipe
from epochzero.train.supernet import SUPERNET

RECIPE = Recipe(
    epochs=2, batch_size=32, learning_rate=0.01, clip=5, label_smoothing=0.1, mixup=0.2, cutout=4, auto_augment=True
)
ARCH = "|nor_conv_3x3~0|+|nor_conv_1x1~0|avg_pool_3x3~1|+|skip_connect~0|nor_conv_3x3~1|none~2|"


def noise() -> Images:
    rng = torch.Generator().manual_seed(0)
    x = torch.randint(256, (160, 3, 16, 16), generator=rng, dtype=torch.uint8)
    y = torch.randint(4, (160,), generator=rng)
    middle = torch.full((1, 3, 1, 1), 127.5)
    return Images(x[32:], y[32:], x[:32], y[:32], middle, middle / 2, 4, {"mean": [0.5] * 3, "std": [0.25] * 3})


@unittest.skipUnless(torch.cuda.is_available(), "no GPU here")
class TestRecordedSteps(unittest.TestCase):
    def trained(self, recipe: Recipe, record: bool | None) -> tuple[Training, list[dict[str, float]]]:
        space = spaces["nb201"]
        plan = space.plan(space.parse(ARCH), 4, (3, 16, 16))
        training = Training(plan, noise(), recipe, 0, Processes(device="cuda"), record=record)
        return training, [training.epoch(epoch, lambda done, total, note: None) for epoch in range(2)]

    def test_recorded_or_not(self) -> None:
        """Within what bfloat16 and another choice of kernels make of it."""
        recorded, plain = (self.trained(RECIPE, record) for record in (None, False))
        self.assertIsNotNone(recorded[0].recorded)
        self.assertIsNone(plain[0].recorded)
        for ours, theirs in zip(recorded[1], plain[1], strict=True):
            self.assertAlmostEqual(ours["loss"], theirs["loss"], delta=0.02 * theirs["loss"])
        for name, weight in plain[0].module.state_dict().items():
            torch.testing.assert_close(recorded[0].module.state_dict()[name], weight, rtol=0.1, atol=0.02)

    def test_resumed_as_if_never_stopped(self) -> None:
        """A recording that is made in the second epoch goes on from the first one's weights and statistics."""
        whole, _ = self.trained(RECIPE, None)
        space = spaces["nb201"]
        plan = space.plan(space.parse(ARCH), 4, (3, 16, 16))
        first, second = (Training(plan, noise(), RECIPE, 0, Processes(device="cuda")) for _ in range(2))
        first.epoch(0, lambda done, total, note: None)
        second.restore(first.state())
        second.epoch(1, lambda done, total, note: None)
        for name, weight in whole.module.state_dict().items():
            torch.testing.assert_close(second.module.state_dict()[name], weight, rtol=0.1, atol=0.02)

    def test_dropped_paths_are_not_recorded(self) -> None:
        training, history = self.trained(replace(RECIPE, drop_path=0.3), None)
        self.assertIsNone(training.recorded)
        self.assertTrue(all(record["loss"] < 10 for record in history))

    def test_posteriors(self) -> None:
        """Logits of recorded steps are those of plain ones."""
        for name, size in (("nb201", (8, 1, 1)), ("darts", (8, 3, 2))):
            network = shared(spaces[name], 4, (3, 16, 16), *size)
            weights = SharedWeights(network, network.draw(0, "cuda"))
            first, second = (fit_posterior(weights, noise(), epochs=2, batch_size=16, record=r) for r in (True, False))
            for ours, theirs in zip(first.logits, second.logits, strict=True):
                torch.testing.assert_close(ours, theirs, rtol=0.05, atol=0.01)

    def test_best_responses(self) -> None:
        """Weights change between the recorded steps. Needs `papers/src` in PYTHONPATH."""
        from epochzero_papers.thesis.best_response import best_response

        for name, size in (("nb201", (8, 1, 1)), ("darts", (8, 3, 2))):
            network = shared(spaces[name], 4, (3, 16, 16), *size)
            recipe = replace(SUPERNET, epochs=1, batch_size=32)
            shared_weights, learnt = best_response(network, noise(), recipe, device="cuda")
            self.assertEqual(len(shared_weights.history), 1)
            self.assertGreater(max(float(own.abs().max()) for own in learnt.logits), 0.005)


if __name__ == "__main__":
    unittest.main()
