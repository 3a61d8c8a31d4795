"""From a table of clicks to a trained recommender: the whole chain on tiny data, killed and resumed, and refused."""

from __future__ import annotations

import json
import re
import signal
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
from scipy.stats import spearmanr

from epochzero.errors import UserError
from epochzero.recommend.data.synthetic import Planted, synthetic
from epochzero.recommend.data.table import CtrTable
from epochzero.recommend.presets import PRESETS, Preset
from epochzero.recommend.spaces.nasrec_network import Form
from epochzero.recommend.sub_one_shot import RecommenderResult, SubOneShotSearch
from epochzero.recommend.supernet.fitness import in_parts
from epochzero.recommend.training.settings import Settings
from epochzero.recommend.training.source import TEST_AUC, TEST_LOSS, VAL_LOSS, TrainingSource
from epochzero.recommend.training.trainer import evaluate
from epochzero.registry import experiments, spaces
from epochzero.store import Store
from epochzero.study.result import Candidate
from epochzero.study.task import Task
from epochzero.types import Score
from epochzero_papers.sigeo.click_text import write_text
from epochzero_papers.sigeo.recommender import Clicks
from tests.command import epochzero

LAW = Planted(sizes=(20, 20, 10, 10, 6), num_dense=3, pairs=((0, 3), (1, 2)), gates=((0, 4),))
TINY = Preset(16, 16, population=3, generations=2, tournament=2, children=1, top=2, batch_size=16, fine_steps=2)
STAGES = ("warm-up", "search", "training")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> CtrTable:
    return synthetic(tmp_path_factory.mktemp("clicks") / "table", 640, LAW)


def same(one: RecommenderResult, other: RecommenderResult) -> bool:
    """But for the seconds."""
    return replace(one, seconds={}) == replace(other, seconds={})


@pytest.fixture(scope="module")
def whole(table: CtrTable, tmp_path_factory: pytest.TempPathFactory) -> RecommenderResult:
    return SubOneShotSearch(table, warmup=0.25, preset=TINY, every=3).run(tmp_path_factory.mktemp("whole"))


def test_the_chain_ends_with_trained_networks(whole: RecommenderResult, table: CtrTable) -> None:
    assert whole.evaluated == 3 + 2 * 1 and len(whole.candidates) == 2
    assert whole.warmup_steps == 8  # a quarter of 512 rows in batches of 16
    assert whole.objective == "sigeo(weights=warm_recommender)"
    assert whole.candidates[0].score >= whole.candidates[1].score
    assert whole.best.val_log_loss == min(found.val_log_loss for found in whole.candidates)
    assert whole.embedding_params == 16 * sum(table.rows)
    assert tuple(whole.seconds) == STAGES


def test_what_it_reports_is_what_the_network_is_worth(whole: RecommenderResult, table: CtrTable) -> None:
    """Trained again by hand; the winner's log loss from its probabilities."""
    space = spaces["nasrec_small"].on(table.num_dense, table.rows).reduced(16, 16)
    arch = space.parse(whole.best.arch)
    model = TrainingSource(space.formed(Form(norms=False)), table, Settings(batch_size=16)).trained(arch).eval()
    (batch,) = table.batches("test", size=1000)
    clicked = model(batch.dense, batch.ids)[:, 0].double().sigmoid().detach().numpy()
    label = batch.label.numpy()
    losses = -np.where(label == 1, np.log(clicked), np.log(1 - clicked))
    assert whole.best.test_log_loss == pytest.approx(losses.mean(), rel=1e-5)
    pairs = [(a > b) + (a == b) / 2 for a in clicked[label == 1] for b in clicked[label == 0]]
    assert whole.best.test_auc == pytest.approx(np.mean(pairs), abs=1e-3)
    assert whole.best.params == space.formed(Form(norms=False)).plan(arch).params - 16 * sum(table.rows)


class Killed(BaseException):
    """As by a signal."""


@pytest.mark.parametrize(("stage", "at", "goes_on"), [("warm-up", 5, 4), ("search", 4, 0), ("training", 40, 39)])
def test_killed_and_resumed_it_ends_the_same(
    table: CtrTable, whole: RecommenderResult, tmp_path: Path, stage: str, at: int, goes_on: int
) -> None:
    """From the checkpoint of step 3; scores from the store; from that of step 6 of the second network's 32."""

    def kill(done: int, total: int | None, note: str) -> None:
        if note.startswith(f"{stage}: ") and done >= at:
            raise Killed

    with pytest.raises(Killed):
        SubOneShotSearch(table, warmup=0.25, preset=TINY, every=3, progress=kill).run(tmp_path)
    told: list[tuple[str, int]] = []
    chain = SubOneShotSearch(
        table,
        warmup=0.25,
        preset=TINY,
        every=3,
        progress=lambda done, total, note: told.append((note.partition(":")[0], done)),
    )
    assert same(chain.run(tmp_path), whole)
    begun = dict(reversed(told))
    assert begun[stage] == goes_on and ("warm-up" in begun) == (stage == "warm-up")
    told.clear()
    assert same(chain.run(tmp_path), whole) and all(now == "search" for now, _ in told)


def test_ctrl_c_keeps_the_warm_up_so_far(table: CtrTable, tmp_path: Path) -> None:
    """All of it, though checkpoints are far apart; and in the end nothing is different."""
    told: list[int] = []

    def interrupt(done: int, total: int | None, note: str) -> None:
        told.append(done)
        if told == [1, 2, 3, 4, 5]:
            signal.raise_signal(signal.SIGINT)

    chain = SubOneShotSearch(table, warmup=0.25, preset=TINY, progress=interrupt)
    with pytest.raises(KeyboardInterrupt):
        chain.warmed(tmp_path)
    resumed = chain.warmed(tmp_path)
    assert told == [*range(1, 9)] and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    (tmp_path / "undisturbed").mkdir()
    assert chain.warmed(tmp_path / "undisturbed").id == resumed.id


def test_a_warm_up_serves_every_search_that_would_repeat_it(table: CtrTable, tmp_path: Path) -> None:
    told: list[int] = []
    chain = SubOneShotSearch(table, preset=TINY, progress=lambda done, total, note: told.append(done))
    first = chain.warmed(tmp_path)
    told.clear()
    other = replace(chain, preset=replace(TINY, top=1, generations=2, population=3), proxy="zico", highest=0.2)
    assert other.warmed(tmp_path).id == first.id and told == []
    for preset in (replace(TINY, batch_size=15), replace(TINY, widest=32)):
        told.clear()
        assert replace(chain, preset=preset).warmed(tmp_path).id != first.id and told


def test_without_warm_up_and_by_one_shot(table: CtrTable, tmp_path: Path) -> None:
    preset = replace(TINY, top=1)
    cold = SubOneShotSearch(table, warmup=0, preset=preset).run(tmp_path)
    assert cold.warmup_steps == 0 and cold.objective == "sigeo"  # whose weights are zero_shot
    other = SubOneShotSearch(table, warmup=0, proxy="zico", preset=preset).run(tmp_path)
    assert other.objective == "zico(batches=4)"
    shot = SubOneShotSearch(table, warmup=0.25, proxy="one_shot", preset=preset).run(tmp_path)
    assert shot.objective.startswith("feedback:one_shot") and -2 < shot.candidates[0].score < 0


def test_trained_networks_are_measured_once(table: CtrTable) -> None:
    space = spaces["nasrec_small"].on(table.num_dense, table.rows).reduced(16, 16)
    arch, steps = space.sample(Random(0)), []
    source = TrainingSource(space, table, Settings(batch_size=64), progress=lambda step, *_: steps.append(step))
    batch = in_parts(list(table.batches("val", size=16))[:4])
    task = Task(space, [TEST_LOSS, TEST_AUC], batch, sources=(source,))
    with Store.open(":memory:") as store:
        run = store.begin_run("training", {}, {})
        (first,), _ = task.evaluate([arch], store, run, 0)
        (again,), _ = task.evaluate([arch], store, run, 0)
    metrics = evaluate(source.trained(arch), table, "test")
    assert steps == [*range(1, 9)] * 2 and first == again
    assert (first[TEST_LOSS.text].value, first[TEST_AUC.text].value) == (metrics.log_loss, metrics.auc)
    assert TEST_LOSS.merit(0.4) > TEST_LOSS.merit(0.5) and not source.covers(replace(VAL_LOSS, name="sigeo"))


def test_choices_that_a_network_does_not_use_make_no_second_candidate(table: CtrTable) -> None:
    """Left and right are read by ops that nasrec_small does not have."""
    chain = SubOneShotSearch(table, preset=TINY)
    space, one = chain.fitted, chain.fitted.sample(Random(1))
    last = one[-1]
    twin = (*one[:-1], last._replace(left=(0,) if last.left != (0,) else (1,)))
    other = space.mutate(space.sample(Random(2)), Random(0))
    found = [Candidate(arch, space.text(arch), Score(1.0)) for arch in (one, twin, other)]
    assert [c.arch for c in chain.distinct(found)] == [one, other]


def test_embedding_rows_are_limited(table: CtrTable, tmp_path: Path) -> None:
    preset = replace(TINY, top=1)
    small = SubOneShotSearch(table, warmup=0, preset=preset, max_embedding_rows=30, max_params=30_000).run(tmp_path)
    assert small.embedding_params <= 30 * 16 and small.best.params <= 30_000


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"space": "nb201"}, "nb201 has no networks for tables of clicks"),
        ({"space": "nasrec_smal"}, "Did you mean 'nasrec_small'"),
        ({"proxy": "sigo"}, "Did you mean 'sigeo'"),
        ({"warmup": 1.5}, "a share from 0 to 1"),
        ({"preset": PRESETS["published"]}, r"takes 4 batches of 512: .* \(--option batch_size=128\)"),
        ({"preset": replace(TINY, top=9)}, "Of 5 evaluated networks, 9 cannot be trained"),
        ({"preset": replace(TINY, widest=8)}, "has no width up to 8"),
        ({"share": 0.0}, "above 0, at most 1"),
        ({"highest": 0.0}, "have to be finite numbers above 0"),
        ({"max_embedding_rows": 3}, "need at least 5 rows"),
        ({"max_params": 10}, "at most 10 parameters outside its embeddings: the smallest has [0-9,]+\\."),
    ],
)
def test_what_cannot_be_is_refused_before_anything_runs(table: CtrTable, changes: dict[str, object], why: str) -> None:
    with pytest.raises(UserError, match=why):
        SubOneShotSearch(**{"table": table, "preset": TINY} | changes)  # type: ignore[arg-type]


def test_a_folder_that_cannot_be_made_is_refused(table: CtrTable, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match="cannot be written"):
        SubOneShotSearch(table, preset=TINY).run(tmp_path / "file" / "inside")


# The study


def test_the_study_is_resumed_and_ends_the_same(tmp_path: Path) -> None:
    study, small = experiments["sigeo-recommender"], Clicks(3, batch_size=16, rows=800, share=0.5, widest=16)
    told: list[int] = []

    def kill(done: int, total: int) -> None:
        if done == 2:
            raise Killed

    with pytest.raises(Killed):
        study.run(small, store=tmp_path / "run.db", progress=kill)
    first, again = (
        study.run(small, store=tmp_path / "run.db", progress=lambda done, total: told.append(done)) for _ in range(2)
    )
    assert told == [1, 2, 3] * 2 and again.rows == first.rows and len(first.rows) == 4 * 2 * 2
    values = first.samples["clicks"].values
    order = spearmanr(values["sigeo, 100 %"], [-loss for loss in values["test log loss"]]).statistic
    (row,) = (row for row in first.rows if (row.x, row.statistic) == ("sigeo, 100 %", "spearman"))
    assert row.found is not None and row.found.value == pytest.approx(order)
    assert values["sigeo, 0 %"] != values["sigeo, 100 %"] and again.samples == first.samples


# The command

SIZES = [f"--option={name}={getattr(TINY, name)}" for name in ("population", "generations", "tournament", "children")]
SIZES += ["--option=top=1", "--option=batch_size=16", "--option=widest=16", "--preset=reduced"]
SIZES += ["--option=epochs=1", "--option=random=1", "--option=patience=1", "--option=intervals=4"]


def test_the_command_goes_from_a_file_to_a_network(tmp_path: Path) -> None:
    write_text(tmp_path / "clicks.tsv", 640, LAW)
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(LAW.schema.json()))
    command = [
        "recommend",
        "search",
        "--space=nasrec_small",
        f"--data={tmp_path}/clicks.tsv",
        f"--schema={schema}",
        "--proxy=zico",
    ]
    command += ["--warmup=0.1", *SIZES, f"--out={tmp_path}/out", "--json", "--seeds=2", "--baselines=logistic"]
    ran = epochzero(*command)
    found = ran.json
    assert found["rows"] == {"train": 512, "val": 64, "test": 64} and found["warmup_steps"] == 3
    assert "The warm-up is 3 of the 32 steps of an epoch" in " ".join(ran.err.split())
    assert found["evaluated"] == 5 and found["best"] in found["candidates"] and 0 < found["best"]["test_auc"] < 1
    assert [one["random"] for one in found["candidates"]] == [False, True]
    compared = found["comparison"]
    assert compared["best_baseline"] == "logistic" and compared["seeds"] == 2 and len(compared["said"]) >= 2
    gained = np.mean(compared["baselines"]["logistic"]["test_log_loss"]) - np.mean(compared["found"]["test_log_loss"])
    assert compared["gain"]["value"] == pytest.approx(gained)
    assert compared["found"]["test_log_loss"][0] == found["best"]["test_log_loss"]
    space = spaces["nasrec_small"]
    choice = (tmp_path / "out" / "choice.json").read_text()
    assert space.text(space.parse(choice)) == found["best"]["arch"]
    again = epochzero(*command).json
    timed = {"seconds", "stages"}
    assert {k: v for k, v in again.items() if k not in timed} == {k: v for k, v in found.items() if k not in timed}
    assert json.loads((tmp_path / "out" / "result.json").read_text()) == again


def test_without_data_clicks_are_generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a folder of their own, by the reduced preset and sigeo; also after a warm-up of less than a step."""
    monkeypatch.chdir(tmp_path)
    sizes = [size for size in SIZES if "preset" not in size and "batch" not in size]
    told = (name for name in ("space=nasrec_small", "warmup=0.001", "method=random", "json"))
    monkeypatch.setattr("epochzero.recommend.pipeline.GENERATED", "synthetic:2000")
    ran = epochzero("search", *(f"--{name}" for name in told), *sizes, "--option=batch_size=40", "--top=2")
    assert "Use `epochzero recommend search`" in ran.err  # the spelling of one release before
    assert "runs/nasrec_small" in ran.err and (tmp_path / "runs" / "nasrec_small" / "choice.json").is_file()
    found = ran.json
    assert found["rows"] == {"train": 1600, "val": 200, "test": 200} and found["table"] == "table"
    assert found["preset"]["most_rows"] == PRESETS["reduced"].most_rows and len(found["candidates"]) == 3
    assert found["proxy"] == "sigeo(weights=warm_recommender)"
    assert found["warmup_steps"] == 1 and found["method"] == "random" and found["evaluated"] == 5


CLICKS = ["--data=missing.tsv", "--schema=criteo", "--out=OUT"]
MADE = ["--data=synthetic:400", "--out=OUT"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--schema=criteo"], "give the table as --data"),
        ([*MADE, "--schema=criteo"], "leave --schema out"),
        ([*CLICKS, "--space=nb201"], "nb201 has no networks for tables of clicks"),
        ([*MADE, "--space=nb201"], "nb201 has no networks for tables of clicks"),
        ([*CLICKS, "--preset=smal"], "No preset is called 'smal'"),
        ([*CLICKS, "--option=populaton=3"], "Did you mean 'population'"),
        ([*CLICKS, "--option=population=many"], "takes int, not 'many'"),
        ([*CLICKS, "--option=batch_size=0"], "'batch_size' of a search for recommenders has to be at least 1"),
        ([*CLICKS, "--store=run.db"], "has no use for --store"),
        ([*CLICKS, "--batch-size=256"], "has no use for --batch-size.*--option batch_size=256"),
        ([*CLICKS, "--device=cuda"], "has no use for --device"),
        ([*CLICKS, "--feedback=hnas"], "has no use for --feedback"),
        ([*MADE, "--workers=2"], "has no use for --workers"),
        (["--winner-scores=none"], "has no use for --winner-scores"),
        ([*CLICKS, "--max-params=10"], "at most 10 parameters outside its embeddings: the smallest has"),
        ([*CLICKS, "--max-flops=9"], "at most 9 multiply-accumulates: the smallest has"),
        (CLICKS, "missing.tsv"),
        (["--data=synthetic:many", "--out=OUT"], "takes a number of rows"),
        ([*MADE, "--preset=published"], "320 training rows, and scoring takes 4 batches of 512"),
        ([*CLICKS, "--proxy=sigo"], "Did you mean 'sigeo'"),
        ([*CLICKS, "--warmup=1.5"], "a share from 0 to 1 of an epoch, not 1.5"),
        ([*CLICKS, "--warmup=nan"], "has to be finite"),
        ([*CLICKS, "--method=evolution"], "is evolution_nasrec or random, not 'evolution'"),
    ],
)
def test_the_command_refuses_in_one_sentence(tmp_path: Path, arguments: list[str], why: str) -> None:
    given = [argument.replace("OUT", str(tmp_path / "out")) for argument in arguments]
    ran = epochzero("search", "--space=nasrec_small", "--proxy=sigeo", *given)
    assert ran.code == 2 and ran.out == "" and "Traceback" not in ran.err
    assert re.search(why, " ".join(ran.err.split()))
