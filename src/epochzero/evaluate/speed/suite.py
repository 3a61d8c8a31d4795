"""Speed on many spaces: each in every way, with the ratio of the automatic choice to the best single way.

epochzero bench-speed --suite all --device cuda --budget 480 --resume --out suite.json --markdown suite.md
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from epochzero.engine.proxy import split_list
from epochzero.errors import MachineError, UserError
from epochzero.evaluate.speed import mbconv
from epochzero.evaluate.speed.isolated import Isolated
from epochzero.evaluate.speed.measure import WAYS, Row, Settings, given, job_of, run_speed
from epochzero.evaluate.speed.profile import Profile, as_text, profiled
from epochzero.evaluate.speed.report import Report, number, saver
from epochzero.evaluate.speed.timing import Job, Timed, Way, measure
from epochzero.objectives.bundles import groups
from epochzero.registry import check_known, spaces
from epochzero.spaces.base import GivesPlans

ONLY = "one batch,four batches,dextr"
KIND = "suite"
"""of a report"""


class Size(NamedTuple):
    """Samples of a batch and their shape, and how many networks are measured."""

    samples: int
    shape: str = "3,32,32"
    networks: int | None = None
    population: int | None = None
    seconds: float = 12.0
    """after which a row is ended"""


SMALL, LARGE = Size(64, "3,32,32", 32, 6), Size(32, "3,224,224", 32, 6)
ON_GPU = {
    "nb201": Size(64, "3,32,32", 512, None, 40.0),
    "nb101": SMALL,
    "darts": SMALL,
    "mobilenet": LARGE,
    "autoformer_tiny": LARGE,
    "resnet": SMALL,
    "mnasnet": LARGE,
    "mbconv": SMALL,
    "mbconv_modules": SMALL,
}
ON_CPU = {**{name: Size(8) for name in ("nb201", "darts_search", "resnet", "nats_sss")}, "autoformer_tiny": Size(2)}
TOGETHER = ("lockstep", "tape")
"""ways of plans alone"""
PHASES = (
    ("one batch", "alone,tape,auto"),
    ("dextr", "alone,tape,auto"),
    ("four batches", "alone,auto"),
    ("one batch,dextr", "processes"),
    ("one batch", "lockstep"),
    ("four batches", "tape,processes"),
    ("one batch", "tf32,channels_last,tuned"),
    ("dextr,four batches", "lockstep"),
)
"""on a GPU: proxies and ways, in case time runs out"""
FOR_PROCESSES = 45.0
"""seconds after which a row of worker processes is ended, which may have to be started"""
PROFILES: tuple[tuple[str, Way], ...] = (
    ("darts", "alone"),
    ("mobilenet", "alone"),
    ("mbconv_modules", "alone"),
    ("autoformer_tiny", "tape"),
    ("darts", "tape"),
    ("nb101", "lockstep"),
    ("mbconv", "lockstep"),
)
"""spaces and ways, of one batch"""


def run_suite(
    chosen: str,
    settings: Settings,
    show: Callable[[Row | str], None],
    *,
    out: Path | None = None,
    table: Path | None = None,
    resume: bool = False,
    profile: float = 0.0,
) -> Report:
    """Measures the spaces, `all` or names separated by commas; the sizes of their batches are those of the suite.

    On a GPU each row is measured in a process of its own, which is ended after `row_limit` seconds. `profile` is the
    number of seconds for profiles, which come after the first ways.
    """
    on_gpu = apart(settings)
    sizes = ON_GPU if on_gpu else ON_CPU
    names = list(sizes) if chosen == "all" else split_list(chosen)
    for name in names:
        check_known(name, sizes, f"The suite has no space '{name}' for this device")
    before = _begun(out) if resume else None
    report: Report = before or {"kind": KIND, "spaces": {}, "left_out": []}
    report["left_out"] = []
    if on_gpu:
        mbconv.register()
    phases: tuple[tuple[str, str | None], ...] = PHASES if on_gpu else ((ONLY, None),)
    if settings.only or settings.ways:
        phases = ((settings.only or ONLY, settings.ways),)
    suite = _Suite(settings, names, sizes, show, report, saver(out, table, report, as_markdown))
    if not on_gpu:
        suite.measure(phases)
    else:
        with Isolated(settings.device) as suite.isolated:
            suite.measure(phases[:1])
            suite.profile(profile)
            suite.measure(phases[1:])
    suite.save(report)
    return report


def apart(settings: Settings) -> bool:
    """True where rows are measured in a process that can be ended: on a CPU each has its own anyway."""
    return settings.device != "cpu"


class _Suite:
    """A suite that is being measured."""

    def __init__(
        self,
        settings: Settings,
        names: list[str],
        sizes: dict[str, Size],
        show: Callable[[Row | str], None],
        report: Report,
        save: Callable[[Report], None],
    ) -> None:
        self.settings, self.names, self.sizes = settings, names, sizes
        self.show, self.report, self.save = show, report, save
        self.isolated: Isolated | None = None
        self._end = time.perf_counter() + settings.budget

    def measure(self, phases: Sequence[tuple[str, str | None]]) -> None:
        """Measures bundle by bundle in these ways, each in every space."""
        for only, ways in phases:
            for bundle in split_list(only):
                for name in self.names:
                    self._measure(name, bundle, ways)
            if self.isolated is not None and ways is not None and "processes" in ways:
                self.isolated.refresh()  # ends the workers, which hold memory

    def _measure(self, name: str, bundle: str, ways: str | None) -> None:
        own = self._of(name, bundle, ways)
        if own.budget <= 0:
            self.report["left_out"].append(f"{name} ({bundle}{', ' if ways else ''}{ways or ''})")
            return
        if own.ways == "":
            return
        self.show(f"{name}, batches of {own.batch_size} of {own.input_shape}")

        def keep(part: Report) -> None:
            self.report["spaces"][name] = part
            self.save(self.report)

        try:
            run_speed(own, self.show, keep, self.report["spaces"].get(name), self._run if self.isolated else None)
        except MachineError as error:
            self.show(f"{name}: {error}")
            self.report["left_out"].append(f"{name} ({bundle}): {error}")

    def _of(self, name: str, bundle: str, ways: str | None) -> Settings:
        """The settings of a space; without the ways that only plans have, for modules."""
        size, usual = self.sizes[name], self.settings
        if ways is not None and not isinstance(spaces[name], GivesPlans):
            ways = ",".join(way for way in split_list(ways) if way not in TOGETHER)
        return dataclasses.replace(
            usual,
            space=name,
            only=bundle,
            ways=ways,
            batch_size=size.samples,
            input_shape=size.shape,
            networks=size.networks or usual.networks,
            population=size.population or usual.population,
            together=size.population,
            alone_networks=size.population or usual.alone_networks,
            budget=self._end - time.perf_counter(),
        )

    def _run(self, job: Job) -> Timed:
        assert self.isolated is not None
        usual = FOR_PROCESSES if job.way == "processes" else self.sizes[job.space].seconds
        timed: Timed = self.isolated.run(measure, job, self.settings.row_limit or usual)
        return timed

    def profile(self, seconds: float) -> None:
        """Profiles as many of the chosen rows as there is time for."""
        end, found = time.perf_counter() + seconds, self.report.setdefault("profiles", {})
        for name, way in PROFILES:
            left = end - time.perf_counter()
            if name not in self.names or left <= 0 or self.isolated is None:
                continue
            own = self._of(name, "one batch", way)
            job, _ = job_of(own, way, groups(own.only)["one batch"], *given(own))
            try:
                one: Profile = self.isolated.run(profiled, job, min(left, FOR_PROCESSES))
            except MachineError as error:
                self.show(f"profile of {name}, {way}: {error}")
                continue
            found[f"{name}, {way}"] = dataclasses.asdict(one)
            self.show(as_text(f"{name}, {way}", one))
            self.save(self.report)


def _begun(file: Path | None) -> Report | None:
    """The report of an earlier run, if there is one."""
    if file is None:
        raise UserError("--resume continues the report at --out: give that too.")
    try:
        report: Report | None = json.loads(file.read_text(encoding="utf-8")) if file.exists() else None
        if report is None or (report["kind"] == KIND and {"spaces", "left_out"} <= report.keys()):
            return report
    except (ValueError, TypeError, KeyError):
        pass
    raise UserError(f"'{file}' is not a report of a suite: give another --out, or leave out --resume.")


class Line(NamedTuple):
    """One bundle of one space, in milliseconds a network by way."""

    space: str
    samples: int
    bundle: str
    ms: dict[str, float]
    floor: float | None
    spearman: float | None
    """the least of a proxy's scores in populations, or of the automatic choice, and one by one"""
    on_gpu: bool = False
    """where the time of processes is without their start, and of other networks"""

    @property
    def ratio(self) -> float | None:
        """The automatic choice compared with the best single way; on a GPU with the ways of one process."""
        other = {"auto", "tf32"} | ({"processes"} if self.on_gpu else set())
        single = [ms for way, ms in self.ms.items() if way not in other]
        return self.ms["auto"] / min(single) if single and "auto" in self.ms else None

    @property
    def times(self) -> float | None:
        """The best way compared with the floor."""
        return min(self.ms.values()) / self.floor if self.floor else None


def lines(report: Report) -> list[Line]:
    """The lines of the table."""
    found = []
    for space, part in report["spaces"].items():
        for bundle in dict.fromkeys(row["name"] for row in part["rows"]):
            rows = [row for row in part["rows"] if row["name"] == bundle]
            ms = {row["way"]: row["ms"] for row in rows}
            equal = [one["spearman"] for one in part["equality"] if one["row"] == bundle]
            floor = next((row["floor"]["ms"] for row in rows if row["floor"]), None)
            samples = part["settings"]["batch_size"]
            least = min((rank for rank in equal if rank is not None), default=None)
            on_gpu = part["settings"]["device"] != "cpu"
            found.append(Line(space, samples, bundle, ms, floor, least, on_gpu))
    return found


COLUMNS = {
    "auto": "auto",
    "alone": "one by one",
    "lockstep": "lockstep",
    "processes": "processes",
    "tape": "by tapes",
    "tf32": "TF32",
    "channels_last": "channels last",
    "tuned": "cuDNN's timings",
}
"""ways and their heads"""


def as_markdown(report: Report) -> str:
    """A line about the machine, and a row for each space and bundle: milliseconds a network, ratios, agreement."""
    parts = list(report["spaces"].values())
    if not parts:
        return ""
    machine = parts[0]["machine"]
    facts = (
        f"{machine['device']}, {machine['cpus']} cores, torch {machine['torch']}, EpochZero {machine['epochzero']}, "
        f"{machine['date'][:10]}; milliseconds a network"
    )
    found = lines(report)
    used = [way for way in COLUMNS if way in WAYS or any(way in line.ms for line in found)]
    heads = [
        "space (batch)",
        "proxies",
        *(COLUMNS[way] for way in used),
        "auto / best",
        "floor",
        "best / floor",
        "Spearman",
    ]
    table = [facts, "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for line in found:
        ways = [number(line.ms.get(way)) for way in used]
        rank = "" if line.spearman is None else f"{line.spearman:.4f}"
        others = [number(line.ratio), number(line.floor), number(line.times), rank]
        table.append(f"| {' | '.join([f'{line.space} ({line.samples})', line.bundle, *ways, *others])} |")
    left = report["left_out"]
    return "\n".join([*table, *([f"\nnot measured: {', '.join(left)}"] if left else [])]) + "\n"
