"""Networks that run one by one on a GPU score there as on a CPU in double precision; skipped where there is no GPU.

PYTHONPATH=src python -m unittest tests.test_gpu_lone
"""

from __future__ import annotations

import unittest
from dataclasses import replace
from random import Random
from unittest import mock

import torch

from epochzero import data
from epochzero.engine import parse_list, score_network, score_population
from epochzero.engine.network import Network
from epochzero.engine.passes import Need
from epochzero.engine.population import scoring
from epochzero.engine.population.grouping import PopulationMode
from epochzero.engine.space_networks import network_of
from epochzero.evaluate.speed import mbconv
from epochzero.plan import init
from epochzero.plan.ops.base import Param
from epochzero.registry import spaces
from epochzero.types import Origin

PROXIES = "grad_norm,snip,l2_norm,fisher,jacov,naswot,dextr,synflow"
EXACT = [
    replace(proxy, needs_of=[Need(replace(own.run, dtype="float64"), own.reads) for own in proxy.needs])
    for proxy in parse_list(PROXIES)
]


@unittest.skipUnless(torch.cuda.is_available(), "needs a GPU")
class LoneOnAGPU(unittest.TestCase):
    def compare(self, name: str, by_tape: bool) -> None:
        """Two networks, by the automatic choice where each runs alone, with the CPU's scores."""
        mbconv.register()
        space, rng = spaces[name], Random(1)
        batch = data.load("pink", input_shape=(3, 32, 32), num_classes=10, size=8)
        archs = [space.sample(rng) for _ in range(2)]
        there = [network_of(space, arch, batch, device="cuda") for arch in archs]
        formed: list[bool] = []
        prepared = scoring._prepared

        def seen(networks: list[Network], lockstep: PopulationMode) -> scoring.Prepared:
            formed.append((made := prepared(networks, lockstep)).population is not None)
            return made

        with (
            mock.patch.object(scoring, "in_groups", lambda given, *_: ([one] for one in given)),
            mock.patch.object(scoring, "_prepared", seen),
        ):
            ours = [one.scores for one in score_population(there, EXACT, batch, 0)]
        self.assertEqual(formed, [by_tape] * 2)
        for arch, found in zip(archs, ours, strict=True):
            right = score_network(network_of(space, arch, batch), EXACT, batch, 0).scores
            for text, own in right.items():
                self.assertEqual((found[text].status, found[text].why), (own.status, own.why), text)
                if own.ok:
                    self.assertLess(abs(found[text].value - own.value), 1e-5 * max(1.0, abs(own.value)), text)

    def test_cells_by_tape(self) -> None:
        self.compare("nb201", True)

    def test_depthwise_layers_by_tape(self) -> None:
        self.compare("mbconv", True)

    def test_transformers_by_autograd(self) -> None:
        self.compare("autoformer_tiny", False)

    def test_modules_by_autograd(self) -> None:
        self.compare("mbconv_modules", False)

    def test_weights_that_are_drawn_together_and_copied_at_once(self) -> None:
        params = {f"w{i}": Param((64, 3 + i, 3, 3), "weight", 27, 576) for i in range(400)}
        params["ones"], params["tokens"] = Param((7,), "one"), Param((5, 9), "table")
        there = init.draw(params, Origin(seed=4), torch.device("cuda"))
        for name, own in init.draw(params, Origin(seed=4)).items():
            self.assertTrue(there[name].is_cuda)
            self.assertTrue(torch.equal(there[name].cpu(), own), name)


if __name__ == "__main__":
    unittest.main()
