"""The schema of a table of clicks: a built-in name, or a short JSON or TOML file.

    label = "click"
    dense = ["age", {name = "income", transform = "none"}]
    categorical = ["city", {name = "user", encoding = "hash", rows = 50000}]

| field | meaning |
|---|---|
| label | the column of clicks, 0 or 1 |
| click_counts | true if the label counts clicks; any number above 0 is then a click |
| dense, categorical | the columns that a network reads, each a name or a table of settings |
| columns | the names of all columns in order, for a file without a header |
| separator | one character; by default a tab if the first line has one, else comma or semicolon |
| missing | texts for a missing value, besides the empty one |
| split | a column of train, val (valid, validation, dev) or test, by default 8/1/1; without val, a tenth of train |
| transform, fill, encoding, rows, min_count | defaults for all columns |

A dense value x becomes log(1 + max(x, 0)) (transform `log`) or stays (`none`); `fill` replaces a missing one first.
Row 0 of the embedding table of a categorical column is for missing values. For the encodings `hex` (hexadecimal
numbers) and `hash` (any text, by its hash), a value v has row 1 + v mod (rows - 1), as in NASRec (arXiv:2207.07187).
With `vocabulary`, row 1 is for values that are unseen or rarer than `min_count` in the training rows, and the others
follow by frequency, up to `rows` rows.

The built-in schemas have NASRec's numbers of rows, at most 500,000 as in its search.
"""

from __future__ import annotations

import dataclasses
import json
import reprlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_type_hints

from epochzero.data.samples import reading
from epochzero.errors import DataError
from epochzero.registry import near_miss

TRANSFORMS = ("log", "none")
ENCODINGS = ("hash", "hex", "vocabulary")
MOST_ROWS = 2**31 - 1
MOST_FILL = 1e30
CAP = 500_000


@dataclass(frozen=True)
class Dense:
    """A column of numbers."""

    name: str
    transform: str = "log"
    fill: float = 0.0

    def __post_init__(self) -> None:
        if self.transform not in TRANSFORMS:
            raise DataError(
                f"The column '{self.name}' has the transform '{self.transform}': use {' or '.join(TRANSFORMS)}."
            )
        if not -MOST_FILL <= self.fill <= MOST_FILL:
            raise DataError(f"The column '{self.name}' has the fill {self.fill}: give a number within {MOST_FILL:g}.")


@dataclass(frozen=True)
class Categorical:
    """A column of values, which have rows of an embedding table."""

    name: str
    encoding: str = "hash"
    rows: int = 100_000
    min_count: int = 1

    def __post_init__(self) -> None:
        least = 3 if self.encoding == "vocabulary" else 2
        if self.encoding not in ENCODINGS:
            raise DataError(f"The column '{self.name}' has the encoding '{self.encoding}': use {', '.join(ENCODINGS)}.")
        if not least <= self.rows <= MOST_ROWS:
            raise DataError(f"The column '{self.name}' has {self.rows} rows: give {least} to {MOST_ROWS:,}.")
        if self.min_count < 1:
            raise DataError(f"The column '{self.name}' has the min_count {self.min_count}: give 1 or more.")


@dataclass(frozen=True)
class Schema:
    """The columns of a table."""

    name: str
    label: str
    dense: tuple[Dense, ...]
    categorical: tuple[Categorical, ...]
    columns: tuple[str, ...] = ()
    separator: str = ""
    missing: tuple[str, ...] = ()
    split: str = ""
    click_counts: bool = False

    def __post_init__(self) -> None:
        names = self.features
        if not names:
            raise self._refused("names no dense and no categorical column: name at least one")
        for name in {self.label, self.split} - {""}:
            if name in names:
                raise self._refused(f"uses the column '{name}' both as a feature and as label or split")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise self._refused(f"names the column '{twice}' twice")
        for name in [self.label, *names] if self.columns else []:
            if name not in self.columns:
                raise self._refused(f"has no '{name}' among its columns", near_miss(name, list(self.columns)))
        if len(self.separator.encode()) > 1 or self.separator in {'"', "\n", "\r"}:
            raise self._refused(f"has the separator {self.separator!r}: it has to be one ASCII character")

    def _refused(self, why: str, hint: str = "") -> DataError:
        return DataError(f"The schema '{self.name}' {why}.{hint}")

    @property
    def features(self) -> list[str]:
        return [column.name for column in self.dense] + [column.name for column in self.categorical]

    def json(self) -> dict[str, Any]:
        """The schema as plain values, the inverse of `Schema.of`."""
        return dataclasses.asdict(self)

    @classmethod
    def of(cls, content: Mapping[str, Any], name: str) -> Schema:
        """From the contents of a schema file."""
        given = {"name": name, **content}
        for key, kind in (("dense", Dense), ("categorical", Categorical)):
            own = [field.name for field in dataclasses.fields(kind) if field.name != "name"]
            defaults: dict[str, Any] = {setting: given.pop(setting) for setting in own if setting in given}
            items = given.get(key, [])
            if not isinstance(items, Sequence) or isinstance(items, str):
                raise DataError(
                    f"The schema '{name}' has {key} = {reprlib.repr(items)}: it has to be a list of columns."
                )
            given[key] = tuple(_column(kind, item, defaults, name) for item in items)
        if "label" not in given:
            raise DataError(f"The schema '{name}' has no label: name the column that says 0 or 1.")
        schema: Schema = _built(cls, given, name)
        return schema


def _column(kind: type, item: Any, defaults: dict[str, Any], schema: str) -> Any:
    given = {"name": item} if isinstance(item, str) else item
    if not isinstance(given, Mapping) or "name" not in given:
        raise DataError(
            f"The schema '{schema}' has the column {reprlib.repr(item)}: give a name, or a table with a name."
        )
    return _built(kind, {**defaults, **given}, schema)


def _built(kind: type, given: Mapping[str, Any], schema: str) -> Any:
    """An instance of the dataclass, its fields checked by name and type."""
    hints = get_type_hints(kind)
    for key, value in given.items():
        if key not in hints:
            raise DataError(f"The schema '{schema}' has an unknown field '{key[:60]}'.{near_miss(key, list(hints))}")
        if hints[key] == tuple[str, ...]:
            right = isinstance(value, list | tuple) and all(isinstance(text, str) for text in value)
        elif hints[key] in (str, bool, int, float):
            wanted = (int, float) if hints[key] is float else hints[key]
            right = isinstance(value, wanted) and (hints[key] is bool or not isinstance(value, bool))
        else:
            right = True
        if not right:
            raise DataError(f"The schema '{schema}' has {key} = {reprlib.repr(value)}, which is of the wrong kind.")
    return kind(**{key: tuple(value) if isinstance(value, list) else value for key, value in given.items()})


def load_schema(source: str | Path | Schema) -> Schema:
    """A built-in schema by its name, or one from a JSON or TOML file."""
    if isinstance(source, Schema):
        return source
    if str(source) in BUILT_IN:
        return BUILT_IN[str(source)]
    path = Path(source)
    if path.suffix.lower() not in (".json", ".toml"):
        hint = near_miss(str(source), list(BUILT_IN))
        raise DataError(f"No schema is called '{source}'.{hint} Give {', '.join(BUILT_IN)}, or a .json or .toml file.")
    with reading(path, "a schema", "check that it exists and may be read"):
        text = path.read_text(encoding="utf-8")
    try:
        content = json.loads(text) if path.suffix.lower() == ".json" else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise DataError(f"The schema {path} cannot be read ({str(error)[:200]}): correct it.") from error
    if not isinstance(content, dict):
        raise DataError(f"The schema {path} has no fields: begin with a label, dense and categorical columns.")
    return Schema.of(content, content.pop("name", path.stem))


def _categorical(names: Sequence[str], rows: Sequence[int], encoding: str) -> tuple[Categorical, ...]:
    return tuple(Categorical(n, encoding, min(size, CAP)) for n, size in zip(names, rows, strict=True))


_CRITEO_DENSE = [f"I{i}" for i in range(1, 14)]
_CRITEO_CATEGORICAL = [f"C{i}" for i in range(1, 27)]
CRITEO_ROWS = (
    1461, 584, 10131227, 2202609, 306, 25, 12518, 634, 4, 93146, 5684, 8351593, 3195,
    28, 14993, 5461307, 11, 5653, 2174, 5, 7046548, 19, 16, 286182, 106, 142573,
)  # fmt: skip
"""the number of values of each categorical column of Criteo (nasrec/utils/config.py of the published code)"""
_AVAZU = [
    "id", "hour", "C1", "banner_pos", "site_id", "site_domain", "site_category", "app_id", "app_domain",
    "app_category", "device_id", "device_ip", "device_model", "device_type", "device_conn_type",
    "C14", "C15", "C16", "C17", "C18", "C19", "C20", "C21",
]  # fmt: skip
_AVAZU_ROWS = [
    10000, 241, 8, 8, 4738, 7746, 27, 8553, 560, 37, 2686409, 6729487,
    8252, 6, 5, 2627, 9, 10, 436, 5, 69, 173, 61,
]  # fmt: skip
_KDD12 = [
    "Click", "Impression", "DisplayURL", "AdID", "AdvertiserID", "Depth", "Position",
    "QueryID", "KeywordID", "TitleID", "DescriptionID", "UserID",
]  # fmt: skip
_KDD12_DENSE = ["Impression", "Depth", "Position"]
_KDD12_ROWS = [26274, 641708, 14848, 22122011, 1188090, 3735797, 2934102, 20004011]


def _kdd12(name: str, profile: Sequence[str], rows: Sequence[int]) -> Schema:
    categorical = [column for column in _KDD12[1:] if column not in _KDD12_DENSE]
    return Schema(
        name,
        "Click",
        tuple(map(Dense, _KDD12_DENSE)),
        _categorical([*categorical, *profile], [*_KDD12_ROWS, *rows], "hash"),
        columns=(*_KDD12, *profile),
        click_counts=True,
    )


BUILT_IN = {
    schema.name: schema
    for schema in (
        Schema(
            "criteo",
            "label",
            tuple(map(Dense, _CRITEO_DENSE)),
            _categorical(_CRITEO_CATEGORICAL, CRITEO_ROWS, "hex"),
            columns=("label", *_CRITEO_DENSE, *_CRITEO_CATEGORICAL),
        ),
        Schema("avazu", "click", (), _categorical(_AVAZU, _AVAZU_ROWS, "hash")),
        _kdd12("kdd12", ("Gender", "Age"), (4, 8)),
        _kdd12("kdd12_clicks", (), ()),
    )
}
"""`kdd12` is the table of clicks joined with the profiles of users, `kdd12_clicks` the table as published"""
