"""The tuned recipe: early stopping, AdamW on rows, starts, forms of networks, and what a search gained."""

from __future__ import annotations

import math
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from epochzero.errors import DataError, UserError
from epochzero.plan.ops.norm import LayerNorm
from epochzero.recommend.comparison import gain
from epochzero.recommend.data.synthetic import Planted, synthetic
from epochzero.recommend.data.table import CtrTable
from epochzero.recommend.spaces.nasrec_network import WIDE, Form
from epochzero.recommend.training.baselines import DLRM
from epochzero.recommend.training.early_stopping import PROGRESS, base_loss
from epochzero.recommend.training.recipes import RECIPES, Recipe, recipe
from epochzero.recommend.training.settings import Settings
from epochzero.recommend.training.source import TrainingSource
from epochzero.recommend.training.start import intervals, start
from epochzero.recommend.training.trainer import Trainer, evaluate, train
from epochzero.recommend.training.trees import trees
from epochzero.registry import spaces
from tests.plan.test_codegen import assert_same

LAW = Planted(sizes=(30, 20, 10), num_dense=2, pairs=((0, 1),), gates=((0, 2),), interaction=1.5)
NOISE = Planted(sizes=(300, 200), num_dense=1, pairs=(), gates=(), single=0.0)
ADAM = Settings(batch_size=64, epochs=6, highest=3e-3, optimizer="adam", shuffle=True, patience=2, embedding_scale=0.01)
TUNED = Form(norms=False, intervals=4, wide=True)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> CtrTable:
    return synthetic(tmp_path_factory.mktemp("tuned") / "table", 3000, LAW)


@pytest.fixture(scope="module")
def noise(tmp_path_factory: pytest.TempPathFactory) -> CtrTable:
    """Labels that depend on nothing."""
    return synthetic(tmp_path_factory.mktemp("noise") / "table", 1000, NOISE)


def dlrm(table: CtrTable, seed: int = 0) -> DLRM:
    torch.manual_seed(seed)
    return DLRM(table.num_dense, table.rows, 8, (16,), (16,))


def source_of(table: CtrTable, settings: Settings, form: Form = TUNED) -> TrainingSource:
    space = spaces["nasrec_small"].on(table.num_dense, table.rows).reduced(16, 16)
    return TrainingSource(space.formed(form), table, settings)


def test_the_best_state_is_restored(table: CtrTable, tmp_path: Path) -> None:
    model, file = dlrm(table), tmp_path / "run.pt"
    trained = train(model, table, Settings(**{**ADAM.told(), "highest": 0.05}), checkpoint=file)
    history = torch.load(file)["stopping"]["history"]
    found = evaluate(model, table, "val").log_loss
    assert found == pytest.approx(min(history), abs=1e-9) and found < history[-1]
    assert trained.best_step < trained.steps and not trained.at_base
    again = train(dlrm(table, 9), table, Settings(**{**ADAM.told(), "highest": 0.05}), checkpoint=file)
    assert math.isnan(again.rows_per_second) and again.best_step == trained.best_step


class StoppedError(Exception):
    pass


def test_killed_between_checks_it_ends_the_same(table: CtrTable, tmp_path: Path) -> None:
    def kill(step: int, steps: int | None, note: str) -> None:
        if step == 55 and note.startswith("loss"):
            raise StoppedError

    settings, file = Settings(**{**ADAM.told(), "falls": 1, "sweep": True}), tmp_path / "run.pt"
    straight, resumed = dlrm(table), dlrm(table, 9)
    whole = train(straight, table, settings, seed=3)
    with pytest.raises(StoppedError):
        train(dlrm(table), table, settings, seed=3, checkpoint=file, every=7, progress=kill)
    done = train(resumed, table, settings, seed=3, checkpoint=file, every=7)
    assert (done.steps, done.loss, done.best_step, done.rate) == (whole.steps, whole.loss, whole.best_step, whole.rate)
    assert all(torch.equal(a, b) for a, b in zip(straight.parameters(), resumed.parameters(), strict=True))


def test_a_model_at_the_base_rate_is_retried_and_flagged(noise: CtrTable) -> None:
    trained = train(dlrm(noise), noise, Settings(**{**ADAM.told(), "epochs": 20}))
    assert trained.retried and trained.at_base and trained.rate == pytest.approx(ADAM.highest / 10)


def test_a_retry_helps_where_only_the_rate_was_wrong(table: CtrTable) -> None:
    model = dlrm(table)
    trained = train(model, table, Settings(**{**ADAM.told(), "highest": 3.0, "epochs": 30, "clip": 1e9}))
    assert trained.retried == (trained.rate < 3.0)
    assert trained.at_base == (evaluate(model, table, "val").log_loss > base_loss(table) - PROGRESS)


def test_the_base_rate_by_hand(table: CtrTable) -> None:
    (val,), rate = table.batches("val", size=10_000), table.clicks("train") / table.size("train")
    losses = [-math.log(rate if label else 1 - rate) for label in val.label.tolist()]
    assert base_loss(table) == pytest.approx(np.mean(losses))


def test_a_network_never_ends_behind_its_linear_model(table: CtrTable) -> None:
    """Even with a rate that teaches the blocks nothing."""
    source = source_of(table, Settings(**{**ADAM.told(), "highest": 1e-7, "epochs": 2}))
    good = source_of(table, ADAM)
    source.__dict__["linear"] = good.linear
    alone = good.model(())
    alone.load_state_dict(good.linear, strict=False)
    arch = source.space.sample(Random(0))
    bare, guarded = source.model(arch), source.trained(arch)
    source.fit(bare, "bare")
    best = evaluate(alone, table, "val").log_loss
    assert evaluate(bare, table, "val").log_loss > best + 0.01
    assert evaluate(guarded, table, "val").log_loss <= best + 1e-7


def test_adam_on_rows_is_torchs_where_a_batch_names_all_rows(tmp_path: Path) -> None:
    table = synthetic(tmp_path / "t", 2000, Planted(sizes=(3, 2), num_dense=2, pairs=(), gates=()))
    ours, theirs = dlrm(table), dlrm(table)
    settings = Settings(**{**ADAM.told(), "weight_decay": 0.1, "embedding_decay": 0.1, "rise": 0.0, "batch_size": 200})
    trainer = Trainer(ours, table.rows, 8, settings)
    adam = torch.optim.AdamW(theirs.parameters(), lr=settings.highest, weight_decay=0.1)
    for batch in table.batches("train", size=200):
        assert all(len(column.unique()) == rows for column, rows in zip(batch.ids.T, table.rows, strict=True))
        trainer.train_on(batch)
        adam.zero_grad()
        loss = nn.functional.binary_cross_entropy_with_logits(theirs(batch.dense, batch.ids), batch.label)
        torch.autograd.backward(loss)
        adam.step()
    for (name, one), other in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(one, other, msg=name, rtol=1e-4, atol=1e-6)


def test_rows_are_shuffled_and_each_comes_once(table: CtrTable) -> None:
    whole = torch.cat([b.dense for b in table.batches("train", size=100)])
    for seed in ((0, 0), (0, 1)):
        batches = list(table.shuffled("train", size=64, seed=seed))
        mixed = torch.cat([b.dense for b in batches])
        assert not torch.equal(mixed, whole) and torch.equal(mixed.sum(0).round(), whole.sum(0).round())
        later = next(iter(table.shuffled("train", size=64, start=5, seed=seed)))
        assert torch.equal(later.ids, batches[5].ids) and len(mixed) == len(whole)


def test_embeddings_begin_at_one_scale_whatever_their_size(tmp_path: Path) -> None:
    table = synthetic(tmp_path / "t", 100, Planted(sizes=(3000, 30), num_dense=1, pairs=(), gates=()))
    old, new = (source_of(table, s).model(()) for s in (Settings(), ADAM))
    arch = source_of(table, ADAM).space.sample(Random(0))
    model = source_of(table, ADAM).model(arch)
    deviations = [model.get_parameter(f"embedding.table{f}").std().item() for f in (0, 1)]
    assert deviations == pytest.approx([0.01, 0.01], rel=0.2)
    published = source_of(table, Settings()).model(arch)
    assert published.get_parameter("embedding.table1").std() > 3 * published.get_parameter("embedding.table0").std()
    assert not new.get_parameter(f"{WIDE}.embedding.table0").any() and old.get_parameter(f"{WIDE}.linear.weight").any()
    assert not model.get_parameter("head.linear.weight").any()


@pytest.mark.parametrize("form", [Form(norms=False), Form(True, 4, True), TUNED, Form(False, 4, False)], ids=str)
@pytest.mark.parametrize("name", ["nasrec_small", "nasrec_full"])
def test_forms_print_as_code_that_is_the_same(name: str, form: Form) -> None:
    space = spaces[name].on(3, (5, 4, 6), width=8).reduced(16, 16).formed(form)
    for seed in range(3):
        plan = space.plan(space.sample(Random(seed)))
        assert any(isinstance(node.op, LayerNorm) for node in plan.nodes) == form.norms
        assert any("weigh.bias" in weight for weight in plan.weights) != form.norms
        assert plan.output_shape == (1,)
        if seed == 0:
            assert_same(space.plan(space.sample(Random(seed)), input_shape=(6,)))


def test_choices_without_layer_norms_are_read() -> None:
    space = spaces["nasrec_small"]
    arch = space.sample(Random(0))
    text = space.formed(Form(norms=False)).choice(arch)
    assert '"use_layernorm": 0' in text and space.parse(text) == arch
    with pytest.raises(UserError, match="with or without layer norms"):
        space.parse(text.replace('"use_layernorm": 0', '"use_layernorm": 2'))


@pytest.mark.parametrize("width", [0, 12])
def test_widths_of_embeddings(width: int) -> None:
    with pytest.raises(UserError, match="multiple of 8"):
        spaces["nasrec_small"].on(3, (5, 4), width=width)
    wide = spaces["nasrec_small"].on(3, (5, 4), max_bytes=8 * 32 * 4, width=32)
    assert sum(wide.tables) == 8 and wide.embedding_params == 8 * 32


def place(values: Tensor, low: np.ndarray[Any, Any], scale: np.ndarray[Any, Any]) -> Tensor:
    return ((values[:, None] - torch.from_numpy(low)) * torch.from_numpy(scale)).clamp(0, 1)


def test_intervals_separate_few_values_and_leave_room_beside_a_frequent_one() -> None:
    few = np.array([[0.0], [1.0], [5.0], [5.0]])
    (low,), (scale,) = intervals(few, 4)
    assert place(torch.tensor([0.0, 1.0, 5.0, 3.0], dtype=torch.float64), low, scale).sum(1).tolist() == [0, 1, 2, 1.5]
    rng = np.random.default_rng(0)
    many = np.concatenate([np.zeros(900), rng.uniform(1, 2, 100)])[:, None]
    (low,), (scale,) = intervals(many, 8)
    assert (scale > 0).sum() >= 6 and (np.diff(low) >= 0).all()  # plain quantiles would leave one interval
    assert intervals(np.ones((5, 1)), 3)[1].tolist() == [[0, 0, 0]]


def test_statistics_are_those_of_the_training_rows(table: CtrTable) -> None:
    model = source_of(table, ADAM).model(())
    (train_rows,) = table.batches("train", size=10_000)
    mean = dict(model.named_buffers())["numbers.standardised.mean"]
    torch.testing.assert_close(mean, train_rows.dense.mean(0), rtol=1e-4, atol=1e-5)
    lone = dlrm(table)
    before = [weight.clone() for weight in lone.parameters()]
    start(lone, table, Settings(), 0)
    assert all(torch.equal(a, b) for a, b in zip(before, lone.parameters(), strict=True))


def test_trees_beat_the_base_rate(table: CtrTable) -> None:
    found = trees(table)
    assert found["val"].log_loss < base_loss(table) and found["test"].auc > 0.55


def test_recipes_change_and_are_read_again() -> None:
    changed = recipe("tuned").changed({"highest": 0.01, "wide": 0, "use_layernorm": 1, "intervals": 3})
    assert Recipe.read(changed.told()) == changed and changed.form == Form(True, 3, False)
    assert RECIPES["published"].settings == Settings() and not RECIPES["published"].form.norms
    assert "optimizer" not in Settings().told()  # the keys of stored trainings stay
    for wrong, why in (
        ({"optimizer": "sgd"}, "No optimizer is called 'sgd'"),
        ({"intervals": -1}, "intervals"),
        ({"checks": 0}, "at least 1 check"),
        ({"embedding_decay": -1.0}, "at least 0"),
    ):
        with pytest.raises(UserError, match=why):
            recipe("tuned").changed(wrong)
    with pytest.raises(UserError, match="No recipe is called 'tund'"):
        recipe("tund")


def test_early_stopping_needs_validation_rows(table: CtrTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CtrTable, "size", lambda self, *parts: 0 if parts == ("val",) else 10)
    with pytest.raises(DataError, match="no validation rows, which early stopping needs"):
        base_loss(table)


def test_a_gain_has_the_interval_of_welch() -> None:
    one, two = [0.5, 0.52, 0.51], [0.45, 0.47, 0.49]
    found = gain(one, two)
    error = math.sqrt(np.var(one, ddof=1) / 3 + np.var(two, ddof=1) / 3)
    assert found["value"] == pytest.approx(0.04)
    assert found["low"] is not None and found["high"] is not None
    assert found["low"] + found["high"] == pytest.approx(0.08) and found["high"] - 0.04 > 2 * error
    assert gain([0.5], [0.4]) == {"value": pytest.approx(0.1), "low": None, "high": None}
