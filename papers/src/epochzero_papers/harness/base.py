"""What an experiment is: a recipe that measures again what a paper printed, and sets both side by side.

table = experiments["dextr-table1"]
result = table.run(table.quick, folder="data", store="run.db")     # table.full by default
result.rows[0].found, result.rows[0].paper

The first line of a recipe's file says what it reproduces, the rest the protocol and where it departs from the paper.
"""

from __future__ import annotations

import inspect
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

from epochzero.engine.device import usable
from epochzero.errors import UserError
from epochzero.evaluate.bench import kept_figure
from epochzero.registry import experiments
from epochzero.stats import Correlation
from epochzero.store import JSON, Run, Store, add, manifest
from epochzero_papers.harness.files import FOLDER, File

Progress = Callable[[int, int], None]
"""(networks done, networks in all)"""
REPEAT = ", repeat "
"""between the name of a column and the number of the repeat, of all but the first"""
Status = Literal["ready", "part", "needs data", "planned"]
"""part: some of its data are missing, and the rest can be run"""


@dataclass(frozen=True)
class Settings:
    """How large an experiment is; a recipe that needs to say more extends this."""

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
    """One figure of the paper's, and ours."""

    sample: str
    x: str
    y: str
    statistic: str
    found: Correlation | None
    """None where there is none, and `why`"""
    unscored: int
    """networks that x or y has no value for; they are left out"""
    paper: float | None = None
    why: str = ""

    @property
    def name(self) -> str:
        return f"{self.x}, {self.y}"

    @property
    def difference(self) -> float | None:
        """Ours less the paper's, where there are both."""
        return None if self.found is None or self.paper is None else self.found.value - self.paper


@dataclass(frozen=True)
class Sample:
    """Networks of one space, and what was measured of each."""

    space: str
    archs: Sequence[str]
    columns: Mapping[str, str]
    """what was measured: name to proxy, or to the column of a table"""
    values: Mapping[str, Sequence[float | None]]
    """by column, in the order of `archs`; None where there is no score"""
    data: Mapping[str, str]
    """by column, one sentence about its batch"""
    unscored: Mapping[str, Mapping[str, int]]
    """by column, the reasons for that and how often each was given"""

    @property
    def batches(self) -> dict[str, list[str]]:
        """What is said of each batch that was used, and the columns that were measured on it."""
        found: dict[str, list[str]] = {}
        for column, about in self.data.items():
            found.setdefault(about, []).append(column)
        return found


@dataclass(frozen=True)
class Result:
    """What an experiment found, and everything needed to judge it and to run it again."""

    experiment: str
    about: str
    source: str
    """the paper's table or figure"""
    rows: Sequence[Row]
    samples: Mapping[str, Sample]
    left_out: Sequence[str]
    """what of the paper's table or figure was not measured, one sentence each"""
    settings: Mapping[str, Any]
    seed: int
    device: str
    machine: Mapping[str, Any]
    versions: Mapping[str, Any]
    date: str
    seconds: float
    """of this call; what was in the store already took none"""
    scores: Sequence[str] = ()
    """the files that scores were read from, where none was computed"""

    def as_dict(self) -> dict[str, Any]:
        """As plain values that JSON can hold."""
        return asdict(self) | {"rows": [asdict(row) | {"difference": row.difference} for row in self.rows]}


class Found(NamedTuple):
    """What a recipe measured."""

    rows: Sequence[Row]
    samples: Mapping[str, Sample]
    left_out: Sequence[str] = ()


@dataclass
class Work:
    """What a recipe is given to measure with."""

    settings: Any
    seed: int
    data: str | Path | None
    """images in place of the recipe's own"""
    folder: Path
    device: str
    store: Store
    progress: Progress
    identity: dict[str, JSON]
    recalls: bool = False
    """whether scores come from the store alone, with their networks, and none is computed"""
    run: Run | None = field(default=None, init=False)
    made: dict[str, JSON] = field(default_factory=dict, init=False)

    def begin(self, **more: JSON) -> Run:
        """Begin the run that experiment, settings, seed and `more` define, or go on with it."""
        self.made = manifest(self.identity | more | {"device": self.device})
        self.run = self.store.begin_run("experiment", self.identity | more, self.made)
        return self.run


class Recipe(ABC):
    """An experiment that can be run. Subclass it in a file of its own and register an instance."""

    name: str
    source: str
    full: Any
    """`Settings`, or the recipe's extension of it: as in the paper, as far as that is within reach"""
    quick: Any
    """the same in a minute or two on two cores"""
    needs: Sequence[File] = ()
    """what it looks for in the data folder"""
    takes_scores: bool = False
    """whether scores that were measured before will do"""
    fewest: int = 3
    """networks that its figures need: a correlation takes three"""

    @property
    def about(self) -> str:
        """The first line of the recipe's file."""
        return self._explanation[0]

    @property
    def protocol(self) -> str:
        """The rest of it."""
        return self._explanation[2].strip()

    @property
    def _explanation(self) -> tuple[str, str, str]:
        return (inspect.getdoc(inspect.getmodule(type(self))) or "").partition("\n")

    @property
    @abstractmethod
    def quoted(self) -> Sequence[Quoted]:
        """The paper's figures."""

    def status(self, folder: str | Path = FOLDER) -> Status:
        """Whether it can be run with the data in a folder."""
        missing = [file for file in self.needs if file.find(folder) is None]
        return "needs data" if missing else "ready"

    def sized(self, quick: bool = False, networks: int | None = None) -> Any:
        """The recipe's full or quick settings, with another number of networks if one is given."""
        settings = self.quick if quick else self.full
        return settings if networks is None else replace(settings, networks=networks)

    @abstractmethod
    def measure(self, work: Work) -> Found:
        """Measure, after `work.begin`."""

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
        progress: Progress | None = None,
    ) -> Result:
        """Measure `settings.networks` networks. With a store on disk, a run that was stopped goes on where it was.

        Tables and images are looked for in `folder`; `data`, a file or noise, takes the place of the images there.
        With `scores`, files that a store was exported to, their networks are taken and no other score is computed.
        """
        start = time.perf_counter()
        settings = settings or self.full
        if settings.networks < self.fewest:
            raise UserError(f"{self.name} needs at least {self.fewest} networks, not {settings.networks}.")
        if scores and not self.takes_scores:
            raise UserError(f"{self.name} is not made of scores at initialisation: leave out --scores.")
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
