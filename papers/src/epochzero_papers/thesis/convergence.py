r"""Does a wide, shallow cell learn faster, and does it generalise better? A cell and variants of it, trained alike.

    python -m epochzero_papers convergence --data cifar10.npz --device cuda --out convergence.json

The line-up: a cell, random variants of its connections of falling width, and random variants of its operations; each
with every learning rate and every seed. All are trained on the same batches, on a GPU as one population, by SGD as in
the thesis' appendix A.1: momentum .9, weight decay 3e-4, batches of 80, cosine annealing to 0, crops and flips, no
other regularisation. Then the loss landscape and the gradient variance around the trained weights of the networks with
the middle rate are measured on test images; the seed of the weights also draws the directions.

Needs torch and numpy alone. The file is written after each epoch and each plane, with the last weights in a folder next
to it: the same command resumes. `epochzero analyze convergence --from` draws the file.

Shu, Wang, Cai. Understanding architectures learnt by cell-based neural architecture search. ICLR 2020. arXiv:1909.09569
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from epochzero.analysis.gradient_variance import check_parts, gradient_variance
from epochzero.analysis.landscape import Plane, axis_of, on_plane
from epochzero.analysis.topology import KNOWN, random_connections, random_operations, topologies
from epochzero.engine import PlanNetwork
from epochzero.engine.device import machine, usable
from epochzero.engine.gpu.graph import capture
from epochzero.engine.precision import set_precision
from epochzero.errors import UserError
from epochzero.files import finite, write
from epochzero.plan import generator
from epochzero.registry import spaces
from epochzero.spaces.darts import Darts
from epochzero.spaces.genotypes import Genotype, parse
from epochzero.train.augment import crop, flip
from epochzero.train.checkpoint import Checkpoints
from epochzero.train.image_data import Images, load_images
from epochzero.types import Origin
from epochzero_papers.harness.options import device_option, option
from epochzero_papers.harness.population import SGD, JoinedSubject, PopulationSGD
from epochzero_papers.thesis.recorded import Recorded

PAD = 4
TEST_AT_ONCE = 250
DARTS = "darts"
FEWEST = 3
"""cells of a network, two of which are reduction cells"""
Say = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True)
class Study:
    """The sizes of the study."""

    arch: str = "DARTS"
    space: str = DARTS
    """darts, with smaller networks, or a space of nb201 or nb101, with their own networks"""
    widths: tuple[float, ...] = (3.0, 2.5, 2.0, 1.5)
    """widths of the variants of connections, in c; for other spaces only their number matters"""
    operations: int = 2
    """variants of the operations"""
    channels: int = 8
    cells: int = 5
    rates: tuple[float, ...] = (0.25, 0.025, 0.0025)
    epochs: int = 10
    batch_size: int = 80
    momentum: float = 0.9
    decay: float = 3e-4
    seeds: int = 1
    seed: int = 0
    images: int = 256
    """test images of the landscape"""
    across: int = 21
    """points to a side of the landscape"""
    span: float = 1.0
    noise_images: int = 96
    """test images of the gradient variance"""
    noise_parts: int = 6
    noise_across: int = 9

    def __post_init__(self) -> None:
        if min(self.epochs, self.seeds, self.images) < 1 or self.batch_size < 2 or not self.rates:
            raise UserError("The study needs epochs, seeds, images, a batch of 2 or more, and a learning rate.")
        if self.space == DARTS and self.cells < FEWEST:
            raise UserError(
                f"Networks of fewer than {FEWEST} cells have no normal one, which variants change: add cells."
            )
        axis_of(self.span, self.across)
        axis_of(self.span, self.noise_across)
        check_parts(self.noise_images, self.noise_parts)

    @property
    def middle(self) -> float:
        """The learning rate of the networks whose planes are measured."""
        return sorted(self.rates)[len(self.rates) // 2]


class Entry(NamedTuple):
    """One network to train."""

    name: str
    arch: Any
    rate: float
    seed: int


def lineup(study: Study) -> dict[str, Any]:
    """Returns the cell and its variants by name."""
    rng, known = Random(study.seed), study.space == DARTS and study.arch in KNOWN
    if study.space == DARTS:
        arch: Any = KNOWN[study.arch] if known else parse(study.arch)
        connections = list(ladder(arch, study.widths, rng))
    else:
        arch = spaces[study.space].parse(study.arch)
        connections = narrowing(arch, len(study.widths), rng)
    cells = {study.arch if known else "cell": arch}
    cells |= {f"C{i}": variant for i, variant in enumerate(connections, start=1)}
    return cells | {f"O{i}": random_operations(arch, rng) for i in range(1, study.operations + 1)}


def ladder(arch: Genotype, widths: tuple[float, ...], rng: Random, draws: int = 100_000) -> Iterator[Genotype]:
    """For each width a random variant of the connections that has it: the first that is no shallower than the last."""
    deep = 0
    for width in widths:
        for _ in range(draws):
            variant: Genotype = random_connections(arch, rng)
            topology = topologies(variant)["normal"]
            if topology.width == width and topology.depth >= deep:
                break
        else:
            raise UserError(f"None of {draws:,} random variants of this cell is {width:g}c wide: choose other widths.")
        deep = topology.depth
        yield variant


def narrowing(arch: Any, count: int, rng: Random, draws: int = 1_000) -> list[Any]:
    """Up to `count` random variants of the connections of different widths, the widest first."""
    by_width: dict[float, Any] = {}
    for _ in range(draws):
        variant = random_connections(arch, rng)
        width = next(iter(topologies(variant).values())).width
        if variant != arch:
            by_width.setdefault(width, variant)
    return [by_width[width] for width in sorted(by_width, reverse=True)][-count:]


class Team:
    """Networks trained as one population."""

    def __init__(self, networks: Sequence[PlanNetwork], rates: Sequence[float], study: Study) -> None:
        self.networks = JoinedSubject(networks)
        self.weights = self.networks.weights
        sgd = PopulationSGD(self.networks, SGD(1.0, study.momentum, study.decay, nesterov=False), rates)
        self.speeds = sgd.velocities
        state = [*self.weights.values(), *self.speeds.values()]
        self.step = Recorded(sgd.step, state, capture if self.networks.population.device.type == "cuda" else None)

    def test(self, images: Images) -> tuple[Tensor, Tensor]:
        """Returns mean loss and accuracy [P] on the test images."""
        loss = correct = torch.zeros(self.networks.count, device=images.test_y.device)
        for first in range(0, len(images.test_y), TEST_AT_ONCE):
            y = images.test_y[first : first + TEST_AT_ONCE]
            logits = self.networks.logits(self.weights, images.standardised(images.test_x[first:][: len(y)]))
            loss = loss + self.networks.each_loss(logits, y) * len(y)
            correct = correct + (logits.argmax(2) == y).sum(1)
        return loss / len(images.test_y), correct / len(images.test_y)


class Trainer:
    """Trains all networks of a study on the same batches: as one population on a GPU, one by one on a CPU."""

    def __init__(self, study: Study, images: Images, device: str, together: int | None = None) -> None:
        self.study, self.images = study, images.to(device)
        self.device = torch.device(device)
        small = Darts("darts_small", study.channels, study.cells)
        self.space: Any = small if study.space == DARTS else spaces[study.space]
        cells = lineup(study).items()
        self.seeds = range(study.seed, study.seed + study.seeds)
        self.entries = [
            Entry(name, arch, rate, seed) for seed in self.seeds for rate in study.rates for name, arch in cells
        ]
        self.together = together or (len(self.entries) if self.device.type == "cuda" else 1)
        self.teams = [
            Team([self._network(entry) for entry in team], [entry.rate for entry in team], study)
            for team in self._teams(self.entries)
        ]
        self.size = min(study.batch_size, len(images.y))
        self.steps = len(images.y) // self.size

    def _teams(self, members: Sequence[T]) -> Iterator[Sequence[T]]:
        return (members[i : i + self.together] for i in range(0, len(members), self.together))

    def _network(self, entry: Entry, weights: Mapping[str, Tensor] | None = None) -> PlanNetwork:
        plan = self.space.plan(entry.arch, self.images.num_classes, self.images.input_shape)
        return PlanNetwork(plan, weights or Origin(seed=entry.seed), self.device)

    def epoch(self, number: int) -> dict[str, list[float]]:
        """Train for one epoch, then test; returns losses and accuracies of each network."""
        measures: dict[str, list[float]] = {"loss": [], "test_loss": [], "test_accuracy": []}
        for team in self.teams:
            total = torch.zeros(team.networks.count, device=self.device)
            for batch in self._batches(number):
                total += team.step(*batch)
            for name, values in zip(measures, (total / self.steps, *team.test(self.images)), strict=True):
                measures[name] += values.tolist()
        return measures

    def _batches(self, number: int) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
        """Yields images, labels and the share of the learning rate of each step of an epoch."""
        images, rng = self.images, generator(self.study.seed, "convergence", number)
        order = torch.randperm(len(images.y), generator=rng).to(self.device)
        for step in range(self.steps):
            chosen = order[step * self.size : (step + 1) * self.size]
            x = images.standardised(flip(crop(images.x[chosen], PAD, rng), rng))  # [B, C, H, W]
            passed = (number * self.steps + step) / (self.study.epochs * self.steps)
            share = torch.full((), (1 + math.cos(math.pi * passed)) / 2, device=self.device)
            yield x, images.y[chosen], share

    def states(self) -> dict[str, dict[str, Tensor]]:
        """Returns weights and speeds by population and name, for a checkpoint."""
        return {
            f"{what} {place}": tensors
            for place, team in enumerate(self.teams)
            for what, tensors in (("weights", team.weights), ("speeds", team.speeds))
        }

    def examined(self, seed: int) -> Iterator[tuple[list[str], JoinedSubject]]:
        """Yields the networks of the middle rate and a seed with their present weights, and their names."""
        own = [weights for team in self.teams for weights in team.networks.unpacked(team.weights)]
        of_seed = [
            (entry, weights)
            for entry, weights in zip(self.entries, own, strict=True)
            if (entry.rate, entry.seed) == (self.study.middle, seed)
        ]
        for team in self._teams(of_seed):
            yield [entry.name for entry, _ in team], JoinedSubject([self._network(*one) for one in team])

    def some(self, count: int) -> tuple[Tensor, Tensor]:
        """Returns the first test images, standardised, and their labels."""
        return self.images.standardised(self.images.test_x[:count]), self.images.test_y[:count]


def study_convergence(
    study: Study, images: Images, out: Path, device: str = "cpu", say: Say = lambda note: None
) -> dict[str, Any]:
    """Train, measure the planes, and write the result to a JSON file step by step."""
    begun = time.perf_counter()
    check_parts(min(study.noise_images, len(images.test_y)), study.noise_parts)
    identity = {"study": json.loads(json.dumps(asdict(study))), "data": images.facts}
    result = _so_far(out, identity)
    trainer = Trainer(study, images, device)
    result.setdefault("seconds", {})
    result |= {"machine": machine(device), "networks": [_described(trainer, entry) for entry in trainer.entries]}
    kept = Checkpoints(out.with_suffix(".weights"))
    kept.folder.mkdir(parents=True, exist_ok=True)
    curves = result["curves"] = _restored(trainer, kept, identity)
    say(f"{len(trainer.entries)} networks ready in {time.perf_counter() - begun:.1f} s")
    for number in range(len(curves), study.epochs):
        start = time.perf_counter()
        curves.append(finite(trainer.epoch(number)))
        kept.write(number + 1, {"identity": json.dumps(identity), "curves": curves} | trainer.states())
        spent = time.perf_counter() - start
        result["seconds"][f"epoch {number + 1}"] = spent
        write(out, json.dumps(identity | result) + "\n")
        result["recorded"] = all(team.step.play is not None for team in trainer.teams)
        best = max(value for value in curves[-1]["test_accuracy"] if value is not None)
        say(f"epoch {number + 1}/{study.epochs}: {spent:.1f} s, best test accuracy {100 * best:.1f} %")
    for name, look in (("landscape", _landscape), ("gradient_variance", _variance)):
        if name not in result:
            start = time.perf_counter()
            result[name] = _looked(trainer, look)
            result["seconds"][name] = time.perf_counter() - start
            write(out, json.dumps(identity | result) + "\n")
            say(f"{name}: {result['seconds'][name]:.1f} s")
    return identity | result


def _looked(trainer: Trainer, look: Callable[[Trainer, JoinedSubject, int], Plane]) -> dict[str, Any]:
    """Returns values on a plane; the networks of each seed have directions of that seed."""
    planes: dict[str, Any] = {"networks": [], "seeds": [], "values": []}
    for seed in trainer.seeds:
        for names, subject in trainer.examined(seed):
            plane = look(trainer, subject, seed)
            planes["networks"] += names
            planes["seeds"] += [seed] * len(names)
            planes["values"] += finite(plane.values)
            planes["axis"] = list(plane.axis)
    return planes


def _landscape(trainer: Trainer, subject: JoinedSubject, seed: int) -> Plane:
    study = trainer.study
    x, y = trainer.some(study.images)
    axis = axis_of(study.span, study.across)
    return on_plane(subject, axis, seed, lambda weights: subject.losses(weights, x, y))


def _variance(trainer: Trainer, subject: JoinedSubject, seed: int) -> Plane:
    study = trainer.study
    x, y = trainer.some(study.noise_images)
    axis = axis_of(study.span, study.noise_across)
    return on_plane(subject, axis, seed, lambda weights: gradient_variance(subject, weights, x, y, study.noise_parts))


def _described(trainer: Trainer, entry: Entry) -> dict[str, Any]:
    cell = next(iter(topologies(entry.arch).values()))
    plan = trainer.space.plan(entry.arch, trainer.images.num_classes, trainer.images.input_shape)
    facts = {"name": entry.name, "arch": trainer.space.text(entry.arch), "width": cell.width, "depth": cell.depth}
    return facts | {"params": plan.params, "rate": entry.rate, "seed": entry.seed}


def _so_far(out: Path, identity: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the content of a stopped study; UserError if the file holds another one."""
    if not out.exists():
        return {}
    try:
        content = json.loads(out.read_text(encoding="utf-8"))
        same = {key: content.pop(key) for key in identity} == identity
    except (ValueError, KeyError, AttributeError):
        raise UserError(f"'{out}' holds no study to go on with: choose another --out, or remove it.") from None
    if not same:
        raise UserError(f"'{out}' holds a study with other settings or data: choose another --out, or remove it.")
    return dict(content)


def _restored(trainer: Trainer, kept: Checkpoints, identity: Mapping[str, Any]) -> list[Any]:
    """Returns the curves up to the last checkpoint, and loads its weights into the trainer."""
    state = kept.last()
    if state is None:
        return []
    if state.get("identity") != json.dumps(identity):
        raise UserError(
            f"The folder '{kept.folder}' holds weights of another study: choose another --out, or remove it."
        )
    for part, mine in trainer.states().items():
        for name, tensor in mine.items():
            tensor.copy_(state[part][name])
    return list(state["curves"])


@dataclass(frozen=True)
class Asked:
    """The options of `python -m epochzero_papers convergence`."""

    data: Path = option(about="an .npz file with x_train, y_train, x_test, y_test")
    out: Path = option(about="the result, a JSON file")
    device: str = device_option()
    arch: str = option(Study.arch, "a known cell or an architecture")
    space: str = option(Study.space, "darts, nb201 or nb101")
    operations: int = option(Study.operations, "variants of the operations")
    channels: int = option(Study.channels)
    cells: int = option(Study.cells)
    epochs: int = option(Study.epochs)
    batch_size: int = option(Study.batch_size)
    seeds: int = option(Study.seeds, "draws of the weights")
    seed: int = option(Study.seed)
    across: int = option(Study.across, "points to a side of the landscape")
    noise_across: int = option(Study.noise_across, "points to a side of the plane of the gradient variance")
    tf32: bool = option(False, "let cuDNN and cuBLAS round factors to TF32")


def run(asked: Asked) -> None:
    """Train and measure, and write the result to a file."""
    set_precision(asked.tf32)
    usable(asked.device)
    if asked.out.suffix != ".json":
        raise UserError(f"--out takes a name that ends with .json, not '{asked.out}'.")
    study = Study(**{one.name: getattr(asked, one.name) for one in fields(Study) if hasattr(asked, one.name)})
    images = load_images(asked.data)
    study_convergence(study, images, asked.out, asked.device, lambda note: print(note, file=sys.stderr, flush=True))
