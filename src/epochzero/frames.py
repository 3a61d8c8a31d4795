"""Results as data frames and in notebooks."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from epochzero.errors import needed

ROWS = 20
"""of a table in a notebook"""
LARGEST = 1e15
"""whole numbers below this, such as FLOPs, are shown to the last digit"""


class Framed:
    """A result with a table: as data frames, and as HTML for notebooks."""

    def table(self) -> dict[str, list[Any]]:
        """The columns by name."""
        raise NotImplementedError

    def to_pandas(self) -> Any:
        """The table as a data frame of pandas."""
        return needed("pandas", "A data frame of pandas", "pandas").DataFrame(self.table())

    def to_polars(self) -> Any:
        """The table as a data frame of polars."""
        return needed("polars", "A data frame of polars", "ctr").DataFrame(self.table(), strict=False)

    def _repr_html_(self) -> str:
        return as_html(self.table(), [repr(self).strip("<>")])


def as_html(columns: Mapping[str, Sequence[Any]], before: Sequence[str] = (), after: Sequence[str] = ()) -> str:
    """Columns as an HTML table of at most 20 rows, with sentences before and after it."""
    rows = list(zip(*columns.values(), strict=True))
    more = [f"{len(rows) - ROWS:,} more rows"] if len(rows) > ROWS else []
    sides = ("left" if any(isinstance(one, str) for one in column) else "right" for column in columns.values())
    head = "".join(
        f'<th style="text-align: {side}">{escape(name)}</th>' for name, side in zip(columns, sides, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows[:ROWS])
    table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if rows else ""
    lines = [[f"<p>{escape(line)}</p>" for line in some] for some in (before, [*more, *after])]
    return "".join([*lines[0], table, *lines[1]])


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "<td></td>"
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        whole = isinstance(value, int) or (value.is_integer() and abs(value) < LARGEST)
        text = f"{value:,.0f}" if whole else f"{value:.5g}"
        return f'<td style="text-align: right">{text}</td>'
    return f'<td style="text-align: left">{escape(str(value))}</td>'
