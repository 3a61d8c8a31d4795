"""NAS-Bench-201 against latency: the share of the true front of accuracy and latency that a search recovers.

Latencies on six devices are HW-NAS-Bench's, accuracies those after 200 epochs on CIFAR-10. NSGA-II and random draws
evaluate 1,000 networks, by one proxy, by two, or by the validation accuracy after 12 epochs, and by latency; their
result is the front by these. The true accuracies and latencies of its networks dominate a part of the plane; the figure
is that hypervolume as a share of the true front's, with the worst accuracy and latency of all as reference. `the whole
table` is the front over all networks by the same scores: the result of a perfect search.

The second figure judges the search alone: the hypervolume by the scores that were searched by, as a share of that of
the whole table. Proxy scores come from a pool (docs/data has one), so no network is run. `networks` counts searches.

Li, Yu, Fu, Zhang, Zhao, You, Yu, Wang, Lin. HW-NAS-Bench. ICLR 2021. arXiv:2103.10584
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from epochzero.hardware.latency import Latency
from epochzero.hardware.timing import TableMeter
from epochzero.objectives.goals import Goal, parse_goals
from epochzero.objectives.objective import is_looked_up
from epochzero.registry import spaces
from epochzero.store import Store
from epochzero.study.loop import run_search
from epochzero.study.methods.base import Floats
from epochzero.study.methods.dominance import first_front
from epochzero.study.result import Result
from epochzero.study.sources import TableSource
from epochzero.study.task import Task
from epochzero_papers.harness.base import Measurement, Quoted, Recipe, Row, Sample, Status, Work, experiment
from epochzero_papers.harness.estimates import estimate
from epochzero_papers.harness.files import FOLDER, NB201, File, missing
from epochzero_papers.harness.hypervolume import hypervolume
from epochzero_papers.harness.table_searches import FEEDBACK, POOL, SearchTables, Trials, find_pool

HARDWARE = File(
    ("hwnasbench_nb201.csv.gz", "hwnasbench_nb201.csv", "hwnasbench_nb201.parquet"),
    "HW-NAS-Bench's latencies of NAS-Bench-201, columns arch_str, cifar10_raspi4_latency, ...",
)
DEVICES = ("edgegpu", "raspi4", "edgetpu", "pixel3", "eyeriss", "fpga")
TRUE, SEARCHED = "share of the true front's volume", "share of the searched front's volume"
STEPS = (100, 300, 1000)
TOGETHER = 20
"""networks in one batch of a search; the steps are multiples of it"""
METHODS = {"NSGA-II": "pareto", "random": "random"}
FIRST, SECOND = METHODS
WANTED = {"dextr": "dextr", "dextr and naswot": "dextr,naswot", "12 epochs": FEEDBACK}


@dataclass(frozen=True)
class Fronts(Trials):
    """The devices of the fronts."""

    networks: int = 5
    devices: tuple[str, ...] = DEVICES


class Plane(NamedTuple):
    """The goals of a search, with the volume of the best front."""

    merits: Mapping[str, tuple[float, ...]]
    """by the network's text, higher is better; networks with all merits only"""
    reference: tuple[float, ...]
    whole: float
    front: Sequence[str]

    @staticmethod
    def of(archs: Sequence[str], *wanted: Callable[[str], float]) -> Plane:
        """Returns the plane of these merits, which are nan for unknown networks."""
        rows: Floats = np.array([[merit(arch) for merit in wanted] for arch in archs])
        known = np.flatnonzero(~np.isnan(rows).any(axis=1))
        rows, texts = rows[known], [archs[i] for i in known.tolist()]
        merits = dict(zip(texts, map(tuple, rows.tolist()), strict=True))
        reference = tuple(rows.min(axis=0).tolist())
        best = first_front(rows)
        return Plane(merits, reference, hypervolume(rows[best], reference), [texts[i] for i in best])

    def share(self, archs: Sequence[str]) -> float:
        """Returns the share of the volume that these networks dominate."""
        rows = np.array([self.merits[arch] for arch in archs if arch in self.merits]).reshape(-1, len(self.reference))
        return hypervolume(rows, self.reference) / self.whole


@experiment
class LatencyFront(Recipe):
    """Hypervolumes of fronts from tables."""

    name = "nb201-latency-front"
    source = "our own; latencies of HW-NAS-Bench, accuracies of NAS-Bench-201"
    full = Fronts()
    quick = Fronts(networks=3, devices=("raspi4",))
    needs = (NB201, POOL, HARDWARE)
    quoted: Sequence[Quoted] = ()

    def status(self, folder: Any = FOLDER) -> Status:
        return "ready" if NB201.find(folder) and HARDWARE.find(folder) and find_pool(folder) else "needs data"

    def measure(self, work: Work) -> Measurement:
        file = HARDWARE.find(work.folder)
        if file is None:
            raise missing(self.name, [HARDWARE], work.folder)
        tables = SearchTables.open(self.name, work.folder)
        hardware = TableSource.read(file, spaces["nb201"])
        work.begin(pool=tables.pool.name, table=tables.accuracies.name, latencies=hardware.name)
        seeds = range(work.seed, work.seed + work.settings.networks)
        total = len(work.settings.devices) * len(WANTED) * len(METHODS) * len(seeds)
        rows: list[Row] = []
        samples: dict[str, Sample] = {}
        done = 0
        for device in work.settings.devices:
            latency = Latency(TableMeter(hardware, f"cifar10_{device}_latency"), spaces["nb201"])
            truth = _plane(tables, latency, "table:cifar10_test")
            values: dict[str, list[float]] = {}
            for wanted, goal in WANTED.items():
                searched = _plane(tables, latency, goal)
                everything = f"the whole table, {wanted}"
                values[everything] = [truth.share(searched.front)]
                rows.append(_row(device, everything, "all", TRUE, values[everything]))
                curves: dict[str, list[list[list[str]]]] = {method: [] for method in METHODS}
                for method, name in METHODS.items():
                    for seed in seeds:
                        work.progress(done, total)
                        curves[method].append(_fronts(tables, latency, name, goal, seed))
                        done += 1
                for place, step in enumerate(STEPS):
                    for statistic, plane in ((TRUE, truth), (SEARCHED, searched)):
                        shares = {of: [plane.share(curve[place]) for curve in found] for of, found in curves.items()}
                        less = [a - b for a, b in zip(shares[FIRST], shares[SECOND], strict=True)]
                        for label, figures in (*shares.items(), (f"{FIRST} - {SECOND}", less)):
                            x = f"{label}, {wanted}"
                            rows.append(_row(device, x, f"{step} evaluations", statistic, figures))
                            values[x] = figures
            about = f"scores of {tables.pool.name}, accuracies of {tables.accuracies.name}, latencies of {latency.name}"
            samples[device] = Sample.measured("nb201", values, about)
        work.progress(total, total)
        return Measurement(rows, samples)


def _plane(tables: SearchTables, latency: Latency, goal: str) -> Plane:
    """Returns the plane of one or several goals against latency, over all networks of the pool."""
    space = tables.pool.space

    def merits(wanted: Goal) -> Callable[[str], float]:
        name = wanted.proxy.text
        source = tables.accuracies if is_looked_up(wanted.proxy) else tables.pool
        return lambda text: wanted.merit(source.value(text, name.removeprefix("table:")).value)

    def speed(text: str) -> float:
        timing = latency.of(space.parse(text))
        return math.nan if isinstance(timing, str) else -timing.median

    *wanted, _ = parse_goals(f"{goal},latency").goals
    return Plane.of([space.text(arch) for arch in tables.pool.archs], *map(merits, wanted), speed)


def _fronts(tables: SearchTables, latency: Latency, method: str, goal: str, seed: int) -> list[list[str]]:
    """Returns the networks on the front after each number of evaluations."""
    goals = parse_goals(f"{goal},latency")
    task = Task(spaces["nb201"], goals.proxies, tables.batch, sources=(latency, tables.pool, tables.accuracies))
    fronts: list[list[str]] = []

    def note(outcome: Result) -> None:
        if outcome.front is not None and len(fronts) < len(STEPS) and outcome.evaluated >= STEPS[len(fronts)]:
            fronts.append([member.text for member in outcome.members])

    with Store.open(":memory:") as store:
        options = {"batch": TOGETHER}
        last: Result = run_search(
            task, method, STEPS[-1], seed=seed, objective=goals, options=options, store=store, progress=note
        )
    assert last.front is not None
    return fronts + [[member.text for member in last.members]] * (len(STEPS) - len(fronts))


def _row(device: str, x: str, y: str, statistic: str, shares: list[float]) -> Row:
    return Row(device, x, y, statistic, estimate(shares), 0)
