"""Any known source to one benchmark: what kind of file it is, its rows, and what else is asked for.

.csv  .csv.gz  .parquet            our tables and other people's    `epochzero.tables.table`
.tfrecord                          NAS-Bench-101                    `epochzero.tables.nb101_records`
.pth                               NAS-Bench-201, TransNAS-Bench    `nb201_pth`, `transnas_pth`
.tar  .pickle.pbz2  a folder       NATS-Bench, NAS-Bench-201        `nats`, `nb201_pth`
a folder of models                 NAS-Bench-301                    `nb301`
.ezb                               imported already
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from epochzero.errors import DataError, UserError
from epochzero.tables import nats, nb101_records, nb201_pth, nb301, pickles, transnas_pth
from epochzero.tables.columns import Column, Numbers, described
from epochzero.tables.rows import Rows
from epochzero.tables.table import ENDING, TABLES, AccuracyTable
from epochzero.tables.tabular import TabularBenchmark

EMPTY = ("", "na", "n/a", "none", "null")
"""what stands for a number that is not known, beside nan"""
KINDS = f"{', '.join(TABLES)}, .tfrecord, .pth, .tar, {nats.ENDING}, {ENDING}, or a folder of NATS-Bench"


def import_benchmark(
    source: Path,
    space: Any,
    *,
    unit: str | None = None,
    columns: Sequence[str] = (),
    mean: bool = False,
    join: Sequence[Path] = (),
    sample: int | None = None,
    seed: int = 0,
    trusted: bool = False,
) -> TabularBenchmark:
    """The benchmark of a source, with the columns of those to join. Nothing is written."""
    rows = read_rows(source, space, sample=sample, seed=seed, trusted=trusted)
    rows = rows.keeping(columns) if columns else rows
    rows = rows.mean_over_seeds() if mean else rows
    benchmark = TabularBenchmark.of(rows, space, unit)
    for path in join:
        benchmark = benchmark.join(read_rows(path, space), unit)
    return benchmark


def read_rows(path: Path, space: Any, *, sample: int | None = None, seed: int = 0, trusted: bool = False) -> Rows:
    """The rows of a source of any kind."""
    if not path.exists():
        raise DataError(f"There is no file or folder {path}.")
    if sample is not None and not (path.is_dir() and nb301.is_model(path)):
        raise UserError(f"--sample is for a surrogate (NAS-Bench-301), which {path} is not: leave it out.")
    if path.is_dir():
        return _folder(path, space, sample, seed, trusted)
    readers: dict[tuple[str, ...], Callable[[], Rows]] = {
        TABLES: lambda: _table(path),
        (".tfrecord",): lambda: nb101_records.read(path),
        (".pth",): lambda: _pth(path, space.name),
        (".tar", nats.ENDING): lambda: nats.read(path),
        (ENDING,): lambda: TabularBenchmark.open(path, space).rows(),
    }
    for endings, reader in readers.items():
        if path.name.lower().endswith(endings):
            return reader()
    raise UserError(f"{path} is of no known kind: a benchmark is {KINDS}.")


def _pth(path: Path, space: str) -> Rows:
    content = pickles.load_pth(path)
    if isinstance(content, dict) and "arch2infos" in content:
        return nb201_pth.read(path, content)
    if isinstance(content, dict) and "metrics_dict" in content:
        return transnas_pth.read(path, content, space)
    raise DataError(f"{path} is neither NAS-Bench-201 nor TransNAS-Bench.")


def _folder(path: Path, space: Any, sample: int | None, seed: int, trusted: bool) -> Rows:
    if any(file.name.endswith(nats.ENDING) for file in path.iterdir()):
        return nats.read(path)
    if any(file.name.endswith(nb201_pth.ENDING) for file in path.iterdir()):
        return nb201_pth.read_folder(path)
    if not nb301.is_model(path):
        raise DataError(f"The folder {path} holds nothing of NATS-Bench, NAS-Bench-201 or NAS-Bench-301.")
    if sample is None:
        raise UserError(
            f"{path} is a surrogate and has no rows: say with --sample how many random networks to ask for."
        )
    return nb301.NB301.load(path, space, trusted=trusted).sampled(sample, seed)


def _table(path: Path) -> Rows:
    """The numbers of a CSV or Parquet table; columns that hold none are left out."""
    table = AccuracyTable.read(path)
    columns: dict[Column, Numbers] = {}
    texts = []
    for name in table.columns:
        cells = table.cells(name)
        numbers = np.array([_number(cell) for cell in cells], np.float64)
        odd = np.flatnonzero(np.isinf(numbers))
        if not np.isfinite(numbers).any():
            texts.append(name)
        elif len(odd):
            raise DataError(
                f"Column '{name}' of {path} holds '{cells[odd[0]]}' in row {odd[0] + 1}, where a finite number is "
                f"needed; mend or remove such rows."
            )
        else:
            columns[described(name)] = numbers
    notes = [f"Columns without numbers are left out: {', '.join(texts)}."] if texts else []
    return Rows(table.archs, columns, str(path), notes=notes)


def _number(cell: object) -> float:
    """A finite number, nan for an empty cell, inf for anything else."""
    try:
        return float(cell)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        empty = cell is None or str(cell).strip().lower() in EMPTY
        return math.nan if empty else math.inf
