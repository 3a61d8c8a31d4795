"""The data and settings of a step: which table, how to train on it, and which network.

`data` is a text or Parquet file, or a folder of the latter, with its schema; the folder of a table in numbers;
`synthetic:ROWS` or `synthetic:ROWS:LAW` for generated clicks; or the folder of a search.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from epochzero.errors import DataError, UserError
from epochzero.progress import Progress
from epochzero.recommend.data.encoding import Encoding
from epochzero.recommend.data.ingest import encode
from epochzero.recommend.data.laws import law
from epochzero.recommend.data.parquet import is_parquet
from epochzero.recommend.data.schema import Schema, load_schema
from epochzero.recommend.data.synthetic import Planted, synthetic
from epochzero.recommend.data.table import META, CtrTable, open_table
from epochzero.recommend.presets import PRESETS, Preset, batch_size_for
from epochzero.recommend.recommender import ENCODING
from epochzero.recommend.spaces.nasrec import Nasrec, nasrec
from epochzero.recommend.spaces.nasrec_network import Form
from epochzero.recommend.training.recipes import FORMS, TUNED, Recipe, recipe
from epochzero.recommend.training.settings import Settings
from epochzero.registry import check_known

RESULT, CHOICE, TABLE = "result.json", "choice.json", "table"
SYNTHETIC = "synthetic"
EMBEDDINGS = "max_embedding_rows", "max_embedding_bytes", "embedding_width"
OPTIONS = {one.name: type(one.default) for one in fields(Settings)} | dict.fromkeys(FORMS, int)
"""the options of a recipe"""


class Remark(UserWarning):
    """A warning about the data or the settings of a step, which continues."""


def is_search(folder: Path) -> bool:
    return (folder / RESULT).is_file() and (folder / CHOICE).is_file()


@dataclass(frozen=True)
class Clicks:
    """A table of clicks as the user names it."""

    data: str
    schema: str | Path | None
    bad_lines: str
    folder: Path
    """takes the table in numbers, where it has to be made"""

    @property
    def known_schema(self) -> Schema:
        """The schema, before the table is read."""
        if self.data.partition(":")[0] == SYNTHETIC:
            if self.schema is not None:
                raise UserError(f"--data {self.data} has a schema of its own: leave --schema out.")
            return self._generated[1].schema
        if self._in_numbers:
            return open_table(self.data).encoding.schema
        if self.schema is None:
            raise UserError(f"The table {self.data} needs a --schema: criteo, avazu, kdd12, or a .json or .toml file.")
        return load_schema(self.schema)

    @property
    def _in_numbers(self) -> bool:
        folder = Path(self.data)
        return folder.is_dir() and ((folder / META).is_file() or not is_parquet(folder))

    @property
    def _generated(self) -> tuple[int, Planted]:
        """The number of rows and the law of generated clicks."""
        _, _, told = self.data.partition(":")
        rows, _, name = told.partition(":")
        if rows and not rows.isdecimal():
            raise UserError(f"--data {SYNTHETIC} takes a number of rows, as {SYNTHETIC}:500000, not {self.data!r}.")
        return int(rows or 500_000), law(name or "pairs")

    def table(self, progress: Progress) -> CtrTable:
        """The table in numbers: generated, opened, or made from the text file."""
        schema = self.known_schema
        if self.data.partition(":")[0] == SYNTHETIC:
            return synthetic(self.folder / TABLE, *self._generated)
        if self._in_numbers:
            return open_table(self.data)
        table = encode(self.data, schema, self.folder / TABLE, bad_lines=self.bad_lines, progress=progress)
        if table.skipped:
            lines = "1 bad line" if table.skipped == 1 else f"{table.skipped:,} bad lines"
            warnings.warn(f"{lines} put aside: {table.folder / 'skipped.tsv'}", Remark, stacklevel=2)
        for remark in table.about.get("remarks", []):
            warnings.warn(str(remark), Remark, stacklevel=2)
        return table


@dataclass(frozen=True)
class Job:
    """A table, and the way to train on it."""

    table: CtrTable
    settings: Settings
    share: float
    space: Nasrec
    """for the table"""
    arch: str
    search: Mapping[str, Any] = field(default_factory=dict)
    """facts of the search that chose the network, where one did"""


def job_of(
    clicks: Clicks,
    options: Mapping[str, Any],
    progress: Progress,
    space: str = "nasrec_small",
    arch: str | None = None,
    named: str | None = None,
) -> Job:
    """The job on the folder of a search, or on a table that is read first; `named` is a recipe."""
    if is_search(folder := Path(clicks.data)):
        if clicks.schema is not None:
            raise UserError(f"{folder} is the folder of a search, which has a schema already: leave --schema out.")
        return _job_of_search(folder, arch, options, named)
    whole, own = nasrec(space), own_options(options)
    how = recipe(named or TUNED).changed(recipe_options(options))
    if arch is not None:
        whole.parse(arch)
    table = clicks.table(progress)
    if "batch_size" not in options and how.settings.patience:
        size = batch_size_for(table.size("train"), how.settings.batch_size)
        how = how.changed({"batch_size": size})
    fitted = whole.on(table.num_dense, table.rows, *(own.get(name) for name in EMBEDDINGS)).formed(how.form)
    return Job(table.capped(fitted.tables), how.settings, own.get("share", 1.0), fitted, arch or "")


def _job_of_search(folder: Path, arch: str | None, options: Mapping[str, Any], named: str | None) -> Job:
    """The network that the search chose, or another, trained as the search does unless options say otherwise."""
    try:
        report = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        name, best, score = report["space"], report["best"]["arch"], report["best"]["score"]
        size, share = report["preset"]["batch_size"], report["share"]
        if "recipe" in report:
            how, width = Recipe.read(report["recipe"]), report["limits"]["embedding_width"]
        else:  # of an earlier version, whose networks had layer norms
            how = Recipe(Settings(batch_size=size, highest=report.get("highest", Settings.highest)), Form())
            width = None
        place = folder / report["table"]  # an absolute path, or one within the folder
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / RESULT} cannot be read ({error}): search again, or give --schema.") from error
    table = open_table(place if place.is_dir() else folder / TABLE).capped(Encoding.read(folder / ENCODING).rows)
    if named is not None:
        how = recipe(named).changed({"batch_size": size})
    how, own = how.changed(recipe_options(options)), own_options(options)
    if any(name in own for name in EMBEDDINGS):
        raise UserError("The search has settled the embeddings' sizes: search again to change them.")
    fitted = nasrec(name).on(table.num_dense, table.rows, width=width).formed(how.form)
    facts = {key: report[key] for key in ("proxy", "method", "evaluated", "seed", "limits") if key in report}
    chosen = arch is None or fitted.text(fitted.parse(arch)) == best
    facts = facts | {"score": score} if chosen else {}
    return Job(table, how.settings, own.get("share", share), fitted, arch or best, facts)


def _checked(options: Mapping[str, Any], kinds: Mapping[str, type], whole: str) -> None:
    """UserError for an option that is unknown or of another type; `whole` names what has these options."""
    for name, value in options.items():
        check_known(name, kinds, f"{whole} has no option '{name}'", "It has")
        kind = kinds[name]
        fits = {float: (int, float), str: (str,)}.get(kind, (int,))
        if not isinstance(value, fits) or (kind is bool and value not in (0, 1)):
            words = "0 or 1" if kind is bool else kind.__name__
            raise UserError(f"The option '{name}' takes {words}, not {value!r}.")


def preset_of(preset: str, options: Mapping[str, Any]) -> tuple[Preset, dict[str, Any]]:
    """The preset as the options change it, and those that are of the search itself."""
    check_known(preset, PRESETS, f"No preset is called '{preset}'")
    sizes = {one.name: int for one in fields(Preset)}
    own = {"scaled": int, "share": float, "highest": float} | dict.fromkeys(EMBEDDINGS, int)
    _checked(options, sizes | own | OPTIONS, "A search for recommenders")
    mine = {name: bool(value) if name == "scaled" else value for name, value in options.items() if name in own}
    return replace(PRESETS[preset], **{name: value for name, value in options.items() if name in sizes}), mine


def recipe_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a recipe among these."""
    return {name: value for name, value in options.items() if name in OPTIONS}


def own_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a training that are about the data; UserError for one that no training has."""
    own = {"share": float} | dict.fromkeys(EMBEDDINGS, int)
    _checked(options, OPTIONS | own, "Training on a table of clicks")
    return {name: value for name, value in options.items() if name in own}
