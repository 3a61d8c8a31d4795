"""Chooses the architectures of an ensemble by one of several methods.

    nesbs-mc, nesbs-svgd   a supernet is trained on 70 % of the images, its posterior fitted on the others; the best of
                           several candidate ensembles by inherited weights is taken (`nesbs.py`)
    random                 architectures, uniformly
    nes-rs                 a random pool is trained on 70 %, members are added greedily by the others (`choosing.py`)
    proxies                nothing is trained: a random pool, a proxy's score, and the distances of untrained networks

The members are trained afterwards by one recipe (`members.py`). With a folder, the choice is kept in `choice.json`, and
supernet and pool in sub-folders, so that an interrupted run resumes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random
from typing import Any, Literal

import torch

from epochzero.data.sealed import put
from epochzero.data.tensors import from_tensors
from epochzero.engine import PlanNetwork, score_network
from epochzero.ensemble.choosing import distances_at_start, forward_greedy, training_free
from epochzero.ensemble.model import probabilities_of
from epochzero.ensemble.nesbs import check_delta, search
from epochzero.ensemble.posterior import Likelihood, check_likelihood, fit_posterior
from epochzero.errors import UserError
from epochzero.objectives.objective import parse_objective
from epochzero.plan.module import PlanModule
from epochzero.progress import Progress, part_of, silent
from epochzero.registry import check_known
from epochzero.spaces.base import Space
from epochzero.spaces.darts import Darts
from epochzero.supernet import shared
from epochzero.train.image_data import Images
from epochzero.train.images import How, train_architecture
from epochzero.train.recipes import Recipe
from epochzero.train.supernet import SUPERNET, held_out, train_supernet
from epochzero.types import Origin

CHOICE = "choice.json"
PROXY_IMAGES = 64
"""images in a batch for proxies"""
PARTIAL = 2
"""K of partial channels in the supernet of darts, as in the thesis"""


@dataclass(frozen=True)
class Settings:
    """Settings of the methods."""

    method: str = "nesbs-svgd"
    size: int = 3
    pool: int = 20
    """networks to choose from, for `nes-rs` and `proxies`"""
    proxy: str = "dextr"
    supernet_epochs: int = SUPERNET.epochs
    posterior_epochs: int = 20
    candidates: int = 5
    """ensembles that NESBS chooses from, for each delta"""
    delta: float | Literal["grid", "bayes"] = "grid"
    """repulsion of `nesbs-svgd`"""
    seed: int = 0
    likelihood: Likelihood = "sum"
    """over the held-out images that NESBS' posterior is fitted to"""

    def __post_init__(self) -> None:
        check_known(self.method, METHODS, f"No method is called '{self.method}'")
        if self.method in ("nes-rs", "proxies") and self.pool < self.size:
            raise UserError(f"A pool of {self.pool} is too small to choose {self.size} from: give a larger --pool.")
        check_delta(self.delta)
        check_likelihood(self.likelihood)
        if self.method == "proxies":
            parse_objective(self.proxy)


@dataclass(frozen=True)
class Job:
    """A space, data and settings to build an ensemble from."""

    space: Space
    images: Images
    recipe: Recipe
    settings: Settings
    device: str = "cpu"
    folder: Path | None = None
    progress: Progress = silent

    def subfolder(self, name: str) -> Path | None:
        """A sub-folder of that name for intermediate results."""
        if self.folder is None:
            return None
        made = self.folder / name
        made.mkdir(parents=True, exist_ok=True)
        return made

    def trained(self, arch: Any, images: Images, place: int, folder: str, progress: Progress) -> PlanModule:
        """An architecture trained by the recipe from the seed + place, with checkpoints in a sub-folder."""
        how: How = {"seed": self.settings.seed + place, "device": self.device, "progress": progress}
        trained = train_architecture(self.space, arch, images, self.recipe, self.subfolder(folder), **how)
        assert isinstance(trained.module, PlanModule)
        return trained.module


def choose(job: Job) -> list[Any]:
    """The architectures of the ensemble; read from the folder if it holds the choice of the same settings."""
    asked = {"space": job.space.name, "data": job.images.facts["sha256"], **asdict(job.settings)}
    if job.settings.method == "nes-rs":
        asked["recipe"] = job.recipe.as_json()
    file = None if job.folder is None else job.folder / CHOICE
    if file is not None and file.is_file():
        return _remembered(file, asked, job.space)
    chosen = METHODS[job.settings.method](job)
    if file is not None:
        kept = {"asked": asked, "archs": [job.space.text(arch) for arch in chosen]}
        put(file, json.dumps(kept, indent=1).encode(), "choice")
    return chosen


def _remembered(file: Path, asked: dict[str, Any], space: Space) -> list[Any]:
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        before, texts = kept["asked"], list(kept["archs"])
        differs = [name for name in asked.keys() | before.keys() if asked.get(name) != before.get(name)]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise UserError(f"The file '{file}' is damaged: remove it to choose again.") from None
    if differs:
        raise UserError(
            f"The folder '{file.parent}' holds an ensemble with another {', another '.join(sorted(differs))}: choose "
            "another folder, or remove this one."
        )
    return [space.parse(text) for text in texts]


def _nesbs(job: Job) -> list[Any]:
    """The supernet, its posterior, the best of several candidate ensembles."""
    settings, images = job.settings, job.images
    network = shared(job.space, images.num_classes, images.input_shape, partial=_partial(job.space))
    halves = held_out(images.to(job.device), seed=settings.seed)
    recipe = replace(SUPERNET, epochs=settings.supernet_epochs)
    weights = train_supernet(
        network,
        halves,
        recipe,
        seed=settings.seed,
        device=job.device,
        folder=job.subfolder("supernet"),
        progress=part_of(job.progress, 0, 1, "supernet"),
    )
    posterior = fit_posterior(
        weights,
        halves,
        epochs=settings.posterior_epochs,
        likelihood=settings.likelihood,
        seed=settings.seed,
        progress=job.progress,
    )
    x, y = halves.standardised(halves.test_x), halves.test_y
    sampler: Literal["mc", "svgd"] = "mc" if settings.method == "nesbs-mc" else "svgd"
    selected = search(
        posterior,
        lambda picks: weights.predict(picks, x),
        y,
        sampler=sampler,
        size=settings.size,
        candidates=settings.candidates,
        delta=settings.delta,
        seed=settings.seed,
    )
    return [network.decode(picks) for picks in selected.members]


def _partial(space: Space) -> int:
    """K of the channels of 1/K that an operation of the supernet sees."""
    return PARTIAL if isinstance(space, Darts) else 1


def _random(job: Job) -> list[Any]:
    return _sampled(job, job.settings.size)


def _sampled(job: Job, count: int) -> list[Any]:
    rng = Random(job.settings.seed)
    return [job.space.sample(rng) for _ in range(count)]


def _nes_rs(job: Job) -> list[Any]:
    """A pool, trained on 70 % of the images; members are chosen greedily by the others."""
    settings, pool = job.settings, _sampled(job, job.settings.pool)
    halves = held_out(job.images, seed=settings.seed)
    x = halves.standardised(halves.test_x)
    predictions = []
    for place, arch in enumerate(pool):
        note = part_of(job.progress, place, len(pool), f"pool {place + 1} of {len(pool)}")
        module = job.trained(arch, halves, place, f"pool-{place + 1}", note).eval()
        with torch.inference_mode():
            parts = [probabilities_of(module(some.to(job.device))).cpu() for some in torch.split(x, 256)]
        predictions.append(torch.cat(parts))
    chosen = forward_greedy(torch.stack(predictions), halves.test_y.cpu(), settings.size)
    return [pool[place] for place in chosen]


def _proxies(job: Job) -> list[Any]:
    """Networks of a pool with the best scores of an objective that also differ from each other before training."""
    settings, images, pool = job.settings, job.images, _sampled(job, job.settings.pool)
    objective = parse_objective(settings.proxy)
    parts = 4
    count = min(PROXY_IMAGES, len(images.y) // parts)
    order = torch.randperm(len(images.y), generator=torch.Generator().manual_seed(settings.seed))[: parts * count]
    x, y = images.standardised(images.x[order]), images.y[order]
    batch = from_tensors(x, y, num_classes=images.num_classes, parts=parts, size=count)
    plans, scores = [], []
    for place, arch in enumerate(pool):
        job.progress(place, len(pool), settings.proxy)
        plans.append(job.space.plan(arch, images.num_classes, images.input_shape))
        network = PlanNetwork(plans[-1], Origin(seed=settings.seed), job.device)
        scores.append(score_network(network, list(objective.proxies), batch, settings.seed).scores)
    merits = [float("nan") if merit is None else merit for merit in objective.merits(scores)]
    distances = distances_at_start(plans, x[:count], settings.seed)
    return [pool[place] for place in training_free(merits, distances, settings.size)]


METHODS: dict[str, Callable[[Job], list[Any]]] = {
    "nesbs-mc": _nesbs,
    "nesbs-svgd": _nesbs,
    "random": _random,
    "nes-rs": _nes_rs,
    "proxies": _proxies,
}
