"""Laws of synthetic clicks beyond pairs, against loops, and what sums of columns and pairs can say about them."""

from __future__ import annotations

import math
from itertools import combinations
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from epochzero.recommend.data.laws import LAWS, Beyond
from epochzero.recommend.data.synthetic import CHUNK, Planted, synthetic
from epochzero.recommend.data.table import open_table
from tests.command import epochzero, refusal

SIZES = (7, 5, 4)


def slow_logit(planted: Beyond, counts: list[int], values: list[int]) -> float:
    """One row, term by term."""
    x = [0.0 if k < 0 else math.log(1 + k) - 1 for k in counts]
    effects = planted.effects
    total: float = planted.bias + sum(a * b for a, b in zip(effects["a"], x, strict=True))
    total += sum(effects[f"w{f}"][c] for f, c in enumerate(values) if c >= 0)
    parts = []
    if planted.triples:
        product = 0.0
        for triple, tables in zip(planted.triples, planted.vectors, strict=True):
            if min(values[f] for f in triple) >= 0:
                for r in range(2):
                    product += math.prod(table[values[f]][r] for f, table in zip(triple, tables, strict=True))
        parts.append(product)
    if planted.reads:
        embeddings, (first, second, last) = planted.network
        z = [
            v
            for f, table in zip(planted.reads, embeddings, strict=True)
            for v in (table[values[f]] if values[f] >= 0 else [0.0] * 4)
        ]
        z += x
        hidden = [math.tanh(sum(z[i] * first[i][j] for i in range(len(z)))) for j in range(first.shape[1])]
        hidden = [math.tanh(sum(h * second[i][j] for i, h in enumerate(hidden))) for j in range(second.shape[1])]
        parts.append(sum(h * last[i][0] for i, h in enumerate(hidden)))
    for part, (_, mean, deviation) in zip(parts, planted.scales, strict=True):
        total += planted.strength * (part - mean) / deviation
    return total


@pytest.mark.parametrize(
    "law",
    [
        Beyond(SIZES, 2, triples=((0, 1, 2),), seed=3),
        Beyond(SIZES, 2, reads=(0, 2), seed=4),
        Beyond(SIZES, 2, triples=((2, 1, 0),), reads=(1,), strength=0.7),
    ],
)
def test_logits_are_those_of_the_formula(law: Beyond) -> None:
    rows = law.chunk(0, 200)
    assert (rows.values < 0).any() and (rows.counts < 0).any()
    expected = [slow_logit(law, *row) for row in zip(rows.counts.tolist(), rows.values.tolist(), strict=True)]
    assert rows.logit == pytest.approx(expected)
    many = law.chunk(1)
    beyond = many.logit - Planted(SIZES, 2, (), (), seed=law.seed).logit(many.counts, many.values)
    parts = bool(law.triples) + bool(law.reads)
    assert beyond.mean() == pytest.approx(0, abs=0.05) and beyond.std() == pytest.approx(
        law.strength * parts**0.5, rel=0.1
    )
    assert many.label.mean() == pytest.approx((1 / (1 + np.exp(-many.logit))).mean(), abs=4 * 0.5 / CHUNK**0.5)


def explained(values: NDArray[np.int64], target: NDArray[np.float64], order: int) -> float:
    """The share of the variance of a target that sums of functions of `order` columns explain at best."""
    shifted = values + 1
    sizes = shifted.max(0) + 1
    columns = []
    for chosen in combinations(range(values.shape[1]), order):
        cell = np.ravel_multi_index([shifted[:, f] for f in chosen], [sizes[f] for f in chosen])
        columns.append(np.eye(cell.max() + 1)[cell])
    table = np.concatenate(columns, 1)
    fitted = table @ np.linalg.lstsq(table, target, rcond=None)[0]
    return float(1 - (target - fitted).var() / target.var())


def test_pairs_of_columns_say_nothing_about_three() -> None:
    law = Beyond(SIZES, 0, triples=((0, 1, 2),))
    rows = law.chunk(0, 20_000)
    target = law.of_triples(rows.counts, rows.values)
    assert explained(rows.values, target, 2) < 0.05
    assert explained(rows.values, target, 3) > 0.99


def test_no_sum_of_columns_replaces_the_random_network() -> None:
    law = LAWS["network"]
    assert isinstance(law, Beyond)
    rows = law.chunk(0, 20_000)
    read = np.concatenate([rows.values[:, law.reads], np.digitize(rows.counts, [0, 1, 2, 4, 8, 16])], 1)
    assert explained(read, law.of_network(rows.counts, rows.values), 1) < 0.75


@pytest.mark.parametrize("name", LAWS)
def test_every_law_has_a_name_and_a_floor(name: str, tmp_path: Path) -> None:
    """The floor is below the log loss of the click rate, and above 0: part of every law is to be learnt."""
    planted = LAWS[name]
    table = synthetic(tmp_path / "t", 20_000, planted)
    label = planted.chunk(0, 20_000).label.mean()
    base = -label * math.log(label) - (1 - label) * math.log(1 - label)
    assert 0.3 < table.about["floor"] < base - 0.05
    assert table.rows == synthetic(tmp_path / "pairs", 20, LAWS["pairs"]).rows


def test_laws_on_the_command_line(tmp_path: Path) -> None:
    told = epochzero(
        "recommend", "baselines", "--data=synthetic:600:third", f"--out={tmp_path}/b", "--models=dlrm", "--json"
    )
    assert told.code == 0, told.err
    assert (
        open_table(tmp_path / "b" / "table").about["floor"]
        == synthetic(tmp_path / "t", 600, LAWS["third"]).about["floor"]
    )
    asked = ["recommend", "baselines", f"--out={tmp_path}/c"]
    assert "Did you mean 'third'" in refusal(*asked, "--data=synthetic:600:thrid")
