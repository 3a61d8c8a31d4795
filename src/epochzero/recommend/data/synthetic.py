r"""Synthetic clicks with a known structure: effects of single columns, and interactions that no sum of them replaces.

Column f has the value c_f = floor(n_f u^3), u uniform, so that a few values are frequent, and dense column d is a count
k_d = floor(exp(1 + z)), z normal, with x_d = log(1 + k_d) - 1. The probability of a click is

    sigmoid( b + sum_f w_f[c_f] + sum_d a_d x_d + sum_(i,j) <p_ij[c_i], q_ij[c_j]> + sum_(d,f) x_d s_df[c_f] )

with planted pairs (i, j) of categorical columns and (d, f) of a dense and a categorical one. All effects are normal.
One value in twenty is missing and has no effect. A network that only adds up columns cannot fall below the log loss of
the single effects, and no network below that of the true probabilities. `laws.py` has laws beyond pairs of columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from epochzero.data.batch import digest
from epochzero.errors import UserError
from epochzero.recommend.data.encoder import Encoded
from epochzero.recommend.data.encoding import Encoding
from epochzero.recommend.data.schema import Categorical, Dense, Schema
from epochzero.recommend.data.split import SEED, parts
from epochzero.recommend.data.table import CtrTable, Writer, find_table

RECIPE = 1
"""raised when the same request would give other numbers"""
CHUNK = 1 << 16
"""rows that are drawn from one generator"""
MISSING = 0.05
RANK = 4
"""of the interaction of two columns"""

Floats = NDArray[np.float64]


class Drawn(NamedTuple):
    """Rows before they are encoded."""

    counts: NDArray[np.int64]
    """[N, D]; -1 where missing"""
    values: NDArray[np.int64]
    """[N, F]; -1 where missing"""
    logit: Floats
    """[N]: of the true probability"""
    label: NDArray[np.uint8]
    """[N]"""


@dataclass(frozen=True)
class Planted:
    """A distribution of clicks."""

    sizes: tuple[int, ...] = (1000, 1000, 300, 300, 100, 100, 30, 30, 10, 10)
    """number of values of each categorical column"""
    num_dense: int = 4
    pairs: tuple[tuple[int, int], ...] = ((0, 3), (1, 2), (4, 5), (6, 7))
    """categorical columns that interact"""
    gates: tuple[tuple[int, int], ...] = ((0, 8), (1, 6))
    """dense columns whose effect depends on a categorical column: (dense, categorical)"""
    single: float = 0.3
    """standard deviation of a single effect"""
    interaction: float = 0.8
    """standard deviation of an interaction"""
    bias: float = -1.2
    seed: int = 0

    def __post_init__(self) -> None:
        pairs = [*self.pairs, *((column, column) for _, column in self.gates)]
        if any(not 0 <= column < len(self.sizes) for pair in pairs for column in pair) or any(
            not 0 <= dense < self.num_dense for dense, _ in self.gates
        ):
            raise UserError("A planted interaction names a column that does not exist: count columns from 0.")

    @property
    def schema(self) -> Schema:
        """Values are hexadecimal numbers, each with its own row."""
        dense = tuple(Dense(f"I{d + 1}") for d in range(self.num_dense))
        categorical = tuple(Categorical(f"C{f + 1}", "hex", size + 1) for f, size in enumerate(self.sizes))
        names = ("label", *(column.name for column in dense), *(column.name for column in categorical))
        return Schema("synthetic", "label", dense, categorical, columns=names)

    @cached_property
    def effects(self) -> dict[str, Floats]:
        """w0 .. [n_f], a [D], p0, q0 .. [n, RANK] by pair, s0 .. [n_f] by gate."""
        rng = np.random.default_rng([RECIPE, self.seed])
        effects = {f"w{f}": self.single * rng.standard_normal(size) for f, size in enumerate(self.sizes)}
        effects["a"] = self.single * rng.standard_normal(self.num_dense)
        for number, (left, right) in enumerate(self.pairs):
            effects[f"p{number}"] = rng.standard_normal((self.sizes[left], RANK)) / RANK**0.25
            effects[f"q{number}"] = self.interaction * rng.standard_normal((self.sizes[right], RANK)) / RANK**0.25
        for number, (_, column) in enumerate(self.gates):
            effects[f"s{number}"] = self.interaction * rng.standard_normal(self.sizes[column])
        return effects

    def chunk(self, number: int, count: int = CHUNK) -> Drawn:
        """The first `count` rows of chunk `number`."""
        rng = np.random.default_rng([RECIPE, self.seed, number])
        counts, values = self.features(rng)
        logit = self.logit(counts, values)
        label = rng.random(CHUNK) < 1 / (1 + np.exp(-logit))
        return Drawn(counts[:count], values[:count], logit[:count], label[:count].astype(np.uint8))

    def features(self, rng: np.random.Generator) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The counts [N, D] and values [N, F] of a chunk; -1 where missing."""
        values = (np.array(self.sizes) * rng.random((CHUNK, len(self.sizes))) ** 3).astype(np.int64)
        counts = np.exp(1 + rng.standard_normal((CHUNK, self.num_dense))).astype(np.int64)
        values[rng.random(values.shape) < MISSING] = -1
        counts[rng.random(counts.shape) < MISSING] = -1
        return counts, values

    def logit(self, counts: NDArray[np.int64], values: NDArray[np.int64]) -> Floats:
        """The true logits [N] of counts [N, D] and values [N, F]."""
        effects = {key: np.concatenate([table, 0 * table[:1]]) for key, table in self.effects.items()}  # -1: missing
        x = levels(counts)
        total: Floats = self.bias + x @ self.effects["a"]
        for column in range(len(self.sizes)):
            total += effects[f"w{column}"][values[:, column]]
        for number, (left, right) in enumerate(self.pairs):
            total += (effects[f"p{number}"][values[:, left]] * effects[f"q{number}"][values[:, right]]).sum(1)
        for number, (dense, column) in enumerate(self.gates):
            total += x[:, dense] * effects[f"s{number}"][values[:, column]]
        return total

    def chunks(self, count: int) -> Iterator[Drawn]:
        for first in range(0, count, CHUNK):
            yield self.chunk(first // CHUNK, min(CHUNK, count - first))


def levels(counts: NDArray[np.int64]) -> Floats:
    """The x_d [N, D] of counts [N, D]; 0 where missing."""
    return np.where(counts < 0, 0, np.log1p(np.maximum(counts, 0)) - 1)


def synthetic(folder: str | Path, count: int = 500_000, planted: Planted = Planted(), *, seed: int = SEED) -> CtrTable:
    """Writes a table of `count` rows in numbers, split with `seed`, or opens it if it is there already.

    `about["floor"]` is the log loss of the true probabilities on its test rows.
    """
    folder = Path(folder)
    fingerprint = digest("synthetic", RECIPE, planted, count, seed)
    if (table := find_table(folder, fingerprint)) is not None:
        return table
    if count < 10:
        raise UserError(f"A synthetic table of {count} rows cannot be split: ask for at least 10.")
    with Writer(folder) as writer:
        for rows in planted.chunks(count):
            counts = rows.counts if planted.num_dense else np.zeros((len(rows.label), 1))
            dense = np.log1p(np.maximum(counts, 0)).astype(np.float32)
            ids = (rows.values + 1).astype(np.int32)
            lines = np.arange(len(dense))
            writer.add(Encoded(dense, ids, rows.label, np.zeros(len(dense), np.uint8), lines, []))
        writer.close_columns()
        part = parts(writer.mapped("label", planted.schema), seed)
        writer.mapped("part", planted.schema)[:] = part
        encoding = Encoding(planted.schema, tuple(size + 1 for size in planted.sizes))
        floor = _floor(planted, count, part == 2)
        return writer.finish(encoding, fingerprint, source="synthetic", seed=seed, floor=floor)


def _floor(planted: Planted, count: int, chosen: NDArray[np.bool_]) -> float:
    """The log loss of the true probabilities on the chosen rows [N]."""
    total, first = 0.0, 0
    for rows in planted.chunks(count):
        sign = 1 - 2.0 * rows.label
        total += float(np.logaddexp(0, sign * rows.logit)[chosen[first : first + len(sign)]].sum())
        first += len(sign)
    return total / int(chosen.sum())
