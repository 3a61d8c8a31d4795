"""A ranking of networks: their scores in several draws of weights and data, their sizes, and which differ.

Every network is scored in the same draws, through the store as in a search: the same call resumes, and a network that
was scored before is not scored again. A network that cannot be built or scored is listed last with the reason.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import groupby, islice
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from epochzero.callbacks import Told
from epochzero.errors import UserError
from epochzero.frames import Framed, as_html
from epochzero.objectives.objective import Objective
from epochzero.registry import check_known
from epochzero.spaces.base import AnySpace, GivesPlans
from epochzero.stats.groups import grouped, least_difference
from epochzero.store import JSON, Evaluated, Run, Store, manifest
from epochzero.store.database import MEMORY
from epochzero.study.clock import Clock
from epochzero.study.facts import INSPECTED, Facts, facts_of
from epochzero.study.given import Entry, Given, identity_of
from epochzero.study.task import Task
from epochzero.types import Score, Setting

if TYPE_CHECKING:
    from epochzero.engine.structure import Structure
    from epochzero.hardware.latency import Latency
    from epochzero.hardware.timing import Timing

ROUNDING = 1e-6
"""relative differences of scores up to this are those of the order of additions"""
TOGETHER = 64
"""architectures of a space that are scored together"""


@dataclass
class Ranked:
    """One network."""

    name: str
    arch: str = ""
    """as the store has it"""
    params: int | None = None
    flops: int | None = None
    """multiply-accumulates for one sample; None if torch cannot count them"""
    memory: int | None = None
    """peak bytes of weights and activations, for one sample without gradients"""
    latency: Timing | str | None = None
    """milliseconds for one sample, if asked for, or why they cannot be measured"""
    value: float = math.nan
    """mean over the draws"""
    spread: float = math.nan
    """standard deviation over the draws"""
    scores: tuple[float, ...] = ()
    """of each draw"""
    merit: float = math.nan
    """`value`, signed so that higher is better"""
    group: int | None = None
    """networks of a group do not differ significantly from its first"""
    by_flops: float | None = None
    """its place if multiply-accumulates decided, the largest first; the mean place of equals"""
    status: str = "ok"
    why: str = ""


class Ranking(Sequence[Ranked], Framed):
    """Networks in the order of their mean score, the best first; those without a score come last."""

    def __init__(self, objective: Objective, draws: int, rows: list[Ranked], about: str, space: str) -> None:
        self.objective, self.draws, self.about, self.space = objective, draws, about, space
        self.rows = rows
        self.least = math.nan
        """least significant difference of two means"""
        self.remarks: list[str] = []
        self.facts: Facts | None = None
        """of its networks"""
        self.task: Task | None = None
        """the first draw"""
        self.sources: dict[str, tuple[AnySpace, Any]] = {}
        """space and architecture of each network, if they were not those of an iterator"""
        self.run = ""
        self.store: str | None = None
        """its path, if it is on disk"""
        self._sort()

    def _sort(self) -> None:
        scored = sorted((row for row in self.rows if row.status == "ok"), key=lambda row: -row.merit)
        self.rows = scored + [row for row in self.rows if row.status != "ok"]
        if scored:
            values = np.array([row.scores for row in scored]) * (-1 if lower_is_better(self.objective) else 1)
            self.least = least_difference(values) if self.varies else math.nan
            if not math.isnan(self.least):
                for row, group in zip(scored, grouped(values.mean(1), self.least), strict=True):
                    row.group = group
        counted = [row for row in scored if row.flops is not None]
        flops = np.array([row.flops for row in counted], dtype=float)
        for row in counted:
            row.by_flops = float((flops > row.flops).sum() + ((flops == row.flops).sum() + 1) / 2)

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, str):
            named = {row.name: row for row in reversed(self.rows)}
            check_known(place, named, f"The ranking has no network '{place}'", "It has")
            return named[place]
        return self.rows[place]

    def __repr__(self) -> str:
        best = self.rows[0].name if self.scored else "no score"
        many = "1 network" if len(self) == 1 else f"{len(self)} networks"
        return f"<Ranking of {many} by {self.text} in {self.draws} draws: {best}>"

    @property
    def text(self) -> str:
        """The score as text."""
        return self.objective.text

    @property
    def scored(self) -> list[Ranked]:
        return [row for row in self.rows if row.status == "ok"]

    @property
    def best(self) -> Ranked:
        """The first network; UserError if none has a score."""
        if not self.scored:
            why = self.rows[0].why if self.rows else "none given"
            raise UserError(f"No network has a score by {self.text}: {why}.")
        return self.rows[0]

    @property
    def varies(self) -> bool:
        """True if the draws of some network differ by more than rounding."""
        return any(row.spread > ROUNDING * abs(row.value) for row in self.scored)

    @property
    def agreement(self) -> float | None:
        """Kendall's correlation of the score with the multiply-accumulates; None where it has no value."""
        from epochzero.stats import kendall

        counted = [row for row in self.scored if row.flops is not None]
        flops = [float(row.flops or 0) for row in counted]
        merits = [row.merit for row in counted]
        if len(set(flops)) < 2 or len(set(merits)) < 2 or len(counted) < 3:
            return None
        return kendall(merits, flops, resamples=16).value

    @property
    def sentences(self) -> list[str]:
        """The table's findings in sentences."""
        said = []
        scored = self.scored
        if scored and scored[0].group is not None:
            first = [row.name for row in scored if row.group == 1]
            also = f" and {len(first) - 1} more" if len(first) > 1 else ""
            test = f"Tukey's test at 5 %, {self.draws} draws, least difference {self.least:.2g}"
            said.append(
                f"Group 1: {first[0]}{also}. Networks of a group do not differ significantly from its first ({test})."
            )
        elif len(scored) > 1 and self.draws == 1:
            said.append("One draw shows no spread: use several seeds to see which networks differ.")
        elif len(scored) > 1 and not self.varies:
            said.append("All draws give the same scores, so there is no spread to tell which differ significantly.")
        largest = min((row for row in scored if row.by_flops), key=lambda row: row.by_flops or 0, default=None)
        if largest is not None and len({row.flops for row in scored}) > 1:
            tau = self.agreement
            agreed = "" if tau is None else f"; Kendall's tau of the two orders is {tau:.2f}"
            said.append(f"Counting FLOPs would put {largest.name} first{agreed}.")
        return said + self.remarks

    def table(self) -> dict[str, list[Any]]:
        """The rows as columns; also `to_pandas()` and `to_polars()`."""
        rows = self.to_json()["networks"]
        return {key: [row[key] for row in rows] for key in rows[0]} if rows else {}

    def _repr_html_(self) -> str:
        shown = ("place", "name", "params", "flops", "memory", "latency", "by_flops", "value", "spread", "group", "why")
        columns = {name: column for name, column in self.table().items() if name in shown}
        columns["latency"] = [row.latency for row in self.rows]
        return as_html(
            {n: c for n, c in columns.items() if any(one not in (None, "") for one in c)}, (), self.sentences
        )

    def tell(self, told: Told) -> None:
        """Tells callbacks of each network, and of the order."""
        for place, row in enumerate(self.to_json()["networks"], 1):
            told.log(place, {name: row[name] for name in ("params", "flops", "memory", "value", "spread", "group")})
        names = [row.name for row in self.scored]
        told.summary |= {"best": names[0] if names else None, "order": names, "says": self.sentences}

    def to_json(self) -> dict[str, Any]:
        """As `epochzero rank --json` prints it."""
        rows = [asdict(replace(row, latency=None)) for row in self.rows]
        for row, own in zip(rows, self.rows, strict=True):
            row["latency"] = getattr(own.latency, "facts", own.latency)
        return {
            "networks": [{"place": i + 1 if row["status"] == "ok" else None, **row} for i, row in enumerate(rows)],
            "proxy": self.text,
            "higher_is_better": not lower_is_better(self.objective),
            "draws": self.draws,
            "least_difference": self.least,
            "kendall_with_flops": self.agreement,
            "says": self.sentences,
            "data": self.about,
            "run": self.run,
        }


def lower_is_better(objective: Objective) -> bool:
    """True for a single proxy of that kind; merits of a combination are signed."""
    return not objective.method and not objective.proxies[0].higher_is_better


R = TypeVar("R", bound=Ranking)


def ranked(
    entries: Iterable[Entry],
    tasks: Sequence[Task],
    objective: Objective,
    store: Store,
    *,
    latency: Callable[[Task], Latency] | None = None,
    progress: Callable[[int, int | None, str], None] = lambda done, total, note: None,
    kind: type[R],
) -> R:
    """Scores each network in the draw of each task, whose space does not matter; `latency` makes a space's source."""
    listed = list(entries) if isinstance(entries, Sequence) else None
    settings: dict[str, JSON] = {
        "networks": [entry[0] for entry in listed or ()],
        "proxy": objective.text,
        "draws": [[task.setting.batch, str(task.origin)] for task in tasks],
    }
    first = tasks[0]
    run = store.begin_run("rank", settings, manifest({**settings, "data": first.batch.about, "device": first.device}))
    steps: Any = _Steps(run)
    rows: list[Ranked] = []
    scores: list[list[dict[str, Score]]] = []
    meters: dict[str, Latency] = {}
    names: dict[str, None] = {}
    structures: list[Structure] = []
    origins: dict[str, list[JSON]] = {}
    keep_weights = 0
    for space, some in _chunks(entries):
        names[space.name] = None
        sized = [(_sized(name, space, arch, first, structures), arch) for name, arch in some]
        built = [(row, arch) for row, arch in sized if row.status == "ok"]
        archs = [arch for _, arch in built]
        own = zip(*(replace(task, space=space).evaluate(archs, store, steps, 0)[0] for task in tasks), strict=True)
        rows += [row for row, _ in sized]
        for row, arch in built:
            origins[row.name] = [space.name, arch.name if isinstance(arch, Given) else row.arch]
        scores += [list(next(own)) if row.status == "ok" else [] for row, _ in sized]
        keep_weights += sum(isinstance(arch, Given) and arch.is_module for _, arch in built)
        if latency is not None:
            if space.name not in meters:
                meters[space.name] = latency(replace(first, space=space))
                meters[space.name].keep(store, Clock())
            for row, arch in built:
                row.latency = meters[space.name].of(arch)
        progress(len(rows), None if listed is None else len(listed), rows[-1].name)
    if not rows:
        raise UserError("There is no network to rank: give at least one.")
    alone = objective.calibrated("+".join(names), first.batch.input_shape, of_size=True)
    compared = alone if len(rows) == 1 else objective
    _judge(rows, scores, compared)
    ranking = kind(objective, len(tasks), rows, first.batch.about, "+".join(names))
    flops = [row.flops for row in rows if row.flops is not None]
    ranking.facts = facts_of(structures, flops, first.batch.input_shape) if structures else None
    if keep_weights and len(tasks) > 1 and first.origin.scheme == "default":
        ranking.remarks.append(
            f"{keep_weights} of them are modules, which keep their weights: their spread is over data alone. Give "
            "functions that make them, or an initialisation, to draw weights as well."
        )
    if compared.reference is not None and ranking.scored:
        meaning = compared.percentile(scores[0][0]).why
        ranking.remarks.append(f"There is no other network to compare with: the value is its {meaning}.")
    every = [compared.row(by_proxy) for own in scores for by_proxy in own]
    ranking.remarks += compared.given_way([[None if math.isnan(x) else x for x in row] for row in every])
    ranking.task = first
    ranking.sources = {name: (space, arch) for name, space, arch in listed or ()}
    ranking.run, ranking.store = run.id, None if store.path == MEMORY else store.path
    best, facts = ranking[0].name if ranking.scored else None, ranking.facts
    summary: dict[str, Any] = {"best": best, "evaluated": len(rows), "remarks": ranking.remarks}
    summary["order"] = [origins[row.name] for row in ranking.scored]
    run.finish(summary | {"space": ranking.space, "facts": facts and asdict(facts)})
    return ranking


def _chunks(entries: Iterable[Entry]) -> Iterator[tuple[AnySpace, list[tuple[str, Any]]]]:
    """Yields neighbours of one space of plans together, which may form a population, and other networks one by one."""
    for space, group in groupby(entries, key=lambda entry: entry[1]):
        while some := list(islice(group, TOGETHER if isinstance(space, GivesPlans) else 1)):
            yield space, [(name, arch) for name, _, arch in some]


def _sized(name: str, space: AnySpace, arch: Any, task: Task, structures: list[Structure]) -> Ranked:
    """A network with its size, or the reason why it cannot be built; its layers join those of the others."""
    from epochzero.engine.failure import PassFailedError
    from epochzero.engine.memory import peak_bytes
    from epochzero.engine.modules.module_network import ModuleNetwork
    from epochzero.engine.space_networks import built, network_of

    row = Ranked(name)
    try:
        if isinstance(space, GivesPlans):
            network = network_of(space, arch, task.batch)
        else:
            module = built(space, arch, task.batch, task.origin.seed)
            network = ModuleNetwork(module, task.batch, 0, getattr(space, "output", None))
            if isinstance(arch, Given):
                arch.identity = identity_of(module, weights=arch.is_module)
        row.arch, row.params = space.text(arch), network.params
    except UserError as error:
        row.status, row.why = "failed", str(error)
        return row
    with suppress(PassFailedError):
        row.flops = network.flops
        if len(structures) < INSPECTED:
            structures.append(network.structure)
    row.memory = peak_bytes(network, task.batch)
    return row


class _Steps:
    """Records scores under steps that depend on the network alone: the networks of a run may change."""

    def __init__(self, run: Run) -> None:
        self.run = run

    def record(self, setting: Setting, results: Sequence[Evaluated]) -> None:
        def step(text: str) -> int:
            return int.from_bytes(hashlib.sha256(text.encode()).digest()[:7], "big")

        self.run.record(setting, [replace(one, step=step(one.arch)) for one in results])


def _judge(rows: list[Ranked], scores: list[list[dict[str, Score]]], objective: Objective) -> None:
    """Gives each network its score in each draw, or the reason why it has none.

    A combination of ranks ranks all draws of all networks together: within one draw ranks hide how near networks are.
    """
    every = [(row, draw, by_proxy) for row, own in zip(rows, scores, strict=True) for draw, by_proxy in enumerate(own)]
    merits = objective.merits([by_proxy for _, _, by_proxy in every])
    for (row, draw, by_proxy), merit in zip(every, merits, strict=True):
        if merit is None and row.status == "ok":
            failed = any(score.status == "failed" for score in by_proxy.values())
            row.status = "failed" if failed else "degenerate"
            row.why = objective.why_not(by_proxy) + (f" (draw {draw + 1})" if draw else "")
        elif merit is not None:
            row.scores += (merit if objective.method else by_proxy[objective.proxies[0].text].value,)
    sign = -1.0 if lower_is_better(objective) else 1.0
    for row in rows:
        if row.status == "ok":
            row.value = fmean(row.scores)
            row.spread = stdev(row.scores) if len(row.scores) > 1 else math.nan
            row.merit = sign * row.value
        else:
            row.scores = ()
