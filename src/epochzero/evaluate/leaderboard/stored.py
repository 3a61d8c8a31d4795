"""Scores that were stored before: files that `epochzero store --to` wrote, and the tables of a sweep.

    stored = read_stored([Path("docs/data")])
    stored.of("nb201")["dextr"]["cifar10-7011ea035886", "default:0"]["|avg_pool_3x3~0|+..."]

A sweep's table has one column for each proxy; the JSON file next to it, or the Parquet file itself, says the space, the
data and the seed. Of a proxy with scores of several recipes, the newest recipe counts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from epochzero.errors import DataError, UserError
from epochzero.store.adding import ENDINGS, columns_of, is_export, read_scores
from epochzero.study.sources import REASONS
from epochzero.tables import AccuracyTable
from epochzero.tables.table import as_number
from epochzero.types import Score

Repeat = tuple[str, str]
"""Batch and origin of the weights."""
ByArch = dict[str, Score]
ByRepeat = dict[Repeat, ByArch]

OTHER_NAMES = {"timm": "published"}
"""names of spaces that files may use, and ours"""
SHARED = "scored_as"
"""the column of a sweep's table that names the isomorphic network that was scored"""
SWEPT = -1
"""in place of a recipe: a sweep's table does not say it"""


class StoredScores:
    """Scores by space, proxy, repeat and architecture."""

    def __init__(self) -> None:
        self._scores: dict[str, dict[str, dict[int, ByRepeat]]] = {}
        """by space, proxy and recipe"""
        self.files: dict[str, int] = {}
        """number of scores in each file"""

    def repeat(self, space: str, key: str, repeat: Repeat) -> ByArch:
        """The scores of a proxy's key such as `snip#2`, by architecture, to add to."""
        name, _, recipe = key.partition("#")
        space = OTHER_NAMES.get(space, space)
        by_recipe = self._scores.setdefault(space, {}).setdefault(name, {})
        number = int(recipe) if recipe.lstrip("-").isdecimal() else 1
        return by_recipe.setdefault(number, {}).setdefault(repeat, {})

    @property
    def spaces(self) -> list[str]:
        return sorted(self._scores)

    def of(self, space: str) -> dict[str, ByRepeat]:
        """Returns the scores of a space's networks by proxy; measured ones take precedence over a sweep's table."""
        found: dict[str, ByRepeat] = {}
        for name, by_recipe in self._scores.get(space, {}).items():
            newest = max(by_recipe)
            swept = by_recipe.get(SWEPT, {})
            own = by_recipe[newest]
            found[name] = {repeat: swept.get(repeat, {}) | own.get(repeat, {}) for repeat in {**own, **swept}}
        return found


def read_stored(paths: Iterable[Path]) -> StoredScores:
    """Reads files, and all files of scores in folders; UserError for a file that holds none."""
    stored = StoredScores()
    for path in paths:
        if path.is_dir():
            files = [file for file in sorted(path.iterdir()) if file.name.lower().endswith(ENDINGS)]
            files = [file for file in files if is_export(file) or _settings(file) is not None]
            if not files:
                raise UserError(f"The folder '{path}' has no file of scores, as `epochzero store --to` writes them.")
        elif path.is_file() and path.name.lower().endswith(ENDINGS):
            files = [path]
        else:
            raise UserError(
                f"The file of scores '{path}' does not exist, or its name does not end in {', '.join(ENDINGS)}."
            )
        for file in files:
            stored.files[file.name] = _add_export(stored, file) if is_export(file) else _add_sweep(stored, file)
    return stored


def _add_export(stored: StoredScores, path: Path) -> int:
    count = 0
    scores: dict[tuple[str, str, str, str], ByArch] = {}
    for row in read_scores(path):
        place = row.space, row.proxy, row.batch, row.origin
        if place not in scores:
            scores[place] = stored.repeat(row.space, row.proxy, (row.batch, row.origin))
        scores[place][row.arch] = Score(math.nan if row.value is None else row.value, row.status, row.why)
        count += 1
    return count


def _add_sweep(stored: StoredScores, path: Path) -> int:
    settings = _settings(path)
    if settings is None:
        raise DataError(
            f"'{path}' is not a file of scores: it has neither the columns of `epochzero store --to` nor the "
            "settings of a sweep in a JSON file next to it."
        )
    table = AccuracyTable.read(path)
    batch = f"{settings['data_digest']}{' TF32' if settings.get('tf32') else ''}"
    repeat = (batch, f"{settings['init']}:{settings['seed']}")
    reasons = _reasons(table)
    count = 0
    for name in table.columns:
        if name in (REASONS, SHARED):
            continue
        scores = stored.repeat(str(settings["space"]), f"{name}#{SWEPT}", repeat)
        for row, (arch, cell) in enumerate(zip(table.archs, table.cells(name), strict=True)):
            value = as_number(cell)
            if math.isnan(value):
                status, why = reasons[row].get(name, ("failed", "the file has no score and no reason"))
                scores[arch] = Score(math.nan, "degenerate" if status == "degenerate" else "failed", str(why))
            else:
                scores[arch] = Score(value)
            count += 1
    return count


def _reasons(table: AccuracyTable) -> Sequence[Mapping[str, Sequence[str]]]:
    if REASONS not in table.columns:
        return [{}] * len(table)
    try:
        return [json.loads(str(cell)) if cell else {} for cell in table.cells(REASONS)]
    except ValueError as error:
        raise DataError(f"Column '{REASONS}' of {table.source} is not JSON: {error}.") from error


def _settings(path: Path) -> dict[str, Any] | None:
    """Returns the settings of the sweep that wrote a table; None if it says none."""
    ending = next(ending for ending in ENDINGS if path.name.lower().endswith(ending))
    told = path.with_name(f"{path.name[: -len(ending)]}.json")
    if not told.is_file() or "arch" not in columns_of(path):
        return None
    try:
        settings = json.loads(told.read_text(encoding="utf-8"))["settings"]
        return settings if {"space", "data_digest", "init", "seed"} <= set(settings) else None
    except (ValueError, KeyError, TypeError):
        return None
