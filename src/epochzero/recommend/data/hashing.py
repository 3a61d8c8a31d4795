r"""A row for any text, the same in every process, on every machine and with every version of polars.

The UTF-8 bytes of a text are taken eight at a time as big-endian whole numbers w_1, w_2, ... (the last may have fewer):

    h_0 = number of bytes,   m = (h_(k-1) xor w_k) p mod 2^64,   h_k = m xor floor(m / 2^32),   row = 1 + h mod (n - 1)

with p = 2^64 / golden ratio, an odd number. Row 0 is for missing values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import polars as pl

FACTOR = 0x9E3779B97F4A7C15


def hashed_rows(texts: pl.Series, rows: int) -> NDArray[np.int32]:
    """The rows [N] of a column of texts in a table of so many rows."""
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
