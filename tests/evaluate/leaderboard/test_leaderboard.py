"""`epochzero leaderboard`: figures against slow second versions, choices, the page, and a proxy of one's own."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

from epochzero.evaluate.leaderboard.boards import boards_of, targets_of
from epochzero.evaluate.leaderboard.chosen import Choice
from epochzero.evaluate.leaderboard.leaderboard import Settings, leaderboard
from epochzero.evaluate.leaderboard.standings import Row, Rules
from epochzero.evaluate.leaderboard.stored import read_stored
from epochzero.objectives.objective import parse_objective
from epochzero.store import Store
from tests.cli.bench_tables import CELLS
from tests.command import epochzero, refusal
from tests.evaluate.leaderboard.files import ARCHS, accuracies, export, truth, usual, values
from tests.forgetting import plugins_forgotten
from tests.fresh import Fresh

FAST = ("--resamples", 20)
DATA = Path(__file__).parents[3] / "../shared/data"
SCORES = Path(__file__).parents[3] / "docs/data"


def rows_of(words: list[str], **more: object) -> dict[str, Row]:
    tables = [words[i + 1] for i, word in enumerate(words) if word == "--table"]
    made = leaderboard(Settings([Path(words[1])], tables, rules=Rules(resamples=40), **more))  # type: ignore[arg-type]
    return {row.name: row for row in made.rows}


def test_means_worst_tables_and_ranks(tmp_path: Path) -> None:
    rows = rows_of(usual(tmp_path), choose=0)
    rho = {
        (name, space): np.mean([sign * spearmanr(values(space, name, seed), truth(space))[0] for seed in (0, 1)])
        for name, sign in {"params": 1, "flops": 1, "snip": 1, "ntk_cond": -1, "naswot": 1}.items()
        for space in ARCHS
    }
    assert set(rows) == {*(name for name, _ in rho), "rank(params,flops)"}
    for name in ("params", "flops", "snip", "ntk_cond", "naswot"):
        row, own = rows[name], [rho[name, space] for space in ARCHS]
        assert [result.rho for result in row.results.values()] == pytest.approx(own)
        assert (row.mean.value, row.by_space) == pytest.approx((np.mean(own), np.mean(own)))
        assert (
            row.worst.value == pytest.approx(min(own))
            and row.worst_on == f"{'alpha' if own[0] < own[1] else 'beta'} x_test"
        )
        assert row.versus_flops == pytest.approx(min(rho[name, space] - rho["flops", space] for space in ARCHS))
        assert row.mean.low <= row.mean.value <= row.mean.high and row.worst.low <= row.worst.value <= row.worst.high
        assert all((result.n, result.unscored, result.repeats) == (40, 0, 2) for result in row.results.values())
    assert rows["snip"].mean.low < rows["snip"].mean.high
    places = [sorted(rows, key=lambda name: -rows[name].results[f"{space} x_test"].rho) for space in ARCHS]
    for name, row in rows.items():
        assert row.rank == pytest.approx(np.mean([of.index(name) + 1 for of in places]))
    assert list(rows) == sorted(rows, key=lambda name: -rows[name].mean.value)


def test_without_a_score_a_proxy_counts_as_a_random_order(tmp_path: Path) -> None:
    words = usual(tmp_path)
    ones = [1.0] * 40
    nothing, some = [None] * 40, [None, None, *truth("alpha")[2:]]
    scores = {("alpha", "zen"): some, ("beta", "zen"): nothing, ("alpha", "zico"): ones, ("beta", "zico"): ones}
    of = {(space, proxy, "noise-0", "default:0"): column for (space, proxy), column in scores.items()}
    export(tmp_path / "scores" / "more.csv.gz", of | {("alpha", "grasp", "noise-0", "default:0"): ones})
    rows = rows_of(words, choose=0)
    zen, zico = rows["zen"], rows["zico"]
    assert [result.rho for result in zen.results.values()] == [pytest.approx(1), 0]
    assert (zen.mean.value, zen.worst.value) == pytest.approx((0.5, 0)) and zen.worst_on == "beta x_test"
    assert [(result.n, result.unscored) for result in zen.results.values()] == [(38, 2), (0, 40)]
    assert zen.results["beta x_test"].why == {"equal inputs": 40}
    assert zico.mean.value == 0 and zico.results["alpha x_test"].figures["spearman"].why
    assert rows["grasp"].rank is None and list(rows["grasp"].results) == ["alpha x_test"]
    assert list(rows)[-1] == "grasp", "contestants of all tables come first"


def test_equal_accuracies_and_tables_of_two_rows(tmp_path: Path) -> None:
    words = usual(tmp_path)
    accuracies(tmp_path / "beta.csv", "beta", same=[70.0] * 40)
    rows = rows_of([word.replace("beta.csv:x_test", "beta.csv:same") for word in words])
    assert all(row.results["beta same"].rho == 0 and row.mean.value < 1 for row in rows.values())
    (tmp_path / "two.csv").write_text("arch,x_test\nalpha00,60\nalpha01,61\n")
    said = refusal("leaderboard", *words[:2], "--table", f"alpha={tmp_path / 'two.csv'}:x_test")
    assert "Only 2 networks of" in said and "3 are needed" in said


def test_every_statistic_is_there(tmp_path: Path) -> None:
    figures = rows_of(usual(tmp_path), choose=0)["snip"].results["beta x_test"].figures
    assert set(figures) == {
        *("spearman", "kendall", "ndcg", "regret@1", "regret@10"),
        *("spearman|params", "spearman|flops", "spearman|params,flops"),
    }
    # params orders beta exactly, so nothing is left for the partial correlation given it
    assert figures["spearman|params"].estimate is None and figures["spearman|flops"].estimate is not None
    order = [np.argsort(-values("beta", "snip", seed)) for seed in (0, 1)]
    lost = [truth("beta").max() - truth("beta")[first[0]] for first in order]
    estimate = figures["regret@1"].estimate
    assert estimate is not None and estimate.value == pytest.approx(np.mean(lost))


def test_a_choice_uses_the_accuracies_of_other_spaces_only(tmp_path: Path) -> None:
    words = usual(tmp_path)
    made = leaderboard(Settings([Path(words[1])], words[3::2], choose=2, rules=Rules(10, full=False)))
    chosen = {name: {board: one.text for board, one in it.objectives.items()} for name, it in made.chosen.items()}
    assert chosen["best proxy of each table"] == {"alpha x_test": "snip", "beta x_test": "params"}
    assert chosen["best proxy, left out"] == {"alpha x_test": "params", "beta x_test": "snip"}
    for board in ("alpha", "beta"):
        before = chosen["best of up to 2, left out"][f"{board} x_test"]
        shuffled = np.random.default_rng(0).permutation(truth(board))
        accuracies(tmp_path / f"{board}.csv", board, y_test=shuffled.tolist())
        tables = [word.replace("x_test", "y_test") if word.startswith(board) else word for word in words[3::2]]
        again = leaderboard(Settings([Path(words[1])], tables, choose=2, rules=Rules(10, full=False)))
        assert again.chosen["best of up to 2, left out"].objectives[f"{board} y_test"].text == before


def test_combinations_are_those_of_an_exhaustive_search(tmp_path: Path) -> None:
    words = usual(tmp_path)
    boards = boards_of(targets_of(words[3::2]), read_stored([Path(words[1])]), 40)
    names = ["flops", "naswot", "ntk_cond", "params", "snip"]
    choice = Choice(boards, [parse_objective(name) for name in names])
    every = [members for size in (1, 2, 3) for members in itertools.combinations(names, size)]
    best = max(every, key=lambda members: choice.mean(boards, members))
    assert choice.best(boards, 3) == best
    for members in every[:9]:
        merits = [board.merits(choice.objective(members)) for board in boards]
        slow = [
            spearmanr([s.value for s in rows[0]], b.truth)[0] for rows, b in zip(merits, boards, strict=True) if rows
        ]
        assert choice.mean(boards, members) == pytest.approx(np.mean(slow))


def test_the_command_prints_data_and_writes_a_page(tmp_path: Path) -> None:
    words = usual(tmp_path)
    page = tmp_path / "page.md"
    made = epochzero("leaderboard", *words, *FAST, "--json", "--markdown", page).json
    assert [table["name"] for table in made["tables"]] == ["alpha x_test", "beta x_test"]
    assert made["rows"][0]["place"] == 1 and made["files"] == {"alpha.csv.gz": 400, "beta.csv.gz": 400}
    by_name = {row["name"]: row for row in made["rows"]}
    assert by_name["snip"]["tables"]["alpha x_test"]["figures"]["spearman"]["value"] == pytest.approx(1)
    assert made["chosen"]["best proxy, left out"]["objectives"]["alpha x_test"] == "params"
    text = page.read_text()
    assert text.startswith("# Leaderboard\n") and "## All 2 tables of 2 spaces" in text and "### beta x_test" in text
    assert str(tmp_path) not in text and "--table alpha=alpha.csv:x_test" in text
    assert "| `snip` | 40 |  | 2 | 1.000 [1.000, 1.000] |" in text
    widths = [line.count(" | ") for line in text.splitlines() if line.startswith("|")]
    assert min(widths) > 3
    ran = epochzero("leaderboard", *words, *FAST, "--proxy", "snip,rank(snip,params)", "--choose", 0)
    assert ran.code == 0 and "alpha x_test, 40 networks" in ran.out and "params,flops" not in ran.out


def test_reading_loads_no_torch(tmp_path: Path, fresh: Fresh) -> None:
    words = json.dumps(["leaderboard", *usual(tmp_path), "--resamples", "5"])
    program = (
        f"import sys; sys.argv[1:] = {words}\n"
        "[sys.modules.pop(name) for name in list(sys.modules) if name.partition('.')[0] == 'torch']\n"
        "sys.modules['torch'] = None\n"
        "from epochzero.cli import main\nmain()\n"
    )
    done = fresh(program)
    assert done.code == 0, done.err


OWN = '''
from epochzero.engine import Pass, Trace, need, proxy


@proxy(needs=[need(Pass(), "params")], higher_is_better=False)
def fewest(trace: Trace) -> float:
    """Few parameters."""
    return float(trace.params)
'''


def test_a_proxy_of_ones_own(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "scores").mkdir()
    rows = "".join(
        f"nb201,{cell},{p},pink-1,default:0,{i},ok,,\n" for i, cell in enumerate(CELLS) for p in ("snip", "flops")
    )
    (tmp_path / "scores" / "a.csv").write_text(f"space,arch,proxy,batch,origin,value,status,why,seconds\n{rows}")
    (tmp_path / "t.csv").write_text("arch,acc\n" + "".join(f"{cell},{70 + i}\n" for i, cell in enumerate(CELLS)))
    words = [
        "leaderboard",
        "--scores",
        tmp_path / "scores",
        "--table",
        f"nb201={tmp_path / 't.csv'}:acc",
        *FAST,
        "--json",
    ]
    own = ["--add", "fewest", "--plugin", tmp_path / "own.py", "--input-shape", "3,8,8", "--batch-size", 2]
    with plugins_forgotten():
        made = epochzero(*words, *own, "--store", tmp_path / "s.db", "--proxy", "snip,rank(fewest,snip)").json
        by_name = {row["name"]: row["tables"]["nb201 acc"] for row in made["rows"]}
        assert by_name["fewest"]["n"] == 7 and "rank(fewest,snip)" in by_name and "flops" in by_name
        again = epochzero(*words, *own, "--store", tmp_path / "s.db").json
        assert {row["name"]: row for row in again["rows"]}["fewest"]["tables"]["nb201 acc"] == by_name["fewest"]
    with Store.open(tmp_path / "s.db") as store:
        assert {row.proxy for row in store.all_scores()} == {"fewest"}
    assert "no stored scores of zen for any table" in refusal(*words, "--proxy", "zen,snip")
    assert "No proxy is called 'fewset'" in refusal(*words, "--add", "fewset")
    assert "name files of scores, or a folder of them, with --scores" in refusal_elsewhere(tmp_path, *words[3:])


def refusal_elsewhere(folder: Path, *words: object) -> str:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return refusal("leaderboard", *words)


def test_published_scores_give_published_figures() -> None:
    """Dextr and FLOPs on 1,000 cells of NAS-Bench-201 with three seeds, as in docs/results.md."""
    if not (DATA / "nb201.csv.gz").is_file():
        pytest.skip("the table nb201.csv.gz is not here")
    files = [SCORES / f"nb201_1000_cifar10{end}.csv.gz" for end in ("", "_seed1", "_seed2")]
    tables = [f"nb201={DATA / 'nb201.csv.gz'}:cifar10_test"]
    made = leaderboard(Settings(files, tables, proxies="dextr,params", choose=0, rules=Rules(20, full=False)))
    rhos = {row.name: round(row.mean.value, 2) for row in made.rows}
    assert rhos == {"dextr": 0.89, "params": 0.74, "flops": 0.74}
