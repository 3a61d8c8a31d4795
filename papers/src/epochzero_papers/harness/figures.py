"""Tables of figures as papers print them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from epochzero_papers.harness.base import Quoted

Figures = Mapping[str, Mapping[str, float]]
"""by row, then by column"""


def grid(columns: Sequence[str], rows: Mapping[str, Sequence[float | None]]) -> Figures:
    """Returns a table with these columns; None is an empty cell."""
    return {
        name: {column: value for column, value in zip(columns, values, strict=True) if value is not None}
        for name, values in rows.items()
    }


def quoted(figures: Figures, statistic: str) -> list[Quoted]:
    """Returns every cell of a table as a figure of the paper."""
    return [Quoted(row, column, statistic, value) for row, of in figures.items() for column, value in of.items()]
