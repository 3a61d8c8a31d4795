"""Trainings side by side against each alone, and the pieces of the long study of recommenders."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor

from epochzero.errors import UserError
from epochzero.plan import execute
from epochzero.recommend.data.synthetic import Planted, synthetic
from epochzero.recommend.data.table import CtrBatch, CtrTable, Part
from epochzero.recommend.spaces.nasrec_network import pruned
from epochzero.recommend.training.metrics import measure
from epochzero.recommend.training.settings import Settings
from epochzero.recommend.training.trainer import Trainer
from epochzero.registry import spaces
from epochzero.types import Origin
from epochzero_papers.sigeo.clicks import LEVELS, Sizes
from epochzero_papers.sigeo.recommender_report import report
from epochzero_papers.sigeo.recommender_sweep import COLUMNS, Study, label_of, searches
from epochzero_papers.sigeo.repeated_training import Rows, Together, stacked
from tests.fresh import Fresh

LAW = Planted(sizes=(20, 20, 10, 10, 6), num_dense=3, pairs=((0, 3), (1, 2)), gates=((0, 4),))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> CtrTable:
    return synthetic(tmp_path_factory.mktemp("clicks") / "table", 800, LAW)


def test_trainings_side_by_side_end_as_each_alone(table: CtrTable) -> None:
    """640 rows in batches of 48, the last a smaller one; in double precision, where rounding does not grow."""
    space = spaces["nasrec_small"].on(table.num_dense, table.rows).reduced(16, 16)
    arch, settings = space.sample(Random(3)), Settings(batch_size=48, clip=0.5)
    plan = pruned(space.plan(arch))
    alone = [plan.module(Origin("xavier", seed)).double() for seed in (0, 7)]

    def run(weights: Mapping[str, Tensor], dense: Tensor, ids: Tensor) -> Tensor:
        return execute(plan, weights, (dense, ids))

    parts: tuple[Part, ...] = ("train", "test")
    rows = {part: in_double(Rows.of(table, part)) for part in parts}
    together = Together(run, stacked([model.weights() for model in alone]), rows["train"], settings)
    found = together.trained()
    assert together.steps == math.ceil(640 / 48) == int(together.step)
    measured = together.measured(rows["test"])
    for number, model in enumerate(alone):
        trainer = Trainer(model, table.rows, together.steps, settings)
        for batch in table.batches("train", size=48):
            trainer.train_on(CtrBatch(batch.dense.double(), batch.ids, batch.label.double()))
        for name, weight in model.weights().items():
            torch.testing.assert_close(found[name][number], weight.detach(), rtol=1e-6, atol=1e-9)
        logits = model(rows["test"].dense, rows["test"].ids)[:, 0].detach()
        metrics = measure(logits.numpy(), rows["test"].label.numpy())
        assert measured[number].log_loss == pytest.approx(metrics.log_loss, rel=1e-6)
        assert measured[number].auc == pytest.approx(metrics.auc)


def in_double(rows: Rows) -> Rows:
    return rows._replace(dense=rows.dense.double(), label=rows.label.double())


def test_one_pass_only(table: CtrTable) -> None:
    with pytest.raises(UserError, match="once through the rows"):
        Together(
            lambda w, dense, ids: dense[:, 0] * w["a"],
            {"a": torch.ones(1, 1)},
            Rows.of(table, "val"),
            Settings(epochs=2),
        )


def test_weights_that_blow_up_are_an_error(table: CtrTable) -> None:
    rows = Rows.of(table, "val")
    rows = rows._replace(dense=rows.dense * math.inf)
    with pytest.raises(UserError, match="no longer finite"):
        Together(lambda w, dense, ids: dense[:, 0] * w["a"], {"a": torch.ones(1, 1)}, rows).trained()


SIZES = Sizes(rows=320, batch_size=16, widest=16)


def test_pieces_are_done_once_and_come_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = Study(tmp_path, SIZES, networks=5)
    trained = [study.train_network(arch) for arch in study.archs] + [
        study.train_baseline(name) for name in ("deepfm", "xdeepfm", "autoint+")
    ]
    assert all(len(one["measures"]["test"]) == 3 and one["how"] == "plain" for one in trained)
    monkeypatch.setattr(Together, "trained", None)  # what is there is not trained again
    assert study.train_network(study.archs[0]) == trained[0]
    for number, (level, scaled) in enumerate(LEVELS):
        for seed in range(3):
            rng = Random(100 * number + seed)
            columns = {column: [*(rng.random() for _ in range(4)), None] for column in COLUMNS}
            piece = {"columns": columns, "warm_up_seconds": 1.5, "seconds": 1.0}
            (tmp_path / f"scores-{label_of(seed, level, scaled)}.json").write_text(json.dumps(piece))
    found: dict[str, Any] = {"archs": [study.place.space.text(study.archs[2])], "evaluated": 64, "seconds": 2.0}
    (tmp_path / "found-1-0.01-sigeo.json").write_text(json.dumps(found))
    study.train_found(0, 1, expected=1, end=math.inf)
    half = {**found, "archs": [*found["archs"], study.place.space.text(study.place.space.smallest())]}
    (tmp_path / "found-2-0-zico.json").write_text(json.dumps(half))
    text = report(study)
    assert (
        text.startswith("4 networks (1 without some score left out), mean test log loss")
        and "| 1 %, schedule cut off |" in text
    )
    losses = [one["log_loss"] for one in trained[2]["measures"]["test"]]
    assert f"| found-1-0.01-sigeo (of 1) | {sum(losses) / 3:.4f} ±" in text and "| 1.5, 2.0 |" in text
    assert all(f"| {name} |" in text for name in ("deepfm", "xdeepfm", "autoint+")) and "| dlrm |" not in text
    assert "| found-2-0-zico" not in text and text.endswith("not all networks are trained: found-2-0-zico (1 of 2)")
    picked = [best_of(three) for three in combinations(trained[:4], 3)]
    assert f"| random search of 3 (4 triples) | {sum(picked) / 4:.4f} ±" in text
    beaten = sum(loss > sum(losses) / 3 for loss in picked)
    assert f"| {25 * beaten} % |" in text
    seeds = [[one["measures"]["test"][seed]["log_loss"] for one in trained[:4]] for seed in range(3)]
    r = sum(spearmanr(*pair).statistic for pair in combinations(seeds, 2)) / 3
    assert f"means of 3 to more than {math.sqrt(max(0, 3 * r / (1 + 2 * r))):.3f}" in text


def best_of(networks: Sequence[Mapping[str, Any]]) -> float:
    """The mean test loss of the one that has the lowest validation loss of the first seed."""
    best = min(networks, key=lambda one: one["measures"]["val"][0]["log_loss"])
    return float(np.mean([one["log_loss"] for one in best["measures"]["test"]]))


def test_a_supernet_is_scored_and_searched(tmp_path: Path) -> None:
    """With one level of warm-up; the second call finds everything done."""
    study = Study(tmp_path, Sizes(rows=640, batch_size=16, widest=16), networks=3)
    study.score(0, 0.01, scaled=False)
    scores = json.loads((tmp_path / "scores-0-0.01-unscaled.json").read_text())
    assert {len(values) for values in scores["columns"].values()} == {3}
    whole = [sum(terms) for terms in zip(*(scores["columns"][column] for column in COLUMNS[3:]), strict=True)]
    assert scores["columns"][COLUMNS[1]] == pytest.approx(whole)  # sigeo is the sum of its terms
    found = json.loads((tmp_path / "found-0-0.01-unscaled-sigeo.json").read_text())
    assert found["evaluated"] == 64 and len(found["archs"]) == 3
    before = {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.json")}
    study.score(0, 0.01, scaled=False)
    assert {file: file.stat().st_mtime_ns for file in tmp_path.glob("*.json")} == before
    assert searches(1.0, scaled=True)[-1] == "one_shot" and searches(0.0, scaled=True) == ("sigeo", "zico")


def test_the_long_study_needs_torch_and_numpy_alone(tmp_path: Path, fresh: Fresh) -> None:
    program = "import runpy; runpy.run_module('epochzero_papers', run_name='__main__')"
    done = fresh.bare(program, "recommender-sweep", "prepare", "--folder", tmp_path, "--rows", 200)
    assert done.code == 0, done.err
    assert done.out.startswith("200 rows; floor ")
