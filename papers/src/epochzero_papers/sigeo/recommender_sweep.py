"""The full study of `sigeo-recommender`, in pieces for a machine with a GPU and many cores.

    python -m epochzero_papers recommender-sweep prepare --folder DIR
    python -m epochzero_papers recommender-sweep score --folder DIR --seed 0 --level 0.01 [--unscaled]
    python -m epochzero_papers recommender-sweep train --folder DIR --device cuda --part 0/4
    python -m epochzero_papers recommender-sweep found --folder DIR --device cuda --part 0/4

`score` warms a supernet up, scores the random networks with inherited weights, also by each term of sigeo alone
(SiGeo's Figure 4), and then searches as the command does: 64 networks by each proxy, and by NASRec's one-shot fitness
after a full warm-up. `train` trains the random networks and four baselines with three seeds each on all training rows,
`found` trains the networks that the searches selected, as soon as these end (`--expect 21` waits for 21 searches).
Pieces are JSON files, written once: a piece that exists is not computed again. Needs torch and numpy;
`recommender-report` makes tables of the pieces.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Literal

import torch
from torch import Tensor
from torch.func import functional_call

from epochzero.data.batch import digest
from epochzero.engine import parse
from epochzero.files import write
from epochzero.plan import execute
from epochzero.plan.module import PlanModule
from epochzero.recommend.data.table import Part
from epochzero.recommend.presets import PRESETS
from epochzero.recommend.spaces.nasrec import Choices
from epochzero.recommend.spaces.nasrec_network import pruned
from epochzero.recommend.sub_one_shot import ONE_SHOT, SubOneShotSearch
from epochzero.recommend.supernet.weights import NASRECS, RecommenderSupernet
from epochzero.recommend.training.baselines import baseline
from epochzero.recommend.training.settings import Settings
from epochzero.store import Store
from epochzero.study.result import LEADERS
from epochzero.types import Origin
from epochzero_papers.harness.options import option
from epochzero_papers.sigeo.clicks import PARTS, Place, Sizes, warmed
from epochzero_papers.sigeo.repeated_training import Rows, Run, Together, stacked

NETWORKS, SEEDS = 80, 3
"""random networks; supernets, and trainings of each network"""
WHOLE, ZICO = "sigeo(weights=warm_recommender)", f"zico(batches={PARTS})"
TERMS = {"steadiness": "1/0/0", "Fisher-Rao": "0/1/0", "loss": "0/0/1"}
COLUMNS = ("sigeo", WHOLE, ZICO, *(f"sigeo(weights={weights})" for weights in TERMS.values()))
BASELINES = ("dlrm", "deepfm", "xdeepfm", "autoint+")
MEASURED: tuple[Part, ...] = ("val", "test")


def label_of(seed: int, level: float, scaled: bool) -> str:
    """Returns the name of a supernet in file names."""
    return f"{seed}-{level:g}{'' if scaled else '-unscaled'}"


def searches(level: float, scaled: bool) -> tuple[str, ...]:
    """Returns the objectives of the searches after a warm-up."""
    if not scaled:
        return ("sigeo",)
    return ("sigeo", ONE_SHOT) if level == 1 else ("sigeo", "zico")


class Study:
    """The folder, data and networks that all pieces share."""

    def __init__(self, folder: Path, sizes: Sizes = Sizes(), *, networks: int = NETWORKS, device: str = "cpu") -> None:
        self.folder, self.sizes, self.networks, self.device = folder, sizes, networks, device
        self.place = Place(sizes, 0, folder)
        self.recorded = device != "cpu"
        self._rows: dict[Part, Rows] = {}
        (folder / "trained").mkdir(parents=True, exist_ok=True)

    @property
    def archs(self) -> list[Choices]:
        """The random networks; the first 40 are those of the study at its usual length."""
        rng = Random(0)
        return [self.place.space.sample(rng) for _ in range(self.networks)]

    def written(self, name: str, make: Callable[[], Mapping[str, Any]]) -> dict[str, Any]:
        """Returns the piece of this name, from its file or made now."""
        file = self.folder / f"{name}.json"
        if not file.exists():
            write(file, json.dumps(make()))
        piece: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return piece

    # Scores and searches

    def score(self, seed: int, level: float, scaled: bool) -> None:
        name = label_of(seed, level, scaled)
        pieces = [f"scores-{name}", *(f"found-{name}-{proxy}" for proxy in searches(level, scaled))]
        if all((self.folder / f"{piece}.json").exists() for piece in pieces):
            return
        place, start = Place(self.sizes, seed, self.folder), time.perf_counter()
        trained = warmed(place, level, scaled, self.device)
        weights = {key: weight.cpu() for key, weight in trained.weights.items()}
        supernet, spent = RecommenderSupernet(place.space, weights), time.perf_counter() - start
        self.written(f"scores-{name}", lambda: self._scores(supernet, seed) | {"warm_up_seconds": spent})
        for proxy in searches(level, scaled):
            chain = self._chain(proxy, seed, level, scaled)
            self.written(f"found-{name}-{proxy}", lambda chain=chain: _found(chain, supernet))  # type: ignore[misc]

    def _scores(self, supernet: RecommenderSupernet, seed: int) -> dict[str, Any]:
        start = time.perf_counter()
        found = supernet.scores(self.archs, [parse(text) for text in COLUMNS], self.place.batch, seed)
        values = {text: [scores[text].value if scores[text].ok else None for scores in found] for text in COLUMNS}
        return {"columns": values, "seconds": time.perf_counter() - start}

    def _chain(self, proxy: str, seed: int, level: float, scaled: bool) -> SubOneShotSearch:
        sizes = replace(PRESETS["reduced"], widest=self.sizes.widest, most_rows=self.sizes.most_rows)
        preset = replace(sizes, batch_size=self.sizes.batch_size)
        return SubOneShotSearch(self.place.table, proxy=proxy, warmup=level, scaled=scaled, preset=preset, seed=seed)

    # Training

    def train(self, name: str, run: Run, weights: Mapping[str, Tensor]) -> dict[str, Any]:
        """Trains a model with all seeds, and measures it on validation and test rows."""

        def make() -> dict[str, Any]:
            start = time.perf_counter()
            together, how = self._trained(run, weights)
            measures = {part: [asdict(m) for m in together.measured(self.rows(part))] for part in MEASURED}
            return {"name": name, "how": how, "seconds": time.perf_counter() - start, "measures": measures}

        return self.written(f"trained/{digest(name)[:16]}", make)

    def _trained(self, run: Run, weights: Mapping[str, Tensor]) -> tuple[Together, str]:
        """Trains by a recorded step if the GPU can record it."""
        settings = Settings(self.sizes.batch_size)
        together = Together(run, weights, self.rows("train"), settings)
        try:
            together.trained(recorded=self.recorded)
        except RuntimeError as error:
            if not self.recorded:
                raise
            print(f"not recorded: {error}", flush=True)
            self.recorded = False
            return self._trained(run, weights)
        return together, "recorded" if self.recorded else "plain"

    def rows(self, part: Part) -> Rows:
        if part not in self._rows:
            self._rows[part] = Rows.of(self.place.table, part, self.device)
        return self._rows[part]

    def train_network(self, arch: Choices) -> dict[str, Any]:
        plan = pruned(self.place.space.plan(arch))

        def run(weights: Mapping[str, Tensor], dense: Tensor, ids: Tensor) -> Tensor:
            return execute(plan, weights, (dense, ids))

        drawn = [PlanModule(plan, Origin(NASRECS.scheme, seed)).weights() for seed in range(SEEDS)]
        return self.train(self.place.space.text(arch), run, stacked(drawn, self.device))

    def train_baseline(self, name: str) -> dict[str, Any]:
        table, drawn = self.place.table, []
        for seed in range(SEEDS):
            torch.manual_seed(seed)
            model = baseline(name, table.num_dense, table.rows).to(self.device)
            drawn.append(dict(model.named_parameters()))

        def run(weights: Mapping[str, Tensor], dense: Tensor, ids: Tensor) -> Tensor:
            logits: Tensor = functional_call(model, dict(weights), (dense, ids))
            return logits

        return self.train(name, run, stacked(drawn, self.device))

    def train_found(self, mine: int, of: int, expected: int, end: float) -> None:
        """Trains this process' share of the selected networks; waits for `expected` searches, at most until `end`."""
        done: set[str] = set()
        while time.perf_counter() < end:
            files = list(self.folder.glob("found-*.json"))
            selected = {text for file in files for text in json.loads(file.read_text(encoding="utf-8"))["archs"]}
            todo = sorted(text for text in selected - done if int(digest(text)[:8], 16) % of == mine)
            if todo:
                self.train_network(self.place.space.parse(todo[0]))
                done.add(todo[0])
            elif len(files) >= expected:
                return
            else:
                time.sleep(1)


def _found(chain: SubOneShotSearch, supernet: RecommenderSupernet) -> dict[str, Any]:
    start = time.perf_counter()
    with Store.open(":memory:") as store:
        outcome = chain.searched(supernet, store)
    best = chain.distinct(outcome.top(LEADERS))
    spent = time.perf_counter() - start
    return {"archs": [one.text for one in best], "evaluated": outcome.evaluated, "seconds": spent}


@dataclass(frozen=True)
class Asked:
    """The pieces to make."""

    what: Literal["prepare", "score", "train", "found"] = option(positional=True)
    folder: Path = option(about="the folder of the pieces")
    device: str = option("cpu")
    seed: int = option(0)
    level: float = option(0.01, "share of the training rows that the supernet sees")
    unscaled: bool = option(False, "cut the learning-rate schedule off instead of shortening it")
    part: str = option("0/1", "0/4: the first of four processes that share the work")
    seconds: float = option(1e9, "after which nothing new is begun")
    expect: int = option(0, "searches to wait for")
    networks: int = option(NETWORKS)
    rows: int = option(Sizes.rows)


def run(asked: Asked) -> str | None:
    """Make the pieces that are missing."""
    torch.set_num_threads(1)
    study = Study(asked.folder, Sizes(asked.rows), networks=asked.networks, device=asked.device)
    mine, of = (int(number) for number in asked.part.split("/"))
    begun = time.perf_counter()
    if asked.what == "prepare":
        return f"{study.place.table.count:,} rows; floor {study.place.table.about['floor']:.4f}"
    if asked.what == "score":
        study.score(asked.seed, asked.level, not asked.unscaled)
    elif asked.what == "found":
        study.train_found(mine, of, asked.expect, begun + asked.seconds)
    else:
        work = [partial(study.train_baseline, name) for name in BASELINES]
        work += [partial(study.train_network, arch) for arch in study.archs]
        for job in work[mine::of]:
            if time.perf_counter() - begun < asked.seconds:
                done = job()
                losses = [round(one["log_loss"], 4) for one in done["measures"]["test"]]
                print(f"{done['how']} {done['seconds']:.1f} s, {losses}", flush=True)
    return None
