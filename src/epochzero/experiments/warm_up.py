r"""Networks that are trained for a few steps before they are scored: SiGeo's warm-up.

Each network is trained by plain SGD with momentum on batch after batch of a file, from its first again where there are
no more, without augmentation and at a constant rate, and scored on the four batches that follow. The paper does not
give its optimiser: here it is NAS-Bench-201's (rate .1 for batches of 256, so .025 for 64, momentum .9, weight decay
5e-4, Nesterov), and a score's origin in the store says which it was.

On a machine with torch and numpy alone,

    python -m epochzero.experiments.warm_up --space nb201 --table nb201.csv.gz --data cifar10.npz --networks 150 \
        --store warm.db --device cuda

trains and scores into a store, which `epochzero reproduce sigeo-table3 --store warm.db` then finds the scores in.
Several may run at once, each with its share: `--share 1/4` ... `--share 4/4`.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from epochzero import data as data_
from epochzero.benchmarks import AccuracyTable
from epochzero.data import Batch
from epochzero.data.batch import Part
from epochzero.engine import PlanNetwork, Proxy, score_network
from epochzero.engine.proxy import parse
from epochzero.errors import DataError, UserError
from epochzero.plan.module import PlanModule
from epochzero.registry import spaces
from epochzero.run.bare import command, default_device, set_precision
from epochzero.store import Evaluated, Run, Store, manifest
from epochzero.types import Origin, Score, Setting

SCORED_ON = 4
"""batches"""
ZICO, ZERO_SHOT, WARM = "zico(batches=4)", "sigeo", "sigeo(weights=warm_vision)"


@dataclass(frozen=True)
class SGD:
    """How networks are trained."""

    rate: float = 0.025
    momentum: float = 0.9
    decay: float = 5e-4

    def __str__(self) -> str:
        return f"sgd(rate={self.rate:g},momentum={self.momentum:g},decay={self.decay:g},nesterov)"


def trained(
    module: PlanModule, batches: Sequence[Part], stops: Sequence[int], optimiser: SGD
) -> Iterator[tuple[int, dict[str, Tensor]]]:
    """The weights after each of so many steps; the batches are used in turn, over and over."""
    sgd = torch.optim.SGD(
        module.parameters(), optimiser.rate, optimiser.momentum, weight_decay=optimiser.decay, nesterov=True
    )
    module.train()
    done = 0
    for stop in sorted(stops):
        for step in range(done, stop):
            x, y = batches[step % len(batches)]
            assert y is not None
            sgd.zero_grad()
            torch.nn.functional.cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
            sgd.step()
        done = stop
        yield stop, {name: weight.detach().clone() for name, weight in module.weights().items()}


@dataclass(frozen=True)
class WarmUp:
    """Scores networks of a space after some training, looking up first what the store has."""

    space: Any
    stream: Batch
    seed: int = 0
    device: str = "cpu"
    optimiser: SGD = SGD()
    _on_device: list[Part] = field(default_factory=list, init=False, repr=False, compare=False)

    @classmethod
    def on(cls, space: Any, images: str | Path, batch_size: int, seed: int, device: str) -> WarmUp:
        """All batches that the images make, in a random order."""
        if images in data_.NOISE:
            raise DataError(f"Training needs real images, and '{images}' is noise: give a file with images and labels.")
        stream = data_.load(images, size=batch_size, parts=sys.maxsize, seed=seed)
        if stream.part(0)[1] is None:
            raise DataError(f"{images} has no labels, and training needs them: give images with labels.")
        return cls(space, stream, seed, device)

    @property
    def about(self) -> str:
        return (
            f"{self.stream.about} Trained on {self.stream.parts} batches in turn by {self.optimiser} and scored on the "
            f"next {SCORED_ON}."
        )

    def proxies(self, steps: int) -> list[Proxy]:
        """ZiCo and SiGeo, with the weights that the paper gives it before and after training."""
        return [parse(ZICO), parse(WARM if steps else ZERO_SHOT)]

    def batch(self, steps: int) -> Batch:
        """The batches that follow so many steps."""
        return replace(
            self.stream,
            id=f"{self.stream.id}+{steps}",
            about=f"The {SCORED_ON} batches after the first {steps}. {self.stream.about}",
            parts=SCORED_ON,
            make_part=partial(_after, self.stream, steps),
        )

    def setting(self, steps: int) -> Setting:
        origin = str(Origin(seed=self.seed))
        warmed = f"{origin}, {steps} steps of {self.optimiser} on {self.stream.id}" if steps else origin
        return Setting(self.space.name, self.batch(steps).id, warmed)

    def scores(self, arch: Any, stops: Sequence[int]) -> dict[int, tuple[dict[str, Score], float]]:
        """After each number of steps the scores by proxy, and the seconds that it took to get there."""
        plan = self.space.plan(arch, self.stream.num_classes, self.stream.input_shape)
        module = plan.module(Origin(seed=self.seed)).to(self.device)
        found = {}
        start = time.perf_counter()
        for steps, weights in trained(module, self._batches(), stops, self.optimiser):
            network = PlanNetwork(plan, weights, self.device)
            scores = score_network(network, self.proxies(steps), self.batch(steps), self.seed).scores
            found[steps] = (scores, time.perf_counter() - start)
        return found

    def evaluate(
        self, archs: Sequence[Any], stops: Sequence[int], store: Store, run: Run
    ) -> Iterator[dict[int, dict[str, Score]]]:
        """Of each architecture in turn the scores after each number of steps, from the store or computed now."""
        texts = [self.space.text(arch) for arch in archs]
        known = {
            steps: {p.text: store.scores(self.setting(steps), p.key, texts) for p in self.proxies(steps)}
            for steps in stops
        }
        for place, (arch, text) in enumerate(zip(archs, texts, strict=True)):
            lacking = [steps for steps in stops if any(text not in found for found in known[steps].values())]
            new = self.scores(arch, lacking) if lacking else {}
            for steps, (scores, seconds) in new.items():
                kept = {p.key: (scores[p.text], seconds / len(scores)) for p in self.proxies(steps)}
                run.record(self.setting(steps), [Evaluated(place, text, kept)])
            yield {
                steps: new[steps][0] if steps in new else {name: found[text] for name, found in known[steps].items()}
                for steps in stops
            }

    def _batches(self) -> list[Part]:
        if not self._on_device:
            parts = (self.stream.part(i) for i in range(self.stream.parts))
            self._on_device.extend((x.to(self.device), y.to(self.device)) for x, y in parts if y is not None)
        return self._on_device


def _after(stream: Batch, steps: int, index: int) -> Part:
    return stream.part((steps + index) % stream.parts)


def main(arguments: Sequence[str] | None = None) -> None:
    """The command."""
    reader = argparse.ArgumentParser(prog="python -m epochzero.experiments.warm_up", description=__doc__.split("\n")[0])
    reader.add_argument("--space", default="nb201")
    reader.add_argument("--table", type=Path, required=True, help="of accuracies; networks are drawn from it")
    reader.add_argument("--data", required=True, help="images with labels")
    reader.add_argument("--store", type=Path, required=True)
    reader.add_argument("--networks", type=int, default=150)
    reader.add_argument("--steps", default="0,78,156,312", help="after which to score")
    reader.add_argument("--batch-size", type=int, default=64)
    reader.add_argument("--seed", type=int, default=0)
    reader.add_argument("--device", default=default_device())
    reader.add_argument("--share", default="1/1", help="2/4: the second quarter of the networks")
    asked = reader.parse_args(arguments)
    command(partial(_run, asked))


def _run(asked: argparse.Namespace) -> None:
    set_precision(tf32=False)
    try:
        stops = sorted({int(steps) for steps in asked.steps.split(",")})
        share, shares = map(int, asked.share.split("/"))
    except ValueError:
        raise UserError("--steps takes whole numbers such as 0,78,312, and --share a pair such as 1/4.") from None
    if not 1 <= share <= shares or stops[0] < 0:
        raise UserError("--share runs from 1/4 to 4/4, and --steps from 0 up.")
    space = spaces[asked.space]
    table = AccuracyTable.read(asked.table)
    archs = [space.parse(table.archs[row]) for row in table.sample(asked.networks, asked.seed)][share - 1 :: shares]
    warm = WarmUp.on(space, asked.data, asked.batch_size, asked.seed, asked.device)
    settings = {"networks": asked.networks, "steps": list(stops), "seed": asked.seed, "share": asked.share}
    with Store.open(asked.store) as store:
        identity = settings | {"stream": warm.stream.id, "optimiser": str(warm.optimiser)}
        run = store.begin_run("warm-up", identity, manifest(identity | {"device": asked.device}))
        start = time.perf_counter()
        for done, _ in enumerate(warm.evaluate(archs, stops, store, run), start=1):
            print(f"{done}/{len(archs)} networks, {time.perf_counter() - start:.0f} s", file=sys.stderr)
        run.finish({"networks": len(archs)})


if __name__ == "__main__":
    main()
