"""Score many networks of a space into one table.

    python -m epochzero.bare sweep --all --share --proxies "all but kernels" --data cifar10.npz --out scores.csv
    python -m epochzero.bare sweep --networks 1000 --proxies "dextr,zico(batches=4)" --workers 8 --out scores.csv

Needs torch and numpy alone. Networks are all those of the space, or drawn uniformly by seed, or read from a text file,
one architecture a line. The table has a row for each: the architecture, with --share the one that it was scored as, a
column for each proxy (the value in full precision, empty where there is none), and the reasons for those that are empty
as a JSON object {proxy: [status, why]}. scores.json next to it says how it was made. Rows are written every few
seconds; the same command resumes a sweep that was stopped or killed: rows of the table are not scored again.
"""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from random import Random
from typing import Any

from epochzero.errors import UserError
from epochzero.executors.base import ScoredBatch
from epochzero.executors.local import Local
from epochzero.files import write, write_json
from epochzero.objectives.bundles import groups
from epochzero.progress import Lines
from epochzero.quantities import shape
from epochzero.registry import spaces
from epochzero.strict import its_threads, set_strict
from epochzero.study.task import Task
from epochzero.types import Origin, Score

SETTINGS = ("space", "batch_size", "data_seed", "input_shape", "init", "seed", "share", "tf32")
"""settings that have to be the same when a table is resumed, as have the data"""
MOST = 1024
"""networks in a chunk, at most"""
EACH = 256
"""the same for each of several workers"""
FIRST = {"cpu": 1, "cuda": 16}
"""networks in the first chunks"""
GROWTH = 4
"""times that a chunk may be larger than the one before it"""
LEAST = 16
"""networks at the end, when chunks become smaller so that workers end together"""
EVERY = 4.0
"""seconds that a chunk takes at most, about: rows are written after each; and seconds between lines of progress"""
Row = dict[str, str]
"""column to text"""


@dataclass(frozen=True)
class SweepSettings:
    """Which networks of which space are scored by which proxies, and how."""

    out: Path
    """the table, a CSV file"""
    space: str = "nb201"
    networks: int = 100
    """number drawn by the seed, unless `archs` names a file or `all` is set"""
    archs: Path | None = None
    all: bool = False
    share: bool = False
    """true to score cells that compute the same function once"""
    proxies: str = "dextr"
    """names, or bundles of them"""
    data: str = "pink"
    data_seed: int = 0
    input_shape: str | None = None
    batch_size: int = 64
    init: str = "default"
    seed: int = 0
    device: str = "cpu"
    tf32: bool = False
    workers: int | None = None
    """default: 1, or on a CPU as many as are worth their start"""
    threads: int | None = None
    strict: bool = False
    population: int | None = None
    """networks per chunk at most"""


Scorer = Callable[[Sequence[Any]], ScoredBatch]


class Table:
    """A CSV file that grows by rows and survives being killed: half a row at its end is cut off."""

    def __init__(self, path: Path, columns: Sequence[str]) -> None:
        self.path, self.columns = path, list(columns)
        self._cells = itemgetter(*columns)
        self.rows: dict[str, Row] = {}
        """by architecture"""
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]
        if whole:
            read = csv.DictReader(io.StringIO(whole, newline=""))
            if read.fieldnames != self.columns:
                raise UserError(f"{path} holds a table with other columns: choose another --out, or remove it.")
            self.rows = {row["arch"]: row for row in read}
        if whole:
            os.truncate(path, len(whole.encode()))
        else:
            path.write_text(_csv([self.columns]), encoding="utf-8", newline="")

    def add(self, rows: Sequence[Row]) -> None:
        self.rows |= {row["arch"]: row for row in rows}
        with self.path.open("a", encoding="utf-8", newline="") as file:
            file.write(_csv(map(self._cells, rows)))

    def sort(self, archs: Sequence[str]) -> None:
        """Rewrite the file with these first and in this order."""
        order = dict.fromkeys([*archs, *self.rows])
        write(self.path, _csv([self.columns, *(self._cells(self.rows[arch]) for arch in order)]))


def _csv(rows: Iterable[Sequence[str]]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(rows)
    return text.getvalue()


def cells(scores: Mapping[str, Score]) -> Row:
    """Scores as text."""
    why = {name: [score.status, " ".join(score.why.split())] for name, score in scores.items() if not score.ok}
    values = {name: repr(score.value) if score.ok else "" for name, score in scores.items()}
    return {**values, "reasons": json.dumps(why, ensure_ascii=False) if why else ""}


@dataclass(frozen=True)
class Sweep:
    """The architectures to score, and those that share scores."""

    task: Task
    archs: Sequence[str]
    scored_as: Mapping[str, str]
    """for each architecture the one whose scores it gets; itself unless cells are shared"""
    shared: bool

    @property
    def columns(self) -> list[str]:
        names = [proxy.text for proxy in self.task.proxies]
        return ["arch", *(["scored_as"] if self.shared else []), *names, "reasons"]

    def fill(self, table: Table, most: int, score: Scorer, workers: int, least: int = 1) -> None:
        """Score what the table lacks, a chunk for each worker at a time, and report progress on standard error.

        Chunks have at least `least` networks, which the scorer itself spreads.
        """
        missing: dict[str, list[str]] = {}
        for arch in self.archs:
            if arch not in table.rows:
                missing.setdefault(self.scored_as[arch], []).append(arch)
        own = self._counts([arch for r, archs in missing.items() for arch in archs if arch != r])
        known = {row["scored_as"]: row for row in table.rows.values()} if self.shared else {}

        def add(by_arch: Mapping[str, Row]) -> None:
            """The rows of all architectures that get these scores; what is only counted is each one's own."""
            pairs = [(arch, representative) for representative in by_arch for arch in missing[representative]]
            table.add([by_arch[r] | own.get(arch, {}) | {"arch": arch, "scored_as": r} for arch, r in pairs])

        add({arch: known[arch] for arch in missing if arch in known})
        todo = [arch for arch in missing if arch not in known]
        rows = sum(len(missing[arch]) for arch in todo)
        print(f"{len(todo)} networks to score, for {rows} rows", file=sys.stderr, flush=True)
        show, done, begun = Lines("networks", EVERY), 0, time.perf_counter()
        parse = self.task.space.parse
        first = FIRST["cpu" if self.task.device == "cpu" else "cuda"]
        chunks = Chunks(todo, workers, min(max(first, least), most), most, least)
        for chunk, scored in _in_parallel(lambda texts: score([parse(text) for text in texts]), chunks, workers):
            add({arch: cells(scores) for arch, (scores, _) in zip(chunk, scored, strict=True)})
            chunks.took(len(chunk), sum(seconds for _, seconds in scored))
            done += len(chunk)
            left = (time.perf_counter() - begun) / done * (len(todo) - done)
            show(done, len(todo), f"{left:.0f} s left")
        table.sort(self.archs)

    def _counts(self, archs: Sequence[str]) -> dict[str, Row]:
        counted = [proxy for proxy in self.task.proxies if proxy.free]
        if not counted:
            return {}
        scored = replace(self.task, proxies=counted, device="cpu").score([self.task.space.parse(a) for a in archs])
        texts = [{name: repr(score.value) for name, score in scores.items()} for scores, _ in scored]
        return dict(zip(archs, texts, strict=True))


class Chunks:
    """Chunks in order, of a size that takes a few seconds by the time of those before it.

    With several workers, each is at most half of a worker's share of the rest, so that workers end together.
    """

    def __init__(self, archs: Sequence[str], workers: int, first: int, most: int, least: int = 1) -> None:
        self._archs, self._workers, self._size, self._least, self._most = archs, workers, first, least, most
        self._begun = 0

    def took(self, networks: int, seconds: float) -> None:
        """Learns from a chunk that was scored."""
        affordable = EVERY * networks / max(seconds, 1e-9)
        self._size = int(max(self._least, min(affordable, GROWTH * networks, self._most)))

    def __iter__(self) -> Iterator[Sequence[str]]:
        return self

    def __next__(self) -> Sequence[str]:
        if not (left := len(self._archs) - self._begun):
            raise StopIteration
        share = left if self._workers == 1 else max(LEAST, left // (2 * self._workers))
        first, self._begun = self._begun, self._begun + min(self._size, share, left)
        return self._archs[first : self._begun]


def _in_parallel(
    score: Callable[[Sequence[str]], ScoredBatch], chunks: Iterator[Sequence[str]], workers: int
) -> Iterator[tuple[Sequence[str], ScoredBatch]]:
    """The scores of each chunk, as they come; one more than there are workers waits, so that none of them does."""
    with ThreadPoolExecutor(workers) as threads:
        running: dict[Future[ScoredBatch], Sequence[str]] = {}
        try:
            while True:
                while len(running) <= workers and (chunk := next(chunks, None)) is not None:
                    running[threads.submit(score, chunk)] = chunk
                if not running:
                    return
                done, _ = wait(running, return_when=FIRST_COMPLETED)
                for one in sorted(done, key=lambda one: one.exception() is not None):  # what went wrong comes last
                    yield running.pop(one), one.result()
        finally:
            threads.shutdown(cancel_futures=True)


def chosen(asked: SweepSettings, space: Any) -> list[str]:
    """The architectures asked for, as text, each once."""
    if asked.archs is not None:
        if not asked.archs.is_file():
            raise UserError(f"There is no file {asked.archs}: give a text file with one architecture a line.")
        lines = asked.archs.read_text(encoding="utf-8").splitlines()
        texts = [space.text(space.parse(line)) for line in lines if line.strip()]
    elif asked.all:
        if not hasattr(space, "__iter__"):
            raise UserError(f"The space '{space.name}' cannot be listed in full: use --networks or --archs.")
        texts = [space.text(arch) for arch in space]
    else:
        rng = Random(asked.seed)
        texts = [space.text(space.sample(rng)) for _ in range(asked.networks)]
    return list(dict.fromkeys(texts))


def representatives(space: Any, archs: Sequence[str], share: bool) -> dict[str, str]:
    """For each architecture the first that is the same function by the space's own rule; itself without sharing."""
    if not share:
        return {arch: arch for arch in archs}
    if not hasattr(space, "key"):
        raise UserError(f"The space '{space.name}' has no rule for which cells are the same: leave out --share.")
    first: dict[str, str] = {}
    return {arch: first.setdefault(space.key(space.parse(arch)), arch) for arch in archs}


def sweep(asked: SweepSettings, begun: float) -> None:
    """Fills the table, and records how it was made and how long it took since `begun`.

    Workers start first: they load torch while this process reads the data, lists the architectures and counts.
    """
    from epochzero.engine.device import machine
    from epochzero.engine.precision import set_precision
    from epochzero.engine.space_networks import batch_for
    from epochzero.engine.threads import torch_threads
    from epochzero.executors.auto import Auto
    from epochzero.executors.processes import Processes

    for name in ("networks", "workers", "threads", "population"):
        if (number := getattr(asked, name)) is not None and number < 1:
            raise UserError(f"--{name} is {number}; it has to be at least 1.")
    if asked.out.suffix != ".csv":
        raise UserError(f"--out takes a name that ends with .csv, not '{asked.out}'.")
    set_precision(asked.tf32)
    set_strict(asked.strict)
    threads = its_threads(asked.threads)
    space = spaces[asked.space]
    named = {proxy.text: proxy for group in groups(asked.proxies).values() for proxy in group}
    sizes = shape(asked.input_shape)
    with ExitStack() as open_:
        open_.enter_context(torch_threads(threads))
        crew = Processes(asked.workers, threads=threads or 1) if asked.workers and asked.workers > 1 else None
        if crew is not None:
            open_.enter_context(crew).start()
        batch = batch_for(space, asked.data, input_shape=sizes, size=asked.batch_size, seed=asked.data_seed)
        task = Task(space, list(named.values()), batch, Origin(asked.init, asked.seed), asked.device)
        archs = chosen(asked, space)
        work = Sweep(task, archs, representatives(space, archs, asked.share), asked.share)
        settings = {name: getattr(asked, name) for name in SETTINGS} | {"data_digest": task.setting.batch}
        data = {"data": Path(asked.data).name, "data_about": batch.about}
        facts = _facts(asked.out, settings) | {"proxies": list(named), **data}
        table = Table(asked.out, work.columns)
        before = len(table.rows)
        write_json(asked.out.with_suffix(".json"), facts)
        if crew is None:
            local = Local(threads) if asked.workers else Auto(threads, device=asked.device)
            open_.enter_context(local)
            workers = local.workers
            work.fill(table, asked.population or MOST, partial(local.score, task), 1, local.workers)
        else:
            if any(arch not in table.rows for arch in archs):
                crew.ready(task)

            def score(archs: Sequence[Any]) -> ScoredBatch:
                return crew.score_chunks(task, [archs])

            workers = crew.workers
            work.fill(table, asked.population or EACH, score, workers)
        seconds = time.perf_counter() - begun
        added = len(table.rows) - before
        facts["runs"].append({**machine(asked.device), "workers": workers, "rows": added, "seconds": seconds})
        facts["rows"] = len(table.rows)
        facts["scored"] = len({work.scored_as[arch] for arch in archs})
        write_json(asked.out.with_suffix(".json"), facts)
        print(f"{len(table.rows)} rows in {asked.out}, {added} of them new, in {seconds:.1f} s", flush=True)


def _facts(out: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """The facts about the table; UserError if it was made with other settings."""
    path = out.with_suffix(".json")
    if not out.exists():
        return {"settings": settings, "runs": []}
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
        before, _ = facts["settings"], facts["runs"]
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        raise UserError(f"{path} does not say how {out} was made: choose another --out, or remove both.") from None
    for name, value in settings.items():
        if before.get(name) != value:
            raise UserError(
                f"{out} was begun with {name} {before.get(name)}, not {value}: choose another --out, or remove it."
            )
    return dict(facts)
