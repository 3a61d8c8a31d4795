"""Training click-through models: metrics, exact steps on rows, schedule, resuming, baselines, predictions."""

from __future__ import annotations

import math
import signal
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import log_loss as their_log_loss
from sklearn.metrics import roc_auc_score
from torch import Tensor, nn

from epochzero.errors import DataError, UnknownNameError, UserError
from epochzero.recommend.data.encoding import Encoding
from epochzero.recommend.data.ingest import encode
from epochzero.recommend.data.schema import Categorical, Dense, Schema
from epochzero.recommend.data.synthetic import Planted, synthetic
from epochzero.recommend.data.table import CtrTable
from epochzero.recommend.recommender import Predicted, predict_file
from epochzero.recommend.training.baselines import BASELINES, DLRM, Interacting, baseline, compressed, factorisation
from epochzero.recommend.training.metrics import auc, log_loss, measure
from epochzero.recommend.training.settings import Settings
from epochzero.recommend.training.trainer import Trainer, evaluate, train
from epochzero.registry import spaces
from epochzero_papers.sigeo.click_text import write_text
from tests.damage import flip
from tests.recommend.click_files import line, sample, write

PLANTED = Planted(sizes=(30, 20, 10), num_dense=2, pairs=((0, 1),), gates=((0, 2),), interaction=1.5)
SMALL = Settings(batch_size=64)


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> CtrTable:
    return synthetic(tmp_path_factory.mktemp("ctr") / "table", 6000, PLANTED)


def small_dlrm(table: CtrTable, seed: int = 0) -> DLRM:
    torch.manual_seed(seed)
    return DLRM(table.num_dense, table.rows, 8, (16,), (16,))


@pytest.mark.parametrize("ties", [2, 10, 10**6])
def test_metrics_are_those_of_scikit_learn(ties: int) -> None:
    rng = np.random.default_rng(ties)
    logits, labels = rng.integers(0, ties, 500) / ties * 4 - 2, rng.integers(0, 2, 500)
    assert auc(logits, labels) == pytest.approx(roc_auc_score(labels, logits), abs=1e-12)
    assert log_loss(logits, labels) == pytest.approx(their_log_loss(labels, 1 / (1 + np.exp(-logits))), abs=1e-12)
    pairs = [(a > b) + (a == b) / 2 for a in logits[labels == 1][:40] for b in logits[labels == 0][:40]]
    few = np.concatenate([logits[labels == 1][:40], logits[labels == 0][:40]])
    assert auc(few, [1] * 40 + [0] * 40) == pytest.approx(np.mean(pairs), abs=1e-12)


def test_one_label_has_a_log_loss_but_no_auc() -> None:
    found = measure([0.0, 1.0], [0, 0])
    assert found.log_loss == pytest.approx((math.log(2) + math.log(1 + math.e)) / 2)
    assert math.isnan(found.auc)
    assert found.why == "all 2 rows have the label 0, so there is no AUC"
    with pytest.raises(DataError, match="no rows to measure"):
        measure([], [])
    with pytest.raises(DataError, match="infinite or missing"):
        measure([math.nan], [0])
    assert log_loss([1000.0, -1000.0], [1, 0]) == 0


def test_a_step_on_rows_is_a_step_on_the_tables(table: CtrTable) -> None:
    """Ten steps against torch's own Adagrad and clipping on whole tables."""
    ours, theirs = small_dlrm(table), small_dlrm(table)
    settings = Settings(batch_size=64, clip=0.05)
    trainer = Trainer(ours, table.rows, 10, settings)
    adagrad = torch.optim.Adagrad(theirs.parameters(), eps=1e-2)
    for step, batch in zip(range(10), table.batches("train", size=64), strict=False):
        loss = trainer.train_on(batch)
        adagrad.zero_grad()
        reference = nn.functional.binary_cross_entropy_with_logits(theirs(batch.dense, batch.ids), batch.label)
        torch.autograd.backward(reference)
        assert float(nn.utils.clip_grad_norm_(theirs.parameters(), 0.05)) > 0.05
        adagrad.param_groups[0]["lr"] = settings.rate(step, 10)
        adagrad.step()
        assert loss == pytest.approx(reference.item(), abs=1e-6)
    for (name, ours_p), theirs_p in zip(ours.named_parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(ours_p, theirs_p, msg=name, rtol=1e-4, atol=1e-6)


class Own(nn.Module):
    """A user's model, which knows nothing of this package."""

    def __init__(self, rows: tuple[int, ...], sparse: bool = False) -> None:
        super().__init__()
        self.vectors = nn.ModuleList(nn.Embedding(count, 4, sparse=sparse) for count in rows)
        self.last = nn.Linear(4, 1)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        logit: Tensor = self.last(sum(table(ids[:, f]) for f, table in enumerate(self.vectors)))
        return logit


def test_a_model_with_its_own_embeddings(table: CtrTable) -> None:
    torch.manual_seed(0)
    model = Own(table.rows)
    before = [vectors.get_parameter("weight").detach().clone() for vectors in model.vectors]
    batch = next(table.batches("train", size=8))
    trainer = Trainer(model, table.rows, 1)
    wanted = nn.functional.binary_cross_entropy_with_logits(model(batch.dense, batch.ids)[:, 0], batch.label)
    assert trainer.train_on(batch) == pytest.approx(wanted.item())
    for column, (old, new) in enumerate(zip(before, model.vectors, strict=True)):
        moved = (old != new.get_parameter("weight")).any(1)
        assert set(torch.nonzero(moved).flatten().tolist()) == set(batch.ids[:, column].tolist())
    with pytest.raises(UserError, match="sparse gradients"):
        Trainer(Own(table.rows, sparse=True), table.rows, 1).train_on(batch)
    with pytest.raises(DataError, match="ids beyond the model's embedding tables"):
        Trainer(small_dlrm(table), table.rows, 1).train_on(batch._replace(ids=batch.ids + 30))


def test_rates_rise_and_fall() -> None:
    rates = [Settings().rate(step, 100) for step in range(100)]
    assert rates[0] == pytest.approx(1e-8)
    assert rates[5] == pytest.approx(0.06)
    assert max(rates) == rates[10] == pytest.approx(0.12)
    assert rates[55] == pytest.approx(0.06)
    assert 0 < rates[99] < 1e-4
    assert Settings().rate(0, 1) == 0.12


class StoppedError(Exception):
    pass


def stop_at(step: int) -> Any:
    def tell(done: int, steps: int, loss: float) -> None:
        if done == step:
            raise StoppedError

    return tell


@pytest.mark.parametrize("epochs", [1, 2])
def test_a_stopped_training_ends_as_if_undisturbed(table: CtrTable, tmp_path: Path, epochs: int) -> None:
    settings = Settings(batch_size=256, epochs=epochs)
    straight, stopped = small_dlrm(table), small_dlrm(table)
    whole = train(straight, table, settings)
    file = tmp_path / "run.pt"
    with pytest.raises(StoppedError):
        train(stopped, table, settings, checkpoint=file, every=5, progress=stop_at(epochs * 12))
    resumed = small_dlrm(table, seed=9)
    done = train(resumed, table, settings, checkpoint=file, every=5)
    assert (done.steps, done.loss) == (whole.steps, whole.loss)
    for a, b in zip(straight.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(a, b)
    again = train(small_dlrm(table, seed=9), table, settings, checkpoint=file)
    assert math.isnan(again.rows_per_second)


def test_ctrl_c_keeps_all_steps_so_far(table: CtrTable, tmp_path: Path) -> None:
    """Though checkpoints are far apart; and in the end nothing is different."""
    told: list[int] = []

    def interrupt(done: int, steps: int | None, note: str) -> None:
        told.append(done)
        if len(told) == 7:
            signal.raise_signal(signal.SIGINT)

    settings, file = Settings(batch_size=256), tmp_path / "run.pt"
    straight, resumed = small_dlrm(table), small_dlrm(table)
    whole = train(straight, table, settings)
    with pytest.raises(KeyboardInterrupt):
        train(small_dlrm(table), table, settings, checkpoint=file, progress=interrupt)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert train(resumed, table, settings, checkpoint=file, progress=interrupt).loss == whole.loss
    assert told == [*range(1, whole.steps + 1)]
    assert all(torch.equal(a, b) for a, b in zip(straight.parameters(), resumed.parameters(), strict=True))


def test_checkpoints_that_cannot_be_used(table: CtrTable, tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    train(small_dlrm(table), table, SMALL, share=0.1, checkpoint=file)
    with pytest.raises(UserError, match="of a training with other settings"):
        train(small_dlrm(table), table, Settings(batch_size=65), share=0.1, checkpoint=file)
    with pytest.raises(UserError, match="of a training with other network, seed: choose another place"):
        train(small_dlrm(table), table, SMALL, share=0.1, identity={"network": "dlrm", "seed": 3}, checkpoint=file)
    with pytest.raises(UserError, match="is of another model"):
        train(DLRM(table.num_dense, table.rows, 8, (17,), (16,)), table, SMALL, share=0.1, checkpoint=file)
    flip(file, torch.load(file)["model"]["top.0.weight"])
    remedy = "Remove it: the same command then writes it again"
    with pytest.raises(DataError, match=rf"run.pt' is damaged: .* checksum. {remedy}"):
        train(small_dlrm(table), table, SMALL, share=0.1, checkpoint=file)
    file.write_bytes(b"nonsense")
    with pytest.raises(DataError, match=r"run.pt' is damaged, cut short .* Remove it"):
        train(small_dlrm(table), table, SMALL, checkpoint=file)
    torch.save({"kind": "another"}, file)
    with pytest.raises(UserError, match="not a checkpoint of a click model"):
        train(small_dlrm(table), table, SMALL, checkpoint=file)


def test_what_cannot_be_trained(table: CtrTable, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"3 embedding tables with 26 rows, .* 3 with 63"):
        train(DLRM(2, (5, 10, 11)), table)
    with pytest.raises(UserError, match=r"share of the rows to train on is 0"):
        train(small_dlrm(table), table, share=0)
    with pytest.raises(UserError, match="at least 1 epoch"):
        Settings(epochs=0)
    with pytest.raises(UserError, match="finite numbers above 0"):
        Settings(highest=math.inf)
    with pytest.raises(DataError, match="no rows in other"):
        train(small_dlrm(table), table, parts=("other",))
    one = Schema("one", "click", (Dense("age"),), (Categorical("city"),))
    path = write(tmp_path / "one.csv", ["1" + line(row)[1:] for row in range(20)])
    single = encode(path, one, tmp_path / "one")
    with pytest.raises(DataError, match=r"All 16 rows of train .* have the label 1"):
        train(DLRM(1, single.rows), single)
    assert evaluate(DLRM(1, single.rows), single, "test").why.startswith("all 2 rows have the label 1")


def test_a_loss_that_is_not_finite_stops(table: CtrTable) -> None:
    model = small_dlrm(table)
    with torch.no_grad():
        model.bottom[0].get_parameter("weight").fill_(math.nan)
    with pytest.raises(UserError, match="loss is nan at step 0"):
        train(model, table, SMALL)


@pytest.mark.parametrize("name", BASELINES)
def test_baselines_learn_and_take_the_agreed_batch(name: str, table: CtrTable) -> None:
    torch.manual_seed(0)
    model = baseline(name, table.num_dense, table.rows)
    batch = next(table.batches("train", size=7))
    assert model(batch.dense, batch.ids).shape == (7,)
    rate = table.clicks("test") / table.size("test")
    constant = -(rate * math.log(rate) + (1 - rate) * math.log(1 - rate))
    trained = train(model, table, Settings(batch_size=50), share=0.8)
    found = evaluate(model, table, "test")
    assert trained.steps == math.ceil(0.8 * 4800 / 50)
    assert found.rows == 600
    assert found.log_loss < constant
    assert found.auc > 0.55


@pytest.mark.parametrize("most", [None, 40])
def test_a_network_of_a_space_is_trained_within_its_budget(table: CtrTable, tmp_path: Path, most: int | None) -> None:
    space = spaces["nasrec_small"].on(table.num_dense, table.rows, max_rows=most).reduced(16, 16)
    model = space.plan(space.sample(Random(0))).module()
    capped = table.capped(space.tables)
    batch, whole = (next(which.batches("train", size=300)) for which in (capped, table))
    assert bool((batch.ids < torch.tensor(space.tables)).all()) and torch.equal(batch.dense, whole.dense)
    assert (most is None) == torch.equal(batch.ids, whole.ids)
    trained = train(model, capped, SMALL, share=0.3)
    assert trained.loss < 0.72
    assert evaluate(model, capped, "val", "test").rows == 1200
    path = tmp_path / "rows.tsv"
    write_text(path, 50, PLANTED)
    (tmp_path / "encoding.json").write_text(capped.encoding.text())
    assert row_counts(predict_file(model, path, Encoding.read(tmp_path / "encoding.json"), tmp_path / "out.csv")) == (
        50,
        0,
    )
    with pytest.raises(UserError, match="There are 3 categorical columns"):
        table.capped((3,))


def test_an_unknown_baseline() -> None:
    with pytest.raises(UnknownNameError, match=r"'deepmf'. Did you mean 'deepfm'\?"):
        baseline("deepmf", 1, (3,))
    with pytest.raises(UserError, match="the table has none"):
        baseline("deepfm", 1, ())


def vectors(batch: int = 3, fields: int = 5, width: int = 4) -> Tensor:
    return torch.randn(batch, fields, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_factorisation_by_the_double_loop() -> None:
    e = vectors()
    slow = [sum(float(row[i] @ row[j]) for i, j in combinations(range(5), 2)) for row in e]
    assert factorisation(e).tolist() == pytest.approx(slow)


def test_dlrm_products_by_the_double_loop() -> None:
    model = DLRM(3, (4, 5), 8, (6,), (7,)).double()
    dense, ids = torch.randn(2, 3, dtype=torch.float64), torch.tensor([[0, 4], [3, 1]])
    for row in range(2):
        z = [model.bottom(dense[row])]
        z += [dict(model.embedding.named_parameters())[f"table{f}"][ids[row, f]] for f in range(2)]
        pairs = [z[i] @ z[j] for i in range(3) for j in range(i)]
        slow = model.top(torch.cat([z[0], torch.stack(pairs)]))
        assert model(dense, ids)[row].item() == pytest.approx(slow.item())


def test_the_compressed_interaction_by_loops() -> None:
    e, maps = vectors(2, 3), vectors(2, 2).flip(0)
    weights = torch.randn(4, 2 * 3, dtype=torch.float64)
    found = compressed(maps, e, weights)
    assert found.shape == (2, 4, 4)
    for b in range(2):
        for h in range(4):
            slow = sum(weights[h, i * 3 + j] * maps[b, i] * e[b, j] for i in range(2) for j in range(3))
            torch.testing.assert_close(found[b, h], torch.as_tensor(slow))


@torch.no_grad()
def test_the_interacting_layer_by_loops() -> None:
    e = vectors(1, 3)[0]
    layer = Interacting(4, 6, 2).double()
    found = layer(e[None])[0]
    q, k, v = (part(e) for part in (layer.query, layer.key, layer.value))
    for m in range(3):
        heads = []
        for h in (slice(0, 3), slice(3, 6)):
            strength = [math.exp(float(q[m, h] @ k[n, h])) for n in range(3)]
            heads.append(sum(strength[n] / sum(strength) * v[n, h] for n in range(3)))
        slow = torch.relu(torch.cat([torch.as_tensor(head) for head in heads]) + layer.kept(e[m]))
        torch.testing.assert_close(found[m], slow)


@pytest.fixture
def lines(tmp_path: Path) -> Iterator[list[str]]:
    write_text(tmp_path / "rows.tsv", 300, PLANTED)
    yield (tmp_path / "rows.tsv").read_text().splitlines()


def row_counts(done: Predicted) -> tuple[int, int]:
    return done.rows, done.bad_lines


def test_predictions_line_by_line(table: CtrTable, tmp_path: Path, lines: list[str]) -> None:
    model = small_dlrm(table).train()
    out = tmp_path / "out.csv"
    assert row_counts(predict_file(model, tmp_path / "rows.tsv", table.encoding, out)) == (300, 0)
    assert model.training
    written = [row.split(",") for row in out.read_text().splitlines()]
    assert written[0] == ["line", "probability", "why"]
    assert [int(number) for number, *_ in written[1:]] == [*range(1, 301)]
    dense, ids = (torch.from_numpy(np.array(table.column(name)[:300])) for name in ("dense", "ids"))
    clicks = model(dense, ids.long()).double().sigmoid().tolist()
    assert [float(click) for _, click, _ in written[1:]] == pytest.approx(clicks, rel=1e-5)

    hidden = tmp_path / "hidden.tsv"
    hidden.write_text("".join(f"?{row[1:]}\n" for row in lines))
    predict_file(model, hidden, table.encoding, tmp_path / "hidden.csv")
    assert (tmp_path / "hidden.csv").read_text() == out.read_text()
    bare = tmp_path / "bare.tsv"
    bare.write_text("".join(f"{row.split(chr(9), 1)[1]}\n" for row in lines))
    predict_file(model, bare, table.encoding, tmp_path / "bare.csv")
    assert (tmp_path / "bare.csv").read_text() == out.read_text()


def test_predictions_lose_no_line(table: CtrTable, tmp_path: Path, lines: list[str]) -> None:
    path, out = tmp_path / "rows.tsv", tmp_path / "out.csv"
    lines[4] = "0\t1"
    path.write_text("\n".join(lines))
    out.write_text("old")
    with pytest.raises(DataError, match="Line 5 of"):
        predict_file(small_dlrm(table), path, table.encoding, out)
    assert out.read_text() == "old"
    assert row_counts(predict_file(small_dlrm(table), path, table.encoding, out, bad_lines="skip")) == (299, 1)
    assert out.read_text().splitlines()[5] == '5,,"has 2 columns where 6 should be"'
    with pytest.raises(UserError, match="choose another place"):
        predict_file(small_dlrm(table), path, table.encoding, tmp_path / "nowhere" / "out.csv", bad_lines="skip")


def test_predictions_where_no_line_is_good(table: CtrTable, tmp_path: Path) -> None:
    """By a network that merges its vector into its rows, which needs to know how many there are."""
    space = spaces["nasrec_small"].on(table.num_dense, table.rows).reduced(16, 16)
    arch = tuple(block._replace(merge=True) for block in space.sample(Random(0)))
    path, out = tmp_path / "bad.tsv", tmp_path / "out.csv"
    path.write_text("0\t1\n" + "\t".join("x" * 6) + "\n")
    model = space.plan(arch).module()
    assert row_counts(predict_file(model, path, table.encoding, out, bad_lines="skip")) == (0, 2)
    assert [row.partition(",")[0] for row in out.read_text().splitlines()] == ["line", "1", "2"]
    assert model(torch.zeros(0, table.num_dense), torch.zeros(0, len(table.rows), dtype=torch.long)).shape == (0, 1)


def test_the_criteo_sample_can_be_learnt(tmp_path: Path) -> None:
    table = encode(sample("criteo"), "criteo", tmp_path / "t")
    torch.manual_seed(0)
    model = DLRM(table.num_dense, table.rows, 4, (32,), (32,))
    train(model, table, Settings(batch_size=128))
    assert evaluate(model, table, "test").auc > 0.65
