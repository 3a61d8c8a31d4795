"""How fast networks are scored, with how much memory, and how far from what the machine could do.

    python -m epochzero.evaluate.speed.measure --device cuda --data cifar10.npz --out speed.json
    python -m epochzero.evaluate.speed.measure --only "one batch,dextr" --networks 512 --population 128

Everything on a GPU that is lent for ten minutes at a time: the same command again, until nothing is left out.

    python -m epochzero.evaluate.speed.measure --device cuda --data cifar10.npz --networks 512 --row-seconds 4
    --budget 480 \
        --resume --out speed.json --markdown speed.md

Needs torch and numpy alone; `epochzero bench-speed` is the same with a table. Random networks of a space are scored by
each proxy alone and by bundles that share passes, in several ways: one network after the other (alone), side by side
(lockstep), in worker processes (on a GPU, each of them runs its networks side by side). Times go from architectures to
scores: planning, drawing weights and merging included. Other networks come first, to warm up; plans are forgotten
before each row. Where a row was measured both ways, the scores are compared, network by network.

Peak memory on a GPU is what torch had allocated at most. On a CPU each row has a process of its own, and it is what
that process grew by at most (of worker processes, the largest one; on a GPU, what all hold together).
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import torch

from epochzero.bare import command
from epochzero.data import Batch
from epochzero.engine import PlanNetwork, Proxy
from epochzero.engine.device import default_device, machine, usable
from epochzero.engine.population.grouping import POPULATION, population_size
from epochzero.engine.proxy import split_list
from epochzero.errors import MachineError, UserError
from epochzero.evaluate.speed.equality import agreement
from epochzero.evaluate.speed.report import SPENT, Report, begun, continued, is_done, left_out, markdown
from epochzero.evaluate.speed.roofline import Ceilings, Floor, ceilings, floor
from epochzero.evaluate.speed.timing import Job, Scores, Timed, Way, measured
from epochzero.executors.base import LARGEST
from epochzero.executors.processes import cores
from epochzero.objectives.bundles import bundles, groups
from epochzero.quantities import shape
from epochzero.registry import near_miss, spaces
from epochzero.study.networks import batch_for, network_of

WAYS: tuple[Way, ...] = ("lockstep", "alone", "processes")
GPU_WORKERS = 8
"""processes that share a GPU, unless a number is given: each keeps a core busy"""
CPU_ROOM = 2 * 2**30
"""bytes of activations that a population may hold on a CPU, where none is asked for"""


@dataclass(frozen=True)
class Settings:
    """What is measured, and for how long."""

    space: str = "nb201"
    only: str | None = None
    ways: str | None = None
    """default: all"""
    networks: int = 128
    alone_networks: int = 8
    slow_networks: int = 16
    """at most, of proxies that take a tangent kernel or run the network themselves"""
    population: int | None = None
    batch_size: int = 64
    data: str = "pink"
    input_shape: str | None = None
    seed: int = 0
    device: str = "cpu"
    workers: int | None = None
    tf32: bool = False
    row_seconds: float = 10.0
    """no new population is begun in a row after that"""
    budget: float = 120.0
    """seconds after which no new row is begun"""


@dataclass(frozen=True)
class Row:
    """One measurement."""

    name: str
    way: str
    networks: int
    population: int | None
    """networks side by side at most; of processes, how many there are"""
    ms: float
    """a network"""
    per_second: float
    peak_mib: float
    without_score: int
    floor: Floor | None
    times_floor: float | None
    """how many times the floor it takes"""


def run_speed(
    settings: Settings, show: Callable[[Row | str], None], save: Callable[[Report], None], before: Report | None = None
) -> Report:
    """Measure all rows; `show` gets each as it comes, or a sentence, and `save` the report so far.

    Rows of the report `before` are kept, and not measured again.
    """
    start = time.perf_counter()
    asked = groups(settings.only)
    space = spaces[settings.space]
    for name in ("networks", "alone_networks", "slow_networks", "population", "workers"):
        if (number := getattr(settings, name)) is not None and number < 1:
            raise UserError(f"--{name.replace('_', '-')} is {number}; it has to be at least 1.")
    settings = dataclasses.replace(settings, device=_measurable(settings.device))
    ways = _ways(settings)
    sizes = shape(settings.input_shape)
    batch = batch_for(space, settings.data, input_shape=sizes, size=settings.batch_size, seed=settings.seed)
    rng = Random(settings.seed)
    texts = [space.text(space.sample(rng)) for _ in range(2 * settings.networks)]
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
        if is_done(report, name):
            continue
        scores: dict[str, tuple[Scores, int]] = {}
        for way in ways:
            if time.perf_counter() - start > settings.budget:
                report["left_out"].append({"name": name, "way": way, "why": SPENT})
                continue
            job, population = _job(settings, way, members, batch, texts)
            try:
                timed = measured(job)
            except MachineError as error:
                report["left_out"].append({"name": name, "way": way, "why": str(error)})
                show(f"{name}, {way}: {error}")
                continue
            scores[way] = timed.scores, population
            row = _row(name, way, population, timed, _floor(job, members, limits, len(timed.scores)))
            report["rows"].append(dataclasses.asdict(row))
            show(row)
            save(report)
        if "lockstep" in scores and "alone" in scores:
            report["equality"] += _agreements(name, members, scores)
    report["seconds"] = spent + time.perf_counter() - start
    save(report)
    if not report["rows"]:
        raise MachineError(f"Nothing was measured: {report['left_out'][0]['why']}")
    return report


def _measurable(device: str) -> str:
    usable(device)
    kind = torch.device(device).type
    if kind not in ("cpu", "cuda"):
        raise UserError(f"Speed is measured on cpu or cuda, not on '{device}'.")
    return "cpu" if kind == "cpu" else device


def _ways(settings: Settings) -> list[Way]:
    if settings.ways is None:
        return list(WAYS)
    asked = split_list(settings.ways)
    for way in asked:
        if way not in WAYS:
            raise UserError(f"There is no way '{way}'.{near_miss(way, list(WAYS))} Known: {', '.join(WAYS)}.")
    return [way for way in WAYS if way in asked]


def _job(settings: Settings, way: Way, members: Sequence[Proxy], batch: Batch, texts: Sequence[str]) -> tuple[Job, int]:
    """What to measure, and how many networks run at a time in it."""
    slow = not all(proxy.quick for proxy in members)
    most = min(settings.networks, settings.slow_networks) if slow else settings.networks
    on_gpu = settings.device != "cpu"
    workers = settings.workers or (min(cores(), GPU_WORKERS) if on_gpu else cores())
    chunk = settings.population or (min(LARGEST, -(-most // workers)) if on_gpu else 8)
    if way == "alone":
        count, step, population = min(most, settings.alone_networks), 1, 1
    elif way == "processes":
        count, step, population = most, most if on_gpu else chunk * workers, workers
    else:
        population = min(most, settings.population or _automatic(settings, members, batch, texts[0]))
        at_once = settings.population is None and on_gpu  # cut by the engine, which merges ahead
        count, step = most, most if at_once else population
    warm = min(count, 2 if slow or way == "alone" else step)
    job = Job(
        way,
        settings.space,
        tuple(texts[:count]),
        tuple(texts[-warm:]),
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
    """As many networks as there is memory for."""
    space = spaces[settings.space]
    network = network_of(space, space.parse(text), batch, device=settings.device)
    if settings.device != "cpu":
        return population_size(network, batch, [need for proxy in members for need in proxy.needs])
    if not isinstance(network, PlanNetwork):
        return 1
    return max(1, min(POPULATION, CPU_ROOM // (4 * network.plan.activations * batch.size)))


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
    """Of the scores of the same networks in lockstep and alone, as many as were scored both ways."""
    (together, population), (alone, _) = scores["lockstep"], scores["alone"]
    found = []
    for proxy in members:
        pairs = [(one[proxy.text], other[proxy.text]) for one, other in zip(together, alone, strict=False)]
        found.append({"row": name} | dataclasses.asdict(agreement(proxy.text, population, pairs)))
    return found


def options() -> argparse.ArgumentParser:
    """The options, whose names are those of `Settings`."""
    parser = argparse.ArgumentParser(
        prog="python -m epochzero.evaluate.speed.measure",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    given = Settings()
    parser.add_argument("--space", default=given.space)
    parser.add_argument("--only", help=f"proxies and bundles, separated by commas; bundles: {', '.join(bundles())}")
    parser.add_argument("--ways", help=f"of {', '.join(WAYS)}; default: all")
    parser.add_argument("--networks", type=int, default=given.networks)
    parser.add_argument("--alone-networks", type=int, default=given.alone_networks, help="scored one after the other")
    parser.add_argument("--slow-networks", type=int, default=given.slow_networks, help="of the slow proxies, at most")
    parser.add_argument("--population", type=int, help="networks side by side; default: what memory allows")
    parser.add_argument("--batch-size", type=int, default=given.batch_size)
    parser.add_argument("--data", default=given.data, help="pink, white, or a file")
    parser.add_argument("--input-shape", help="of one sample of noise: 3,32,32")
    parser.add_argument("--seed", type=int, default=given.seed)
    parser.add_argument("--device", default=default_device())
    parser.add_argument("--workers", type=int, help=f"worker processes; default: all cores, {GPU_WORKERS} on a GPU")
    parser.add_argument("--tf32", action="store_true", help="let cuDNN and cuBLAS round factors to TF32")
    parser.add_argument("--row-seconds", type=float, default=given.row_seconds, help="for one measurement, about")
    parser.add_argument("--budget", type=float, default=given.budget, help="seconds after which no row is begun")
    parser.add_argument("--out", type=Path, help="a JSON file")
    parser.add_argument("--resume", action="store_true", help="go on with the report at --out")
    parser.add_argument("--markdown", type=Path, help="a file for the table in Markdown")
    return parser


def line(row: Row | str) -> str:
    """A row as text."""
    if isinstance(row, str):
        return row
    limit = "" if row.floor is None or row.times_floor is None else (
        f"  floor {row.floor.ms:.3g} ms ({row.floor.bound}), {row.times_floor:.3g} times"
    )  # fmt: skip
    return (
        f"{row.name:16} {row.way:9} {row.ms:10.3f} ms  {row.per_second:9.1f}/s  {row.peak_mib:9.1f} MiB  "
        f"{row.networks} networks, {row.population} at a time{limit}"
    )


def saver(out: Path | None, table: Path | None = None, before: Report | None = None) -> Callable[[Report], None]:
    """What writes the report so far, and its table in Markdown; a file that cannot be written says so now."""

    def save(report: Report) -> None:
        if out is not None:
            out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
        if table is not None:
            table.write_text(markdown(report) if report else "", encoding="utf-8")

    save(before or {})
    return save


def main() -> None:
    """Measure and print."""
    asked = vars(options().parse_args())
    out, table = asked.pop("out"), asked.pop("markdown")
    before = begun(out) if asked.pop("resume") else None
    save = saver(out, table, before)
    report = run_speed(Settings(**asked), lambda row: print(line(row), flush=True), save, before)
    print(json.dumps(report["machine"] | report["ceilings"]))
    for one in report["equality"]:
        print(json.dumps(one))
    for sentence in left_out(report):
        print(sentence)


if __name__ == "__main__":
    command(main)
