"""The page of a trained recommender: how good its predictions are, for whom, and what its table holds.

write_recommender(Path("run"), Path("report.html"))       # the folder of `epochzero recommend train`
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from epochzero.errors import DataError
from epochzero.files import replacing_output
from epochzero.recommend.data.encoding import Encoding
from epochzero.recommend.plots import NAME as PLOT

FILE, ENCODING = "recommender.json", "encoding.json"
STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; } th { text-align: left; font-weight: 600; }
th, td { padding: 0.25rem 1rem 0.25rem 0; border-bottom: 1px solid #8884; }
td + td, th + th { text-align: right; } code { overflow-wrap: anywhere; } svg { max-width: 100%; height: auto; }
"""


def is_recommender(folder: Path) -> bool:
    return (folder / FILE).is_file()


def write_recommender(folder: Path, path: Path) -> int:
    """Writes the page of a recommender in one file; returns its size in bytes."""
    written = page_of(folder).encode()
    with replacing_output(path) as file:
        file.write(written)
    return len(written)


def page_of(folder: Path) -> str:
    try:
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
        training = content["training"]
        name = f"{content['space']} on {training['source']}"
        parts = [*_quality(training), *_plot(folder), *_segments(training), *_columns(Encoding.read(folder / ENCODING))]
        settings = {**training["settings"], "share": training["share"], "seed": training["seed"]}
        parts += ["<h2>Training</h2>", _table(("setting", "value"), settings.items())]
        parts += ["<h2>Network</h2>", f"<p><code>{escape(content['arch'])}</code></p>"]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"The recommender '{folder}' is damaged, or of an earlier version ({error}): train it again."
        ) from error
    rows = ", ".join(f"{count:,} {part}" for part, count in training["rows"].items())
    head = f'<meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>{escape(name)}</title>'
    title = f"<h1>{escape(name)}</h1><p>{rows} rows; temperature {training['temperature']:.4g}</p>"
    body = f"{title}{''.join(parts)}"
    return f"<!doctype html><html lang=en><head>{head}<style>{STYLE}</style></head><body>{body}</body></html>\n"


def _quality(training: Mapping[str, Any]) -> list[str]:
    """One column for each part of the rows."""
    found, columns = training["quality"], dict[str, dict[str, Any]]()
    for part, quality in found.items():
        metrics, curve = training["metrics"][part], quality["calibration"]
        columns[part] = {
            "log loss": metrics["log_loss"],
            "log loss at the temperature": quality["log_loss"],
            "AUC": metrics["auc"],
            "calibration error": curve["error"],
            "predicted / observed clicks": curve["ratio"],
            "lift in the highest tenth": quality["lift"],
        }
        if group := quality.get("gauc"):
            columns[part][f"AUC within '{group['column']}'"] = group["value"]
            columns[part][f"values of '{group['column']}' with clicks and others"] = group["groups"]
    names = next(iter(columns.values()), {})
    rows = [(name, *(column[name] for column in columns.values())) for name in names]
    return ["<h2>Quality</h2>", _table(("", *columns), rows)]


def _plot(folder: Path) -> list[str]:
    file = folder / f"{PLOT}.svg"
    if not file.is_file():
        return []
    drawing = file.read_text(encoding="utf-8")
    return ["<h2>Calibration</h2>", drawing[drawing.index("<svg") :]]


def _segments(training: Mapping[str, Any]) -> list[str]:
    parts = []
    for part, quality in training["quality"].items():
        if found := quality.get("segments"):
            heads = ("rows", "clicks", "predicted", "log loss", "AUC", "lift")
            keys = ("value", "rows", "rate", "predicted", "log_loss", "auc", "lift")
            rows = [[one[key] for key in keys] for one in found["values"]]
            title = f"<h2>{escape(found['column'])}: {part} rows</h2>"
            parts += [title, _table((found["column"], *heads), rows)]
    return parts


def _columns(encoding: Encoding) -> list[str]:
    """The columns of the table, with the shares of missing and unseen values to expect."""
    kinds = [("number", column.name) for column in encoding.schema.dense]
    kinds += [(column.encoding, column.name) for column in encoding.schema.categorical]
    rows = []
    for kind, name in kinds:
        missing, unseen = map(_share, encoding.usual[name]) if name in encoding.usual else ("", "")
        rows.append((name, kind, missing, "" if kind == "number" else unseen))
    heads = ("column", "kind", "missing", "unseen in rows held out")
    return ["<h2>Columns</h2>", _table(heads, rows)]


def _share(value: float) -> str:
    return f"{value:.1%}"


def _table(heads: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
    lines = ("".join(f"<td>{escape(_shown(cell))}</td>" for cell in row) for row in rows)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _shown(cell: Any) -> str:
    if cell is None:
        return "none"
    return f"{cell:,}" if type(cell) is int else f"{cell:.4g}" if isinstance(cell, float) else str(cell)
