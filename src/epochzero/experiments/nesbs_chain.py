r"""The whole chain of NESBS for one seed: supernet, posteriors, ensembles, members trained from scratch, figures.

    python -m epochzero.experiments.nesbs_chain --space nb201 --data cifar10.npz --device cuda --seed 0 --out 0.json

    1  shared weights are trained on 70 % of the training images, on uniform paths; the rest is held out
    2  the posterior is learnt after that on the held-out images; a best-response posterior during a training of its own
    3  members are chosen: by NESBS (MC and SVGD-RD, from both posteriors), uniformly (URS), from a random pool that is
       trained (NES-RS), as the single best architecture once and several times (deep ensemble), and without any
       training from a proxy and distances of untrained networks
    4  all members are trained alike on the same 70 %, and their ensembles measured on the test images
    5  with inherited weights alone: `nesbs_curves.py`

URS are the first members of the pool. The single best has the lowest held-out loss, with inherited weights, of all
architectures that were looked at on the way. What a stage found is kept in the file, and weights and predictions in the
folder beside it: the same command goes on where it was stopped. Needs torch and numpy alone.

Shu. Understanding and improving neural architecture search (thesis, chapter 5).
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, replace
from pathlib import Path
from random import Random
from typing import Any, Literal

import torch

from epochzero.api import score
from epochzero.ensemble.choosing import distances_at_start, forward_greedy, training_free
from epochzero.ensemble.metrics import measure
from epochzero.ensemble.nesbs import Selected, search
from epochzero.ensemble.posterior import Posterior, best_response, fit_posterior
from epochzero.errors import UserError
from epochzero.experiments.nesbs_curves import TEMPERATURES, Inherited, correlations, curves, deltas, discrepancy
from epochzero.experiments.side_by_side import Member, Setting, trained_side_by_side
from epochzero.plan import generator
from epochzero.registry import spaces
from epochzero.supernet import SharedWeights
from epochzero.supernet.single_path import Picks
from epochzero.train.recipes import Recipe
from epochzero.train.supernet import SUPERNET, held_out, train_supernet
from epochzero.types import Origin

PARTIAL = {"nb201": 1, "darts": 2}
SAMPLERS: tuple[Literal["mc", "svgd"], ...] = ("mc", "svgd")


class Stages:
    """What each stage found and how long it took, in a file that is written after each."""

    def __init__(self, file: Path, settings: dict[str, Any]) -> None:
        self.file = file
        self.found: dict[str, Any] = {"settings": settings, "stages": {}, "seconds": {}}
        if file.exists():
            kept = json.loads(file.read_text(encoding="utf-8"))
            if kept.get("settings") != settings:
                raise UserError(f"The file '{file}' holds a run with other settings: choose another --out.")
            self.found = kept

    def stage(self, name: str, find: Callable[[], Any]) -> Any:
        """What the stage finds, from the file where it is there."""
        if name not in self.found["stages"]:
            start = time.perf_counter()
            self.found["stages"][name] = json.loads(json.dumps(find()))
            self.found["seconds"][name] = round(time.perf_counter() - start, 2)
            print(f"{self.file.stem}: {name} {self.found['seconds'][name]} s", file=sys.stderr, flush=True)
            part = self.file.with_name(f"{self.file.name}.part")
            part.write_text(json.dumps(self.found, indent=1), encoding="utf-8")
            part.replace(self.file)
        return self.found["stages"][name]


class Chain:
    """The stages for one space and one seed."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.space, self.seed = given, spaces[given.space], given.seed
        out = Path(given.out)
        self.folder = out.with_suffix(".run")
        member = Recipe(
            epochs=given.member_epochs, batch_size=given.member_batch, weight_decay=5e-4, nesterov=True, clip=5
        )
        self.setting = Setting(
            given.space, given.channels, given.cells, given.data, given.seed, given.images, member, given.device,
            str(self.folder / "members"),
        )  # fmt: skip
        settings = {key: value for key, value in vars(given).items() if key not in ("out", "data", "workers")}
        self.stages = Stages(out, settings | {"data": Path(given.data).name})
        self.images = self.setting.images().to(given.device)
        self.halves = held_out(self.images, seed=given.seed)
        self.network = self.setting.network(PARTIAL[given.space])
        self.recipe = replace(SUPERNET, epochs=given.epochs, batch_size=given.batch)

    def run(self) -> None:
        """All stages; members are trained in other processes as soon as they are known, where there are some."""
        with ThreadPoolExecutor(1) as meanwhile:
            pool = self._pool()
            self._begin_training(meanwhile, pool)
            after, posterior = self._post_training()
            chosen = {way: self._nesbs(f"NESBS, {way}", way, after, posterior) for way in SAMPLERS}
            best = self._single_best(after, posterior, [*pool, *chosen["mc"], *chosen["svgd"]])
            named = {f"NESBS, {way}": members for way, members in chosen.items()}
            named["deep ensemble of the single best"] = [best] * self.given.size
            named["without training"] = self._without_training()
            named["URS"] = pool[: self.given.size]
            for members in named.values():
                self._begin_training(meanwhile, members)
            during, response = self._best_response()
            for way in SAMPLERS:
                name = f"best-response, {way}"
                named[name] = self._nesbs(name, way, during, response)
                self._begin_training(meanwhile, named[name])
            self._discrepancies(after, posterior, during, response)
            if self.given.space == "darts" or self.given.curves:
                self._curves(after, posterior)
        self._trained(after, named, pool)

    def _begin_training(self, meanwhile: ThreadPoolExecutor, picks: Sequence[Picks]) -> None:
        if self.given.workers > 1 and "trained" not in self.stages.found["stages"]:
            meanwhile.submit(trained_side_by_side, self._members(picks), self.setting, self.given.workers)

    # Supernet and posteriors

    def _post_training(self) -> tuple[Inherited, Posterior]:
        weights: list[SharedWeights] = []

        def trained() -> Any:
            weights.append(self._uniform())
            return weights[0].history

        self.stages.stage("supernet", trained)
        shared = weights[0] if weights else self._uniform()
        fitted = self.stages.stage(
            "posterior",
            lambda: fit_posterior(
                shared,
                self.halves,
                epochs=self.given.posterior_epochs,
                batch_size=self.given.posterior_batch,
                likelihood=self.given.likelihood,
                seed=self.seed,
            ).as_json(),
        )
        return self._inherited(shared), Posterior.from_json(fitted)

    def _uniform(self) -> SharedWeights:
        where = self.folder / "supernet"
        return train_supernet(
            self.network,
            self.halves,
            self.recipe,
            seed=self.seed,
            device=self.given.device,
            folder=where,
            keep_every=self.given.keep_every,
        )

    def _best_response(self) -> tuple[Inherited, Posterior]:
        found: list[tuple[SharedWeights, Posterior]] = []

        def learnt() -> tuple[SharedWeights, Posterior]:
            return best_response(
                self.network,
                self.halves,
                self.recipe,
                every=self.given.response_every,
                seed=self.seed,
                device=self.given.device,
                folder=self.folder / "best-response",
                keep_every=self.given.keep_every,
            )

        def stage() -> Any:
            found.append(learnt())
            return {"history": found[0][0].history, "posterior": found[0][1].as_json()}

        kept = self.stages.stage("best-response", stage)
        shared = (found[0] if found else learnt())[0]
        return self._inherited(shared), Posterior.from_json(kept["posterior"])

    def _inherited(self, shared: SharedWeights) -> Inherited:
        most = self.given.curve_images
        x, y = self.halves.standardised(self.halves.test_x[:most]), self.halves.test_y[:most]
        test_x, test_y = self.images.standardised(self.images.test_x[:most]), self.images.test_y[:most]
        return Inherited(shared, x, y, test_x, test_y, self.given.svgd_steps)

    # Choices

    def _nesbs(
        self, name: str, sampler: Literal["mc", "svgd"], inherited: Inherited, posterior: Posterior
    ) -> list[Picks]:
        def find() -> Any:
            found: Selected = search(
                posterior,
                inherited.held_out,
                inherited.y,
                sampler=sampler,
                size=self.given.size,
                candidates=self.given.candidates,
                steps=self.given.svgd_steps,
                seed=self.seed,
            )
            best = found.best
            return asdict(best) | {"test_error": inherited.test_error(best.members), "tried": len(found.tried)}

        return [tuple(picks) for picks in self.stages.stage(name, find)["members"]]

    def _pool(self) -> list[Picks]:
        rng = generator(self.seed, "pool")
        return [self.network.uniform(rng) for _ in range(self.given.pool)]

    def _single_best(self, inherited: Inherited, posterior: Posterior, known: Sequence[Picks]) -> Picks:
        def find() -> Any:
            rng = generator(self.seed, "single best")
            drawn = [posterior.sample(rng) for _ in range(self.given.pool)]
            best = min([posterior.most_probable, *drawn, *known], key=lambda picks: inherited.loss((picks,)))
            return {"picks": best, "loss": inherited.loss((best,)), "test_error": inherited.test_error((best,))}

        return tuple(self.stages.stage("single best", find)["picks"])

    def _without_training(self) -> list[Picks]:
        """Members from a proxy and distances at initialisation, of a random pool."""

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

        return [tuple(picks) for picks in self.stages.stage("without training", find)["members"]]

    # Inherited weights alone

    def _discrepancies(self, after: Inherited, posterior: Posterior, during: Inherited, response: Posterior) -> None:
        many = self.given.looked_at
        self.stages.stage(
            "discrepancy",
            lambda: {
                "post-training": discrepancy(after, posterior, many, self.seed),
                "best-response": discrepancy(during, response, many, self.seed),
            },
        )

    def _curves(self, inherited: Inherited, posterior: Posterior) -> None:
        trials = self.given.trials
        found = self.stages.stage("deltas", lambda: deltas(inherited, posterior, trials, self.seed))
        best = {tau: found[f"{tau:g}"]["best"] for tau in TEMPERATURES}
        self.stages.stage("curves", lambda: curves(inherited, posterior, best, self.given.budget, trials, self.seed))

    # Members of their own weights

    def _trained(self, inherited: Inherited, chosen: dict[str, list[Picks]], pool: list[Picks]) -> None:
        named = {way: self._members(picks) for way, picks in chosen.items()}
        of_pool = self._members(pool)
        everything = [*of_pool, *(member for members in named.values() for member in members)]

        def find() -> Any:
            found = trained_side_by_side(everything, self.setting, self.given.workers)
            y, held_y = self.images.test_y.cpu(), self.halves.test_y.cpu()
            greedy = forward_greedy(torch.stack([found[m].held_out for m in of_pool]), held_y, self.given.size)
            ensembles = named | {"NES-RS": [of_pool[i] for i in greedy]}
            ensembles["single best"] = named["deep ensemble of the single best"][:1]
            measured = {}
            for way, members in ensembles.items():
                test = torch.stack([found[member].test for member in members])
                measured[way] = measure(test, y).as_json() | {"members": [member.arch for member in members]}
            estimated = torch.stack([inherited.held_out(picks) for picks in pool]).cpu()
            true = torch.stack([found[member].test for member in of_pool])
            sizes = [size for size in (1, 3, 5, 7) if size < len(pool)]
            return {
                "ensembles": measured,
                "trainings": len(set(everything)),
                "seconds_a_training": sum(one.seconds for one in found.values()) / len(found),
                "correlations": correlations(estimated, inherited.y.cpu(), true, y, sizes),
                "pool_error": [float((one.argmax(1) != y).double().mean()) for one in true],
            }

        self.stages.stage("trained", find)

    def _members(self, picks: Sequence[Picks]) -> list[Member]:
        """Each with a seed of its own; an architecture that comes twice is trained twice."""
        texts = [self.space.text(self.network.decode(own)) for own in picks]
        return [Member(text, 1000 * self.seed + texts[:place].count(text)) for place, text in enumerate(texts)]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--space", choices=list(PARTIAL), required=True)
    add("--data", required=True, help="an .npz file of images")
    add("--out", required=True, help="the file of what is found, JSON")
    add("--device", default="cpu")
    add("--seed", type=int, default=0)
    add("--workers", type=int, default=1, help="processes that train members")
    add("--images", type=int, default=0, help="training images to use; 0 for all")
    add("--channels", type=int, default=16)
    add("--cells", type=int, default=0, help="0 for as many as the papers search with")
    add("--epochs", type=int, default=SUPERNET.epochs, help="of the supernet")
    add("--batch", type=int, default=SUPERNET.batch_size)
    add("--posterior-epochs", type=int, default=20)
    add("--posterior-batch", type=int, default=128)
    add("--likelihood", choices=["sum", "mean"], default="sum")
    add("--response-every", type=int, default=1, help="steps of the weights for one of the best-response posterior")
    add("--keep-every", type=int, default=1, help="epochs of a supernet for one checkpoint")
    add("--size", type=int, default=3, help="members of an ensemble")
    add("--candidates", type=int, default=5)
    add("--svgd-steps", type=int, default=1000)
    add("--pool", type=int, default=10, help="networks that NES-RS trains")
    add("--untrained-pool", type=int, default=32, help="networks to choose from without training")
    add("--proxy", default="naswot")
    add("--member-epochs", type=int, default=12)
    add("--member-batch", type=int, default=128)
    add("--looked-at", type=int, default=50, help="architectures for the discrepancy, from each source")
    add("--curves", action="store_true", help="the curves of Figures 5.3, 5.6 and 5.7 on nb201 as well")
    add("--curve-images", type=int, default=2000, help="held-out and test images to evaluate inherited weights on")
    add("--trials", type=int, default=2)
    add("--budget", type=int, default=6, help="ensembles that the curves evaluate")
    given = parser.parse_args(arguments)
    if given.device.startswith("cuda"):
        torch.set_float32_matmul_precision("high")
    Chain(given).run()


if __name__ == "__main__":
    main()
