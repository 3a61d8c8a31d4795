"""Speed and memory of scoring, compared with an estimate of what the machine allows.

    python -m epochzero.bare speed --device cuda --data cifar10.npz --out speed.json
    epochzero bench-speed --only "one batch,dextr" --networks 512 --population 128

Random networks of a space are scored by each proxy and by bundles that share passes, in several ways: one network at a
time (alone), in populations (lockstep), in worker processes (processes; on a GPU each of them chooses as auto does),
and as a search does by default (auto; warmed up until it has chosen). Measured on request only: one at a time by tapes
instead of autograd (tape), and alone with TF32, with maps in channels-last form, or with cuDNN's own timings (tf32,
channels_last, tuned).
Times go from architectures to scores, including planning, drawing weights and merging. Other networks come first, to
warm up, and plans are forgotten before each row. Where a row was measured both ways, the scores are compared, network
by network.

Peak memory on a GPU is the most that torch had allocated. On a CPU each row has its own process, and it is the growth
of that process (of the largest worker process; on a GPU, of all together).
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch

from epochzero.data import Batch
from epochzero.engine import PlanNetwork, Proxy
from epochzero.engine.device import machine, usable
from epochzero.engine.population.grouping import POPULATION, population_size
from epochzero.engine.proxy import split_list
from epochzero.engine.resources import cores
from epochzero.engine.space_networks import batch_for, network_of
from epochzero.errors import MachineError, UserError
from epochzero.evaluate.speed.agreement import agreement
from epochzero.evaluate.speed.report import SPENT, Report, begun, continued, is_done, saver
from epochzero.evaluate.speed.roofline import Ceilings, Floor, ceilings, floor
from epochzero.evaluate.speed.timing import Job, Scores, Timed, Way, measured
from epochzero.executors.auto import GPU_WORKERS
from epochzero.executors.base import LARGEST
from epochzero.objectives.bundles import groups
from epochzero.quantities import shape
from epochzero.registry import check_known, spaces

WAYS: tuple[Way, ...] = ("auto", "lockstep", "alone", "processes")
"""measured by default"""
ON_REQUEST: tuple[Way, ...] = ("tape", "tf32", "channels_last", "tuned")
ONE_BY_ONE = ("alone", *ON_REQUEST)
CPU_MEMORY = 2 * 2**30
"""default limit of a population's activations on a CPU, in bytes"""


@dataclass(frozen=True)
class Settings:
    """The networks, proxies and ways to measure, and time limits."""

    space: str = "nb201"
    only: str | None = None
    ways: str | None = None
    """default: all"""
    networks: int = 128
    alone_networks: int = 8
    slow_networks: int = 16
    """limit for proxies that compute a tangent kernel or run the network themselves"""
    together: int | None = None
    """networks that this process scores in populations or by the automatic choice; default: all"""
    population: int | None = None
    batch_size: int = 64
    data: str = "pink"
    input_shape: str | None = None
    seed: int = 0
    device: str = "cpu"
    workers: int | None = None
    tf32: bool = False
    row_seconds: float = 10.0
    """seconds after which a row starts no new population"""
    budget: float = 120.0
    """seconds after which no new row is started"""
    row_limit: float | None = None
    """seconds after which a row of the suite is ended; default: those of the suite"""


@dataclass(frozen=True)
class Row:
    """One measurement."""

    name: str
    way: str
    networks: int
    population: int | None
    """size of the largest population; for processes, their number"""
    ms: float
    """milliseconds per network"""
    per_second: float
    peak_mib: float
    without_score: int
    floor: Floor | None
    times_floor: float | None
    """time divided by the floor"""


def measure_speed(
    settings: Settings,
    show: Callable[[str], None],
    *,
    out: Path | None = None,
    table: Path | None = None,
    resume: bool = False,
) -> Report:
    """Measures all rows, and calls `show` with each as a line of text.

    After each row the report is written to `out` as JSON and to `table` in Markdown. `resume` keeps the rows of the
    report at `out`.
    """
    before = begun(out) if resume else None
    save = saver(out, table, before)
    return run_speed(settings, lambda row: show(line(row)), save, before)


def run_speed(
    settings: Settings,
    show: Callable[[Row | str], None],
    save: Callable[[Report], None],
    before: Report | None = None,
    run: Callable[[Job], Timed] | None = None,
) -> Report:
    """Measures all rows; calls `show` with each row, or a sentence, and `save` with the report so far.

    Rows of the report `before` are kept, and not measured again. `run` measures a job, by default in a fresh process on
    a CPU and in this one on a GPU.
    """
    start = time.perf_counter()
    asked = groups(settings.only)
    for name in ("networks", "alone_networks", "slow_networks", "population", "workers"):
        if (number := getattr(settings, name)) is not None and number < 1:
            raise UserError(f"--{name.replace('_', '-')} is {number}; it has to be at least 1.")
    settings = dataclasses.replace(settings, device=_measurable(settings.device))
    ways = _ways(settings)
    batch, texts = given(settings)
    limits = ceilings(settings.device)
    report: Report = {
        "machine": machine(settings.device),
        "settings": dataclasses.asdict(settings) | {"data_digest": batch.id, "data_about": batch.about},
        "ceilings": dataclasses.asdict(limits),
        "rows": [],
        "equality": [],
        "left_out": [],
        "seconds": 0.0,
    }
    if before is not None:
        report = continued(before, report, asked, ways)
    spent = report["seconds"]
    for name, members in asked.items():
        if is_done(report, name, ways):
            continue
        scores: dict[str, tuple[Scores, int]] = {}
        for way in ways:
            if time.perf_counter() - start > settings.budget:
                report["left_out"].append({"name": name, "way": way, "why": SPENT})
                continue
            job, population = job_of(settings, way, members, batch, texts)
            try:
                timed = (run or measured)(job)
            except MachineError as error:
                report["left_out"].append({"name": name, "way": way, "why": str(error)})
                show(f"{name}, {way}: {error}")
                continue
            scores[way] = timed.scores, population
            row = _row(name, way, population, timed, _floor(job, members, limits, len(timed.scores)))
            report["rows"].append(dataclasses.asdict(row))
            show(row)
            save(report)
        report["equality"] += _agreements(name, members, scores)
    report["seconds"] = spent + time.perf_counter() - start
    save(report)
    if not report["rows"]:
        raise MachineError(f"Nothing was measured: {report['left_out'][0]['why']}")
    return report


def given(settings: Settings) -> tuple[Batch, list[str]]:
    """The data, and the architectures to measure and then to warm up with."""
    space, rng = spaces[settings.space], Random(settings.seed)
    sizes = shape(settings.input_shape)
    batch = batch_for(space, settings.data, input_shape=sizes, size=settings.batch_size, seed=settings.seed)
    return batch, [space.text(space.sample(rng)) for _ in range(2 * settings.networks)]


def _measurable(device: str) -> str:
    usable(device)
    kind = torch.device(device).type
    if kind not in ("cpu", "cuda"):
        raise UserError(f"Speed is measured on cpu or cuda, not on '{device}'.")
    return "cpu" if kind == "cpu" else device


def _ways(settings: Settings) -> list[Way]:
    if settings.ways is None:
        return list(WAYS)
    asked, known = split_list(settings.ways), (*WAYS, *ON_REQUEST)
    for way in asked:
        check_known(way, known, f"There is no way '{way}'")
    return [way for way in known if way in asked]


def job_of(
    settings: Settings, way: Way, members: Sequence[Proxy], batch: Batch, texts: Sequence[str]
) -> tuple[Job, int]:
    """The job of a row, and the number of networks that it runs at the same time."""
    slow = not all(proxy.quick for proxy in members)
    most = min(settings.networks, settings.slow_networks) if slow else settings.networks
    on_gpu = settings.device != "cpu"
    workers = settings.workers or (min(cores(), GPU_WORKERS) if on_gpu else cores())
    chunk = min(LARGEST, -(-most // workers)) if on_gpu else settings.population or 8
    if way in ONE_BY_ONE:
        count, step, population = min(most, settings.alone_networks), 1, 1
    elif way == "processes" or (way == "auto" and not on_gpu):
        count, step, population = most, most if on_gpu else chunk * workers, workers
    else:
        most = min(most, settings.together or most)
        population = min(most, settings.population or _automatic(settings, members, batch, texts[0]))
        at_once = settings.population is None and on_gpu  # cut by the engine, which merges ahead
        count, step = most, most if at_once else population
    few = slow or way in ONE_BY_ONE
    warm = min(count, 2 if few else 2 * workers if way == "processes" else 4 if settings.population else step)
    others = texts[-warm:]
    if settings.together is not None and way != "processes":
        others = texts[:count]  # the same: a GPU's libraries take long for each shape that they have not seen
    job = Job(
        way,
        settings.space,
        tuple(texts[:count]),
        tuple(others),
        ",".join(proxy.text for proxy in members),
        batch,
        settings.seed,
        settings.device,
        step,
        chunk,
        workers,
        settings.tf32,
        settings.row_seconds,
    )
    return job, population


def _automatic(settings: Settings, members: Sequence[Proxy], batch: Batch, text: str) -> int:
    """The number of networks that fit into memory."""
    space = spaces[settings.space]
    network = network_of(space, space.parse(text), batch, device=settings.device)
    if settings.device != "cpu":
        return population_size(network, batch, [need for proxy in members for need in proxy.needs])
    if not isinstance(network, PlanNetwork):
        return 1
    return max(1, min(POPULATION, CPU_MEMORY // (4 * network.plan.activations * batch.size)))


def _floor(job: Job, members: Sequence[Proxy], limits: Ceilings, scored: int) -> Floor | None:
    space = spaces[job.space]
    networks = [network_of(space, space.parse(text), job.batch) for text in job.archs[:scored]]
    plans = [network.plan for network in networks if isinstance(network, PlanNetwork)]
    return floor(plans, members, job.batch, limits) if plans else None


def _row(name: str, way: str, population: int, timed: Timed, least: Floor | None) -> Row:
    count = len(timed.scores)
    ms = 1e3 * timed.seconds / count
    lacking = sum(not all(score.ok for score in scores.values()) for scores in timed.scores)
    times = None if least is None or not least.ms else ms / least.ms
    return Row(name, way, count, population, ms, 1e3 / ms, timed.peak / 2**20, lacking, least, times)


def _agreements(name: str, members: Sequence[Proxy], scores: dict[str, tuple[Scores, int]]) -> list[Report]:
    """Agreement of the scores in populations, or of the automatic choice, with those of the same networks alone."""
    others = [scores[way] for way in ("lockstep", "auto") if way in scores]
    if not others or "alone" not in scores:
        return []
    (together, population), (alone, _) = others[0], scores["alone"]
    pairs = {
        p.text: [(one[p.text], other[p.text]) for one, other in zip(together, alone, strict=False)] for p in members
    }
    return [{"row": name} | dataclasses.asdict(agreement(text, population, of)) for text, of in pairs.items()]


def line(row: Row | str) -> str:
    """A row as text."""
    if isinstance(row, str):
        return row
    limit = "" if row.floor is None or row.times_floor is None else (
        f"  floor {row.floor.ms:.3g} ms ({row.floor.bound}), {row.times_floor:.3g} times"
    )  # fmt: skip
    return (
        f"{row.name:16} {row.way:13} {row.ms:10.3f} ms  {row.per_second:9.1f}/s  {row.peak_mib:9.1f} MiB  "
        f"{row.networks} networks, {row.population} at a time{limit}"
    )
