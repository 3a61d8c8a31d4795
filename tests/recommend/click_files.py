"""Small click-through tables, friendly and hostile."""

from __future__ import annotations

from pathlib import Path

import pytest

from epochzero.recommend.data.schema import Categorical, Dense, Schema

SMALL = Schema(
    "small",
    "click",
    (Dense("age"), Dense("income", "none", -1.0)),
    (Categorical("city", "vocabulary", 100, 2), Categorical("user", "hash", 50), Categorical("code", "hex", 8)),
)
HEADER = "click,age,income,city,user,code,note"
CITIES = ("Bern", "Oslo", "Bern", "Rome")


def line(row: int) -> str:
    return f"{int(row % 3 == 0)},{row},{row / 2},{CITIES[row % 4]},u{row},{row:x},x"


def write(path: Path, lines: list[str], *, header: str | None = HEADER, end: str = "\n") -> Path:
    path.write_bytes((end.join([header, *lines] if header else lines) + end).encode())
    return path


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """20 good rows of the schema `SMALL`."""
    return write(tmp_path / "small.csv", [line(row) for row in range(20)])


def sample(name: str) -> Path:
    """A sample next to the repository, for tests only."""
    path = Path(__file__).parents[3] / "shared" / "data" / f"{name}_sample.csv.gz"
    if not path.exists():
        pytest.skip(f"the sample {path.name} is not next to the repository")
    return path
