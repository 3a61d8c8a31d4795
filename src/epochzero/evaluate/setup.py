"""Sets up and runs a benchmark from the names of tables, columns, spaces and proxies.

outcome = bench(BenchSettings([Path("nb201.csv.gz")], ["cifar10_test"], proxies="dextr,naswot", sample=1000))
write_results(outcome, Path("results"))
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from epochzero.data import Batch
from epochzero.engine.space_networks import batch_for
from epochzero.errors import UserError
from epochzero.evaluate.bench import BenchOutcome, Case, run_bench
from epochzero.evaluate.figures import Rules
from epochzero.executors import Executor
from epochzero.executors.local import LOCAL
from epochzero.objectives.objective import Objective, members, parse_objectives
from epochzero.progress import Progress, silent
from epochzero.quantities import shape, skips
from epochzero.registry import spaces
from epochzero.store import Store
from epochzero.study.task import Task
from epochzero.tables import AccuracyTable
from epochzero.types import Origin


@dataclass(frozen=True)
class BenchSettings:
    """The tables, proxies and repeats of a benchmark. Texts are as the options of `epochzero bench`."""

    tables: Sequence[Path]
    targets: Sequence[str]
    """columns separated by commas: one text for all tables, or one for each"""
    proxies: str = "dextr,fmi,curvature,params,flops"
    spaces: Sequence[str] = ("nb201",)
    """one for all tables, or one for each"""
    sample: int | None = None
    """networks of each table; default: all"""
    data: str = "pink"
    input_shape: str | None = None
    image_size: int | None = None
    unreadable: str = "stop"
    batch_size: int | None = None
    classes: int | None = None
    seed: int = 0
    seeds: str | None = None
    """of weights and batch, one for each repeat; default: the seed"""
    data_seeds: str | None = None
    """of the batches, one for each of the seeds, or one; default: the same"""
    init: str = "default"
    device: str = "cpu"
    unscored: str = "drop"
    """networks without a score: drop, or rank them worst"""
    top: str = "10"
    """the k of regret and precision"""
    versus: str | None = None
    """one of the proxies, to compare the others with"""
    share: bool = False
    """score one network of each class of isomorphic ones"""


def bench(
    settings: BenchSettings, *, store: Store | None = None, executor: Executor = LOCAL, progress: Progress = silent
) -> BenchOutcome:
    """Scores the networks of tables, and compares scores with accuracies; a store keeps the scores."""
    if store is None:
        with Store.open(":memory:") as memory:
            return bench(settings, store=memory, executor=executor, progress=progress)
    if settings.unscored not in ("drop", "worst"):
        raise UserError(f"--unscored takes drop or worst, not {settings.unscored!r}.")
    objectives = parse_objectives(settings.proxies)
    versus = _versus(settings.versus, objectives)
    top = tuple(_numbers(settings.top, "--top", least=1))
    rules = Rules(settings.seed, settings.unscored, top)  # type: ignore[arg-type]
    cases = _cases(settings, objectives, executor)
    return run_bench(
        cases,
        objectives,
        settings.sample,
        seed=settings.seed,
        rules=rules,
        versus=versus,
        share=settings.share,
        store=store,
        progress=progress,
    )


def _cases(settings: BenchSettings, objectives: Sequence[Objective], executor: Executor) -> list[Case]:
    """A case for each table, with a task for each repeat."""
    seeds = _numbers(settings.seeds, "--seeds") if settings.seeds else [settings.seed]
    repeats = _repeats(seeds, settings.data_seeds)
    names = _for_each(settings.spaces, len(settings.tables), "--space")
    columns = [_split(text) for text in _for_each(settings.targets, len(settings.tables), "--target")]
    labels, sizes = _labels(settings.tables), shape(settings.input_shape)

    @cache
    def batch(name: str, seed: int) -> Batch:
        return batch_for(
            spaces[name],
            settings.data,
            input_shape=sizes,
            num_classes=settings.classes,
            size=settings.batch_size,
            seed=seed,
            image_size=settings.image_size,
            skip_unreadable=skips(settings.unreadable),
        )

    def task(name: str, weights: int, data: int) -> Task:
        origin = Origin(settings.init, weights)
        return Task(spaces[name], members(objectives), batch(name, data), origin, settings.device, executor)

    tasks = [[task(name, *repeat) for repeat in repeats] for name in names]
    tables = [AccuracyTable.read(path) for path in settings.tables]
    return [Case(*parts) for parts in zip(labels, tables, columns, tasks, strict=True)]


def _versus(text: str | None, objectives: Sequence[Objective]) -> Objective | None:
    if text is None:
        return None
    asked = parse_objectives(text)
    if len(asked) != 1 or asked[0] not in objectives:
        raise UserError(f"--versus takes one of the proxies that are compared, not {text!r}: name it in --proxy too.")
    return asked[0]


def _split(text: str) -> list[str]:
    return list(dict.fromkeys(piece.strip() for piece in text.split(",") if piece.strip()))


def _numbers(text: str, option: str, least: int = 0) -> list[int]:
    """`0,1,2` as numbers, each once."""
    pieces = _split(text)
    if not pieces or not all(piece.isdecimal() and least <= int(piece) <= 2**62 for piece in pieces):
        raise UserError(f"{option} takes whole numbers from {least} on, separated by commas, not {text!r}.")
    return list(dict.fromkeys(map(int, pieces)))


def _repeats(seeds: list[int], data_seeds: str | None) -> list[tuple[int, int]]:
    """The seeds of weights and batch for each repeat."""
    batches = seeds if data_seeds is None else _numbers(data_seeds, "--data-seeds")
    if len(seeds) != len(batches) and 1 not in (len(seeds), len(batches)):
        raise UserError(
            f"There are {len(seeds)} --seeds and {len(batches)} --data-seeds: give equally many, which are taken in "
            f"pairs, or one of either."
        )
    number = max(len(seeds), len(batches))
    seeds, batches = (one * (number // len(one)) for one in (seeds, batches))
    return list(zip(seeds, batches, strict=True))


def _for_each(given: Sequence[str], tables: int, option: str) -> list[str]:
    """A text for each table, from one for all or one for each."""
    if len(given) not in (1, tables):
        raise UserError(
            f"{option} is given {len(given)} times for {tables} {'table' if tables == 1 else 'tables'}: give it once, "
            f"or once for each --table, in their order."
        )
    return list(given) * (tables // len(given))


def _labels(tables: Sequence[Path]) -> list[str]:
    """The name of each file, with its folder if two have the same name."""
    for path, times in Counter(path.resolve() for path in tables).items():
        if times > 1:
            raise UserError(f"--table names {path.name} twice: give its columns in one --target, separated by commas.")
    names = Counter(path.name for path in tables)
    return [path.name if names[path.name] == 1 else str(path) for path in tables]
