"""Output: results on standard output, everything else on standard error."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Column, Table
from rich.text import Text

from epochzero.errors import UserError
from epochzero.files import as_json as as_json  # noqa: PLC0414
from epochzero.types import Score

if TYPE_CHECKING:
    from epochzero.engine import Proxy
    from epochzero.spaces.base import Measured


class WordConsole(Console):
    """Breaks text that is wrapped softly between words on a terminal; in a file or a pipe it stays one line.

    One long word, such as an architecture, stays whole on a terminal too, and so does a command, with `no_wrap`: both
    are copied.
    """

    def print(self, *objects: Any, **how: Any) -> None:
        soft = how.get("soft_wrap")
        soft = self.soft_wrap if soft is None else soft
        if soft and self.is_terminal and not how.get("no_wrap") and any(" " in str(x).strip() for x in objects):
            how["soft_wrap"] = any(not isinstance(x, (str, Text)) for x in objects)
        super().print(*objects, **how)


out = WordConsole(highlight=False, markup=False, emoji=False, soft_wrap=True)
err = WordConsole(highlight=False, markup=False, emoji=False, stderr=True)
"""markup is off: an architecture, a path or a reason may hold square brackets"""
BAR, OTHERS = 20, 42
"""characters of the bar, and of its other columns; a note that is longer than the rest of the line is cut off"""


def print_json(value: Any) -> None:
    """One JSON object on standard output."""
    typer.echo(as_json(value))


@contextmanager
def progress_bar(what: str, estimate: bool = True) -> Iterator[Callable[[int, int | None, str], None]]:
    """A bar on standard error with counts, time spent and time left; it appears with the first (done, total, note).

    A total that is not known is None from first to last.
    Without an estimate for work of unequal parts, whose notes then tell the time left.
    """
    left = (TextColumn("left"), TimeRemainingColumn()) if estimate else ()
    bar = Progress(
        TextColumn(what),
        BarColumn(BAR),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        *left,
        TextColumn("{task.description}", markup=False, table_column=Column(ratio=1, no_wrap=True, overflow="ellipsis")),
        console=err,
        expand=True,
    )

    def show(done: int, total: int | None, note: str = "") -> None:
        if not bar.task_ids:
            bar.add_task("", total=total)
            bar.start()
        room = max(0, err.width - BAR - OTHERS)
        note = note if len(note) <= room else f"{note[: room - 1]}…" if room else ""
        bar.update(bar.task_ids[0], completed=done, total=total, description=note)

    try:
        yield show
    finally:
        if bar.task_ids:
            bar.stop()


def plain_table(*heads: str, numbers: Iterable[str] = ()) -> Table:
    """A table without lines: columns of text, then columns of numbers, which are aligned to the right."""
    table = Table(*heads, box=None, pad_edge=False, header_style="dim")
    for head in numbers:
        table.add_column(head, justify="right", overflow="fold")
    return table


def print_aligned(lines: Sequence[tuple[Sequence[str], str, str]]) -> None:
    """Prints lines of cells, aligned to the right, each with a text of any length at its end, and a style."""
    widths = [max(map(len, column)) for column in zip(*(cells for cells, _, _ in lines), strict=True)]
    for cells, text, style in lines:
        out.print("  ".join(map(str.rjust, cells, widths)), text, style=style)


def score_json(proxy: Proxy, score: Score) -> dict[str, Any]:
    """A score as the design's JSON fields."""
    return {
        "value": score.value,
        "status": score.status,
        "why": score.why,
        "higher_is_better": proxy.higher_is_better,
    }


def score_table(proxies: list[Proxy], scores: Mapping[str, Score]) -> Table:
    """Scores as a table: the value, or the reason why there is none."""
    table = plain_table("proxy", "value", "better", "")
    for proxy in proxies:
        score = scores[proxy.text]
        direction = "higher" if proxy.higher_is_better else "lower"
        value = number(score.value) if score.ok else Text(score.status, "yellow")
        table.add_row(proxy.text, value, direction, Text(score.why, "dim" if score.ok else "yellow"))
    return table


def number(value: float) -> str:
    """A number in about five digits; counts in full."""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:.5g}"


def counted(count: int, noun: str) -> str:
    """`1 network`, `1,000 networks`"""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def with_interval(timing: Mapping[str, float]) -> str:
    """Milliseconds as JSON fields in words: the median, and its interval where there is one."""
    low, high = timing["low_ms"], timing["high_ms"]
    return number(timing["median_ms"]) + (f" [{number(low)}, {number(high)}]" if low < high else "")


def counts(size: Measured) -> dict[str, int | None]:
    """Parameters and multiply-accumulates; None for those of a module that torch cannot count."""
    try:
        flops = size.flops
    except UserError:
        flops = None
    return {"params": size.params, "flops": flops}


def millions(count: int | None) -> str:
    return "cannot be counted" if count is None else f"{count:,} ({count / 1e6:.2f} M)"
