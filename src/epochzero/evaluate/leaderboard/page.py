"""The leaderboard as data and as a page in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from epochzero.evaluate.leaderboard.boards import Board
from epochzero.evaluate.leaderboard.leaderboard import Leaderboard
from epochzero.evaluate.leaderboard.standings import Result, Row
from epochzero.evaluate.results import interval
from epochzero.stats import Estimate, Figure
from epochzero.stats.text import short

HEADS = {
    "spearman": "Spearman [95 %]",
    "kendall": "Kendall",
    "ndcg": "nDCG",
    "regret@1": "regret of the first",
    "regret@10": "of the best of 10",
    "spearman|params": "given params",
    "spearman|flops": "given FLOPs",
    "spearman|params,flops": "given both",
}
HOW_TO_READ = """\
Rank correlations (Spearman) of stored scores with the accuracies of trained networks, with 95 % intervals by bootstrap
over the networks and repeats of each table. They say how sure a figure is for these tables, not for further ones.

- **mean**, **worst**: over the tables. A proxy without scores on a table (no ReLU in a transformer, or one score for
  all networks) counts with 0 there, as a random order would. **by space**: each space counts once, not each table.
- **rank**: the mean place among all rows of the first part, which are on all tables.
- **vs FLOPs**: the difference from counting FLOPs on the table where it is smallest.
- **left out**: chosen by the accuracies of all *other* spaces only. **hindsight**: chosen by all accuracies, a bound
  that no honest choice has.
- **none**: networks without a score, which are left out of that row's figures.
- **nDCG** of the first tenth: 1 is the true order, about .5 a random one. **Regret**: the best accuracy minus that of
  the chosen network, or of the best of the first ten; in percentage points, or in the table's own unit.
- **given params** and so on: partial correlation, what is left of the order once size is accounted for.
"""


def as_document(made: Leaderboard) -> dict[str, Any]:
    """All standings as plain values."""
    return {
        "tables": [_table(board) for board in made.boards],
        "rows": [_row(row, place) for place, row in enumerate(made.rows, start=1)],
        "chosen": {
            name: {"about": one.about, "objectives": {board: it.text for board, it in one.objectives.items()}}
            for name, one in made.chosen.items()
        },
        "files": dict(made.files),
        "resamples": made.settings.rules.resamples,
        "seed": made.settings.rules.seed,
        "notes": made.notes,
    }


def _table(board: Board) -> dict[str, Any]:
    return {
        "name": board.name,
        "space": board.space,
        "file": board.target.path.name,
        "target": board.target.column,
        "higher_is_better": board.target.higher,
        "unit": board.unit,
        "networks": len(board.archs),
        "data": board.data,
        "proxies": len(board.scores),
    }


def _row(row: Row, place: int) -> dict[str, Any]:
    return {
        "place": place if row.rank is not None else None,
        "name": row.name,
        "mean": _estimate(row.mean),
        "worst": _estimate(row.worst) | {"table": row.worst_on},
        "by_space": row.by_space,
        "rank": row.rank,
        "versus_flops": row.versus_flops,
        "tables": {
            board: {
                "n": result.n,
                "unscored": result.unscored,
                "unscored_why": result.why,
                "repeats": result.repeats,
                "spearman_or_0": result.rho,
                "figures": {name: figure.to_json() for name, figure in result.figures.items()},
            }
            for board, result in row.results.items()
        },
    }


def _estimate(estimate: Estimate) -> dict[str, Any]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high, "tables": estimate.n}


# ---- Markdown


def as_markdown(made: Leaderboard, command: str) -> str:
    """The page: all tables together, then each with every statistic."""
    on_all = [row for row in made.rows if row.rank is not None]
    on_some = [row for row in made.rows if row.rank is None]
    tables = _count(len(made.boards), "table")
    spaces = _count(len({board.space for board in made.boards}), "space")
    parts = [
        "# Leaderboard",
        HOW_TO_READ.rstrip(),
        _fenced(command),
        f"## All {tables} of {spaces}",
        _summary(made, on_all),
    ]
    if on_some:
        parts += ["### On some of the tables only", "Means of other tables than above.", _summary(made, on_some)]
    if made.chosen:
        parts += ["### Chosen", "\n".join(_choices(made))]
    parts += ["## Each table", _sizes(made.boards)]
    for board in made.boards:
        parts += [f"### {board.name}", _figures(made, board)]
    if made.notes:
        parts += ["## Notes", "\n".join(f"- {_plain(note)}" for note in made.notes)]
    return "\n\n".join(parts) + "\n"


def _summary(made: Leaderboard, rows: Sequence[Row]) -> str:
    heads = ["", "mean", "worst", "by space", "rank", "vs FLOPs", *(board.name for board in made.boards)]
    lines = [
        [
            _name(row),
            interval(row.mean),
            f"{interval(row.worst)} {_plain(row.worst_on)}",
            short(row.by_space),
            "" if row.rank is None else f"{row.rank:.1f}",
            "" if row.versus_flops is None else f"{short(row.versus_flops)}",
            *(_rho(row.results.get(board.name)) for board in made.boards),
        ]
        for row in rows
    ]
    return markdown_table(heads, lines)


def _rho(result: Result | None) -> str:
    if result is None:
        return ""
    return "no score" if result.figures["spearman"].estimate is None else short(result.rho)


def _choices(made: Leaderboard) -> Iterator[str]:
    for name, chosen in made.chosen.items():
        by_text: dict[str, list[str]] = {}
        for board, objective in chosen.objectives.items():
            by_text.setdefault(objective.text, []).append(board)
        told = "; ".join(f"`{text}` ({', '.join(boards)})" for text, boards in by_text.items())
        yield f"- {name}, {chosen.about}: {told}"


def _sizes(boards: Sequence[Board]) -> str:
    heads = ["table", "file", "networks", "scored on", "proxies", "unit"]
    rows = [
        [
            board.name,
            board.target.path.name,
            f"{len(board.archs):,}",
            board.data,
            str(len(board.scores)),
            board.unit or "own",
        ]
        for board in boards
    ]
    return markdown_table(heads, rows)


def _figures(made: Leaderboard, board: Board) -> str:
    rows = [(row, row.results[board.name]) for row in made.rows if board.name in row.results]
    shown = [name for name in HEADS if any(name in result.figures for _, result in rows)]
    scale = 100.0 if board.unit == "fraction" else 1.0
    lines = []
    for row, result in sorted(rows, key=lambda pair: -pair[1].rho):
        cells = [_cell(name, result.figures.get(name), scale) for name in shown]
        lines.append([_name(row), str(result.n), str(result.unscored or ""), str(result.repeats), *cells])
    return markdown_table(["", "n", "none", "repeats", *(HEADS[name] for name in shown)], lines)


def _cell(name: str, figure: Figure | None, scale: float) -> str:
    if figure is None or figure.estimate is None:
        return "" if figure is None or name != "spearman" else _plain(figure.why)
    if name == "spearman":
        return interval(figure.estimate)
    return f"{figure.estimate.value * scale:.2f}" if name.startswith("regret") else short(figure.estimate.value)


def _name(row: Row) -> str:
    return row.name if row.name.startswith("best ") else f"`{row.name}`"


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def _plain(text: str) -> str:
    return text.replace("_", "\\_")


def _fenced(command: str) -> str:
    return f"```text\n{command}\n```"


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"
