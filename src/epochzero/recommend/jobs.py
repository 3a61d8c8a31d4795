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
from epochzero.recommend.recommender import ENCODING
from epochzero.recommend.spaces.nasrec import Nasrec, nasrec
from epochzero.recommend.sub_one_shot import PRESETS, Preset
from epochzero.recommend.training.trainer import Settings
from epochzero.registry import check_known

RESULT, CHOICE, TABLE = "result.json", "choice.json", "table"
SYNTHETIC = "synthetic"
EMBEDDING_LIMITS = "max_embedding_rows", "max_embedding_bytes"


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
    clicks: Clicks, options: Mapping[str, Any], progress: Progress, space: str = "nasrec_small", arch: str | None = None
) -> Job:
    """The job on the folder of a search, or on a table that is read first."""
    if is_search(folder := Path(clicks.data)):
        if clicks.schema is not None:
            raise UserError(f"{folder} is the folder of a search, which has a schema already: leave --schema out.")
        return _job_of_search(folder, arch, options)
    whole, (settings, own) = nasrec(space), _settings(options)
    if arch is not None:
        whole.parse(arch)
    table = clicks.table(progress)
    fitted = whole.on(table.num_dense, table.rows, *(own.get(name) for name in EMBEDDING_LIMITS))
    return Job(table.capped(fitted.tables), settings, own.get("share", 1.0), fitted, arch or "")


def _job_of_search(folder: Path, arch: str | None, options: Mapping[str, Any]) -> Job:
    """The network that the search chose, or another, trained as the search does unless options say otherwise."""
    try:
        report = json.loads((folder / RESULT).read_text(encoding="utf-8"))
        name, best, score = report["space"], report["best"]["arch"], report["best"]["score"]
        how = {"batch_size": report["preset"]["batch_size"], "share": report["share"]}
        how["highest"] = report.get("highest", Settings.highest)  # missing in old results
        place = folder / report["table"]  # an absolute path, or one within the folder
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DataError(f"{folder / RESULT} cannot be read ({error}): search again, or give --schema.") from error
    table = open_table(place if place.is_dir() else folder / TABLE).capped(Encoding.read(folder / ENCODING).rows)
    settings, own = _settings(how | dict(options))
    if any(name in own for name in EMBEDDING_LIMITS):
        raise UserError("The search has settled the embeddings' sizes: search again to change them.")
    fitted = nasrec(name).on(table.num_dense, table.rows)
    facts = {key: report[key] for key in ("proxy", "method", "evaluated", "seed", "limits") if key in report}
    chosen = arch is None or fitted.text(fitted.parse(arch)) == best
    return Job(table, settings, own["share"], fitted, arch or best, facts | {"score": score} if chosen else {})


def _checked(options: Mapping[str, Any], kinds: Mapping[str, type], whole: str) -> None:
    """UserError for an option that is unknown or of another type; `whole` names what has these options."""
    for name, value in options.items():
        check_known(name, kinds, f"{whole} has no option '{name}'", "It has")
        if not isinstance(value, (int, float) if kinds[name] is float else int):
            raise UserError(f"The option '{name}' takes {kinds[name].__name__}, not {value!r}.")


def preset_of(preset: str, options: Mapping[str, Any]) -> tuple[Preset, dict[str, Any]]:
    """The preset as the options change it, and those that are of the search itself."""
    check_known(preset, PRESETS, f"No preset is called '{preset}'")
    own = {"scaled": int, "share": float, "highest": float} | dict.fromkeys(EMBEDDING_LIMITS, int)
    _checked(options, {field.name: int for field in fields(Preset)} | own, "A search for recommenders")
    mine = {name: bool(value) if name == "scaled" else value for name, value in options.items() if name in own}
    return replace(PRESETS[preset], **{name: value for name, value in options.items() if name not in own}), mine


def _settings(options: Mapping[str, Any]) -> tuple[Settings, dict[str, Any]]:
    """The settings of training, and the options that are about the data."""
    kinds = {one.name: type(one.default) for one in fields(Settings)}
    own = {"share": float} | dict.fromkeys(EMBEDDING_LIMITS, int)
    _checked(options, kinds | own, "Training on a table of clicks")
    mine = {name: value for name, value in options.items() if name in own}
    return Settings(**{name: value for name, value in options.items() if name not in own}), mine
