r"""The whole chain of NESBS for one seed: supernet, posteriors, ensembles, members trained from scratch, figures.

    python -m epochzero_papers nesbs-chain --space nb201 --data cifar10.npz --device cuda --seed 0 --out 0.json
    python -m epochzero_papers nesbs-chain --space darts --data cifar10.npz --curves --out darts-0.json

    1  shared weights are trained on 70 % of the training images, on uniform paths; the rest is held out
    2  the posterior is learnt after that on the held-out images; a best-response posterior during a training of its own
    3  members are chosen: by NESBS (MC and SVGD-RD, from both posteriors), uniformly (URS), from a random pool that is
       trained (NES-RS), as the single best architecture once, once with paths dropped when it predicts (MC DropPath)
       and several times (deep ensemble), and without any training from a proxy and distances of untrained networks
    4  all members are trained alike on the same 70 %, and their ensembles measured on the test images
    5  with inherited weights alone: `nesbs_curves.py`, the curves where `--curves` asks for them

URS are the first members of the pool. The single best has the lowest held-out loss, with inherited weights, of all
architectures evaluated before. Monte Carlo chooses from as many ensembles as SVGD-RD does with all its deltas. The file
keeps the result of each stage, and a folder next to it weights and predictions: the same command resumes, and after
`--seconds` it stops by itself (exit code 3). Weights of a supernet are removed once no stage needs them; those of the
members are kept. Needs torch and numpy alone.

Shu. Understanding and improving neural architecture search (thesis, chapter 5).
"""

from __future__ import annotations

import json
import math
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from random import Random
from typing import Any, Literal

import torch

from epochzero.api import score
from epochzero.ensemble.choosing import distances_at_start, forward_greedy, training_free
from epochzero.ensemble.metrics import measure
from epochzero.ensemble.nesbs import GRID, Selected, search
from epochzero.ensemble.posterior import Posterior, fit_posterior
from epochzero.errors import UserError
from epochzero.plan import generator
from epochzero.registry import spaces
from epochzero.supernet import SharedWeights
from epochzero.supernet.single_path import Picks
from epochzero.train.recipes import Recipe
from epochzero.train.supernet import SUPERNET, SupernetTraining, held_out
from epochzero.types import Origin
from epochzero_papers.harness.member_training import (
    Member,
    MemberTraining,
    Setting,
    exit_when_out_of_time,
    network_of,
    stopping,
)
from epochzero_papers.harness.options import option
from epochzero_papers.thesis.best_response import as_json, best_response, from_json, most_probable
from epochzero_papers.thesis.mc_drop_path import drop_path_probabilities
from epochzero_papers.thesis.nesbs_curves import (
    TEMPERATURES,
    Inherited,
    correlations,
    curves,
    deltas,
    discrepancy,
    of_ensembles,
)

PARTIAL = {"nb201": 1, "darts": 2}
SAMPLERS: tuple[Literal["mc", "svgd"], ...] = ("mc", "svgd")
OF_THE_MACHINE = ("out", "data", "workers", "seconds", "step_by_step")
"""settings that may change when a run resumes"""


@dataclass(frozen=True)
class ChainSettings:
    """The data, sizes and machine of a chain."""

    space: Literal["nb201", "darts"] = option()
    data: str = option(about="an .npz file of images")
    out: str = option(about="the result, a JSON file")
    device: str = option("cpu")
    seed: int = option(0)
    workers: int = option(1, "processes that train members")
    seconds: float = option(math.inf, "after which the run stops, to be resumed by the same command; default: never")
    step_by_step: bool = option(False, "on a GPU, learn posteriors without recorded steps")
    images: int = option(0, "training images to use; 0 for all")
    channels: int = option(16)
    cells: int = option(0, "0 for as many as the papers search with")
    epochs: int = option(SUPERNET.epochs, "of the supernet")
    batch: int = option(SUPERNET.batch_size)
    rate: float = option(SUPERNET.learning_rate, "of the supernet, at its start")
    posterior_epochs: int = option(20)
    posterior_batch: int = option(128)
    likelihood: Literal["sum", "mean"] = option("sum")
    response_every: int = option(1, "steps of the weights for one of the best-response posterior")
    keep_every: int = option(1, "epochs of a supernet for one checkpoint")
    size: int = option(3, "members of an ensemble")
    candidates: int = option(5, "ensembles to choose from, for each delta of a grid of 7")
    svgd_steps: int = option(1000)
    pool: int = option(10, "networks that NES-RS trains")
    untrained_pool: int = option(32, "networks to choose from without training")
    proxy: str = option("naswot")
    member_epochs: int = option(12)
    member_batch: int = option(128)
    looked_at: int = option(50, "architectures for the discrepancy, from each source")
    curves: bool = option(False, "the curves of Figures 5.3, 5.6 and 5.7 as well")
    inherited: bool = option(False, "inherited weights alone: no member is trained")
    curve_images: int = option(2000, "held-out and test images to evaluate inherited weights on")
    trials: int = option(2)
    budget: int = option(6, "ensembles that the curves evaluate")


class Stages:
    """The result and seconds of each stage, in a file that is written after each."""

    def __init__(self, file: Path, settings: dict[str, Any]) -> None:
        self.file = file
        self.found: dict[str, Any] = {"settings": settings, "stages": {}, "seconds": {}}
        if file.exists():
            kept = json.loads(file.read_text(encoding="utf-8"))
            if kept.get("settings") != settings:
                raise UserError(f"The file '{file}' holds a run with other settings: choose another --out.")
            self.found = kept

    def stage(self, name: str, find: Callable[[], Any]) -> Any:
        """Returns the result of a stage, from the file if it is there."""
        if name not in self.found["stages"]:
            start = time.perf_counter()
            self.found["stages"][name] = json.loads(json.dumps(find()))
            self.found["seconds"][name] = round(time.perf_counter() - start, 2)
            print(f"{self.file.stem}: {name} {self.found['seconds'][name]} s", file=sys.stderr, flush=True)
            part = self.file.with_name(f"{self.file.name}.part")
            part.write_text(json.dumps(self.found, indent=1), encoding="utf-8")
            part.replace(self.file)
        return self.found["stages"][name]


def setting_of(settings: Mapping[str, Any], data: str, device: str, out: Path) -> Setting:
    """Returns the training of the members of a run with these settings; `out` is the run's file."""
    recipe = Recipe(
        epochs=settings["member_epochs"], batch_size=settings["member_batch"], weight_decay=5e-4, nesterov=True, clip=5
    )
    space, channels, cells, seed, most = (settings[key] for key in ("space", "channels", "cells", "seed", "images"))
    return Setting(space, channels, cells, data, seed, most, recipe, device, str(out.with_suffix(".run") / "members"))


class Chain:
    """The stages for one space and one seed."""

    def __init__(self, given: ChainSettings) -> None:
        self.given, self.space, self.seed = given, spaces[given.space], given.seed
        self.until = time.time() + given.seconds
        self.progress = stopping(self.until)
        out = Path(given.out)
        settings = {key: value for key, value in asdict(given).items() if key not in OF_THE_MACHINE}
        self.stages = Stages(out, settings | {"data": Path(given.data).name})
        self.folder = out.with_suffix(".run")
        self.setting = setting_of(self.stages.found["settings"], given.data, given.device, out)
        self.images = self.setting.images().to(given.device)
        self.halves = held_out(self.images, seed=given.seed)
        self.network = self.setting.network(PARTIAL[given.space])
        self.recipe = replace(SUPERNET, epochs=given.epochs, batch_size=given.batch, learning_rate=given.rate)

    def run(self) -> None:
        """Run all stages; other processes, if any, train members as soon as they are known."""
        with MemberTraining(self.setting, self.given.workers, self.until) as training:
            begin = training.begin if not self.given.inherited else lambda members: None
            pool = self._pool()
            begin(self._members(pool))
            named = {"URS": pool[: self.given.size], "without training": self._without_training()}
            posterior = self._posterior()
            for way in SAMPLERS:
                named[f"NESBS, {way}"] = self._nesbs(f"NESBS, {way}", way, lambda: self.after, posterior)
            best = self._single_best(posterior, [*pool, *named["NESBS, mc"], *named["NESBS, svgd"]])
            named["deep ensemble of the single best"] = [best] * self.given.size
            for picks in named.values():
                begin(self._members(picks))
            self._discrepancy("post-training", lambda: self.after, posterior)
            if self.given.curves:
                self._curves(posterior)
            self._estimates(pool)
            self._forget("supernet")
            response = self._best_response()
            for way in SAMPLERS:
                name = f"best-response, {way}"
                named[name] = self._nesbs(name, way, lambda: self.during, response)
                begin(self._members(named[name]))
            self._discrepancy("best-response", lambda: self.during, response)
            self._forget("best-response")
            if not self.given.inherited:
                self._trained(training, named, pool)

    # Supernet and posteriors

    @cached_property
    def after(self) -> Inherited:
        """The weights trained on uniform paths."""
        run = SupernetTraining(self.network, self.halves, self.recipe, self.seed)
        return self._inherited(run.trained(self.folder / "supernet", self.given.keep_every, self.progress))

    @cached_property
    def response(self) -> tuple[SharedWeights, Posterior]:
        """The weights trained on paths that a posterior draws, and this posterior."""
        return best_response(
            self.network,
            self.halves,
            self.recipe,
            every=self.given.response_every,
            seed=self.seed,
            device=self.given.device,
            folder=self.folder / "best-response",
            keep_every=self.given.keep_every,
            record=not self.given.step_by_step,
            progress=self.progress,
        )

    @cached_property
    def during(self) -> Inherited:
        return self._inherited(self.response[0])

    def _posterior(self) -> Posterior:
        self._stage("supernet", lambda: self.after.shared.history)
        fitted = self._stage(
            "posterior",
            lambda: as_json(
                fit_posterior(
                    self.after.shared,
                    self.halves,
                    epochs=self.given.posterior_epochs,
                    batch_size=self.given.posterior_batch,
                    likelihood=self.given.likelihood,
                    seed=self.seed,
                    record=not self.given.step_by_step,
                    progress=self.progress,
                )
            ),
        )
        return from_json(fitted)

    def _best_response(self) -> Posterior:
        kept = self._stage(
            "best-response", lambda: {"history": self.response[0].history, "posterior": as_json(self.response[1])}
        )
        return from_json(kept["posterior"])

    def _inherited(self, shared: SharedWeights) -> Inherited:
        most = self.given.curve_images
        x, y = self.halves.standardised(self.halves.test_x[:most]), self.halves.test_y[:most]
        test_x, test_y = self.images.standardised(self.images.test_x[:most]), self.images.test_y[:most]
        return Inherited(shared, x, y, test_x, test_y, self.given.svgd_steps)

    def _forget(self, name: str) -> None:
        """Remove the weights of a supernet that no later stage needs."""
        shutil.rmtree(self.folder / name, ignore_errors=True)

    def _stage(self, name: str, find: Callable[[], Any]) -> Any:
        self.progress(0, 0, name)
        return self.stages.stage(name, find)

    # Choices

    def _nesbs(
        self, name: str, sampler: Literal["mc", "svgd"], weights: Callable[[], Inherited], posterior: Posterior
    ) -> list[Picks]:
        def find() -> Any:
            inherited = weights()
            found: Selected = search(
                posterior,
                inherited.held_out,
                inherited.y,
                sampler=sampler,
                size=self.given.size,
                candidates=self.given.candidates * (len(GRID) if sampler == "mc" else 1),
                steps=self.given.svgd_steps,
                seed=self.seed,
            )
            best = found.best
            return asdict(best) | {"test_error": inherited.test_error(best.members), "tried": len(found.tried)}

        return [tuple(picks) for picks in self._stage(name, find)["members"]]

    def _pool(self) -> list[Picks]:
        rng = generator(self.seed, "pool")
        return [self.network.uniform(rng) for _ in range(self.given.pool)]

    def _single_best(self, posterior: Posterior, known: Sequence[Picks]) -> Picks:
        def find() -> Any:
            inherited, rng = self.after, generator(self.seed, "single best")
            drawn = [posterior.sample(rng) for _ in range(self.given.pool)]
            best = min([most_probable(posterior), *drawn, *known], key=lambda picks: inherited.loss((picks,)))
            return {"picks": best, "loss": inherited.loss((best,)), "test_error": inherited.test_error((best,))}

        return tuple(self._stage("single best", find)["picks"])

    def _without_training(self) -> list[Picks]:
        """Returns members chosen from a random pool by a proxy and distances at initialisation."""

        def find() -> Any:
            rng, size = Random(f"{self.seed}/without training"), min(64, len(self.halves.y))
            archs = [self.space.sample(rng) for _ in range(self.given.untrained_pool)]
            x = self.halves.standardised(self.halves.x[:size])
            plans = [self.setting.network().alone(arch) for arch in archs]
            modules = [plan.module(Origin(seed=self.seed)) for plan in plans]
            scores = [score(one, self.given.proxy, data=x.cpu(), device=self.given.device) for one in modules]
            values = [found[self.given.proxy].value for found in scores]
            distances = distances_at_start(plans, x, self.seed)
            picked = training_free(values, distances.cpu(), self.given.size)
            return {"members": [self.network.encode(archs[i]) for i in picked], "scores": [values[i] for i in picked]}

        return [tuple(picks) for picks in self._stage("without training", find)["members"]]

    # Inherited weights alone

    def _discrepancy(self, name: str, weights: Callable[[], Inherited], posterior: Posterior) -> None:
        self._stage(f"discrepancy, {name}", lambda: discrepancy(weights(), posterior, self.given.looked_at, self.seed))

    def _curves(self, posterior: Posterior) -> None:
        trials = self.given.trials
        found = self._stage("deltas", lambda: deltas(self.after, posterior, trials, self.seed))
        best = {tau: found[f"{tau:g}"]["best"] for tau in TEMPERATURES}
        self._stage("curves", lambda: curves(self.after, posterior, best, self.given.budget, trials, self.seed))

    def _estimates(self, pool: Sequence[Picks]) -> None:
        def find() -> Any:
            predictions = torch.stack([self.after.held_out(picks) for picks in pool])  # [pool, images, classes]
            return of_ensembles(predictions.cpu(), self.after.y.cpu())

        self._stage("estimates", find)

    # Members of their own weights

    def _trained(self, training: MemberTraining, chosen: dict[str, list[Picks]], pool: list[Picks]) -> None:
        named = {way: self._members(picks) for way, picks in chosen.items()}
        of_pool = self._members(pool)
        everything = [*of_pool, *(member for members in named.values() for member in members)]

        def find() -> Any:
            found = training.found(everything)
            y, held_y = self.images.test_y.cpu(), self.halves.test_y.cpu()
            greedy = forward_greedy(torch.stack([found[m].held_out for m in of_pool]), held_y, self.given.size)
            ensembles = named | {"NES-RS": [of_pool[i] for i in greedy]}
            ensembles["single best"] = named["deep ensemble of the single best"][:1]
            measured = {}
            for way, members in ensembles.items():
                test = torch.stack([found[member].test for member in members])
                measured[way] = measure(test, y).as_json() | {"members": [asdict(member) for member in members]}
            measured["MC DropPath"] = self._drop_path(ensembles["single best"][0])
            true = of_ensembles(torch.stack([found[member].test for member in of_pool]), y)
            return {
                "ensembles": measured,
                "trainings": len(set(everything)),
                "seconds_a_training": sum(one.seconds for one in found.values()) / len(found),
                "correlations": correlations(self.stages.found["stages"]["estimates"], true),
                "pool": true,
            }

        self._stage("trained", find)

    def _drop_path(self, member: Member) -> dict[str, Any]:
        """Returns the measures of one network that predicts several times, with paths dropped."""
        x, y = self.images.standardised(self.images.test_x), self.images.test_y.cpu()
        module = network_of(member, self.setting)
        several = drop_path_probabilities(module, x, passes=self.given.size, seed=self.seed)
        return measure(several, y).as_json() | {"members": [asdict(member)]}

    def _members(self, picks: Sequence[Picks]) -> list[Member]:
        """Returns members with seeds of their own; a repeated architecture is trained again."""
        texts = [self.space.text(self.network.decode(own)) for own in picks]
        return [Member(text, 1000 * self.seed + texts[:place].count(text)) for place, text in enumerate(texts)]


def run(given: ChainSettings) -> None:
    """Run a chain to its end, or until its time is over."""
    if given.device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")
    with exit_when_out_of_time():
        Chain(given).run()
