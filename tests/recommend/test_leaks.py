"""Columns that tell the label, planted in tables, against a loop over rows."""

from __future__ import annotations

from pathlib import Path
from random import Random

import numpy as np
import pytest

from epochzero.recommend.data.ingest import encode
from epochzero.recommend.data.leaks import alone
from epochzero.recommend.data.schema import Categorical, Dense, Schema
from epochzero.recommend.training.metrics import auc

SCHEMA = Schema(
    "leaky",
    "click",
    (Dense("age"), Dense("seconds")),
    (Categorical("city", "vocabulary"), Categorical("user", "hash", 2000)),
)


def rows(count: int, seed: int) -> list[list[str]]:
    """Nothing tells the label for certain, but cities say a lot, and users have one row each."""
    rng, made = Random(seed), []
    for number in range(count):
        click = rng.random() < 0.4
        city = rng.choice("abc") if rng.random() < 0.1 else "ab"[click]
        made.append([str(int(click)), str(rng.randrange(80)), str(rng.randrange(60)), city, f"u{number}"])
    return made


def said(place: Path, made: list[list[str]]) -> list[str]:
    place.mkdir(exist_ok=True)
    text = "\n".join(",".join(row) for row in [["click", *SCHEMA.features], *made])
    (place / "t.csv").write_text(text + "\n")
    remarks: list[str] = encode(place / "t.csv", SCHEMA, place / "table").about["remarks"]
    return remarks


def test_columns_that_tell_the_label_are_named(tmp_path: Path) -> None:
    """Copies of it, also spelt otherwise or mixed with missing values, and a number above 0 after clicks alone."""
    made, rng = rows(600, 0), Random(1)
    assert said(tmp_path / "honest", made) == []
    clicked = [row[0] == "1" for row in made]
    changes = {
        "age": [row[0] for row in made],
        "seconds": [str(rng.randrange(1, 90) if click else 0) for click in clicked],
        "city": [("yes" if click else "no") if rng.random() < 0.999 else "" for click in clicked],
        "user": [f"{'bought' if click else 'left'}{rng.randrange(9)}" for click in clicked],
    }
    for name, values in changes.items():
        place = 1 + SCHEMA.features.index(name)
        leaking = [[*row[:place], value, *row[place + 1 :]] for row, value in zip(made, values, strict=True)]
        (sentence,) = said(tmp_path / name, leaking)
        assert sentence.startswith(f"The column '{name}' tells the label by itself (AUC ")


def test_one_column_alone_predicts_the_rate_of_its_values() -> None:
    rng = np.random.default_rng(0)
    values, new = rng.integers(0, 9, 300), rng.integers(0, 12, 200)
    label, clicks = (rng.random(300) < values / 12).astype(np.uint8), (rng.random(200) < new / 12).astype(np.uint8)
    mean = sum(label.tolist()) / 300
    scores = []
    for value in new:
        mine = [int(one) for one, other in zip(label, values, strict=True) if other == value]
        scores.append((sum(mine) + mean) / (len(mine) + 1))
    assert alone(values, label, new, clicks) == pytest.approx(auc(scores, clicks))
