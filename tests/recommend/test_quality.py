"""Calibration, temperature, grouped AUC and lift, against loops over rows and pairs."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from epochzero.errors import UserError
from epochzero.recommend.data.ingest import encode
from epochzero.recommend.data.table import CtrTable, open_table
from epochzero.recommend.recommender import Recommender
from epochzero.recommend.training.quality import Judge, Measures, calibration, grouped_auc, lift, segments, temperature
from epochzero.registry import spaces
from tests.command import epochzero
from tests.recommend.test_census import SHOP, IdSum, shop_rows, written

Rows = list[tuple[float, int, int]]
"""score, label, group"""
rows_of = st.lists(
    st.tuples(st.sampled_from([-2.0, -0.5, 0.0, 0.5, 0.75, 3.0]), st.integers(0, 1), st.integers(0, 4)),
    min_size=1,
    max_size=40,
)


@settings(max_examples=60, deadline=None)
@given(rows_of)
def test_grouped_auc_counts_pairs_within_groups(rows: Rows) -> None:
    total, weight, groups = 0.0, 0, 0
    for group in range(5):
        clicks = [z for z, label, mine in rows if mine == group and label]
        others = [z for z, label, mine in rows if mine == group and not label]
        if clicks and others:
            won = sum((a > b) + (a == b) / 2 for a in clicks for b in others)
            size = len(clicks) + len(others)
            total, weight, groups = total + size * won / (len(clicks) * len(others)), weight + size, groups + 1
    found = grouped_auc(*(np.array(column) for column in zip(*rows, strict=True)))
    assert found[1:] == (groups, weight)
    assert found[0] == pytest.approx(total / weight) if groups else math.isnan(found[0])


@settings(max_examples=60, deadline=None)
@given(rows_of, st.sampled_from([0.1, 0.25, 0.5, 1.0]))
def test_lift_is_that_of_the_average_order_of_ties(rows: Rows, share: float) -> None:
    taken, hits = share * len(rows), 0.0
    left = taken
    for score in sorted({z for z, _, _ in rows}, reverse=True):
        tied = [label for z, label, _ in rows if z == score]
        counted = min(left, len(tied))
        hits, left = hits + counted * sum(tied) / len(tied), left - counted
    rate = sum(label for _, label, _ in rows) / len(rows)
    scores, labels, _ = map(np.array, zip(*rows, strict=True))
    found = lift(scores, labels, share)
    assert found == pytest.approx(hits / taken / rate) if rate else math.isnan(found)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.sampled_from([0.01, 0.2, 0.4, 0.7, 0.99]), st.integers(0, 1)), min_size=1, max_size=80))
def test_calibration_adds_up_bin_by_bin(rows: list[tuple[float, int]]) -> None:
    """Every bin holds rows of neighbouring probabilities, and rows of equal ones together."""
    chances, labels = map(np.array, zip(*rows, strict=True))
    found = calibration(chances, labels, bins=4)
    left, error, last = sorted(rows), 0.0, -1.0
    for one in found.bins:
        mine, left = left[: one.rows], left[one.rows :]
        assert last < mine[0][0] and (last := mine[-1][0])
        assert one.predicted == pytest.approx(sum(p for p, _ in mine) / len(mine))
        assert one.rate == pytest.approx(sum(label for _, label in mine) / len(mine))
        error += len(mine) / len(rows) * abs(sum(p - label for p, label in mine) / len(mine))
    assert not left and found.error == pytest.approx(error)
    clicks = sum(label for _, label in rows)
    assert found.ratio == pytest.approx(sum(p for p, _ in rows) / clicks) if clicks else math.isnan(found.ratio)


def test_bins_have_about_as_many_rows() -> None:
    found = calibration(np.random.default_rng(0).random(3000), np.zeros(3000))
    assert [one.rows for one in found.bins] == [200] * 15


def test_a_temperature_undoes_scaled_logits() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(size=50_000) - 1
    labels = (rng.random(50_000) < 1 / (1 + np.exp(-logits))).astype(int)
    for scale in (0.5, 1.0, 4.0):
        assert temperature(scale * logits, labels) == pytest.approx(scale, rel=0.03)
    losses = {t: float(np.logaddexp(0, (1 - 2 * labels) * 4 * logits / t).mean()) for t in np.linspace(1, 8, 141)}
    assert temperature(4 * logits, labels) == pytest.approx(min(losses, key=losses.__getitem__), abs=0.06)
    assert calibration(1 / (1 + np.exp(-logits)), labels).error < 0.02
    assert calibration(1 / (1 + np.exp(-4 * logits)), labels).error > 0.1


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> CtrTable:
    place = tmp_path_factory.mktemp("shop")
    return encode(written(place / "shop.csv", shop_rows(2000, 0)), SHOP, place / "table")


def test_a_judge_measures_the_rows_of_a_part(table: CtrTable) -> None:
    """Rows, groups and segments are those of the text, from the same model by hand."""
    rows = [row for row, part in zip(shop_rows(2000, 0), table.column("part"), strict=True) if part == 2]
    (batch,) = table.batches("test", size=1000)
    z = IdSum()(batch.dense, batch.ids).detach().double().numpy() / 1.5
    labels = np.array([int(row["click"]) for row in rows])
    said = Judge(table, Measures("item", "city")).quality(IdSum(), "test", 1.5)
    known = [n for n, row in enumerate(rows) if row["item"]]
    items = np.array([int(rows[n]["item"]) for n in known])
    assert said["gauc"]["value"] == pytest.approx(grouped_auc(z[known], labels[known], items)[0])
    assert said["gauc"]["rows"] > 150 and said["lift"] == pytest.approx(lift(z, labels))
    assert said["log_loss"] == pytest.approx(np.logaddexp(0, (1 - 2 * labels) * z).mean())
    assert sum(one["rows"] for one in said["calibration"]["bins"]) == 200
    cities = [row["city"] or "missing" for row in rows]
    found = {one["value"]: one for one in said["segments"]["values"]}
    assert set(found) == set(cities) and found["Oslo"]["rows"] == cities.count("Oslo")
    mine = np.array([city == "Oslo" for city in cities])
    assert found["Oslo"]["rate"] == pytest.approx(labels[mine].mean())
    assert found["Oslo"]["predicted"] == pytest.approx((1 / (1 + np.exp(-z[mine]))).mean())
    assert found["Oslo"]["lift"] == pytest.approx(lift(z[mine], labels[mine]))


def test_segments_are_the_largest_first() -> None:
    ids = np.repeat(np.arange(30), np.arange(1, 31))
    z = torch.linspace(-1, 1, len(ids)).double().numpy()
    found = segments(z, (z > 0).astype(int), ids, {n: f"value {n}" for n in range(30)})
    assert [one.value for one in found] == [f"value {n}" for n in range(29, 9, -1)]


def test_columns_that_cannot_group_are_refused(table: CtrTable, tmp_path: Path) -> None:
    for asked, says in ((Measures("citty"), "Did you mean 'city'"), (Measures(segment="user"), "'user' is hashed")):
        with pytest.raises(UserError, match=says):
            Judge(table, asked)


def test_train_reports_them_and_predict_divides_by_the_temperature(tmp_path: Path) -> None:
    """Mean predictions by segment, temperature and metrics agree with each other and with the predictions."""
    written(tmp_path / "shop.csv", shop_rows(800, 0))
    (tmp_path / "shop.json").write_text(json.dumps(SHOP.json()))
    space = spaces["nasrec_small"]
    data = [f"--data={tmp_path}/shop.csv", f"--schema={tmp_path}/shop.json", f"--arch={space.text(space.smallest())}"]
    asked = ["recommend", "train", *data, f"--out={tmp_path}/run", "--group=user", "--segment=city", "--temperature"]
    told, shown = epochzero(*asked, "--json").json, epochzero(*asked)
    heat, quality = told["temperature"], told["quality"]
    assert heat != 1 and quality["val"]["log_loss"] <= told["metrics"]["val"]["log_loss"]
    assert "temperature    " in shown.out and "calibration error" in shown.out and "Oslo" in shown.out
    assert f"GAUC {quality['test']['gauc']['value']:.4g} over" in shown.out
    assert (tmp_path / "run" / "calibration.svg").is_file()
    epochzero("recommend", "predict", f"--model={tmp_path}/run", data[0], f"--out={tmp_path}/p.csv")
    chances = [float(line.split(",")[1]) for line in (tmp_path / "p.csv").read_text().splitlines()[1:]]
    kept = Recommender.read(tmp_path / "run")
    table = open_table(tmp_path / "run" / "table")
    rows = shop_rows(800, 0)
    mine = [
        p
        for p, row, part in zip(chances, rows, table.column("part"), strict=True)
        if part == 2 and row["city"] == "Rome"
    ]
    (rome,) = [one for one in quality["test"]["segments"]["values"] if one["value"] == "Rome"]
    assert rome["rows"] == len(mine) and rome["predicted"] == pytest.approx(sum(mine) / len(mine), rel=1e-5)
    assert kept.temperature == heat
    refused = epochzero(*asked, "--group=age")
    assert refused.code == 2 and "no categorical column 'age'" in refused.err
