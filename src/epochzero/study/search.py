"""One search from its settings: Python, the command line and the scripts for GPU machines all come through here.

settings = SearchSettings(space="nb201", proxy="dextr", budget=300, max_params="1M")
with Store.open("run.db") as store:
    result = prepare(settings).run(store)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochzero.callbacks import Callback, Told, telling
from epochzero.engine.proxy import split_list
from epochzero.errors import UserError
from epochzero.executors.local import LOCAL, Local
from epochzero.objectives.auto import DEFAULT
from epochzero.objectives.goals import LATENCY, Goals, parse_goals
from epochzero.objectives.objective import Objective, looked_up, parse_objective
from epochzero.quantities import skips
from epochzero.registry import check_known, searches, spaces
from epochzero.spaces.budget import Budget
from epochzero.strict import deterministic
from epochzero.study.given import GivenSpace
from epochzero.study.loop import budget_of, run_search
from epochzero.study.result import INTERRUPTED, Result
from epochzero.study.sources import Feedback, Listed, Source, TableSource
from epochzero.study.task import Task
from epochzero.types import WIDTH, Origin, Shape

if TYPE_CHECKING:
    from epochzero.data import Batch
    from epochzero.executors import Executor
    from epochzero.hardware.latency import LatencyLimit
    from epochzero.spaces.base import AnySpace
    from epochzero.store import Store

PARTS, PARTS_INSIDE = 4, 100
"""batches of data; a search inside one network uses them in turn"""
UNLIMITED = 10**9
"""the budget of a search that only time limits"""


@dataclass(frozen=True)
class SearchSettings:
    """Everything that the outcome of a search depends on; each field is an option of `epochzero search`."""

    space: str | AnySpace | Mapping[str, Any] | Sequence[Any] = "nb201"
    """or networks by name, modules and functions that make them, which are the only candidates"""
    proxy: str | Sequence[str] | Callable[[Any], float] | Feedback = DEFAULT
    """several names are combined by rank; a function is called with each architecture"""
    method: str | None = None
    """"evolution" by default, "pareto" for several objectives"""
    budget: int | None = None
    """networks, or steps of a search inside one network; by default the method's own, or 300, or no limit but time"""
    objectives: str | None = None
    time_limit: float | None = None
    table: str | Path | None = None
    """accuracies of known networks"""
    pool: str | Path | None = None
    """a table of scores; the search keeps to its networks and its scores"""
    among: str | Path | None = None
    """a table whose networks are the only candidates"""
    max_params: str | float | None = None
    max_flops: str | float | None = None
    max_weight_bytes: str | float | None = None
    max_activation_bytes: str | float | None = None
    max_peak_memory: str | float | None = None
    """bytes of weights and activations, for one sample"""
    max_kv_bytes: str | float | None = None
    """bytes of keys and values that a language model keeps for a row of tokens"""
    byte_width: int = WIDTH
    """bytes of a weight and of an activation"""
    max_latency_ms: float | None = None
    min_throughput: float | None = None
    """samples a second, in batches of `latency_batch`"""
    max_energy: float | None = None
    energy: str | None = None
    """table:FILE:COLUMN"""
    latency: str = "torch"
    latency_batch: int = 1
    threads: int | None = None
    """of torch while latency is measured"""
    data: Any = "pink"
    """a batch, the name of noise, a file or folder, or what `epochzero.data.loaders` reads"""
    data_seed: int = 0
    input_shape: Shape | None = None
    image_size: int | None = None
    """side that image files are scaled to; by default that of the space's networks"""
    unreadable: str = "stop"
    """unreadable image files: stop, or skip"""
    loss: Any = None
    """of class labels by default; a name, or a function of outputs and targets"""
    classes: int | None = None
    batch_size: int | None = None
    parts: int | None = None
    seed: int = 0
    init: str = "default"
    device: str = "cpu"
    options: Mapping[str, Any] = field(default_factory=dict)
    ahead: int = 0
    """batches that are asked for before the scores of the first are told"""


@dataclass(frozen=True)
class PreparedSearch:
    """A search whose settings were checked and whose data are loaded."""

    settings: SearchSettings
    task: Task
    method: str
    objective: Objective | Goals
    budget: int | None
    """None: the steps of the method itself"""
    accuracies: TableSource | None
    limits: Budget
    limit: LatencyLimit | None
    inside: bool
    """true for a search inside one network"""

    def run(
        self,
        store: Store,
        progress: Callable[[Any], None] | None = None,
        kind: type[Result] = Result,
        keep_interrupted: bool = False,
        callbacks: Sequence[Callback | str] = (),
    ) -> Result:
        """Searches, or resumes the search in the store.

        With `keep_interrupted`, Ctrl-C returns the result so far, if any. `callbacks` are told of each network.
        """
        settings = self.settings
        if callbacks:
            facts = {name: value for name, value in vars(settings).items() if value not in (None, {})}
            with telling(callbacks, "search", facts | {"method": self.method}) as told:
                result = self.run(store, _also_telling(told, progress), kind, keep_interrupted)
                told.summary |= result.summary
            return result
        latest: list[Result] = []

        def watch(result: Result) -> None:
            latest[:] = [result]
            if progress is not None:
                progress(result)

        common: dict[str, Any] = {
            "seed": settings.seed,
            "options": settings.options,
            "store": store,
            "time_limit": settings.time_limit,
            "kind": kind,
            "progress": watch,
            "objective": self.objective,
        }
        if self.inside:
            from epochzero.study.inside import run_inside

            with deterministic():
                result = run_inside(self.task, self.method, self.budget, **common)
        else:
            limits: dict[str, Any] = {"budget": self.limits, "latency": self.limit}
            try:
                result = run_search(self.task, self.method, self.budget, **limits, **common)
            except KeyboardInterrupt:
                if not keep_interrupted or not latest or latest[0].best is None:
                    raise
                result = latest[0]
                result.stopped = INTERRUPTED
        result.accuracies = self.accuracies
        return result


def _also_telling(told: Told, progress: Callable[[Any], None] | None) -> Callable[[Result], None]:
    """Progress that tells callbacks of the networks that are new."""
    logged = 0

    def watch(result: Result) -> None:
        nonlocal logged
        for one in result.since(logged):
            told.log(one.step, one.scores | result.standing)
        logged = result.evaluated
        if progress is not None:
            progress(result)

    return watch


def prepare(settings: SearchSettings, executor: Executor = LOCAL) -> PreparedSearch:
    """Checks the settings and loads the data; UserError for anything that cannot be searched."""
    goals = None if settings.objectives is None else parse_goals(settings.objectives)
    method = settings.method or ("evolution" if goals is None else "pareto")
    inside = method not in searches
    if inside:
        limits = [one.name for one in fields(SearchSettings) if one.name.startswith(("max_", "min_"))]
        names = ["objectives", *limits, "pool", "among", "loss"]
        given = {f"--{name.replace('_', '-')}": getattr(settings, name) for name in names}
        given |= {"--executor": None if isinstance(executor, Local) else executor, "--ahead": settings.ahead or None}
        _check_inside(method, given)
    space: Any = spaces[settings.space] if isinstance(settings.space, str) else settings.space
    space = GivenSpace(space) if isinstance(space, (Mapping, list, tuple)) else space
    budget = _budget(settings, method, space, inside)
    objective, feedback = _objective(settings.proxy, goals)
    if feedback is not None and inside:
        raise UserError(f"{method} evaluates no single networks, so feedback means nothing to it: use guided.")
    if feedback is not None and goals is not None:
        raise UserError("Networks are trained by one feedback: leave out --objectives.")
    bounds = Budget.given(settings)
    accuracies = None if settings.table is None else TableSource.read(settings.table, space)
    sources: list[Source] = []
    if settings.pool is not None:
        sources.append(TableSource.read(settings.pool, space, pool=True))
    if settings.among is not None:
        sources.append(Listed(TableSource.read(settings.among, space)))
    sources += [source for source in (accuracies, feedback) if source is not None]
    from epochzero.engine.space_networks import check_input_size

    batch = _batch(settings, space, settings.parts or (PARTS_INSIDE if inside else PARTS))
    if isinstance(space, GivenSpace):
        space.identify(batch, settings.seed)
    origin = Origin(settings.init, settings.seed)
    task = Task(space, objective.proxies, batch, origin, settings.device, executor, tuple(sources), settings.ahead)
    if not isinstance(space, GivenSpace) and not any(source.candidates for source in sources):
        check_input_size(space, batch)
    limit = None
    measured = (settings.max_latency_ms, settings.min_throughput, settings.max_energy)
    if LATENCY in task.proxies or any(one is not None for one in measured):
        from epochzero.hardware.latency import slowest, timed, with_energy

        most = slowest(settings.max_latency_ms, settings.min_throughput, settings.latency_batch)
        task, limit = timed(task, settings.latency, settings.latency_batch, settings.threads, most)
        limit = with_energy(task, limit, settings.energy, settings.max_energy)
    return PreparedSearch(settings, task, method, goals or objective, budget, accuracies, bounds, limit, inside)


def _batch(settings: SearchSettings, space: AnySpace, parts: int) -> Batch:
    from epochzero.data.loaders import batch_of
    from epochzero.engine.loss import needs_labels, with_loss
    from epochzero.engine.space_networks import batch_for, suited

    data = settings.data
    if isinstance(data, (str, Path)):
        batch = batch_for(
            space,
            data,
            input_shape=settings.input_shape,
            num_classes=settings.classes,
            size=settings.batch_size,
            parts=parts,
            seed=settings.data_seed,
            image_size=settings.image_size,
            skip_unreadable=skips(settings.unreadable),
        )
    else:
        targets = not needs_labels(settings.loss)
        how: dict[str, Any] = {"size": settings.batch_size, "parts": parts, "classes": settings.classes}
        batch = batch_of(data, seed=settings.data_seed, targets=targets, **how)
    return suited(space, with_loss(batch, settings.loss))


def _check_inside(method: str, given: Mapping[str, object]) -> None:
    """UserError for a name that is unknown, or options that mean nothing to a search inside one network."""
    from epochzero.supernet import methods

    check_known(method, sorted([*searches, *methods]), f"No search is called '{method}'")
    for option, value in given.items():
        if value is not None:
            raise UserError(
                f"{method} searches inside one network, so {option} means nothing to it: leave it out, or use "
                "--method evolution."
            )


def _budget(settings: SearchSettings, method: str, space: AnySpace, inside: bool) -> int | None:
    """The number of networks or steps; None for the method's own number of steps."""
    if settings.time_limit is not None and not 0 < settings.time_limit < math.inf:
        raise UserError(f"--time-limit takes more than 0 seconds, not {settings.time_limit:g}.")
    if settings.budget is not None and settings.budget < 1:
        unit = "step" if inside else "evaluation"
        raise UserError(f"A search needs a budget of at least 1 {unit}, not {settings.budget}.")
    if settings.budget is not None or inside:
        return settings.budget
    return UNLIMITED if settings.time_limit is not None else budget_of(method, space, settings.options)


def _objective(proxy: Any, goals: Goals | None) -> tuple[Objective, Feedback | None]:
    """The objective, and the user's function if there is one."""
    if isinstance(proxy, Feedback) or callable(proxy):
        feedback = proxy if isinstance(proxy, Feedback) else Feedback(proxy)
        return Objective((looked_up(feedback.name),)), feedback
    if goals is not None:
        return Objective(goals.proxies), None
    return parse_objective(combined_text(proxy)), None


def combined_text(proxy: str | Sequence[str]) -> str:
    """The text of one score, or of several combined by rank."""
    if not isinstance(proxy, (str, Sequence)):
        raise UserError(f"A score is named by a text such as 'naswot', or by a list of them, not {proxy!r}.")
    names = split_list(proxy) if isinstance(proxy, str) else list(proxy)
    if not names:
        return ""
    return names[0] if len(names) == 1 else f"rank({','.join(names)})"
