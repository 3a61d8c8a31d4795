"""Clicks with planted interactions as text in Criteo's format, for tests and measurements of reading."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from epochzero.recommend.data.synthetic import Planted

CRITEO_LIKE = Planted(
    sizes=(
        *(1400, 500, 100_000, 100_000, 300, 20, 10_000, 600, 3, 50_000, 5000, 100_000, 3000),
        *(26, 10_000, 100_000, 10, 4000, 2000, 4, 100_000, 18, 15, 50_000, 100, 50_000),
    ),
    num_dense=13,
)
"""columns and values like those of Criteo"""


def write_text(path: str | Path, count: int, planted: Planted = CRITEO_LIKE) -> None:
    """Writes the rows of `synthetic` as text: label, counts, eight hexadecimal digits, separated by tabs."""
    names = [pl.Series([*(f"{value:08x}" for value in range(size)), None]) for size in planted.sizes]  # -1: missing
    with Path(path).open("wb") as file:
        for rows in planted.chunks(count):
            columns = {"label": pl.Series(rows.label)}
            for d in range(planted.num_dense):
                counts = pl.Series(rows.counts[:, d])
                columns[f"I{d}"] = counts.set(counts < 0, None)
            for f, known in enumerate(names):
                columns[f"C{f}"] = known.gather(rows.values[:, f] % len(known))
            pl.DataFrame(columns).write_csv(file, include_header=False, separator="\t", quote_style="never")
