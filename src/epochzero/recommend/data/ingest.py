"""Tables of clicks: text or Parquet of any size is read once, block by block, into numbers on disk.

    table = encode("train.txt", "criteo", "runs/criteo")          # a second time: opened, not read
    for dense, ids, label in table.batches("train", size=512):    # [B, D] float, [B, F] int64, [B] float
        ...

Reading and batching hold a few blocks in memory; reading also needs two bytes a row for the split, and the values
of vocabularies. Only reading needs polars.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from epochzero.data.batch import digest
from epochzero.errors import DataError, UserError
from epochzero.progress import Progress, silent
from epochzero.recommend.data.census import packed, remarks_on
from epochzero.recommend.data.encoder import Encoder
from epochzero.recommend.data.encoding import FIRST_VALUE, UNSEEN, Encoding
from epochzero.recommend.data.leaks import leaks
from epochzero.recommend.data.lines import Layout, layout
from epochzero.recommend.data.parquet import files, is_parquet, parquet_layout
from epochzero.recommend.data.schema import Schema, load_schema
from epochzero.recommend.data.split import PARTS, SEED, parts
from epochzero.recommend.data.table import STRETCH, CtrTable, Writer, find_table

SMALLEST = 10
"""the fewest rows that can be split in ten"""


def encode(
    source: str | Path,
    schema: str | Path | Schema,
    folder: str | Path,
    *,
    bad_lines: str = "strict",
    seed: int = SEED,
    progress: Progress = silent,
) -> CtrTable:
    """Writes a text or Parquet file, or a folder of the latter, in numbers to `folder`, or opens it if it is there.

    A bad line is an error (`strict`), or goes to `skipped.tsv` with its number and the reason (`skip`).
    """
    skip = _skips(bad_lines)
    schema, path, folder = load_schema(schema), Path(source), Path(folder)
    file = layout_of(path, schema)
    fingerprint = _fingerprint(path, schema, bad_lines, seed)
    if (table := find_table(folder, fingerprint)) is not None:
        return table
    codes: dict[str, dict[str, int]] = {c.name: {} for c in schema.categorical if c.encoding == "vocabulary"}
    with Writer(folder) as writer:
        encoder = Encoder(schema, file, codes, growing=True, skip=skip)
        for block in encoder:
            writer.add(block)
            progress(writer.count, None, "reading: rows")
        writer.close_columns()
        part = _split(writer, schema, path, seed)
        ids = writer.mapped("ids", schema)
        vocabulary = _settle(ids, part, schema, codes)
        sizes = [FIRST_VALUE + len(vocabulary[c.name]) if c.name in codes else c.rows for c in schema.categorical]
        seen, unseen = _seen(ids, part, schema, sizes)
        missing = {name: counts.missing / writer.count for name, counts in encoder.census.items()}
        usual = {name: (share, unseen.get(name, 0.0)) for name, share in missing.items()}
        encoding = Encoding(schema, tuple(sizes), vocabulary, seen=seen, usual=usual)
        dense, label = (writer.mapped(name, schema) for name in ("dense", "label"))
        said = [*leaks(dense, ids, label, part, schema), *remarks_on(encoder.census, writer.count)]
        return writer.finish(encoding, fingerprint, source=str(path), seed=seed, remarks=said)


def layout_of(path: Path, schema: Schema, *, need_label: bool = True) -> Layout:
    """The format of a text file, a Parquet file or a folder of those."""
    return (parquet_layout if is_parquet(path) else layout)(path, schema, need_label=need_label)


def _skips(bad_lines: str) -> bool:
    if bad_lines not in ("strict", "skip"):
        raise UserError(f"--bad-lines takes strict or skip, not '{bad_lines}'.")
    return bad_lines == "skip"


def _fingerprint(path: Path, schema: Schema, bad_lines: str, seed: int) -> str:
    stats = [(str(file.relative_to(path)), file.stat()) for file in files(path)]
    of_files = [(name, stat.st_size, stat.st_mtime_ns) for name, stat in stats]
    return digest(path.name, of_files, sorted(schema.json().items()), bad_lines, seed)


def _split(writer: Writer, schema: Schema, path: Path, seed: int) -> NDArray[np.uint8]:
    """The part of every row [N], drawn unless a column says it."""
    if writer.count == 0:
        bad = writer.first_bad
        raise DataError(
            f"The table {path} has no rows: give a table with rows."
            if bad is None
            else f"No line of {path} is good; line {bad.number:,}, the first of {writer.bad:,} bad ones, "
            f"{bad.why}: mend the table, or its schema."
        )
    part = writer.mapped("part", schema)
    if not schema.split:
        if writer.count < SMALLEST:
            raise DataError(
                f"The table {path} has {writer.count} rows: a split 8/1/1 needs at least {SMALLEST}; "
                "give more, or name a split column in the schema."
            )
        part[:] = parts(writer.mapped("label", schema), seed)
    elif not (part == PARTS.index("train")).any():
        raise DataError(f"No row of {path} says train in the column '{schema.split}': there is nothing to learn.")
    elif not (part == PARTS.index("val")).any():
        learned, val = np.flatnonzero(part == PARTS.index("train")), PARTS.index("val")
        part[learned[parts(writer.mapped("label", schema)[learned], seed) == val]] = val
    return part


def _settle(
    ids: NDArray[np.int32], part: NDArray[np.uint8], schema: Schema, codes: dict[str, dict[str, int]]
) -> dict[str, list[str]]:
    """Orders the vocabularies by frequency in the training rows, drops rare values, renumbers `ids` [N, F] in place.

    While the file was read, every value took the next number. Returns the values that stay, in the order of their rows.
    """
    if not codes:
        return {}
    stretches = [slice(first, first + STRETCH) for first in range(0, len(ids), STRETCH)]
    kept: dict[str, list[str]] = {}
    for place, column in enumerate(schema.categorical):
        if column.name not in codes:
            continue
        values = list(codes[column.name])
        seen = np.zeros(FIRST_VALUE + len(values), np.int64)
        for rows in stretches:
            train = part[rows] == PARTS.index("train")
            seen += np.bincount(ids[rows, place][train], minlength=len(seen))
        order = FIRST_VALUE + np.argsort(-seen[FIRST_VALUE:], kind="stable")  # of equal ones, the first in the file
        order = order[seen[order] >= column.min_count][: column.rows - FIRST_VALUE]
        new = np.full(len(seen), UNSEEN, np.int32)
        new[0] = 0
        new[order] = FIRST_VALUE + np.arange(len(order))
        for rows in stretches:
            ids[rows, place] = new[ids[rows, place]]
        kept[column.name] = [values[number - FIRST_VALUE] for number in order]
    return kept


def _seen(
    ids: NDArray[np.int32], part: NDArray[np.uint8], schema: Schema, sizes: Sequence[int]
) -> tuple[dict[str, str], dict[str, float]]:
    """By hashed column, the rows that training rows have; by column, the share of unseen values in all other rows."""
    stretches = [slice(first, first + STRETCH) for first in range(0, len(ids), STRETCH)]
    named = [np.zeros(size, bool) for size in sizes]
    for rows in stretches:
        train = ids[rows][part[rows] == PARTS.index("train")]
        for column, seen in zip(train.T, named, strict=True):
            seen[column] = True
    for column, seen in zip(schema.categorical, named, strict=True):
        seen[0] = True  # missing
        if column.encoding == "vocabulary":
            seen[:] = True
            seen[UNSEEN] = False
    new, held_out = np.zeros(len(sizes), np.int64), 0
    for rows in stretches:
        others = ids[rows][part[rows] != PARTS.index("train")]
        new += [np.count_nonzero(~seen[column]) for column, seen in zip(others.T, named, strict=True)]
        held_out += len(others)
    both = zip(schema.categorical, named, strict=True)
    kept = {column.name: packed(seen) for column, seen in both if column.encoding != "vocabulary"}
    shares = zip(schema.categorical, new.tolist(), strict=True)
    return kept, {column.name: count / max(1, held_out) for column, count in shares}


def encoder_of(encoding: Encoding, source: str | Path, *, bad_lines: str = "strict") -> Encoder:
    """An encoder that reads another file as the table was read; new values count as unseen.

    Labels and split of the file are ignored.
    """
    path, schema = Path(source), replace(encoding.schema, split="")
    unlabelled = replace(layout_of(path, schema, need_label=False), labelled=False)
    return Encoder(schema, unlabelled, encoding.codes, skip=_skips(bad_lines), seen=encoding.seen_rows)
