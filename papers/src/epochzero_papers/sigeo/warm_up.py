r"""Networks that are trained for a few steps before they are scored: SiGeo's warm-up.

Each network is trained by plain SGD with momentum on the batches of a file in turn, over and over, without augmentation
and at a constant rate, and scored on the four batches that follow. The paper does not give its optimiser: here it is
NAS-Bench-201's (rate .1 for batches of 256, so .025 for 64, momentum .9, weight decay 5e-4, Nesterov), and a score's
origin in the store records it.

On a machine with torch and numpy alone,

    python -m epochzero_papers warm-up --space nb201 --table nb201.csv.gz --data cifar10.npz --networks 150 \
        --store warm.db --device cuda

trains and scores into a store, which `epochzero reproduce sigeo-table3 --store warm.db` then finds the scores in. On a
GPU as many networks as memory allows are trained in one population (`epochzero_papers.harness.population`). The same
command resumes. Several may run at the same time, each with its share: `--share 1/4` to `--share 4/4`.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from epochzero import data as data_
from epochzero.data import Batch
from epochzero.data.batch import Part
from epochzero.engine import PlanNetwork, Proxy, Scored, score_population
from epochzero.engine.device import usable
from epochzero.engine.failure import out_of_memory
from epochzero.engine.population.grouping import population_size
from epochzero.engine.population.population import Population
from epochzero.engine.precision import set_precision
from epochzero.engine.proxy import parse
from epochzero.errors import DataError, MachineError, UserError
from epochzero.plan import Plan
from epochzero.registry import spaces
from epochzero.spaces.nb201 import NB201, WIDTHS, Cell, cell, skeleton
from epochzero.store import JSON, Evaluated, Run, Store, manifest
from epochzero.tables import AccuracyTable
from epochzero.types import Origin, Score, Setting, Shape
from epochzero_papers.harness.options import device_option, option
from epochzero_papers.harness.population import SGD, train_network, train_population

SCORED_ON = 4
"""batches"""
ZICO, ZERO_SHOT, WARM = "zico(batches=4)", "sigeo", "sigeo(weights=warm_vision)"
PARTS = ("sigeo(weights=0/1/0)", "sigeo(weights=0/0/1)", "sigeo(loss=mean,weights=0/0/1)")
"""the logarithm of the Fisher-Rao norm, and the loss of the last batch and of all four with its sign turned"""
SHALLOW = "nb201_shallow"
EVERY = 5.0
"""seconds between two lines of progress"""
Tell = Callable[[float], None]
"""Called with the share of the work that is done."""


class Shallow(NB201):
    """NAS-Bench-201 with one cell in each stage: its cells at a third of the cost."""

    name = SHALLOW

    def plan(self, arch: Cell, num_classes: int = 10, input_shape: Shape = (3, 32, 32)) -> Plan:
        return skeleton(lambda width, shape: cell(arch, width, 1, shape), num_classes, input_shape, WIDTHS, 1)


class Warmed(NamedTuple):
    """The scores of one network after some steps."""

    scores: dict[str, Score]
    """by proxy"""
    seconds: float
    """since its training began; in a population, its part of them"""


class _Todo(NamedTuple):
    """An architecture that the store lacks scores of."""

    place: int
    text: str
    network: PlanNetwork
    lacking: tuple[int, ...]
    """the numbers of steps whose scores are missing, in order"""

    @property
    def work(self) -> int:
        return _work(self.lacking)


@dataclass(frozen=True)
class WarmUp:
    """Scores networks of a space after some training; scores in the store are not computed again."""

    space: Any
    stream: Batch
    seed: int = 0
    device: str = "cpu"
    optimiser: SGD = SGD()
    population: int | None = None
    """networks trained in one population; None: on a GPU what memory allows, on the CPU one"""
    apart: bool = False
    """store the terms of SiGeo too, each alone"""
    _on_device: list[Part] = field(default_factory=list, init=False, repr=False, compare=False)

    @classmethod
    def on(cls, space: Any, images: str | Path, batch_size: int, seed: int, device: str) -> WarmUp:
        """Returns a warm-up on all batches of the images, in a random order."""
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
        """Returns ZiCo and SiGeo, with the paper's weights before and after training."""
        return [parse(text) for text in (ZICO, WARM if steps else ZERO_SHOT, *(PARTS if self.apart else ()))]

    def batch(self, steps: int) -> Batch:
        """Returns the batches that follow `steps` steps."""
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

    def network(self, arch: Any) -> PlanNetwork:
        """Returns a network before training."""
        plan = partial(self.space.plan, arch, self.stream.num_classes, self.stream.input_shape)
        return PlanNetwork(plan, Origin(seed=self.seed), self.device)

    def scores(self, networks: Sequence[PlanNetwork], stops: Sequence[int]) -> Iterator[tuple[int, list[Warmed]]]:
        """Yields the scores of each network after each number of steps, all trained in one population."""
        start = time.perf_counter()
        for steps, weights in self._trained(networks, stops):
            warm = [PlanNetwork(one.plan, own, self.device) for one, own in zip(networks, weights, strict=True)]
            scored = self._scored(warm, steps)
            seconds = (time.perf_counter() - start) / len(networks)
            yield steps, [Warmed(one.scores, seconds) for one in scored]

    def _trained(
        self, networks: Sequence[PlanNetwork], stops: Sequence[int]
    ) -> Iterator[tuple[int, list[dict[str, Tensor]]]]:
        if len(networks) > 1:
            yield from train_population(networks, self._batches(), stops, self.optimiser)
            return
        module = networks[0].plan.module(Origin(seed=self.seed)).to(self.device)
        for steps, weights in train_network(module, self._batches(), stops, self.optimiser):
            yield steps, [weights]

    def _scored(self, networks: Sequence[PlanNetwork], steps: int) -> list[Scored]:
        """Scores diverged networks apart from the others, which cannot share a population with them."""
        sound, broken = (
            iter(score_population(group, self.proxies(steps), self.batch(steps), self.seed))
            for group in ([one for one in networks if not one.broken], [one for one in networks if one.broken])
        )
        return [next(broken if one.broken else sound) for one in networks]

    def evaluate(
        self, archs: Sequence[Any], stops: Sequence[int], store: Store, run: Run
    ) -> Iterator[dict[int, dict[str, Score]]]:
        """Yields the scores of each architecture after each number of steps, from the store or computed now."""
        given = 0
        for done in self.fill(archs, stops, store, run):
            texts = [self.space.text(arch) for arch in archs[given:done]]
            known = self._known(texts, stops, store)
            for text in texts:
                yield {steps: {name: found[text] for name, found in known[steps].items()} for steps in stops}
            given = done

    def fill(
        self, archs: Sequence[Any], stops: Sequence[int], store: Store, run: Run, tell: Tell = lambda share: None
    ) -> Iterator[int]:
        """Train and score what the store lacks, one population after another; if memory runs out, half as large ones.

        Yields at first, and after each population, how many architectures are done.
        """
        todo = self._todo(archs, sorted(set(stops)), store)
        size = self._size([one.network for one in todo])
        total, behind = sum(one.work for one in todo), 0
        yield todo[0].place if todo else len(archs)
        while todo:
            group = next(list(alike) for _, alike in groupby(todo, key=lambda one: one.lacking))[:size]
            try:
                for work in self._record(group, run):
                    tell((behind + work) / total)
            except (RuntimeError, MemoryError) as error:
                size = self._smaller(group, error)
                continue
            behind += sum(one.work for one in group)
            todo = todo[len(group) :]
            yield todo[0].place if todo else len(archs)

    def _todo(self, archs: Sequence[Any], stops: Sequence[int], store: Store) -> list[_Todo]:
        texts = [self.space.text(arch) for arch in archs]
        known = self._known(texts, stops, store)
        todo = []
        for place, (arch, text) in enumerate(zip(archs, texts, strict=True)):
            lacking = tuple(steps for steps in stops if any(text not in stored for stored in known[steps].values()))
            if lacking:
                todo.append(_Todo(place, text, self.network(arch), lacking))
        return todo

    def _record(self, group: Sequence[_Todo], run: Run) -> Iterator[int]:
        """Train, score and record a population that lacks the same scores; yields the work done so far."""
        lacking = group[0].lacking
        for i, (steps, warmed) in enumerate(self.scores([one.network for one in group], lacking), start=1):
            pairs = zip(group, warmed, strict=True)
            kept = [Evaluated(one.place, one.text, self._by_key(steps, found)) for one, found in pairs]
            run.record(self.setting(steps), kept)
            yield len(group) * _work(lacking[:i])

    def _smaller(self, group: Sequence[_Todo], error: Exception) -> int:
        """Returns the next population size after memory ran out; any other error is raised."""
        if not out_of_memory(error):
            raise error
        if len(group) == 1:
            raise MachineError(
                f"Out of memory while training {group[0].text} at batch size {self.stream.size}: use a smaller batch "
                "size, or a machine with more memory."
            ) from error
        return len(group) // 2

    def _size(self, networks: Sequence[PlanNetwork]) -> int:
        """Returns how many networks may be trained in one population."""
        size = self.population or min((population_size(one, self.stream) for one in networks), default=1)
        return size if size == 1 or Population.fits(networks) else 1

    def _known(
        self, texts: Sequence[str], stops: Sequence[int], store: Store
    ) -> dict[int, dict[str, dict[str, Score]]]:
        """Returns stored scores by number of steps, proxy and architecture."""
        return {
            steps: {p.text: store.scores(self.setting(steps), p.key, texts) for p in self.proxies(steps)}
            for steps in stops
        }

    def _by_key(self, steps: int, warmed: Warmed) -> dict[str, tuple[Score, float]]:
        """Returns scores and seconds by the store's keys."""
        each = warmed.seconds / len(warmed.scores)
        return {proxy.key: (warmed.scores[proxy.text], each) for proxy in self.proxies(steps)}

    def _batches(self) -> list[Part]:
        if not self._on_device:
            parts = (self.stream.part(i) for i in range(self.stream.parts))
            self._on_device.extend((x.to(self.device), y.to(self.device)) for x, y in parts if y is not None)
        return self._on_device


def _after(stream: Batch, steps: int, index: int) -> Part:
    return stream.part((steps + index) % stream.parts)


def _work(stops: Sequence[int]) -> int:
    """Returns how many batches a network sees in this training and scoring."""
    return stops[-1] + SCORED_ON * len(stops)


class _Clock:
    """Lines on standard error: share done, seconds spent, seconds left."""

    def __init__(self) -> None:
        self.begun = time.perf_counter()
        self.said = 0.0

    @property
    def seconds(self) -> float:
        return time.perf_counter() - self.begun

    def tell(self, share: float) -> None:
        """Prints progress every few seconds."""
        if self.seconds - self.said > EVERY:
            self.said = self.seconds
            self.say(f"{share:.0%} in {self.said:.0f} s, about {self.said / share - self.said:.0f} s left")

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)


@dataclass(frozen=True)
class Asked:
    """The networks to train and score, the numbers of steps, and the store."""

    table: Path = option(about="of accuracies; networks are drawn from it")
    data: str = option(about="images with labels")
    store: Path = option()
    space: str = option("nb201", f"a space, or {SHALLOW}: nb201 with one cell in each stage, not five")
    networks: int = option(150)
    steps: str = option("0,78,156,312", "after which to score")
    batch_size: int = option(64)
    seed: int = option(0)
    device: str = device_option()
    population: int | None = option(
        None, "networks trained in one population; default: on a GPU what memory allows, on the CPU 1"
    )
    time_limit: float | None = option(None, "seconds after which no other population is started")
    share: str = option("1/1", "2/4: the second quarter of the networks")
    rate: float = option(SGD.rate, "learning rate")
    apart: bool = option(False, "store the terms of SiGeo too, each alone")


def run(asked: Asked) -> None:
    """Train and score what the store lacks."""
    set_precision(tf32=False)
    try:
        stops = sorted({int(steps) for steps in asked.steps.split(",")})
        share, shares = map(int, asked.share.split("/"))
    except ValueError:
        raise UserError("--steps takes whole numbers such as 0,78,312, and --share a pair such as 1/4.") from None
    if not 1 <= share <= shares or stops[0] < 0:
        raise UserError("--share runs from 1/4 to 4/4, and --steps from 0 up.")
    if asked.population is not None and asked.population < 1:
        raise UserError(f"--population is {asked.population}; it has to be at least 1.")
    if asked.time_limit is not None and not asked.time_limit > 0:
        raise UserError(f"--time-limit is {asked.time_limit:g}; it has to be more than 0 seconds.")
    if not 0 < asked.rate < math.inf:
        raise UserError(f"--rate is {asked.rate:g}; it has to be positive.")
    usable(asked.device)
    space: Any = Shallow() if asked.space == SHALLOW else spaces[asked.space]
    table = AccuracyTable.read(asked.table)
    archs = [space.parse(table.archs[row]) for row in table.sample(asked.networks, asked.seed)][share - 1 :: shares]
    warm = WarmUp.on(space, asked.data, asked.batch_size, asked.seed, asked.device)
    warm = replace(warm, population=asked.population, optimiser=SGD(rate=asked.rate), apart=asked.apart)
    settings: dict[str, JSON] = {
        "networks": asked.networks,
        "steps": list(stops),
        "seed": asked.seed,
        "share": asked.share,
    }
    limit = math.inf if asked.time_limit is None else asked.time_limit
    with Store.open(asked.store) as store:
        identity = settings | {"stream": warm.stream.id, "optimiser": str(warm.optimiser)}
        begun = store.begin_run("warm-up", identity, manifest(identity | {"device": asked.device}))
        clock = _Clock()
        for populations, done in enumerate(warm.fill(archs, stops, store, begun, clock.tell)):
            clock.say(f"{done}/{len(archs)} networks, {clock.seconds:.0f} s")
            if populations and done < len(archs) and clock.seconds > limit:
                clock.say("The time is up. The same command goes on from here.")
                return
        begun.finish({"networks": len(archs)})
