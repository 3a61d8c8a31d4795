"""Time to open a large table, and its memory (`make bench`).

    python benchmarks/tables.py

The table is synthetic and has the size of NAS-Bench-101: 423,624 architectures, validation and test accuracies of
three runs at four lengths of training in steps of 1/9984, training times, parameters. It is written with all runs, and
with the means over runs alone (`epochzero data import --mean`), then opened in processes of their own. Megabytes are
those of that process beyond what the imports took, seconds are of the CPU, so that other work on the machine does not
count. The bars are one second to open and 200 MB to hold, with one column in numbers too. Memory is read from /proc, so
this runs on Linux.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple

import numpy as np

from epochzero.tables import AccuracyTable, TabularBenchmark
from epochzero.tables.columns import Column
from epochzero.tables.rows import Rows

ROWS = 423_624
SECONDS, MEGABYTES = 1.0, 200.0
COLUMN = "val_acc_108ep"
OPS = ("conv3x3", "conv1x1", "maxpool3x3")


class Texts:
    """A space whose architectures are their texts: what is measured is the table."""

    name = "nb101"

    def parse(self, text: str) -> str:
        return text

    def text(self, arch: str) -> str:
        return arch


def archs() -> list[str]:
    """Different texts that look like cells of NAS-Bench-101."""
    rng = Random(0)
    found: dict[str, None] = {}
    while len(found) < ROWS:
        vertices = [f"{rng.choice(OPS)}:{_sources(rng, vertex)}" for vertex in range(1, 6)]
        found["/".join([*vertices, f"output:{_sources(rng, 6)}"])] = None
    return list(found)


def _sources(rng: Random, vertex: int) -> str:
    return "".join(str(u) for u in range(vertex) if rng.random() < 0.4) or str(vertex - 1)


def table() -> Rows:
    rng = np.random.default_rng(0)
    columns = {Column("params", "params"): rng.integers(200_000, 50_000_000, ROWS).astype(float)}
    for epochs in (4, 12, 36, 108):
        seconds = rng.uniform(50, 5000, ROWS).astype(np.float32).astype(float)
        columns[Column(f"train_seconds_{epochs}ep", "train_seconds", epochs=epochs)] = seconds
        for split in ("val", "test"):
            for seed in range(3):
                name = f"{split}_acc_{epochs}ep"
                column = Column(name, "accuracy", "cifar10", split, epochs, seed, "fraction")
                columns[column] = rng.integers(1000, 9984, ROWS) / 9984
    return Rows(archs(), columns, "synthetic")


def opened(path: Path) -> TabularBenchmark:
    return TabularBenchmark.open(path, Texts())


def megabytes(field: str) -> float:
    """In memory now (VmRSS) or at most so far (VmHWM), mapped pages of the file included."""
    return int(Path("/proc/self/status").read_text(encoding="utf-8").split(f"{field}:")[1].split()[0]) / 1024


READERS: dict[str, Callable[[Path], TabularBenchmark | AccuracyTable]] = {
    "TabularBenchmark": opened,
    "AccuracyTable": AccuracyTable.read,
}


class Cost(NamedTuple):
    """Of a reader, beyond the imports."""

    opening: float
    """seconds of the CPU, as `reading`"""
    reading: float
    """of one column"""
    held: float
    """megabytes"""
    peak: float


def measured(reader: Callable[[Path], TabularBenchmark | AccuracyTable], path: Path) -> Cost:
    before, start = megabytes("VmRSS"), time.process_time()
    kept = reader(path)
    opening = time.process_time() - start
    column = kept.column(COLUMN)
    reading = time.process_time() - start - opening
    cost = Cost(opening, reading, megabytes("VmRSS") - before, megabytes("VmHWM") - before)
    assert len(column) == ROWS
    return cost


def over_the_bar(cost: Cost) -> bool:
    return cost.opening > SECONDS or cost.peak > MEGABYTES


def main() -> None:
    fresh = multiprocessing.get_context("spawn")
    over = False
    with tempfile.TemporaryDirectory() as folder:
        rows = table()
        for what, own in (("all runs", rows), ("--mean", rows.mean_over_seeds())):
            path = Path(folder) / f"{len(own.columns)}.ezb"
            TabularBenchmark.of(own, Texts()).write(path)
            size = path.stat().st_size / 1e6
            print(f"{what}: {ROWS:,} rows, {len(own.columns)} columns, a file of {size:.1f} MB")
            for name, reader in READERS.items():
                with fresh.Pool(1) as pool:
                    cost = pool.apply(measured, (reader, path))
                print(
                    f"  {name:<18} opens in {cost.opening:.2f} s (bar {SECONDS:g}), one column {cost.reading:.2f} s; "
                    f"holds {cost.held:.0f} MB, at most {cost.peak:.0f} MB (bar {MEGABYTES:g})"
                )
                over |= over_the_bar(cost)
    sys.exit("over the bar" if over else 0)


if __name__ == "__main__":
    main()
