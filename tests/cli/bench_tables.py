"""Small tables for `epochzero bench`, and what it costs least to score their networks."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path

from epochzero.registry import spaces

FEW = ("--batch-size", 2, "--input-shape", "3,8,8")
NB201 = spaces["nb201"]
TWINS = [
    "|nor_conv_1x1~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|",
    "|none~0|+|none~0|none~1|+|nor_conv_3x3~0|none~1|none~2|",
]
"""have one key, and the first a convolution more that leads nowhere"""
CELLS = [
    NB201.text(cell)
    for cell in [
        ("nor_conv_1x1", "none", "none", "none", "nor_conv_3x3", "none"),
        ("nor_conv_3x3", "none", "skip_connect", "nor_conv_1x1", "none", "none"),
        ("nor_conv_3x3", "avg_pool_3x3", "nor_conv_3x3", "skip_connect", "none", "nor_conv_1x1"),
        ("nor_conv_1x1", "nor_conv_1x1", "none", "skip_connect", "avg_pool_3x3", "none"),
        ("nor_conv_3x3", "nor_conv_3x3", "nor_conv_3x3", "none", "nor_conv_3x3", "nor_conv_3x3"),
        ("avg_pool_3x3", "none", "none", "skip_connect", "none", "avg_pool_3x3"),
        ("none", "none", "none", "none", "none", "nor_conv_3x3"),
    ]
]
"""of which the last is cut from its input"""


def written(path: Path, columns: Mapping[str, Sequence[object]]) -> Path:
    """A CSV table."""
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def read(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))
