"""Speed on many spaces: each in every way, with the ratio of the automatic choice to the best single way.

epochzero bench-speed --suite all --device cuda --budget 480 --resume --out suite.json --markdown suite.md
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from epochzero.engine.proxy import split_list
from epochzero.errors import MachineError, UserError
from epochzero.evaluate.speed.measure import Row, Settings, run_speed
from epochzero.evaluate.speed.report import Report, number, saver
from epochzero.registry import check_known

ONLY = "one batch,four batches,dextr"
KIND = "suite"
"""of a report"""


class Size(NamedTuple):
    """Samples of a batch, and their shape."""

    samples: int
    shape: str = "3,32,32"


ON_GPU = {
    "nb201": Size(64),
    "nb101": Size(64),
    "darts": Size(64),
    "resnet": Size(64),
    "nats_sss": Size(64),
    "mobilenet": Size(32, "3,224,224"),
    "mnasnet": Size(32, "3,224,224"),
    "autoformer_tiny": Size(32, "3,224,224"),
}
ON_CPU = {**{name: Size(8) for name in ("nb201", "darts_search", "resnet", "nats_sss")}, "autoformer_tiny": Size(2)}


def run_suite(
    chosen: str,
    settings: Settings,
    show: Callable[[Row | str], None],
    *,
    out: Path | None = None,
    table: Path | None = None,
    resume: bool = False,
) -> Report:
    """Measures the spaces, `all` or names separated by commas; the sizes of their batches are those of the suite."""
    start = time.perf_counter()
    sizes = ON_CPU if settings.device == "cpu" else ON_GPU
    names = list(sizes) if chosen == "all" else split_list(chosen)
    for name in names:
        check_known(name, sizes, f"The suite has no space '{name}' for this device")
    before = _begun(out) if resume else None
    report: Report = before or {"kind": KIND, "spaces": {}, "left_out": []}
    report["left_out"] = []
    save = saver(out, table, report, as_markdown)
    for name in names:
        left = settings.budget - (time.perf_counter() - start)
        if left <= 0:
            report["left_out"].append(name)
            continue
        show(f"{name}, batches of {sizes[name].samples} of {sizes[name].shape}")
        own = dataclasses.replace(
            settings,
            space=name,
            only=settings.only or ONLY,
            batch_size=sizes[name].samples,
            input_shape=sizes[name].shape,
            budget=left,
        )

        def keep(part: Report, name: str = name) -> None:
            report["spaces"][name] = part
            save(report)

        try:
            run_speed(own, show, keep, report["spaces"].get(name))
        except MachineError as error:
            show(f"{name}: {error}")
            report["left_out"].append(name)
    save(report)
    return report


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
    """the least of a proxy's scores in populations and one by one"""

    @property
    def ratio(self) -> float | None:
        """The automatic choice compared with the best single way."""
        single = [ms for way, ms in self.ms.items() if way != "auto"]
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
            found.append(
                Line(space, samples, bundle, ms, floor, min((rank for rank in equal if rank is not None), default=None))
            )
    return found


COLUMNS = {"auto": "auto", "alone": "one by one", "lockstep": "lockstep", "processes": "processes"}
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
    heads = ["space (batch)", "proxies", *COLUMNS.values(), "auto / best", "floor", "best / floor", "Spearman"]
    table = [facts, "", f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for line in lines(report):
        ways = [number(line.ms.get(way)) for way in COLUMNS]
        rank = "" if line.spearman is None else f"{line.spearman:.4f}"
        others = [number(line.ratio), number(line.floor), number(line.times), rank]
        table.append(f"| {' | '.join([f'{line.space} ({line.samples})', line.bundle, *ways, *others])} |")
    left = report["left_out"]
    return "\n".join([*table, *([f"\nnot measured: {', '.join(left)}"] if left else [])]) + "\n"
