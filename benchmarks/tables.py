"""How quickly a large table opens, and what it holds in memory (`make bench`).

    python benchmarks/tables.py

The table is synthetic and has the size of NAS-Bench-101: 423,624 architectures, validation and test accuracies of
three runs at four lengths of training in steps of 1/9984, training times, parameters. It is written once, then opened
in a process of its own. Seconds and megabytes are those of that process beyond what the imports took; the bars are one
second and 200 MB. Memory is read from /proc, so this runs on Linux.
"""

from __future__ import annotations

import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from epochzero.benchmarks import AccuracyTable, TabularBenchmark
from epochzero.benchmarks.columns import Column
from epochzero.benchmarks.rows import Rows

ROWS = 423_624
SECONDS, MEGABYTES = 1.0, 200.0
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
    benchmark = TabularBenchmark.open(path, Texts())
    benchmark.column("val_acc_108ep")
    return benchmark


def as_table(path: Path) -> AccuracyTable:
    read = AccuracyTable.read(path)
    read.column("val_acc_108ep")
    return read


def megabytes(field: str) -> float:
    """In memory now (VmRSS) or at most so far (VmHWM), mapped pages of the file included."""
    return int(Path("/proc/self/status").read_text(encoding="utf-8").split(f"{field}:")[1].split()[0]) / 1024


def measured(what: Callable[[Path], Any], path: Path) -> tuple[float, float, float]:
    """Seconds, megabytes that stay, and megabytes at the peak."""
    before = megabytes("VmRSS")
    start = time.perf_counter()
    kept = what(path)
    seconds = time.perf_counter() - start
    held, peak = megabytes("VmRSS") - before, megabytes("VmHWM") - before
    del kept
    return seconds, held, peak


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.ezb"
        TabularBenchmark.of(table(), Texts()).write(path)
        print(f"{ROWS:,} rows, 29 columns: a file of {path.stat().st_size / 1e6:.1f} MB")
        fresh = multiprocessing.get_context("spawn")
        over = False
        for name, what in (("open, one column", opened), ("as AccuracyTable, one column", as_table)):
            with fresh.Pool(1) as pool:
                seconds, held, peak = pool.apply(measured, (what, path))
            print(f"{name:<30} {seconds:.2f} s   holds {held:.0f} MB   at most {peak:.0f} MB")
            over |= seconds > SECONDS or peak > MEGABYTES
        sys.exit("over the bar" if over else 0)


if __name__ == "__main__":
    main()
