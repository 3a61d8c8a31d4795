"""Experiments on the networks that searches select: counted and, if there are images, trained.

A recipe names its searches, one for each row of the paper's table, and the columns that can be measured here.
`networks` searches of each kind, with their own seeds for search, weights and data, select a network each; figures are
means over them. Columns that need ImageNet and days of training are reported as missing, with the paper's figures.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from epochzero import api
from epochzero.data.batch import digest
from epochzero.errors import UserError
from epochzero.plan import Plan
from epochzero.registry import spaces
from epochzero.study.result import Result
from epochzero.train import recipes
from epochzero.train.feedback import ShortTraining
from epochzero.train.image_data import Images, load_images
from epochzero_papers.harness.base import Measurement, Quoted, Recipe, Row, Sample, Settings, Work
from epochzero_papers.harness.estimates import estimate
from epochzero_papers.harness.figures import Figures, quoted
from epochzero_papers.harness.files import CIFAR10, File, missing
from epochzero_papers.harness.training import some, trained

COUNTS: dict[str, Callable[[Plan], float]] = {
    "params M": lambda plan: plan.params / 1e6,
    "FLOPs M": lambda plan: plan.flops / 1e6,
    "FLOPs G": lambda plan: plan.flops / 1e9,
}
"""counts of a network that need no training; FLOPs are multiply-accumulates, as in these papers"""
SAMPLE = "found"


@dataclass(frozen=True)
class SearchSettings(Settings):
    """`networks` searches of each kind, their length, and the training of their winners."""

    networks: int = 3
    evaluations: int = 1000
    """networks that a search evaluates, or its steps inside one network"""
    options: tuple[tuple[str, Any], ...] = ()
    """of the searches"""
    epochs: int = 1
    images: int | None = None
    """training images of winners and of short trainings; all if None"""


class NetworkSearch(NamedTuple):
    """A search and its limits."""

    space: str
    proxy: str
    method: str = "evolution"
    max_params: float | None = None
    max_flops: float | None = None
    options: Mapping[str, Any] = {}
    feedback: str = ""
    """the recipe of a short training whose accuracy replaces the proxy"""


class NetworkSearches(Recipe):
    """An experiment whose rows are the networks that searches select."""

    full: SearchSettings
    quick: SearchSettings
    fewest = 1
    searches: ClassVar[Mapping[str, NetworkSearch]]
    paper: ClassVar[Figures]
    columns: ClassVar[Sequence[str]]
    """those of `COUNTS` that the paper prints"""
    built_in: ClassVar[str | None] = None
    """the space in which winners are counted and trained, if it is not the searched one"""
    on_images: ClassVar[bool] = True
    """searches see CIFAR-10; otherwise noise of the space's own shape"""
    tested: ClassVar[Mapping[str, bool]] = {}
    """the column of the test result on CIFAR-10; True if it is an error"""
    recipe: ClassVar[recipes.Recipe] = recipes.Recipe()
    unmeasured: ClassVar[str] = ""
    """the data and time that the other columns need"""

    @property
    def needs(self) -> Sequence[File]:  # type: ignore[override]
        return (CIFAR10,) if self.on_images or self.tested else ()

    @property
    def quoted(self) -> Sequence[Quoted]:
        return quoted(self.paper, "mean")

    def measure(self, work: Work) -> Measurement:
        settings: SearchSettings = work.settings
        source = self._source(work)
        images = some(load_images(source, seed=work.seed), settings.images) if self.tested else None
        work.begin(source=Path(source).name)
        rows: list[Row] = []
        values: dict[str, list[float | None]] = {}
        drawn: dict[str, str] = {}
        texts: list[str] = []
        seeds = range(work.seed, work.seed + settings.networks)
        for place, (label, spec) in enumerate(self.searches.items()):
            of_column: dict[str, list[float]] = {}
            for one, seed in enumerate(seeds):
                work.progress(place * len(seeds) + one, len(self.searches) * len(seeds))
                outcome = self._searched(work, spec, source, seed)
                texts.append(outcome.winner.text)
                for column, value in self._measured(work, spec, outcome, images, seed).items():
                    of_column.setdefault(column, []).append(value)
            for column, found in of_column.items():
                paper = self.paper[label].get(column)
                rows.append(Row(SAMPLE, label, column, "mean", estimate(found), 0, paper))
            drawn[label] = next(iter(of_column))
            values[label] = list(of_column[drawn[label]])
        work.progress(len(self.searches) * len(seeds), len(self.searches) * len(seeds))
        data = "pink noise" if source == "pink" else Path(source).name
        about = f"{data}." if images is None else f"{data}; {len(images.y)} images of it to train on."
        space = ", ".join(dict.fromkeys(spec.space for spec in self.searches.values()))
        lacking = dict.fromkeys(c for of in self.paper.values() for c in of if c not in (*self.columns, *self.tested))
        left_out = [f"{', '.join(lacking)}: not measured, for that takes {self.unmeasured}."] if lacking else []
        return Measurement(
            rows,
            {
                SAMPLE: Sample(
                    space,
                    texts,
                    {},
                    values,
                    {label: f"{about} Values behind the picture: {column}." for label, column in drawn.items()},
                    {},
                )
            },
            left_out,
        )

    def _source(self, work: Work) -> str | Path:
        if not self.needs:
            if work.data not in (None, "pink"):
                raise UserError(f"{self.name} searches with pink noise and trains nothing: leave --data out.")
            return "pink"
        if work.data is not None:
            return work.data
        file = CIFAR10.find(work.folder)
        if file is None:
            raise missing(self.name, [CIFAR10], work.folder)
        return file

    def _searched(self, work: Work, spec: NetworkSearch, source: str | Path, seed: int) -> Result:
        settings: SearchSettings = work.settings
        return api.search(
            spec.space,
            _judge(spec, settings, source, seed, work.device) if spec.feedback else spec.proxy,
            spec.method,
            settings.evaluations,
            max_params=spec.max_params,
            max_flops=spec.max_flops,
            data=source if self.on_images else "pink",
            batch_size=settings.batch_size,
            seed=seed,
            device=work.device,
            store=work.store.path,
            options=dict(spec.options) | dict(settings.options),
        )

    def _measured(
        self, work: Work, spec: NetworkSearch, outcome: Result, images: Images | None, seed: int
    ) -> dict[str, float]:
        space, arch = spaces[self.built_in or spec.space], outcome.winner.arch
        plan = space.plan(arch) if self.built_in else outcome.plan
        figures = {column: COUNTS[column](plan) for column in self.columns}
        for column, is_error in self.tested.items():
            assert images is not None
            recipe = replace(self.recipe, epochs=work.settings.epochs)
            facts = {"experiment": self.name, "arch": outcome.winner.text}
            name = digest(outcome.winner.text, seed, recipe.epochs, len(images.y))[:16]
            ended = trained(work, name, space, arch, images, recipe, seed=seed, facts=facts)
            accuracy = 100 * float(ended.history[-1]["test_accuracy"])
            figures[column] = 100 - accuracy if is_error else accuracy
        return figures


def _judge(
    spec: NetworkSearch, settings: SearchSettings, source: str | Path, seed: int, device: str
) -> Callable[[Any], float]:
    """Returns a short training with a name that holds all its settings; the store keeps results by it."""
    some = "" if settings.images is None else f",images={settings.images}"
    training = ShortTraining.of(f"{spec.feedback[:-1]}{some})", spaces[spec.space], source, seed=seed, device=device)

    def judge(arch: Any) -> float:
        return training(arch)

    judge.__name__ = training.name
    return judge
