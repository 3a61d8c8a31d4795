"""`epochzero search`, `bench` and `store`: JSON, files, limits, correlations, exports, Ctrl-C."""

from __future__ import annotations

import csv
import gzip
import json
import re
import runpy
import signal
import subprocess
import time
from pathlib import Path
from random import Random
from typing import Any
from xml.etree import ElementTree

import pytest
import torch

import epochzero as ez
from epochzero import data
from epochzero.engine import parse
from epochzero.registry import proxies, spaces
from epochzero.store import Store
from tests.command import CHEAP, CUT, epochzero, process, refusal
from tests.forgetting import plugins_forgotten

FEW = ["--batch-size", "2"]
SPACE = spaces["nb201"]


@pytest.fixture(scope="module")
def searched(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A search with everything that a search can be asked for."""
    folder = tmp_path_factory.mktemp("search")
    arguments = ["--proxy", "l2_norm", "--budget", 40, "--max-params", "0.7M", "--max-flops", "90e6", "--seed", 2]
    options = ["--option", "population=12", "--option", "tournament=3", "--option", "batch=5"]
    kept = ["--store", folder / "run.db", "--out", folder / "best", "--winner-scores", "all", "--json"]
    ran = epochzero("search", *arguments, *options, *FEW, *kept)
    assert "40/40" in ran.err, "progress is shown on standard error"
    return folder, ran.json


def test_search_json_has_the_fields_of_the_design(searched: tuple[Path, dict[str, Any]]) -> None:
    _, found = searched
    best = found["best"]
    assert set(best) >= {"arch", "score", "params", "flops"}
    assert found["evaluated"] == 40
    assert found["seconds"] >= found["scoring_seconds"] > 0
    plan = SPACE.plan(SPACE.parse(best["arch"]))
    assert (best["params"], best["flops"]) == (plan.params, plan.flops)
    assert best["score"] == best["scores"]["l2_norm"]["value"]
    assert {"dextr", "l2_norm", "naswot", "params", "zico"} <= set(best["scores"]) <= set(proxies)


def test_search_keeps_within_its_limits(searched: tuple[Path, dict[str, Any]]) -> None:
    folder, found = searched
    with Store.open(folder / "run.db") as store:
        run, winner = store.runs()
        assert (winner.kind, winner.settings["search"]) == ("winner", run.id)
        (steps,) = run.history().values()
        assert run.settings["options"] == {"population": 12, "tournament": 3, "batch": 5}
        assert (run.settings["max_params"], run.settings["max_flops"]) == (700_000, 90_000_000)
        assert (run.id, run.state) == (found["run"], "finished")
    assert len({step.arch for step in steps}) == 40
    for step in steps:
        plan = SPACE.plan(SPACE.parse(step.arch))
        assert plan.params <= 700_000 and plan.flops <= 90_000_000
    values = {step.arch: step.scores[parse("l2_norm").key][0].value for step in steps}
    assert found["best"]["arch"] == max(values, key=lambda arch: values[arch])


def test_search_leaves_the_winner_as_drawing_code_and_facts(searched: tuple[Path, dict[str, Any]]) -> None:
    folder, found = searched
    out = folder / "best"
    assert {path.name for path in out.iterdir()} == {"cell.svg", "network.svg", "model.py", "winner.json"}
    for drawing in ("cell.svg", "network.svg"):
        assert ElementTree.parse(out / drawing).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    assert json.loads((out / "winner.json").read_text()) == found
    network = runpy.run_path(str(out / "model.py"))["Network"]()
    assert sum(weight.numel() for weight in network.parameters()) == found["best"]["params"]
    assert network(torch.zeros(2, 3, 32, 32)).shape == (2, 10)


def test_the_same_search_again_is_read_from_the_store(searched: tuple[Path, dict[str, Any]]) -> None:
    folder, found = searched
    arguments = ["--proxy", "l2_norm", "--budget", 40, "--max-params", 700_000, "--max-flops", "90M", "--seed", 2]
    options = ["--option", "population=12", "--option", "tournament=3", "--option", "batch=5"]
    search = ["search", *arguments, *options, *FEW, "--store", folder / "run.db"]
    again = epochzero(*search, "--winner-scores", "all", "--json").json
    assert again["run"] == found["run"], "0.7M is 700,000"
    assert again["best"] == found["best"]
    assert again["scoring_seconds"] < found["scoring_seconds"]
    assert found["earlier"] == {"evaluated": 0, "scoring_seconds": 0} and again["earlier"]["evaluated"] == 40
    assert 0 < again["earlier"]["scoring_seconds"] <= found["scoring_seconds"]
    words = epochzero(*search)
    assert "40 of them were evaluated in an earlier run" in " ".join(words.err.split())


def test_what_a_longer_search_takes_from_the_store_is_said(tmp_path: Path) -> None:
    search = ["search", "--proxy", "params", *FEW, "--winner-scores", "none", "--store", tmp_path / "run.db"]
    short = epochzero(*search, "--budget", 12)
    assert "\n12 networks in" in short.err and "from the store" not in short.err
    longer = epochzero(*search, "--budget", 20)
    assert re.search(r"^20 networks in [\d.]+ s, 12 read from the store, 0 without a score$", longer.err, re.MULTILINE)
    assert epochzero(*search, "--budget", 24, "--json").json["from_store"] == 20
    one = epochzero("search", "--proxy", "params", *FEW, "--winner-scores", "none", "--budget", 1)
    assert "\n1 network in" in one.err


def test_search_in_words(tmp_path: Path) -> None:
    search = ["search", "--method", "random", "--proxy", "params", "--budget", 5, *FEW, "--store", tmp_path / "run.db"]
    ran = epochzero(*search, "--winner-scores", "all")
    assert ran.code == 0
    arch = ran.out.splitlines()[0]
    plan = SPACE.plan(SPACE.parse(arch))
    assert f"params  {plan.params:,} (" in ran.out
    assert f"flops   {plan.flops:,} (" in ran.out
    assert plan.drawn("cell0") in ran.out
    assert all(f"\n{name} " in ran.out for name in ("dextr", "l2_norm", "naswot", "params", "zico"))
    assert (
        "winner" in ran.err and "1/1" in ran.err and f"by {sum(parse(name).quick for name in proxies)} pro" in ran.err
    )
    assert "5/5" in ran.err and "5 networks in" in ran.err and str(tmp_path / "run.db") in ran.err
    assert "5/5" not in ran.out


def test_the_winner_among_darts_networks_is_drawn_with_both_cells_and_trains_with_its_tower(tmp_path: Path) -> None:
    search = ["search", "--space", "darts_search", "--method", "random", "--proxy", "params", "--budget", 2, *FEW]
    assert epochzero(*search, "--out", tmp_path, "--auxiliary").code == 0
    titles = [e.text for e in ElementTree.parse(tmp_path / "cell.svg").iter() if e.get("class") == "title"]
    assert titles == ["normal cell (cell1)", "reduction cell (cell2)"]
    network, x = runpy.run_path(str(tmp_path / "model.py"))["Network"](), torch.zeros(2, 3, 32, 32)
    assert [y.shape for y in network.train()(x)] == [(2, 10), (2, 10)]
    assert network.eval()(x).shape == (2, 10)


def test_a_large_winner_is_scored_by_the_proxies_that_need_no_run() -> None:
    search = ["search", "--space", "darts", "--method", "random", "--proxy", "params", "--budget", 1]
    ran = epochzero(*search, "--winner-scores", "auto")
    free = [name for name in proxies if parse(name).quick and parse(name).free]
    assert 0 < len(free) < len([name for name in proxies if parse(name).quick]) / 2
    assert f"by {len(free)} proxies" in ran.err and "dextr" not in ran.out


def test_what_scores_the_winner_can_be_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    search = ["search", "--method", "random", "--proxy", "l2_norm", "--budget", 2, *FEW]
    none = epochzero(*search)
    assert "dextr" not in none.out and "\nl2_norm " in none.out and "params  " in none.out
    assert re.search(r"^2 networks in \d+\.\d s, 0 without a score$", none.err, re.MULTILINE)
    assert "the winner's table took" not in none.err
    assert "the same with --winner-scores all scores the winner by every quick proxy" in none.err
    more = epochzero(*search, "--winner-scores", "all").err
    assert (
        re.search(r"^  the winner's table took \d+\.\d s more$", more, re.MULTILINE) and "--winner-scores" not in more
    )
    monkeypatch.setattr("epochzero.cli.winner.LARGE", 0)
    free, every = (epochzero(*search, "--winner-scores", which, "--json").json for which in ("auto", "all"))
    assert "dextr" not in free["best"]["scores"] and "params" in free["best"]["scores"]
    assert {"dextr", "l2_norm", "zico"} <= set(every["best"]["scores"])
    assert 0 < free["winner_seconds"] < every["winner_seconds"]
    assert "--winner-scores takes auto, all or none, not 'some'." in refusal("search", "--winner-scores", "some")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--space", "nb201"], "The networks of nb201 have no auxiliary tower: search without --auxiliary."),
        (["--space", "darts_search", "--input-shape", "3,16,16"], "needs maps of at least 8x8 .* and gets 4x4"),
        ([], "say with --out where to write it"),
    ],
)
def test_a_tower_that_cannot_be_is_refused_before_the_search(arguments: list[str], says: str, tmp_path: Path) -> None:
    out = ["--out", tmp_path / "best"] if arguments else []
    assert re.search(says, refusal("search", *arguments, *out, "--auxiliary"))
    assert not (tmp_path / "best").exists()


# Tables, pools and limits


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Scores of 60 cells, and accuracies of all of them but the one that scores best."""
    folder = tmp_path_factory.mktemp("tables")
    cells = Random(0).sample(list(SPACE), 60)
    lines = [f"{SPACE.text(cell)},{place}" for place, cell in enumerate(cells)]
    (folder / "scores.csv").write_text("\n".join(["arch,naswot", *lines]))
    twins = {SPACE.key(cells[-1])}
    held = [f"{SPACE.text(cell)},{90 - i / 10},{i}" for i, cell in enumerate(cells) if SPACE.key(cell) not in twins]
    (folder / "accuracies.csv").write_text("\n".join(["arch_str,cifar10_test,size", *held]))
    return folder / "scores.csv", folder / "accuracies.csv"


def test_a_winner_that_the_accuracy_table_does_not_hold_is_said(tables: tuple[Path, Path]) -> None:
    pool, table = tables
    search = ["search", "--proxy", "naswot", "--pool", pool, "--method", "random", "--budget", 100, "--top", 3]
    found = epochzero(*search, "--table", table, "--json").json
    assert (found["evaluated"], found["best"]["score"], found["known"]) == (60, 59.0, None)
    assert [one["score"] for one in found["top"]] == [59.0, 58.0, 57.0]
    assert found["data"].startswith("the scores in scores.csv ")
    assert found["stopped"] == "the search has no more networks to evaluate"
    words = epochzero(*search, "--table", table)
    assert "The accuracy table does not hold the winner" in words.err
    parts = r"  building [\d.]+ s, scoring [\d.]+ s, latency 0\.0 s, overhead [\d.]+ s"
    assert re.search(rf"^60 networks in [\d.]+ s, 0 without a score\n{parts}$", words.err, re.MULTILINE)
    assert re.search(r"^  1  59  \|", words.out, re.MULTILINE) and re.search(r"^  3  57  \|", words.out, re.MULTILINE)


def test_known_accuracies_of_the_winner_are_shown(tables: tuple[Path, Path]) -> None:
    _, table = tables
    search = ["search", "--proxy", "table:cifar10_test", "--table", table, "--method", "random", "--budget", 15625]
    ran = epochzero(*search, "--winner-scores", "none")
    assert re.search(r"\n\naccuracy of the winner in accuracies\.csv [0-9a-f]{12}\ncifar10_test  90\n", ran.out)
    assert "size" not in ran.out
    assert "does not hold this network" in " ".join(ran.err.split())


def test_a_small_table_is_searched_by_a_pool(tables: tuple[Path, Path], tmp_path: Path) -> None:
    _, table = tables
    small = tmp_path / "small.csv"
    small.write_text("\n".join(table.read_text().splitlines()[:3]))
    search = ["search", "--proxy", "table:cifar10_test", "--table", small, "--method", "random", "--budget", 8]
    lost = epochzero(*search, "--winner-scores", "none")
    assert lost.code == 1 and f"--pool {small} searches among its networks only." in " ".join(lost.err.split())
    found = epochzero(*search, "--pool", small, "--winner-scores", "none", "--json").json
    assert (found["evaluated"], found["best"]["score"]) == (2, 90.0)


def test_the_clock_of_a_search_adds_up(searched: tuple[Path, dict[str, Any]]) -> None:
    _, found = searched
    assert list(found["clock"]) == ["building", "scoring", "latency", "overhead"]
    assert sum(found["clock"].values()) == pytest.approx(found["seconds"])
    assert found["clock"]["building"] > 0, "limits were checked on plans"


def test_time_alone_may_be_limited() -> None:
    found = epochzero(
        "search", "--proxy", "params", *FEW, "--time-limit", 0.5, "--winner-scores", "auto", "--json"
    ).json
    assert found["stopped"] == "the time limit of 0.5 s" and found["evaluated"] > 0
    assert 0.5 <= found["seconds"] < 30
    assert "flops" in found["best"]["scores"] and "dextr" not in found["best"]["scores"], "time is up"


def test_a_search_that_time_alone_ends_shows_no_total() -> None:
    ran = epochzero("search", "--proxy", "params", *FEW, "--time-limit", 0.1, "--winner-scores", "none")
    assert ran.code == 0 and re.search(r"search .* \d+/\? 0:00", ran.err) and "1000000000" not in ran.err


def test_time_that_is_up_at_once_allows_a_first_batch() -> None:
    ran = epochzero("search", "--proxy", "params", *FEW, "--time-limit", 1e-9, "--winner-scores", "none", "--json")
    assert ran.code == 0 and ran.json["evaluated"] > 0 and ran.json["stopped"] == "the time limit of 1e-09 s"


def test_too_little_time_for_a_proposal_is_a_mistake_that_can_be_mended() -> None:
    ran = epochzero("search", "--method", "zero_cost_pt", "--proxy", "params", *FEW, "--time-limit", 1e-9)
    says = "error: 1e-09 s were not enough to find a network: give more time, or the same command again"
    assert (ran.code, ran.out) == (2, "") and says in " ".join(ran.err.split())


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--budget", 0], "A search needs a budget of at least 1 evaluation, not 0."),
        (["--budget", -5], "A search needs a budget of at least 1 evaluation, not -5."),
        (["--method", "nasi", "--budget", 0], "A search needs a budget of at least 1 step, not 0."),
        (["--method", "zero_cost_pt", "--budget", 3], "A proposal of Zero-Cost-PT takes 6 steps here, and the budget"),
        (["--method", "nasi", "--space", "mobilenet"], "The space 'mobilenet' has no relaxed network: use nb201"),
        (["--method", "te_nas", "--space", "darts"], "and darts is none: use evolution, random or local_search."),
        (["--method", "nope"], "No search is called 'nope'. Did you mean 'tpe'? Known: evolution, "),
        (["--method", "zerocost"], "Did you mean 'zero_cost_pt'?"),
        (["--method", "pareto"], "The search pareto needs at least two objectives"),
        (["--method", "nasi", "--max-params", "1M"], "so --max-params means nothing to it"),
        (["--space", "mobilenet", "--max-flops", "1M"], "at most 1,000,000 multiply-accumulates: the smallest"),
        (["--space", "autoformer_tiny", "--max-params", "1M"], "1,000,000 parameters: the smallest has 5,366,056."),
        (["--time-limit", 0], "--time-limit takes more than 0 seconds, not 0."),
        (["--max-params", "1k"], "No nb201 network has at most 1,000 parameters: the smallest has 73,306."),
        (["--proxy", "table:x"], "table:x needs a table with a column 'x': name one with --table FILE."),
        (["--pool", "nowhere.csv"], "There is no file nowhere.csv."),
        (["--method", "reinforce", "--space", "nb101"], "and nb101 is none: use evolution, random or local_search."),
        (["--method", "hnas", "--option", "metric=snap"], "hnas has no metric 'snap'. Did you mean 'snip'?"),
        (["--method", "top_k", "--option", "networks=0"], "A pool has at least 1 network, not 0."),
    ],
)
def test_what_cannot_be_is_said_at_once(arguments: list[object], says: str) -> None:
    assert says in refusal("search", *arguments)


def test_a_proxy_that_fails_on_every_network_stops_early(tmp_path: Path) -> None:
    plugin = tmp_path / "unlucky.py"
    plugin.write_text(
        "from epochzero.engine import Pass, need, proxy\n"
        "@proxy(needs=[need(Pass(), 'params')], higher_is_better=True)\n"
        "def unlucky(trace):\n"
        "    raise RuntimeError('no such luck')\n"
    )
    with plugins_forgotten():
        ran = epochzero("search", "--proxy", "unlucky", "--plugin", plugin, "--budget", 5000, *FEW)
    assert ran.code == 1 and "Traceback" not in ran.err
    assert "None of the 32 networks has a unlucky score; most often:" in " ".join(ran.err.split())
    assert "no such luck" in ran.err


def test_a_proxy_in_the_place_of_an_accuracy_is_said() -> None:
    given = ["search", "--method", "top_k", "--option", "proxy=l2_norm", "--option", "networks=3", "--proxy", "params"]
    ran = epochzero(*given, *FEW, "--budget", 2, "--winner-scores", "none")
    assert "top_k chooses networks to be trained: here params takes the place" in " ".join(ran.err.split())
    assert "stands in" not in epochzero("search", "--proxy", "params", *FEW, "--budget", 2).err


# bench


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Six networks; `size` and `smallness` order them by their parameters, `plainly` by the values of `plain`."""
    archs = [CUT, CHEAP]
    archs += [SPACE.text((op, "nor_conv_1x1", "none", "skip_connect", "none", op)) for op in ("none", "nor_conv_1x1")]
    archs += [SPACE.text((op, "nor_conv_3x3", "none", "skip_connect", "none", op)) for op in ("none", "nor_conv_3x3")]
    path = tmp_path / "table.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["arch_str", "size", "smallness", "plainly", "note"])
        for arch in archs:
            params = SPACE.plan(SPACE.parse(arch)).params
            plain = ez.score(arch, "plain", space="nb201", data=data.pink(size=2))["plain"]
            writer.writerow([arch, params, -params, -plain.value if plain.ok else 0, "text"])
    return path


def test_bench_json_has_the_fields_of_the_design(table: Path) -> None:
    ran = epochzero(
        "bench", "--table", table, "--target", "size,smallness,plainly", "--proxy", "params,plain", *FEW, "--json"
    )
    rows = {(row["proxy"], row["target"]): row for row in ran.json["results"]}
    assert list(rows) == [(p, t) for p in ("params", "plain") for t in ("size", "smallness", "plainly")]
    fields = {"proxy", "target", "n", "unscored", "spearman", "spearman_ci", "kendall", "kendall_ci"}
    for row in rows.values():
        assert set(row) >= fields
        assert (row["n"], row["unscored"]) == ((6, 0) if row["proxy"] == "params" else (5, 1))
        for name in ("spearman", "kendall"):
            low, high = row[f"{name}_ci"]
            assert low - 1e-9 <= row[name] <= high + 1e-9
    assert rows["params", "size"]["kendall"] == pytest.approx(rows["params", "size"]["spearman"])
    assert rows["params", "smallness"]["spearman"] == pytest.approx(-rows["params", "size"]["spearman"])
    assert rows["plain", "plainly"]["spearman"] == pytest.approx(1), "lower is better, and it points the right way"
    assert "table.csv: 6 of 6 networks of nb201" in ran.err


def test_bench_counts_networks_without_a_score(table: Path) -> None:
    arguments = ["bench", "--table", table, "--target", "size", "--proxy", "synflow", *FEW]
    (dropped,) = epochzero(*arguments, "--json").json["results"]
    (worst,) = epochzero(*arguments, "--unscored", "worst", "--json").json["results"]
    assert (dropped["n"], dropped["unscored"]) == (worst["n"], worst["unscored"]) == (5, 1)
    assert dropped["unscored_why"] == {"no signal flows from the input to the output": 1}
    assert dropped["spearman"] != worst["spearman"]
    ran = epochzero(*arguments)
    assert "synflow: 1 without a score: no signal flows from the input to the output" in ran.out


def test_bench_samples_and_says_where_there_is_no_correlation(table: Path) -> None:
    arguments = ["bench", "--table", table, "--target", "size", "--proxy", "snip,params", *FEW]
    rows = epochzero(*arguments, "--sample", 3, "--seed", 1, "--json").json["results"]
    assert [row["n"] + row["unscored"] for row in rows] == [3, 3]
    table.write_text("\n".join(line.replace(",text", ",1") for line in table.read_text().splitlines()))
    (flat,) = epochzero("bench", "--table", table, "--target", "note", "--proxy", "params", *FEW, "--json").json[
        "results"
    ]
    assert flat["spearman"] is None and flat["kendall_ci"] is None
    assert flat["why"] == "all 6 true values are equal, so nothing can be ranked"
    ran = epochzero("bench", "--table", table, "--target", "note", "--proxy", "params", *FEW)
    assert "all 6 true values are equal" in " ".join(ran.out.split())


# store


def test_store_shows_runs_and_exports_scores(searched: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    folder, found = searched
    run = epochzero("store", folder / "run.db", "--json").json["runs"][0]
    assert (run["id"], run["kind"], run["state"]) == (found["run"], "search", "finished")
    assert run["settings"]["budget"] == 40
    for name in ("scores.csv", "scores.csv.gz", "scores.parquet"):
        ran = epochzero("store", folder / "run.db", "--to", tmp_path / name)
        assert ran.code == 0
        assert str(tmp_path / name) in ran.err.replace("\n", "")
        assert found["run"] in ran.out
    with (tmp_path / "scores.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    rows_of_search = [row for row in rows if row["proxy"] == parse("l2_norm").key]
    assert len(rows_of_search) == 40 and {row["arch"] for row in rows} == {row["arch"] for row in rows_of_search}
    assert {row["arch"]: float(row["value"]) for row in rows_of_search}[found["best"]["arch"]] == found["best"]["score"]
    with gzip.open(tmp_path / "scores.csv.gz", "rt", newline="") as file:
        assert list(csv.DictReader(file)) == rows
    parquet = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(tmp_path / "scores.parquet").column("arch").to_pylist() == [row["arch"] for row in rows]


# Ctrl-C


def test_a_search_stopped_by_ctrl_c_goes_on_from_there(tmp_path: Path) -> None:
    store = tmp_path / "run.db"
    arguments = ["search", "--proxy", "l2_norm", "--budget", "600", *FEW, "--store", str(store), "--json"]
    search = subprocess.Popen(process(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    patience = time.monotonic() + 60
    log = store.with_name("run.db-wal")
    while search.poll() is None and not (log.exists() and log.stat().st_size > 50_000):
        assert time.monotonic() < patience
        time.sleep(0.005)
    search.send_signal(signal.SIGINT)
    out, err = search.communicate(timeout=60)
    assert search.returncode == 130
    found = json.loads(out)
    assert found["stopped"] == "it was interrupted" and 0 < found["evaluated"] < 600
    assert err.rstrip().endswith("Stopped. With a --store, or a folder of checkpoints, the same command resumes.")
    assert "Traceback" not in err
    with Store.open(store) as opened:
        scores = {row.arch: row.value for row in opened.all_scores()}
    assert found["evaluated"] <= len(scores) < 600
    assert scores[found["best"]["arch"]] == found["best"]["score"], "what was found so far is printed"
    resumed = ez.search(proxy="l2_norm", budget=600, data=data.pink(size=2), store=store)
    assert resumed.evaluated == 600
    with Store.open(store) as opened:
        searches = [run.state for run in opened.runs() if run.kind == "search"]
        assert searches == ["finished"], "another run was begun"
