"""An experiment: a recipe that measures again what a paper printed, and compares both.

table = experiments["dextr-table1"]
result = table.run(table.quick, folder="data", store="run.db")     # table.full by default
result.rows[0].found, result.rows[0].paper

The first line of a recipe's file names what it reproduces; the rest is the protocol and its differences from the paper.
"""

from __future__ import annotations

import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from epochzero.data import NOISE
from epochzero.engine.device import usable
from epochzero.errors import UserError
from epochzero.evaluate.bench import kept_figure
from epochzero.registry import experiments
from epochzero.stats import Correlation
from epochzero.store import JSON, Run, Store, add, manifest
from epochzero_papers.harness.files import CIFAR10, FOLDER, File, missing

REPEAT = ", repeat "
"""separates the name of a column from the number of its repeat, from the second on"""
Status = Literal["ready", "part", "needs data", "planned"]
"""part: some of its data are missing, and it runs on the rest"""


@dataclass(frozen=True)
class Settings:
    """The size of an experiment; a recipe with more settings extends this."""

    networks: int
    batch_size: int = 64
    repeats: int = 1
    """fresh draws of weights and data"""


class Quoted(NamedTuple):
    """One figure as the paper prints it."""

    x: str
    y: str
    statistic: str
    value: float


@dataclass(frozen=True)
class Row:
    """A figure of the paper, and ours."""

    sample: str
    x: str
    y: str
    statistic: str
    found: Correlation | None
    """None where it has no value; `why` is the reason"""
    unscored: int
    """the number of networks left out, because x or y has no value"""
    paper: float | None = None
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.x}, {self.y}"

    @property
    def difference(self) -> float | None:
        """Our figure minus the paper's, where both are known."""
        return None if self.found is None or self.paper is None else self.found.value - self.paper


@dataclass(frozen=True)
class Sample:
    """Networks of one space, with the values measured for each."""

    space: str
    archs: Sequence[str]
    columns: Mapping[str, str]
    """the proxy of each column, or its name in a table"""
    values: Mapping[str, Sequence[float | None]]
    """by column, in the order of `archs`; None for a missing score"""
    data: Mapping[str, str]
    """by column, a sentence about its batch"""
    unscored: Mapping[str, Mapping[str, int]]
    """by column, the reasons for missing scores, with their counts"""

    @property
    def batches(self) -> dict[str, list[str]]:
        """The columns measured on each batch, by the sentence about the batch."""
        columns: dict[str, list[str]] = {}
        for column, about in self.data.items():
            columns.setdefault(about, []).append(column)
        return columns

    @classmethod
    def measured(
        cls,
        space: str,
        values: Mapping[str, Sequence[float | None]],
        about: str,
        archs: Sequence[str] = (),
        unscored: Mapping[str, Mapping[str, int]] | None = None,
    ) -> Sample:
        """Values that are not scores of proxies, all of the same data."""
        return cls(space, archs, {}, values, dict.fromkeys(values, about), unscored or {})


@dataclass(frozen=True)
class Result:
    """The figures of an experiment, with everything needed to judge them and to measure them again."""

    experiment: str
    about: str
    source: str
    """the paper's table or figure"""
    rows: Sequence[Row]
    samples: Mapping[str, Sample]
    left_out: Sequence[str]
    """the parts of the paper's table or figure that were not measured, a sentence each"""
    settings: Mapping[str, Any]
    seed: int
    device: str
    machine: Mapping[str, Any]
    versions: Mapping[str, Any]
    date: str
    seconds: float
    """of this call; scores read from the store take none"""
    scores: Sequence[str] = ()
    """the files that scores were read from, if none was computed"""

    def as_dict(self) -> dict[str, Any]:
        """Returns plain values that JSON can hold."""
        return asdict(self) | {"rows": [asdict(row) | {"difference": row.difference} for row in self.rows]}


class Measurement(NamedTuple):
    """The rows of a recipe, the samples behind them, and sentences about what is left out."""

    rows: Sequence[Row]
    samples: Mapping[str, Sample]
    left_out: Sequence[str] = ()


@dataclass
class Work:
    """The settings, data, device and store that a recipe measures with."""

    settings: Any
    seed: int
    data: str | Path | None
    """images that replace the recipe's own"""
    folder: Path
    device: str
    store: Store
    progress: Callable[[int, int], None]
    """called with the numbers of networks done and in all"""
    identity: dict[str, JSON]
    recalls: bool = False
    """take networks and scores from the store alone, and compute none"""
    run: Run | None = field(default=None, init=False)
    made: dict[str, JSON] = field(default_factory=dict, init=False)

    def begin(self, **more: JSON) -> Run:
        """Start or resume the run that experiment, settings, seed and `more` define."""
        self.made = manifest(self.identity | more | {"device": self.device})
        self.run = self.store.begin_run("experiment", self.identity | more, self.made)
        return self.run

    def images(self, *others: File, kind: File = CIFAR10) -> list[Any]:
        """Returns the file of images or the name of noise, then the other files; DataError if any is missing."""
        given = self.data if self.data is None or self.data in NOISE else Path(self.data)
        paths = [given or kind.find(self.folder), *(file.find(self.folder) for file in others)]
        if None in paths:
            lacking = [file for file, path in zip((kind, *others), paths, strict=True) if path is None]
            raise missing(str(self.identity["experiment"]), lacking, self.folder)
        return paths


class Recipe(ABC):
    """An experiment that can be run. Subclass it in a file of its own and register an instance."""

    name: str
    source: str
    full: Any
    """`Settings`, or the recipe's extension of it: the paper's, as far as they are feasible"""
    quick: Any
    """settings that take a minute or two on two cores"""
    needs: Sequence[File] = ()
    """the files that it reads from the data folder"""
    takes_scores: bool = False
    """can be made from scores measured before"""
    fewest: int = 3
    """the fewest networks that its figures need: a correlation takes three"""

    @property
    def about(self) -> str:
        """The first line of the recipe's docstring."""
        return self._explanation[0]

    @property
    def protocol(self) -> str:
        """The rest of the docstring."""
        return self._explanation[2].strip()

    @property
    def _explanation(self) -> tuple[str, str, str]:
        return (inspect.getdoc(inspect.getmodule(type(self))) or "").partition("\n")

    @property
    @abstractmethod
    def quoted(self) -> Sequence[Quoted]:
        """The paper's figures."""

    def status(self, folder: str | Path = FOLDER) -> Status:
        """Returns whether the data in a folder are enough to run it."""
        return "ready" if all(file.find(folder) for file in self.needs) else "needs data"

    def sized(self, quick: bool = False, networks: int | None = None) -> Any:
        """Returns the full or the quick settings, with another number of networks if given."""
        settings = self.quick if quick else self.full
        return settings if networks is None else replace(settings, networks=networks)

    @abstractmethod
    def measure(self, work: Work) -> Measurement:
        """Call `work.begin`, then measure."""

    def run(
        self,
        settings: Any = None,
        *,
        seed: int = 0,
        data: str | Path | None = None,
        folder: str | Path = FOLDER,
        device: str = "cpu",
        store: str | Path = ":memory:",
        scores: Sequence[str | Path] = (),
        progress: Callable[[int, int], None] | None = None,
    ) -> Result:
        """Measures `settings.networks` networks; with a store on disk, a stopped run resumes.

        Tables and images are read from `folder`; `data`, a file or noise, replaces the images there. With `scores`,
        files exported from a store, their networks are taken and no other score is computed.
        """
        start = time.perf_counter()
        settings = settings or self.full
        if settings.networks < self.fewest:
            raise UserError(f"{self.name} needs at least {self.fewest} networks, not {settings.networks}.")
        if scores and not self.takes_scores:
            raise UserError(f"{self.name} does not use scores at initialisation: leave out --scores.")
        usable(device)
        identity: dict[str, JSON] = {"experiment": self.name, "settings": asdict(settings), "seed": seed}
        with Store.open(store) as opened:
            tell = progress or (lambda done, total: None)
            for source in scores:
                add(opened, source)
            work = Work(settings, seed, data, Path(folder), device, opened, tell, identity, bool(scores))
            rows, samples, left_out = self.measure(work)
            assert work.run is not None
            work.run.finish({f"{row.sample}: {row.name} {row.statistic}": _kept(row) for row in rows})
        return Result(
            experiment=self.name,
            about=self.about,
            source=self.source,
            rows=rows,
            samples=samples,
            left_out=left_out,
            settings=asdict(settings),
            seed=seed,
            device=device,
            machine=_mapping(work.made["machine"]),
            versions=_mapping(work.made["versions"]),
            date=str(work.made["started"]),
            seconds=time.perf_counter() - start,
            scores=[str(source) for source in scores],
        )


def _kept(row: Row) -> dict[str, JSON]:
    return {**kept_figure(row.found, row.statistic, row.why), "paper": row.paper}


def _mapping(value: JSON) -> Mapping[str, Any]:
    assert isinstance(value, Mapping)
    return value


R = TypeVar("R", bound=Recipe)


def experiment(recipe: type[R]) -> type[R]:
    """Register an instance of the decorated recipe under its name."""
    experiments.register(recipe.name, recipe(), origin=recipe.__module__)
    return recipe
