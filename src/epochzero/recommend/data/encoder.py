r"""Lines of text to numbers: polars parses a block, or, if a line of it is bad, a slower parser goes line by line.

    block of lines -> dense float32 [N, D], ids int32 [N, F], label uint8 [N], part uint8 [N]

A line is bad if it has the wrong number of columns, is not UTF-8, or holds an invalid number, hexadecimal number or
label. It is an error, or put aside.

A hashed column gets rows that are the same in every process, on every machine and with every version of polars. The
UTF-8 bytes of a text are read eight at a time as big-endian integers w_1, w_2, ... (the last may have fewer bytes):

    h_0 = number of bytes,   m = (h_(k-1) xor w_k) p mod 2^64,   h_k = m xor floor(m / 2^32),   row = 1 + h mod (n - 1)

with p = 2^64 / golden ratio, an odd number. Row 0 is for missing values.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from epochzero.errors import DataError, needed
from epochzero.recommend.data.census import Census, read_values, unseen_rows
from epochzero.recommend.data.encoding import FIRST_VALUE, UNSEEN
from epochzero.recommend.data.lines import LARGEST, BadLine, Block, Layout, blocks, fields_of, line_by_line
from epochzero.recommend.data.parquet import Rows, Typed, row_blocks, spelt, typed
from epochzero.recommend.data.schema import Schema
from epochzero.recommend.data.split import OTHER, SPELLINGS

if TYPE_CHECKING:
    import polars as pl

MOST_VALUES = 5_000_000
FACTOR = 0x9E3779B97F4A7C15
WORKERS, AHEAD = 2, 4
"""threads that parse, and blocks that may be waiting or parsed ahead"""


class Words(NamedTuple):
    """A column of text in one block."""

    distinct: list[str]
    place: NDArray[np.int64]
    """[N]: 0 for a missing value, else 1 + the index in `distinct`"""

    def replaced(self, by: Callable[[str], int], missing: int = 0) -> NDArray[np.int32]:
        """[N]: each value replaced by a number."""
        return np.array([missing, *map(by, self.distinct)], np.int32)[self.place]


class Encoded(NamedTuple):
    """The rows of one block."""

    dense: NDArray[np.float32]
    """[N, D]; one column of zeros where the schema has no dense column, as in NASRec"""
    ids: NDArray[np.int32]
    """[N, F]"""
    label: NDArray[np.uint8]
    """[N]; zeros where the file has no labels"""
    part: NDArray[np.uint8]
    """[N]: indices of `split.PARTS`; zeros where the schema names no split"""
    line: NDArray[np.int64]
    """[N]: line numbers in the file"""
    bad: list[BadLine]


class Parsed(NamedTuple):
    """A block whose columns with a vocabulary are still words."""

    rows: Encoded
    words: dict[int, Words]
    """by the place of the column among the categorical ones"""
    census: dict[str, Census]
    """by column"""


@dataclass
class Encoder:
    """Turns a file into numbers, block by block."""

    schema: Schema
    layout: Layout
    codes: dict[str, dict[str, int]] = field(default_factory=dict)
    """the vocabularies: by column and value, the row"""
    growing: bool = False
    """true if a new value takes the next row; otherwise it counts as unseen"""
    skip: bool = False
    """true if bad lines are put aside"""
    seen: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    """of hashed columns, the rows that training rows have [n]"""
    census: dict[str, Census] = field(default_factory=dict)
    """by column, of the rows so far"""

    def __iter__(self) -> Iterator[Encoded]:
        """All blocks in order. Two threads parse ahead; vocabularies grow in the order of the file."""
        needed("polars", "Reading tables", "ctr")
        source = self._source()
        under_way: deque[Future[Parsed]] = deque()
        with ThreadPoolExecutor(WORKERS) as pool:
            while True:
                under_way.extend(pool.submit(self._encode, block) for block in islice(source, AHEAD - len(under_way)))
                if not under_way:
                    return
                encoded, words, census = under_way.popleft().result()
                if encoded.bad and not self.skip:
                    raise self._refused(encoded.bad[0])
                for name, counts in census.items():
                    self.census.setdefault(name, Census()).add(counts)
                for place, column in words.items():
                    encoded.ids[:, place] = self._rows(self.schema.categorical[place].name, column)
                yield encoded

    def texts(self, numbers: Sequence[int]) -> list[dict[str, str]]:
        """The fields of some lines, by column; the lines are in the order of the file."""
        found, wanted = list[dict[str, str]](), iter(numbers)
        if self.layout.parquet:
            frame, _, line = self._typed(next(row_blocks(self.layout, self.schema)))
            place = {number: row for row, number in enumerate(line.tolist())}
            return [spelt(frame.row(place[number], named=True)) for number in numbers]
        number = next(wanted, None)
        for block in self._lines():
            lines = block.data.split(b"\n")
            while number is not None and number < block.first + len(lines) - 1:
                fields = fields_of(lines[number - block.first].decode(), self.layout.separator)
                found.append(dict(zip(self.layout.columns, fields, strict=True)))
                number = next(wanted, None)
            if number is None:
                break
        return found

    def _source(self) -> Iterator[Block | Rows]:
        return row_blocks(self.layout, self.schema) if self.layout.parquet else self._lines()

    def _lines(self) -> Iterator[Block]:
        for block in blocks(self.layout.path):
            header = block.first == 1 and self.layout.header
            yield Block(2, block.data.split(b"\n", 1)[1]) if header else block

    def _refused(self, bad: BadLine) -> DataError:
        one = "row" if self.layout.parquet else "line"
        return DataError(
            f"{one.capitalize()} {bad.number:,} of {self.layout.path} {bad.why}: mend the {one}, or put such {one}s "
            "aside by --bad-lines skip."
        )

    def _typed(self, block: Block | Rows) -> Typed:
        """The good rows as columns of numbers and texts."""
        import polars as pl

        if isinstance(block, Rows):
            return typed(block, self.schema, self.layout.labelled)
        if (frame := self._quick(block)) is not None:
            return Typed(frame, [], np.arange(block.first, block.first + len(frame)))
        columns, numbers, bad = line_by_line(block, self.schema, self.layout)
        kinds = {name: self._kind(name, hexadecimal=pl.UInt64) for name in columns}
        return Typed(pl.DataFrame(columns, schema=kinds), bad, np.array(numbers, np.int64))

    def _encode(self, block: Block | Rows) -> Parsed:
        import polars as pl

        frame, bad, line = self._typed(block)
        count = len(frame)
        dense, label, part = np.zeros((count, 1), np.float32), np.zeros(count, np.uint8), np.zeros(count, np.uint8)
        ids = np.zeros((count, len(self.schema.categorical)), np.int32)
        if self.schema.dense:
            filled = [(pl.col(c.name).fill_null(c.fill), c.transform) for c in self.schema.dense]
            scaled = [value.clip(0).log1p() if transform == "log" else value for value, transform in filled]
            dense = frame.select(value.cast(pl.Float32) for value in scaled).to_numpy(order="c")
        if self.layout.labelled:
            label = frame.select((pl.col(self.schema.label) > 0).cast(pl.UInt8)).to_series().to_numpy()
        if self.schema.split:
            part = _words(frame[self.schema.split]).replaced(_part_number, missing=OTHER).astype(np.uint8)
        by_number = [(place, c) for place, c in enumerate(self.schema.categorical) if c.encoding == "hex"]
        if by_number:
            rows = [(pl.col(c.name) % (c.rows - 1) + 1).fill_null(0).cast(pl.Int32) for _, c in by_number]
            ids[:, [place for place, _ in by_number]] = frame.select(rows).to_numpy()
        words, census = dict[int, Words](), {c.name: Census(frame[c.name].null_count()) for c in self.schema.dense}
        for place, column in enumerate(self.schema.categorical):
            texts, counts = frame[column.name], Census(frame[column.name].null_count())
            if column.encoding != "hex":
                texts, counts = read_values(texts)
            if column.encoding == "hash":
                ids[:, place] = hashed_rows(texts, column.rows)
            elif column.encoding == "vocabulary":
                words[place] = _words(texts)
            if column.name in self.seen:
                counts.add(unseen_rows(ids[:, place], texts, self.seen[column.name]))
            census[column.name] = counts
        return Parsed(Encoded(dense, ids, label, part, line, bad), words, census)

    def _quick(self, block: Block) -> pl.DataFrame | None:
        """The typed columns of the block, None if a line of it is bad or quoted."""
        import polars as pl

        if b'"' in block.data or not _even(block.data, len(self.layout.columns), self.layout.separator):
            return None
        try:
            raw = pl.read_csv(
                block.data,
                has_header=False,
                separator=self.layout.separator,
                schema={name: self._kind(name, hexadecimal=pl.String) for name in self.layout.columns},
                quote_char=None,
                null_values=["", *self.schema.missing] if self.schema.missing else None,
            )
        except pl.exceptions.PolarsError:
            return None
        names = [column.name for column in self.schema.categorical if column.encoding == "hex"]
        frame = raw.with_columns(pl.col(name).str.to_integer(base=16, dtype=pl.UInt64, strict=False) for name in names)
        checks = [(pl.col(column.name).abs() <= LARGEST).all() for column in self.schema.dense]
        if self.layout.labelled:
            label = pl.col(self.schema.label)
            right = label.is_between(0, LARGEST) if self.schema.click_counts else label.is_in([0.0, 1.0])
            checks += [right.all(), label.is_not_null().all()]
        all_hexadecimal = frame.select(names).null_count().equals(raw.select(names).null_count())
        all_right = not checks or frame.select(pl.all_horizontal(checks)).item()
        return frame if all_hexadecimal and all_right else None

    def _kind(self, name: str, hexadecimal: type[pl.DataType]) -> type[pl.DataType]:
        import polars as pl

        label = self.layout.labelled and name == self.schema.label
        if label or any(name == column.name for column in self.schema.dense):
            return pl.Float64
        if any(name == column.name and column.encoding == "hex" for column in self.schema.categorical):
            return hexadecimal
        return pl.String

    def _rows(self, name: str, words: Words) -> NDArray[np.int32]:
        """The rows [N] in the embedding table of a vocabulary."""
        codes = self.codes[name]
        if self.growing:
            for value in words.distinct:
                codes.setdefault(value, len(codes) + FIRST_VALUE)
            if len(codes) > MOST_VALUES:
                raise DataError(
                    f"The column '{name}' of {self.layout.path} has more than {MOST_VALUES:,} values, too many for a "
                    "vocabulary: give it the encoding hash."
                )
        rows = words.replaced(lambda value: codes.get(value, UNSEEN))
        if unseen := int((rows == UNSEEN).sum()):
            example = next(value for value in words.distinct if value not in codes)
            self.census[name].add(Census(unseen=unseen, example=example))
        return rows


def hashed_rows(texts: pl.Series, rows: int) -> NDArray[np.int32]:
    """The rows [N] of a column of texts, by their hash, in an embedding table of `rows` rows."""
    import polars as pl

    lengths = texts.str.len_bytes()
    frame = pl.DataFrame({"length": lengths.cast(pl.UInt64), "digits": texts.str.encode("hex")})
    mixed = pl.col("length")
    longest = lengths.max()
    for first in range(0, longest if isinstance(longest, int) else 0, 8):
        word = pl.col("digits").str.slice(2 * first, 16).str.to_integer(base=16, dtype=pl.UInt64, strict=False)
        product = (mixed ^ word) * pl.lit(FACTOR, dtype=pl.UInt64)
        mixed = pl.when(word.is_null()).then(mixed).otherwise(product ^ (product // 2**32))
    row = (mixed % (rows - 1) + 1).fill_null(0).cast(pl.Int32)
    return frame.select(row.alias("row"))["row"].to_numpy()


def _part_number(text: str) -> int:
    return SPELLINGS.get(text.strip().lower(), OTHER)


def _words(column: pl.Series) -> Words:
    import polars as pl

    distinct = column.drop_nulls().unique(maintain_order=True)
    place = column.cast(pl.Enum(distinct)).to_physical().cast(pl.Int64) + 1
    return Words(distinct.to_list(), place.fill_null(0).to_numpy())


def _even(data: bytes, columns: int, separator: str) -> bool:
    """True if the lines have this many columns on average; polars refuses longer ones, so none is shorter either."""
    text = np.frombuffer(data, np.uint8)
    marks = np.count_nonzero(text == ord(separator))
    return bool(marks == np.count_nonzero(text == ord("\n")) * (columns - 1))
