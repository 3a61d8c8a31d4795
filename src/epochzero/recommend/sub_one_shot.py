"""SiGeo's sub-one-shot search for recommenders in NASRec's spaces.

    1. warm-up of a supernet, for a share of one epoch
    2. evolution over sub-networks that inherit its weights, scored on four batches of training rows
    3. training of the best k and of a few random ones from scratch; log loss and AUC on validation and test rows

    search = SubOneShotSearch(table, warmup=0.01, proxy="sigeo", preset=PRESETS["reduced"])
    result = search.run("runs/clicks")               # killed at any moment and run again: resumes, and ends the same
    result.best.arch, result.best.test_log_loss

The best has the lowest log loss on the validation rows; test rows choose nothing. `proxy` is any proxy or
combination. Plain `sigeo` has the weights zero_shot without a warm-up and warm_recommender after one, and plain `zico`
takes four batches. `one_shot` is NASRec's fitness: minus the log loss on validation rows after the last layer was
fine-tuned on training rows.

Zheng, Liu, Fedorov, Zhang, Chen, Wen. SiGeo: sub-one-shot NAS via information theory and geometry of loss landscape.
2023. arXiv:2311.13169
NASRec: spaces/nasrec.py
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from random import Random

from epochzero.data.batch import Batch, digest
from epochzero.errors import DataError, UserError
from epochzero.files import made_folder
from epochzero.objectives.objective import Objective, looked_up, parse_objective
from epochzero.progress import Progress, part_of, silent
from epochzero.recommend.data.table import CtrTable
from epochzero.recommend.presets import PRESETS, Preset
from epochzero.recommend.spaces.nasrec import Nasrec, nasrec
from epochzero.recommend.spaces.nasrec_network import pruned
from epochzero.recommend.supernet.fitness import FINE, Inherited, OneShot, in_parts
from epochzero.recommend.supernet.warm_up import Schedule, WarmUp
from epochzero.recommend.supernet.weights import NASRECS, RecommenderSupernet
from epochzero.recommend.training.early_stopping import PROGRESS, base_loss
from epochzero.recommend.training.interrupt import between_steps
from epochzero.recommend.training.recipes import RECIPES, Recipe
from epochzero.recommend.training.settings import Settings
from epochzero.recommend.training.source import TEST_AUC, TEST_LOSS, VAL_AUC, VAL_LOSS, TrainingSource
from epochzero.recommend.training.trainer import check_labels, rows_in
from epochzero.spaces.budget import BudgetedSpace
from epochzero.store import JSON, Store, manifest
from epochzero.study.loop import run_search
from epochzero.study.result import LEADERS, Candidate, Result, nothing_found
from epochzero.study.sources import Feedback, Source
from epochzero.study.task import Task
from epochzero.types import Origin, Score

ONE_SHOT = "one_shot"
EVOLUTION, RANDOM = "evolution_nasrec", "random"
PARTS = 4
"""batches on which a sub-network is scored"""
STORE = "chain.db"


@dataclass(frozen=True)
class TrainedCandidate:
    """A network after training from scratch."""

    arch: str
    score: float
    """nan for a random network, which has none"""
    params: int
    """outside the embeddings"""
    flops: int
    val_log_loss: float
    val_auc: float
    """nan if all rows have the same label; `test_auc` likewise"""
    test_log_loss: float
    test_auc: float
    random: bool = False
    """true if it was drawn at random, and not by the search"""
    at_base: bool = False
    """true if it is no better than the base rate on the validation rows"""


@dataclass(frozen=True)
class RecommenderResult:
    """The result of a search for a recommender."""

    candidates: tuple[TrainedCandidate, ...]
    """the best of the search, best first, and then the random ones"""
    objective: str
    evaluated: int
    warmup_steps: int
    embedding_params: int
    seconds: dict[str, float]
    """by stage, in this call; a stage that was complete before takes none"""

    @property
    def best(self) -> TrainedCandidate:
        """The candidate with the lowest log loss on the validation rows."""
        return min(self.candidates, key=lambda candidate: candidate.val_log_loss)


@dataclass(frozen=True)
class SubOneShotSearch:
    """A search, with everything that its result depends on."""

    table: CtrTable
    space: str = "nasrec_small"
    proxy: str = "sigeo"
    warmup: float = 0.01
    """share of one epoch for which the supernet is trained"""
    scaled: bool = True
    """true if the schedule of the warm-up is compressed into that share; otherwise it is cut off"""
    preset: Preset = PRESETS["published"]
    max_params: int | None = None
    """outside the embeddings"""
    max_flops: int | None = None
    max_embedding_rows: int | None = None
    """of all embedding tables together; `max_embedding_bytes` likewise"""
    max_embedding_bytes: int | None = None
    share: float = 1.0
    """the first share of the training rows, on which supernet and networks are trained"""
    embedding_width: int | None = None
    """features of each embedding; default: 16"""
    recipe: Recipe = RECIPES["published"]
    """of training from scratch, at the preset's batch size; the warm-up has the published one"""
    highest: float | None = None
    """learning rate of training from scratch, if not the recipe's"""
    seed: int = 0
    method: str = EVOLUTION
    """`evolution_nasrec`, or `random` as a baseline with the same number of networks"""
    every: int = 500
    """steps between checkpoints"""
    budget: int | None = None
    """the most networks to score, where those of the preset are more"""
    time_limit: float | None = None
    """seconds of scoring after which no further networks are scored; the best so far are trained"""
    progress: Progress = field(default=silent, repr=False, compare=False)
    """its notes begin with the stage: `warm-up: `, `search: ` or `training: `"""

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UserError(f"The share of the rows to train on is {self.share}: give a number above 0, at most 1.")
        check_labels(self.table, "train")
        if not self.table.size("test"):
            raise DataError(f"The table {self.table.folder} has no test rows: mark some as test in its split column.")
        size = self.preset.batch_size
        if not self.table.size("val"):
            raise DataError(
                f"The table {self.table.folder} has no validation rows: mark some as val in its split column."
            )
        if (rows := self.trained_rows) < PARTS * size:
            most = rows // PARTS
            smaller = f", or smaller batches (--option batch_size={most})" if most else ""
            raise DataError(
                f"The table {self.table.folder} has {rows:,} training rows, and scoring takes {PARTS} batches of "
                f"{size}: give more rows{smaller}."
            )
        if not 1 <= self.preset.top <= self.evaluations:
            raise UserError(
                f"Of {self.evaluations} evaluated networks, {self.preset.top} cannot be trained: lower --top."
            )
        check_method(self.method)
        self.schedule, self.objective, self.training  # noqa: B018  invalid settings are refused first
        check_limits(self.fitted, self.max_params, self.max_flops)

    @property
    def evaluations(self) -> int:
        """The number of networks to score."""
        return min(self.budget or self.preset.evaluations, self.preset.evaluations)

    @cached_property
    def fitted(self) -> Nasrec:
        """The space for this table, in the preset's size."""
        preset = self.preset
        limits = self.max_embedding_rows, self.max_embedding_bytes, self.embedding_width
        fitted = nasrec(self.space).on(self.table.num_dense, self.table.rows, *limits)
        return fitted.reduced(preset.widest, preset.most_rows)

    @cached_property
    def final(self) -> Nasrec:
        """The same space with the networks that are trained in the end."""
        return self.fitted.formed(self.recipe.form)

    @cached_property
    def data(self) -> CtrTable:
        """The table with ids within the embeddings of the space."""
        return self.table.capped(self.fitted.tables)

    @cached_property
    def schedule(self) -> Schedule:
        epoch = -(-self.trained_rows // self.preset.batch_size)
        return Schedule(epoch=epoch, level=self.warmup, scaled=self.scaled)

    @property
    def trained_rows(self) -> int:
        return rows_in(self.share, self.table.size("train"))

    @cached_property
    def objective(self) -> Objective | None:
        return objective_of(self.proxy, self.warmup)

    @cached_property
    def training(self) -> Settings:
        settings = replace(self.recipe.settings, batch_size=self.preset.batch_size)
        return settings if self.highest is None else replace(settings, highest=self.highest)

    def run(self, folder: str | Path) -> RecommenderResult:
        """Runs or resumes the search; the folder takes its store and checkpoints."""
        place, seconds = made_folder(Path(folder)), dict[str, float]()
        with Store.open(place / STORE) as store:
            with _timed(seconds, "warm-up"):
                supernet = self.warmed(place)
            self._keep_warm_up(supernet, seconds["warm-up"], store)
            with _timed(seconds, "search"):
                result = self.searched(supernet, store)
            with _timed(seconds, "training"):
                candidates = self._retrained(result, store, place)
        steps, rows = self.schedule.steps, self.fitted.embedding_params
        return RecommenderResult(candidates, result.text, result.evaluated, steps, rows, seconds)

    def warmed(self, place: Path) -> RecommenderSupernet:
        sizes = self.preset.widest, self.preset.most_rows, self.preset.batch_size
        identity = self.table.fingerprint, self.fitted.tables, self.schedule, sizes, self.trained_rows, self.seed
        file = place / f"warm-{self.space}-{digest(*map(str, identity))[:16]}.pt"
        steps = self.schedule.steps
        if file.exists():
            warm = WarmUp.load(file, self.fitted)
        else:
            fresh = RecommenderSupernet(self.fitted, Origin(NASRECS.scheme, self.seed))
            warm = WarmUp(fresh, self.schedule, self.seed)

        def show(step: int, loss: float) -> None:
            self.progress(step, steps, f"warm-up: loss {loss:.4f}")
            if step % self.every == 0 or step == steps or stopped():
                warm.save(file)
            if stopped():
                raise KeyboardInterrupt

        if warm.step < steps:
            batches = self.data.batches("train", size=self.preset.batch_size, stop=self.trained_rows)
            with between_steps() as stopped:
                warm.run(batches, progress=show)
        return warm.supernet

    def _keep_warm_up(self, supernet: RecommenderSupernet, seconds: float, store: Store) -> None:
        """Records the warm-up for reports; if it was complete before, the seconds of then stay."""
        if self.schedule.steps:
            settings: dict[str, JSON] = {"space": self.space, "supernet": supernet.id, "steps": self.schedule.steps}
            store.begin_run("warm-up", settings, manifest(settings)).finish({"seconds": seconds})

    def searched(self, supernet: RecommenderSupernet, store: Store) -> Result:
        batch = self.batch
        if self.objective is None:
            source: Source = self._one_shot(supernet)
            objective = Objective((looked_up(source.name),))
        else:
            source, objective = Inherited(supernet, batch), self.objective
        task = Task(self.fitted, objective.proxies, batch, Origin(seed=self.seed), sources=(source,))
        result: Result = run_search(
            task,
            self.method,
            self.evaluations,
            seed=self.seed,
            objective=objective,
            budget=self.fitted.budget(self.max_params, self.max_flops),
            options=self.preset.options if self.method == EVOLUTION else {},
            store=store,
            time_limit=self.time_limit,
            progress=lambda now: self.progress(now.evaluated, self.evaluations, f"search: {now.headline}"),
        )
        if result.best is None:
            raise nothing_found(result)
        return result

    @cached_property
    def batch(self) -> Batch:
        """The training rows after those of the warm-up, or the last ones."""
        size = self.preset.batch_size
        first = min(self.schedule.steps, self.trained_rows // size - PARTS)
        return in_parts(list(islice(self.data.batches("train", size=size, start=first), PARTS)))

    def _one_shot(self, supernet: RecommenderSupernet) -> Feedback:
        size, count = self.preset.batch_size, self.preset.fine_steps
        training = list(islice(self.data.batches("train", size=size), count))
        validation = list(islice(self.data.batches("val", size=size), count))
        fitness = OneShot(supernet, training, validation, replace(FINE, epoch=count))
        return Feedback(fitness, f"{ONE_SHOT}-{digest(supernet.id, self.table.fingerprint, size, count)[:16]}")

    def source(self, place: Path, seed: int | None = None) -> TrainingSource:
        """Trains networks of this search from scratch, with checkpoints in the folder."""
        seed = self.seed if seed is None else seed
        return TrainingSource(self.final, self.data, self.training, seed, self.share, place, self.every)

    def _retrained(self, result: Result, store: Store, place: Path) -> tuple[TrainedCandidate, ...]:
        found = self.distinct(result.top(LEADERS))
        every = [(one, False) for one in found] + [(one, True) for one in self._random(found)]
        trained, source = [], self.source(place)
        for number, (candidate, random) in enumerate(every):
            source.progress = part_of(self.progress, number, len(every), "training")
            trained.append(replace(self._measured(candidate, source, store), random=random))
        return tuple(trained)

    def _random(self, found: Sequence[Candidate]) -> list[Candidate]:
        """Networks drawn uniformly within the limits, other than those that the search found."""
        rng, budget = Random(f"random/{self.seed}"), self.fitted.budget(self.max_params, self.max_flops)
        space = BudgetedSpace(self.fitted, budget, self.batch.num_classes, self.batch.input_shape)
        archs = (space.sample(rng) for _ in range(10 * self.preset.random))
        drawn = [Candidate(arch, self.fitted.text(arch), Score(math.nan)) for arch in archs]
        others = self.distinct([*found, *drawn], len(found) + self.preset.random)
        return others[len(found) :]

    def distinct(self, candidates: Sequence[Candidate], most: int | None = None) -> list[Candidate]:
        """The first few different networks; unused choices of an architecture make no difference."""
        plans = ((pruned(self.fitted.plan(candidate.arch)), candidate) for candidate in candidates)
        each: dict[object, Candidate] = {}
        for plan, candidate in plans:
            each.setdefault(tuple((node.op, node.inputs, node.name) for node in plan.nodes), candidate)
        return list(each.values())[: self.preset.top if most is None else most]

    def _measured(self, candidate: Candidate, source: TrainingSource, store: Store) -> TrainedCandidate:
        """Trains and measures a network, unless the store has its metrics."""
        proxies = (VAL_LOSS, VAL_AUC, TEST_LOSS, TEST_AUC)
        task = Task(self.final, proxies, self.batch, sources=(source,))
        settings: dict[str, JSON] = {"source": source.name, "space": self.space, "arch": candidate.text}
        run = store.begin_run("training", settings, manifest(settings))
        (scores,), _ = task.evaluate([candidate.arch], store, run, 0)
        values = (scores[proxy.text].value for proxy in proxies)
        plan = self.final.plan(candidate.arch)
        params = plan.params - self.final.embedding_params
        val_loss, val_auc, test_loss, test_auc = values
        stuck = val_loss > base_loss(self.table) - PROGRESS
        sizes, measured = (params, plan.flops), (val_loss, val_auc, test_loss, test_auc)
        return TrainedCandidate(candidate.text, candidate.score.value, *sizes, *measured, at_base=stuck)


def objective_of(proxy: str, warmup: float) -> Objective | None:
    """The score of sub-networks; None for one-shot fitness."""
    usual = {"sigeo": f"sigeo(weights={'warm_recommender' if warmup else 'zero_shot'})"}
    usual["zico"] = f"zico(batches={PARTS})"
    return None if proxy == ONE_SHOT else parse_objective(usual.get(proxy, proxy))


def check_method(method: str) -> None:
    if method not in (EVOLUTION, RANDOM):
        raise UserError(f"The method of a search for recommenders is {EVOLUTION} or {RANDOM}, not '{method}'.")


def check_limits(space: Nasrec, max_params: int | None, max_flops: int | None) -> None:
    """UserError if no network is within the limits; parameters are those outside the embeddings."""
    least = space.plan(space.smallest())
    sizes = least.params - space.embedding_params, least.flops
    words = "parameters outside its embeddings", "multiply-accumulates"
    for limit, size, what in zip((max_params, max_flops), sizes, words, strict=True):
        if limit is not None and size > limit:
            raise UserError(
                f"No {space.name} network for this table has at most {limit:,} {what}: the smallest has {size:,}."
            )


@contextmanager
def _timed(seconds: dict[str, float], stage: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    seconds[stage] = time.perf_counter() - start
