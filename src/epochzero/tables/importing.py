"""Imports a table of trained networks from any known format, with the columns of other tables."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from epochzero.errors import DataError, UserError
from epochzero.tables.formats import Source, formats
from epochzero.tables.rows import Rows
from epochzero.tables.tabular import TabularBenchmark


def import_benchmark(
    path: Path,
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
    """Returns the benchmark in a file or folder, joined with other tables. Writes nothing."""
    rows = read_rows(Source(path, space, sample, seed, trusted))
    rows = rows.keeping(columns) if columns else rows
    rows = rows.mean_over_seeds() if mean else rows
    benchmark = TabularBenchmark.of(rows, space, unit)
    for other in join:
        benchmark = benchmark.join(read_rows(Source(other, space)), unit)
    return benchmark


def read_rows(source: Source) -> Rows:
    """Returns the rows of a source in any registered format."""
    if not source.path.exists():
        raise DataError(f"There is no file or folder {source.path}.")
    known = next((known for known in formats.values() if known.fits(source)), None)
    if known is None:
        listed = ", ".join(each.about for each in formats.values())
        raise UserError(f"{source.path} has an unknown format. Give {listed}.")
    if source.sample is not None and not known.surrogate:
        raise UserError(f"--sample is for a surrogate (NAS-Bench-301), not for {known.about}. Leave it out.")
    return known.read(source)
