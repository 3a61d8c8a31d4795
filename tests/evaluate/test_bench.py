"""`epochzero bench`: repeats, several tables, what is more than size, comparisons, samples, shared scores, resuming."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from scipy.stats import rankdata, spearmanr

import epochzero as ez
from epochzero import data
from epochzero.engine import parse
from epochzero.evaluate import scores as bench_scores
from epochzero.evaluate.bench import Case, run_bench
from epochzero.evaluate.results import as_document, write_results
from epochzero.evaluate.scores import Work
from epochzero.evaluate.setup import BenchSettings, bench
from epochzero.evaluate.time_left import TimeLeft
from epochzero.files import as_json
from epochzero.objectives.objective import Objective
from epochzero.registry import spaces
from epochzero.store import Run, Store
from epochzero.study.task import Task
from epochzero.tables import AccuracyTable
from epochzero.types import Origin
from tests.cli.bench_tables import CELLS, FEW, NB201, TWINS, read, written
from tests.command import epochzero, refusal

KIND = (0, 0)
ACCURACY = [80.1, 91.5, 93.0, 88.2, 92.1, 60.4, 10.0]
NB101 = [
    "conv3x3:0/maxpool3x3:1/maxpool3x3:1/maxpool3x3:12/maxpool3x3:134/output:5",
    "maxpool3x3:0/conv1x1:0/maxpool3x3:2/maxpool3x3:1/output:034",
    "conv1x1:0/conv1x1:01/conv1x1:1/maxpool3x3:2/output:034",
    "conv3x3:0/conv3x3:0/conv1x1:2/conv1x1:2/conv1x1:13/output:345",
]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return written(tmp_path / "small.csv", {"arch": CELLS, "test_acc": ACCURACY, "val_acc": [*ACCURACY[::-1]]})


def rows_of(document: dict[str, Any]) -> dict[tuple[str, str, str], dict[str, Any]]:
    return {(row["table"], row["proxy"], row["target"]): row for row in document["results"]}


def by_seed(proxy: str, seed: int, batch: int) -> list[float]:
    """The oracle: each network scored alone."""
    given = data.pink((3, 8, 8), 10, 2, seed=batch)
    return [ez.score(cell, proxy, space="nb201", data=given, seed=seed)[proxy].value for cell in CELLS]


def test_python_users_get_the_same_figures(table: Path, tmp_path: Path) -> None:
    asked = ("--target", "test_acc", "--proxy", "l2_norm,params", "--versus", "params", *FEW)
    command = epochzero("bench", "--table", table, *asked, "--json").json
    sizes: dict[str, Any] = {"batch_size": 2, "input_shape": "3,8,8"}
    settings = BenchSettings([table], ["test_acc"], "l2_norm,params", versus="params", **sizes)
    outcome = bench(settings)
    ours = json.loads(as_json(as_document(outcome)))
    assert ours | {"seconds": 0} == command | {"seconds": 0}
    assert write_results(outcome, tmp_path) == ["results.json", "results.csv", "scores.csv", "ranking.md"]
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8")) == ours


# Repeats


def test_the_figure_is_the_mean_over_seeds(table: Path) -> None:
    ran = epochzero(
        "bench", "--table", table, "--target", "test_acc", "--proxy", "l2_norm", *FEW, "--seeds", "0,1,2", "--json"
    ).json
    (row,) = ran["results"]
    alone = [spearmanr(by_seed("l2_norm", seed, seed), ACCURACY).statistic for seed in (0, 1, 2)]
    assert len(set(alone)) > 1, "the seeds have to matter for this test"
    figure = row["figures"]["spearman"]
    assert figure["by_repeat"] == pytest.approx(alone)
    assert (row["repeats"], row["spearman"]) == (3, pytest.approx(np.mean(alone)))
    assert figure["spread"] == pytest.approx(np.std(alone, ddof=1))
    assert [repeat["origin"] for repeat in ran["tables"][0]["repeats"]] == ["default:0", "default:1", "default:2"]
    assert len({repeat["batch"] for repeat in ran["tables"][0]["repeats"]}) == 3


def test_seeds_of_weights_and_of_batches(table: Path) -> None:
    bench = ("bench", "--table", table, "--target", "test_acc", "--proxy", "l2_norm", *FEW)
    fixed = epochzero(*bench, "--seeds", "3,4", "--data-seeds", "7", "--json").json["tables"][0]["repeats"]
    assert [repeat["origin"] for repeat in fixed] == ["default:3", "default:4"]
    assert fixed[0]["batch"] == fixed[1]["batch"] and "seed 7" in fixed[0]["data"]
    crossed = epochzero(*bench, "--seeds", "3", "--data-seeds", "7,8", "--json").json["tables"][0]["repeats"]
    assert [repeat["origin"] for repeat in crossed] == ["default:3"] * 2
    assert "There are 2 --seeds and 3 --data-seeds" in refusal(*bench, "--seeds", "0,1", "--data-seeds", "0,1,2")
    for seeds in ("a", "-1", "1.5", ","):
        assert "--seeds takes whole numbers from 0 on" in refusal(*bench, "--seeds", seeds)
    assert "--top takes whole numbers from 1 on, separated by commas, not '0'" in refusal(*bench, "--top", "0")


def test_the_spread_is_shown_where_something_is_random(table: Path) -> None:
    ran = epochzero(
        "bench", "--table", table, "--target", "val_acc", "--proxy", "l2_norm,params", *FEW, "--seeds", "0,1,2"
    )
    lines = {line.split()[0]: line for line in ran.out.splitlines() if line.strip()}
    assert "±" in lines["l2_norm"] and "±" not in lines["params"]
    assert "± standard deviation over 3 repeats; the figure is their mean" in ran.out


# Several tables


def test_tables_have_their_spaces_and_columns(table: Path, tmp_path: Path) -> None:
    other = written(tmp_path / "other.csv", {"arch": NB101, "acc_108ep": [0.94, 0.91, 0.92, 0.93]})
    pair = ("bench", "--table", table, "--table", other, "--proxy", "params,flops", *FEW, "--json")
    spaces_ = ("--space", "nb201", "--space", "nb101")
    rows = rows_of(epochzero(*pair, *spaces_, "--target", "test_acc,val_acc", "--target", "acc_108ep").json)
    assert list(rows) == [
        *(("small.csv", proxy, target) for proxy in ("params", "flops") for target in ("test_acc", "val_acc")),
        *(("other.csv", proxy, "acc_108ep") for proxy in ("params", "flops")),
    ]
    sizes = [spaces["nb101"].plan(spaces["nb101"].parse(text)).params for text in NB101]
    expected = spearmanr(sizes, [0.94, 0.91, 0.92, 0.93]).statistic
    assert rows["other.csv", "params", "acc_108ep"]["spearman"] == pytest.approx(expected)
    assert {row["space"] for name, row in rows.items() if name[0] == "other.csv"} == {"nb101"}
    printed = epochzero(*pair[:-1], *spaces_, "--target", "test_acc", "--target", "acc_108ep").out
    assert "small.csv (nb201)" in printed and "other.csv (nb101)" in printed


def test_a_target_that_one_of_the_tables_lacks(table: Path, tmp_path: Path) -> None:
    other = written(tmp_path / "other.csv", {"arch": CELLS, "accuracy": ACCURACY})
    pair = ("bench", "--table", table, "--table", other, "--proxy", "params", *FEW)
    said = refusal(*pair, "--target", "test_acc")
    assert said.startswith("other.csv has no column 'test_acc'; small.csv has it. Give --target once for each --table")
    assert "has no column 'tset_acc'. Did you mean 'test_acc'?" in refusal(*pair, "--target", "tset_acc")
    assert "--space is given 3 times for 2 tables" in refusal(*pair, "--target", "a", *["--space", "nb201"] * 3)
    assert "--target is given 2 times for 1 table" in refusal(*pair[:3], "--target", "a", "--target", "b")
    assert "--table names small.csv twice" in refusal(*pair[:3], *pair[1:3], "--target", "test_acc")


def test_tables_of_one_name_are_told_apart(table: Path, tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    other = written(tmp_path / "b" / "small.csv", {"arch": CELLS, "test_acc": ACCURACY})
    ran = epochzero(
        "bench", "--table", table, "--table", other, "--target", "test_acc", "--proxy", "params", *FEW, "--json"
    )
    assert [row["table"] for row in ran.json["results"]] == [str(table), str(other)]


# Partial correlations, and the cost of choosing by a proxy


def test_given_params_regret_and_precision(table: Path) -> None:
    bench = ("bench", "--table", table, "--target", "test_acc", "--proxy", "l2_norm,params", *FEW, "--top", "1,2")
    rows = rows_of(epochzero(*bench, "--json").json)
    figures = rows["small.csv", "l2_norm", "test_acc"]["figures"]
    sizes = [NB201.plan(NB201.parse(cell)).params for cell in CELLS]
    x, y, z = (rankdata(values) for values in (by_seed("l2_norm", 0, 0), ACCURACY, sizes))
    xy, xz, yz = (np.corrcoef(a, b)[0, 1] for a, b in ((x, y), (x, z), (y, z)))
    partial = (xy - xz * yz) / np.sqrt((1 - xz**2) * (1 - yz**2))
    assert figures["spearman|params"]["value"] == pytest.approx(partial)
    assert {"spearman|flops", "spearman|params,flops", "kendall in flops bins", "pearson"} <= set(figures)
    biggest = ACCURACY[int(np.argmax(sizes))]
    of_size = rows["small.csv", "params", "test_acc"]["figures"]
    assert of_size["regret@1"]["value"] == pytest.approx(max(ACCURACY) - biggest)
    assert of_size["precision@1"]["value"] == float(biggest == max(ACCURACY))
    assert of_size["spearman|params"] == {"why": "given params nothing is left of the order of the scores"}
    printed = epochzero(*bench, "--more").out
    assert "spearman|params" in printed and "regret@2" in printed and "test_acc percent" in printed
    assert "regret" not in epochzero(*bench).out


# Comparisons


def test_pairs_treat_unscored_networks_as_the_rows_do(table: Path) -> None:
    bench = ("bench", "--table", table, "--target", "test_acc", "--proxy", "synflow,params", "--versus", "params", *FEW)
    worst = epochzero(*bench, "--unscored", "worst", "--json").json
    rows = rows_of(worst)
    assert rows["small.csv", "synflow", "test_acc"]["unscored"] == 1
    gap = rows["small.csv", "synflow", "test_acc"]["spearman"] - rows["small.csv", "params", "test_acc"]["spearman"]
    (pair,) = worst["pairs"]
    assert pair["difference"]["value"] == pytest.approx(gap) and pair["difference"]["n"] == 7
    (dropped,) = epochzero(*bench, "--json").json["pairs"]
    assert dropped["difference"]["n"] == 6


def test_the_ranking_is_by_spearman_and_says_who_is_level(table: Path, tmp_path: Path) -> None:
    sizes = [NB201.plan(NB201.parse(cell)).params for cell in CELLS]
    ordered = written(tmp_path / "size.csv", {"arch": CELLS, "size": sizes})
    ran = epochzero("bench", "--table", ordered, "--target", "size", "--proxy", "l2_norm,flops,params", *FEW, "--json")
    ranking = ran.json["ranking"]
    assert [place["place"] for place in ranking] == [1, 2, 3]
    values = [place["spearman"] for place in ranking]
    assert values == sorted(values, reverse=True) and values[0] == pytest.approx(1)
    assert ranking[0]["behind_first"] is None and ranking[0]["level_with_first"]
    for place in ranking[1:]:
        behind = place["behind_first"]
        assert behind["value"] == pytest.approx(place["spearman"] - values[0])
        assert place["level_with_first"] == (behind["low"] <= 0 <= behind["high"])


# Samples


def test_rows_are_read_only_where_they_are_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archs = [NB201.text(arch) for arch in list(NB201)[:400]]
    table = written(tmp_path / "large.csv", {"arch": archs, "truth": range(400)})
    asked: list[str] = []
    read_cell = type(NB201).parse

    def watched(space: object, text: str) -> object:
        asked.append(text)
        return read_cell(space, text)

    monkeypatch.setattr(type(NB201), "parse", watched)
    ran = epochzero("bench", "--table", table, "--target", "truth", "--proxy", "params", "--sample", 5, *FEW, "--json")
    assert ran.json["results"][0]["n"] == 5 and ran.json["tables"][0]["rows"] == 400
    assert len(asked) == 5


def test_a_row_of_no_network_is_named_by_its_place_in_the_table(tmp_path: Path) -> None:
    table = written(tmp_path / "odd.csv", {"arch": [*CELLS, "resnet"], "truth": range(8)})
    said = refusal("bench", "--table", table, "--target", "truth", "--proxy", "params", *FEW)
    assert said.startswith(f"Row 8 of {table} does not fit: An nb201 string is 3 nodes") and "'resnet'" in said


def test_one_network_under_two_names_is_refused(tmp_path: Path) -> None:
    spelled = ["conv3x3:0/output:01", *NB101, "011;001;000 input,conv3x3-bn-relu,output"]
    table = written(tmp_path / "twice.csv", {"arch": spelled, "truth": range(6)})
    said = refusal("bench", "--table", table, "--space", "nb101", "--target", "truth", "--proxy", "params", *FEW)
    assert said == (f"Architecture 'conv3x3:0/output:01' is listed twice in {table} (rows 1 and 6); keep one of them.")


# Units


def test_fractions_beside_percents(tmp_path: Path) -> None:
    fractions = [value / 100 for value in ACCURACY]
    mixed = [*ACCURACY[:4], *fractions[4:]]
    columns = {"arch": CELLS, "test_acc": ACCURACY, "val_acc": fractions, "mixed_acc": mixed}
    table = written(tmp_path / "units.csv", columns)
    bench = ("bench", "--table", table, "--proxy", "params", *FEW)
    both = epochzero(*bench, "--target", "test_acc,val_acc", "--json")
    assert both.json["tables"][0]["targets"] == {"test_acc": "percent", "val_acc": "fraction"}
    (note,) = both.json["notes"]
    assert note.startswith("units.csv has 'test_acc' in percent and 'val_acc' as fractions")
    assert "in percent and 'val_acc' as fractions" in " ".join(both.err.split())
    first, second = both.json["results"]
    assert first["spearman"] == second["spearman"]
    assert "seems to mix fractions and percents: 3 of its 7 values" in refusal(*bench, "--target", "mixed_acc")


def test_fractions_in_another_table(tmp_path: Path) -> None:
    percents = written(tmp_path / "percents.csv", {"arch": CELLS, "test_acc": ACCURACY})
    fractions = written(tmp_path / "fractions.csv", {"arch": CELLS, "test_acc": [value / 100 for value in ACCURACY]})
    bench = ("bench", "--target", "test_acc", "--proxy", "params", *FEW, "--json")
    (note,) = epochzero(*bench, "--table", percents, "--table", fractions).json["notes"]
    assert note.startswith("percents.csv has accuracies in percent and fractions.csv as fractions")
    assert epochzero(*bench, "--table", percents).json["notes"] == []


# Shared scores


def test_isomorphic_networks_share_a_score(tmp_path: Path) -> None:
    archs = [*CELLS, *TWINS]
    assert NB201.key(NB201.parse(TWINS[0])) == NB201.key(NB201.parse(TWINS[1]))
    table = written(tmp_path / "twins.csv", {"arch": archs, "truth": range(9)})
    bench = ("bench", "--table", table, "--target", "truth", "--proxy", "l2_norm,params", *FEW)
    out, store = tmp_path / "out", tmp_path / "run.db"
    shared = epochzero(*bench, "--share", "--store", store, "--out", out, "--json").json
    assert shared["tables"][0]["shared"] == {"classes": 8, "classes_of_different_size": 1}
    assert (
        "one scored for each of 8 classes of 9 networks; 1 class joins networks of different size" in shared["notes"][0]
    )
    scores = {(row["proxy"], row["arch"]): row for row in read(out / "scores.csv")}
    one, other = (scores["l2_norm", arch] for arch in TWINS)
    assert one["value"] == other["value"] and {one["shared_from"], other["shared_from"]} & set(TWINS)
    sizes = [float(scores["params", arch]["value"]) for arch in TWINS]
    assert sizes == [NB201.plan(NB201.parse(arch)).params for arch in TWINS] and sizes[0] != sizes[1]
    assert "" == scores["params", TWINS[0]]["shared_from"] == scores["params", TWINS[1]]["shared_from"]
    with Store.open(store) as opened:
        stored = [row.proxy for row in opened.all_scores()]
        (run,) = opened.runs()
    assert (stored.count(parse("l2_norm").key), stored.count("params")) == (8, 9), (
        "what was not scored is not in the store"
    )
    assert run.manifest["settings"]["shared"] == {"networks": 9, "classes": 8}  # type: ignore[index, call-overload]
    assert "scores are shared between isomorphic networks" in epochzero(*bench, "--share").out
    counted = epochzero(*bench[:5], "--proxy", "params", *FEW, "--share", "--json").json
    assert counted["tables"][0]["shared"] is None, "there is nothing to share"
    alone = epochzero(*bench, "--json").json
    assert alone["tables"][0]["shared"] is None and alone["notes"] == []


def test_a_space_without_keys_shares_nothing(tmp_path: Path) -> None:
    table = written(tmp_path / "mlp.csv", {"arch": [4, 8, 16], "truth": [1, 2, 3]})
    bench = ("bench", "--table", table, "--space", "mlp", "--target", "truth", "--proxy", "l2_norm", "--batch-size", 2)
    assert "The space 'mlp' has no key for isomorphic networks" in refusal(*bench, "--share")


# Resuming


def test_what_the_store_has_is_not_scored_again(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = ("--store", tmp_path / "run.db", "--json")
    bench = ("bench", "--table", table, "--target", "test_acc", "--proxy", "l2_norm", *FEW, "--seeds", "0,1", *kept)
    first = epochzero(*bench).json

    def again(task: Task, archs: object) -> None:
        raise AssertionError("scored again")

    monkeypatch.setattr(Task, "score", again)
    second = epochzero(*bench).json
    assert second["results"] == first["results"]
    more = ("bench", "--table", table, "--target", "val_acc,test_acc", "--proxy", "l2_norm", *FEW, "--seed", 1)
    other = epochzero(*more, *kept).json["results"]
    assert [row["target"] for row in other] == ["val_acc", "test_acc"]


def test_a_bench_that_was_stopped_goes_on(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = ("bench", "--table", table, "--target", "test_acc", "--proxy", "l2_norm", *FEW, "--seeds", "0,1", "--json")
    calm = epochzero(*bench).json["results"]
    scored: list[int] = []
    score = Task.score

    def once(task: Task, archs: Sequence[Any]) -> Any:
        if scored:
            raise KeyboardInterrupt
        scored.append(len(archs))
        return score(task, archs)

    with monkeypatch.context() as patched:
        patched.setattr(Task, "score", once)
        assert epochzero(*bench, "--store", tmp_path / "run.db").code == 130
    assert scored == [1], "the first network is stored at once"

    def rest(task: Task, archs: Sequence[Any]) -> Any:
        scored.append(len(archs))
        return score(task, archs)

    monkeypatch.setattr(Task, "score", rest)
    assert epochzero(*bench, "--store", tmp_path / "run.db").json["results"] == calm
    assert sum(scored) == 14, "what was in the store is not scored again"


def test_chunks_take_a_few_seconds_each_where_one_network_runs_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = Task(NB201, [parse("params")], data.pink((3, 8, 8), 10, 2), Origin())
    work = Work(KIND, task, list(range(200)), cast(Run, None), [], {}, frozenset({1, 2, 3}))
    pace = TimeLeft({KIND: 197})
    chunks = work.chunks(pace)
    assert next(chunks) == range(1)
    pace.add(KIND, 1, 1.0)
    assert next(chunks) == range(1, 9), "five new ones, and three that the store has"
    pace.add(KIND, 5, 101.0)
    assert next(chunks) == range(9, 10)
    pace.add(KIND, 100, 1.0)
    assert next(chunks) == range(10, 15)
    pace.add(KIND, 10000, 1.0)
    assert list(chunks) == [range(15, 200)]
    monkeypatch.setattr(bench_scores, "population", lambda device: 64)
    assert next(work.chunks(pace)) == range(64), "populations do not depend on time"


def test_progress_knows_every_table_before_it_estimates() -> None:
    def case(space: str, archs: list[str]) -> Case:
        tasks = [
            Task(spaces[space], [parse("params")], data.pink((3, 8, 8), 10, 2, seed=seed), Origin(seed=seed))
            for seed in (0, 1)
        ]
        return Case(space, AccuracyTable(archs, {"truth": list(range(len(archs)))}), ["truth"], tasks)

    many = [NB201.text(arch) for arch in list(NB201)[:40]]
    told: list[tuple[int, int, str]] = []
    objectives = [Objective((parse("params"),))]
    cases = [case("nb201", many), case("nb101", NB101)]
    with Store.open(":memory:") as store:
        for _ in range(2):
            run_bench(cases, objectives, store=store, progress=lambda *said: told.append(said))
    scores = [said for said in told if not said[2].startswith("figures")]
    first, again = scores[:-1], scores[-1]
    done = [done for done, _, _ in first]
    assert done[:3] == [0, 1, 2] and done[-1] == 88 and done == sorted(set(done)), "one network of each table first"
    assert {total for _, total, _ in scores} == {88} == {2 * (40 + 4)}
    assert "not known yet" in first[1][2] and "left" in first[2][2] and "not known" not in first[2][2]
    assert first[-1][2] == "scores, done"
    assert again == (88, 88, ""), "what the store has is done at the start"
