"""Searches by tables and by functions: accuracies as feedback, pools of scores, what tables do not hold, limits."""

from __future__ import annotations

import csv
import json
import math
import time
from pathlib import Path
from random import Random
from typing import Any, NoReturn

import pytest

import epochzero as ez
from epochzero import data
from epochzero.engine import Pass, Proxy, Trace, need, parse
from epochzero.errors import DataError, DegenerateError, UserError
from epochzero.objectives.objective import parse_objective, single
from epochzero.registry import proxies, spaces
from epochzero.spaces.budget import Budget, BudgetedSpace
from epochzero.store import Store
from epochzero.study.loop import budget_of, run_search
from epochzero.study.methods.base import Wanted
from epochzero.study.pool import scored_pool
from epochzero.study.result import Result
from epochzero.study.sources import Feedback, TableSource
from epochzero.study.task import Task
from tests.forgetting import plugins_forgotten

SPACE = spaces["nb201"]
BATCH = data.pink(size=2)
CELLS = Random(0).sample(list(SPACE), 300)


def accuracy(arch: tuple[str, ...]) -> float:
    """Known by hand: the share of 3x3 convolutions, and a little for each skip."""
    return 50 + 7.0 * arch.count("nor_conv_3x3") + 0.5 * arch.count("skip_connect")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """accuracies.csv of 200 cells; scores.csv of 300, where the first has no `naswot`, with a reason."""
    folder = tmp_path_factory.mktemp("tables")
    with (folder / "accuracies.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["arch_str", "cifar10_val_12ep", "cifar10_test", "note"])
        writer.writerows([SPACE.text(cell), accuracy(cell), accuracy(cell) + 1, "x"] for cell in CELLS[:200])
    with (folder / "scores.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["arch", "naswot", "ntk_cond", "snip", "nasi_trace", "reasons"])
        for i, cell in enumerate(CELLS):
            why = json.dumps({"naswot": ["degenerate", "det K = 0"]}) if i == 0 else ""
            score = "" if i == 0 else accuracy(cell) / 3
            writer.writerow([SPACE.text(cell), score, 100 - accuracy(cell), i + 1, accuracy(cell), why])
    return folder


def search(folder: Path, proxy: Any = "table:cifar10_val_12ep", budget: int = 40, **given: Any) -> Result:
    return ez.search(proxy=proxy, budget=budget, data=BATCH, **({"table": folder / "accuracies.csv"} | given))


# Accuracies as feedback


def test_the_winner_is_the_best_that_the_table_knows(folder: Path, tmp_path: Path) -> None:
    found = search(folder, method="random", budget=3000, store=tmp_path / "run.db")
    with Store.open(tmp_path / "run.db") as store:
        (run,) = store.runs()
        ((setting, steps),) = run.history().items()
    assert setting.batch.startswith("accuracies.csv ") and setting.origin == "looked up"
    known = [step for step in steps if step.scores["table:cifar10_val_12ep"][0].ok]
    texts = {SPACE.text(cell) for cell in CELLS[:200]}
    values = {step.arch: step.scores["table:cifar10_val_12ep"][0].value for step in known}
    assert all(values[text] == accuracy(SPACE.parse(text)) for text in texts & set(values))
    assert found.winner.score.value == max(values.values()) == values[found.winner.text]
    assert len(known) >= sum(step.arch in texts for step in steps) > 10
    (why,) = found.unscored
    assert why.endswith("accuracies.csv does not hold this network")
    assert found.unscored[why] == 3000 - len(known), "those that the table does not hold are said and counted"


def test_isomorphic_cells_share_their_row(folder: Path) -> None:
    source = TableSource.read(folder / "accuracies.csv", SPACE)
    keys = {SPACE.key(cell) for cell in CELLS[:200]}
    others = [cell for cell in SPACE if SPACE.key(cell) in keys and cell not in CELLS[:200]]
    assert others
    for cell in others[:20]:
        twins = [accuracy(twin) for twin in CELLS[:200] if SPACE.key(twin) == SPACE.key(cell)]
        assert source.value(SPACE.text(cell), "cifar10_val_12ep").value in twins


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (
            {"table": None},
            "table:cifar10_val_12ep needs a table with a column 'cifar10_val_12ep': name one with --table",
        ),
        ({"proxy": "table:cifar10_valid"}, "has no column 'cifar10_valid'. Did you mean 'cifar10_val_12ep'?"),
        ({"proxy": "table:"}, "names no column: write table:COLUMN"),
        ({"proxy": "table:note", "budget": 40, "method": "random"}, None),
        ({"space": "nats_sss"}, "Row 1 of .* is no nats_sss network"),
    ],
)
def test_columns_and_tables_that_do_not_fit(folder: Path, given: dict[str, Any], says: str | None) -> None:
    if says is None:
        assert search(folder, **given).best is None, "text is no accuracy"
        return
    with pytest.raises((UserError, DataError), match=says):
        search(folder, **given)


def test_a_column_means_nothing_where_networks_are_run() -> None:
    with pytest.raises(UserError, match="is looked up in a table: use it in search"):
        single([parse_objective("table:cifar10_test")])


def test_a_function_of_the_user_s_is_asked_once_for_each_network(tmp_path: Path) -> None:
    asked: list[Any] = []

    def short_training(arch: Any) -> float:
        asked.append(arch)
        return math.nan if arch[0] == "none" else accuracy(arch)

    first = search(tmp_path, short_training, table=None, store=tmp_path / "run.db")
    assert len(asked) == 40 == first.evaluated
    assert first.winner.score.value == max(accuracy(arch) for arch in asked if arch[0] != "none")
    assert list(first.unscored) == ["feedback:short_training gave nan"]
    again = search(tmp_path, short_training, table=None, store=tmp_path / "run.db")
    assert len(asked) == 40 and again.best == first.best, "the store knows what it said"


@pytest.mark.parametrize("method", ["tpe", "reinforce", "local_search", "te_nas", "evolution_nasrec"])
def test_resumed_by_replay_every_search_ends_the_same(method: str, tmp_path: Path) -> None:
    """Stopped in the middle by an exception, then given again."""

    def stop(outcome: Result) -> None:
        if outcome.evaluated >= 17:
            raise KeyboardInterrupt

    calm = search(tmp_path, accuracy, table=None, method=method, store=tmp_path / "calm.db")
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path, accuracy, table=None, method=method, store=tmp_path / "run.db", progress=stop)
    again = search(tmp_path, accuracy, table=None, method=method, store=tmp_path / "run.db")
    assert (again.best, again.evaluated) == (calm.best, calm.evaluated)
    with Store.open(tmp_path / "calm.db") as one, Store.open(tmp_path / "run.db") as other:
        histories = [
            [(s.step, s.arch) for s in next(iter(store.runs()[-1].history().values()))] for store in (one, other)
        ]
    assert histories[0] == histories[1]


# Pools


def test_a_pool_gives_scores_and_candidates(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Task, "score", lambda *_: pytest.fail("a network was run"))
    found = search(folder, "naswot", 1000, pool=folder / "scores.csv", method="random")
    assert found.evaluated == 300 and found.stopped == "the search has no more networks to evaluate"
    assert found.unscored == {"det K = 0": 1}
    assert found.winner.score.value == max(accuracy(cell) / 3 for cell in CELLS[1:])
    lower = search(folder, "ntk_cond", 300, pool=folder / "scores.csv", method="evolution")
    assert lower.winner.score.value == min(100 - accuracy(cell) for cell in CELLS), "lower is better"


def test_a_pool_may_have_a_row_for_each_score(folder: Path, tmp_path: Path) -> None:
    """As a store is exported: reasons come with it, and a second value is refused."""
    lines = ["arch,proxy,value,status,why"]
    for place, cell in enumerate(CELLS[:20]):
        lines.append(f"{SPACE.text(cell)},naswot,{place},ok,")
        lines.append(f"{SPACE.text(cell)},snip," + (",degenerate,no weights" if place == 7 else f"{-place},ok,"))
    (tmp_path / "long.csv").write_text("\n".join(lines))
    found = search(folder, "naswot", 30, pool=tmp_path / "long.csv", method="random")
    assert found.evaluated == 20 and found.winner.arch == CELLS[19] and not found.unscored
    by_snip = search(folder, "snip", 30, pool=tmp_path / "long.csv", method="random")
    assert by_snip.winner.arch == CELLS[0] and by_snip.unscored == {"no weights": 1}
    (tmp_path / "long.csv").write_text("\n".join([*lines, lines[1]]))
    with pytest.raises(
        DataError, match=r"Row 41 of .*long.csv gives a second value of naswot for .*\. Keep one of them"
    ):
        search(folder, "naswot", pool=tmp_path / "long.csv")


def test_a_pool_within_limits(folder: Path) -> None:
    limits = Budget(max_params=400_000)
    source = TableSource.read(folder / "scores.csv", SPACE, pool=True)
    task = Task(SPACE, parse_objective("snip").proxies, BATCH, sources=(source,))
    with Store.open(":memory:") as store:
        found = run_search(task, "random", 1000, budget=limits, store=store)
        fitting = [cell for cell in CELLS if SPACE.plan(cell).params <= 400_000]
        assert found.evaluated == len(fitting) < 300
        small = Budget(max_params=73_306)
        if not any(SPACE.plan(cell).params <= 73_306 for cell in CELLS):
            with pytest.raises(UserError, match=r"None of the 300 networks of scores.csv .* is within the limits"):
                run_search(task, "random", 10, budget=small, store=store)


def test_a_proxy_that_the_pool_lacks_is_refused(folder: Path) -> None:
    with pytest.raises(UserError, match=r"has no column 'dextr'.* It has naswot, ntk_cond, snip, nasi_trace"):
        search(folder, "dextr", pool=folder / "scores.csv")
    with pytest.raises(UserError, match="has no column 'fisher'"):
        pytest.importorskip("bayes_opt")
        search(folder, method="hnas", options={"metric": "fisher"}, pool=folder / "scores.csv")


def test_hnas_and_top_k_choose_from_the_pool_by_feedback(folder: Path) -> None:
    pytest.importorskip("bayes_opt")
    given = {"pool": folder / "scores.csv", "table": folder / "accuracies.csv"}
    found = search(folder, method="hnas", budget=12, options={"metric": "knas", "networks": 300}, **given)
    assert found.evaluated == 12 and found.winner.arch in CELLS
    top = search(folder, method="top_k", budget=5, options={"proxy": "nasi_trace", "networks": 300}, **given)
    assert top.winner.score.value == max(accuracy(cell) for cell in CELLS[:200]), "nasi_trace is the accuracy here"


def test_hnas_is_resumed_by_replay_and_the_same_again(folder: Path, tmp_path: Path) -> None:
    pytest.importorskip("bayes_opt")
    given: dict[str, Any] = {"table": None, "pool": folder / "scores.csv", "method": "hnas", "budget": 10}
    given |= {"options": {"metric": "snip", "networks": 300, "probes": 2}}

    def stop(outcome: Result) -> None:
        if outcome.evaluated == 6:
            raise KeyboardInterrupt

    calm = search(folder, accuracy, store=tmp_path / "calm.db", **given)
    with pytest.raises(KeyboardInterrupt):
        search(folder, accuracy, store=tmp_path / "run.db", progress=stop, **given)
    again = search(folder, accuracy, store=tmp_path / "run.db", **given)
    assert again.top(10) == calm.top(10) and len(calm.top(10)) == 10


def test_a_pool_that_is_computed_is_stored_and_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"proxy": "l2_norm", "networks": 20}
    given: dict[str, Any] = {"method": "top_k", "budget": 4, "options": options, "store": tmp_path / "run.db"}
    first = search(tmp_path, "params", table=None, **given)
    monkeypatch.setattr(Task, "score", lambda *_: pytest.fail("a stored score was computed again"))
    again = search(tmp_path, "params", table=None, **given)
    assert again.best == first.best and again.evaluated == 4
    with Store.open(tmp_path / "run.db") as store:
        assert [run.kind for run in store.runs()] == ["pool", "search"]


def test_ranks_of_pool_scores_are_those_of_the_whole_history(folder: Path) -> None:
    found = search(folder, "rank(naswot,nasi_trace)", 100, pool=folder / "scores.csv", method="evolution_az")
    top = found.top(5)
    assert top[0].score.value == pytest.approx(0.0), "first of both has rank N of N"
    assert [one.score.value for one in top] == sorted((one.score.value for one in top), reverse=True)
    assert found.best == top[0]


# Limits


def test_the_best_few_are_remembered(folder: Path) -> None:
    found = search(folder, "nasi_trace", 300, pool=folder / "scores.csv", method="random")
    wanted = sorted((accuracy(cell) for cell in CELLS), reverse=True)[:15]
    assert [one.score.value for one in found.top(15)] == wanted
    assert found.top(1)[0] == found.best


def test_a_time_limit_ends_a_search_that_goes_on_later(tmp_path: Path) -> None:
    def slow(arch: Any) -> float:
        time.sleep(0.005)
        return accuracy(arch)

    given: dict[str, Any] = {"table": None, "method": "random", "store": tmp_path / "run.db", "budget": 200}
    part = search(tmp_path, slow, time_limit=0.3, **given)
    assert 0 < part.evaluated < 200 and part.stopped == "the time limit of 0.3 s" and part.best is not None
    with Store.open(tmp_path / "run.db") as store:
        assert store.runs()[0].state == "unfinished"
    whole = search(tmp_path, slow, **given)
    assert whole.evaluated == 200 and whole.stopped == "" and whole.run == part.run
    assert whole.winner.score.value >= part.winner.score.value


@pytest.mark.parametrize("limit", [0, -1, math.nan, math.inf])
def test_time_limits_that_cannot_be(tmp_path: Path, limit: float) -> None:
    with pytest.raises(UserError, match="--time-limit takes more than 0 seconds"):
        search(tmp_path, accuracy, table=None, time_limit=limit)


def test_a_proxy_that_fails_on_everything_stops_early() -> None:
    def compute(trace: Trace) -> float:
        raise RuntimeError("no such luck")

    broken = Proxy("broken", compute, [need(Pass(), "params")], True, {})
    with Store.open(":memory:") as store:
        found = run_search(Task(SPACE, [broken], BATCH), "random", 5000, store=store)
    assert found.best is None and found.evaluated == 32
    assert found.stopped == "none of the first 32 networks has a score"
    assert "no such luck" in next(iter(found.unscored))


BROKEN = Proxy("broken", lambda trace: _raise(RuntimeError("no such luck")), [need(Pass(), "params")], True, {})
NAMELESS = Proxy("nameless", lambda trace: _raise(DegenerateError("no value")), [need(Pass(), "params")], True, {})


def _raise(error: Exception) -> NoReturn:
    raise error


@pytest.mark.parametrize(("proxy", "seen", "why"), [(BROKEN, 32, "no such luck"), (NAMELESS, 128, "no value")])
def test_a_pool_is_not_scored_to_its_end_by_a_proxy_that_has_no_scores(proxy: Proxy, seen: int, why: str) -> None:
    with plugins_forgotten(), Store.open(":memory:") as store:
        proxies.register(proxy.name, proxy, origin=__name__)
        with pytest.raises(UserError, match=f"None of the first [0-9]+ networks of the pool.*most often: .*{why}"):
            run_search(Task(SPACE, [parse("params")], BATCH), "top_k", 5, options={"proxy": proxy.name}, store=store)
        (pool,) = store.runs()
        assert seen <= pool.so_far()[0] < seen + 16, "a pool of 1,000"
        with pytest.raises(UserError, match=f"None of the first 6 networks of the pool has a {proxy.name} score"):
            run_search(
                Task(SPACE, [parse("params")], BATCH),
                "top_k",
                5,
                options={"proxy": proxy.name, "networks": 6},
                store=store,
            )


def slow_size() -> Proxy:
    def compute(trace: Trace) -> float:
        time.sleep(0.02)
        return float(trace.params)

    return Proxy("slow_size", compute, [need(Pass(), "params")], True, {})


def test_time_ends_a_pool_and_the_next_sitting_goes_on_with_it(tmp_path: Path) -> None:
    task = Task(SPACE, [parse("params")], BATCH)
    options = {"proxy": "slow_size", "networks": 40}
    with plugins_forgotten(), Store.open(tmp_path / "run.db") as store:
        proxies.register("slow_size", slow_size(), origin=__name__)
        part = run_search(task, "top_k", 5, options=options, store=store, time_limit=0.2)
        pool, search = store.runs()
        scored = pool.so_far()[0]
        assert 1 < scored < 40 and part.evaluated == 1 and part.best is not None
        says = f"the time limit of 0.2 s; scoring the pool took all the time: {scored} of 40 scored; the same"
        assert part.stopped.startswith(says) and part.out_of_time and search.state == "unfinished"
        once = run_search(task, "top_k", 1, options=options, store=store, time_limit=0.01)
        assert once.out_of_time and pool.so_far()[0] > scored, "one more at least, whatever the budget"
        held = pool.so_far()[0]
        whole = run_search(task, "top_k", 5, options=options, store=store)
        assert whole.evaluated == 5 and whole.stopped == "" and pool.so_far()[0] == 40
        assert f"Of the pool of 40 networks {held} were read from the store." in whole.remarks
        assert whole.winner.score.value >= part.winner.score.value
    calm = Store.open(":memory:")
    with plugins_forgotten(), calm:
        proxies.register("slow_size", slow_size(), origin=__name__)
        assert run_search(task, "top_k", 5, options=options, store=calm).top(5) == whole.top(5)


def test_time_ends_a_pool_in_which_no_network_has_all_scores() -> None:
    """One proxy has a value for the large networks alone, the other for the small ones."""

    def part_of(name: str, large: bool) -> Proxy:
        def compute(trace: Trace) -> float:
            return 1.0 if (trace.params > 400_000) == large else _raise(DegenerateError("not of this size"))

        return Proxy(name, compute, [need(Pass(), "params")], True, {})

    with plugins_forgotten(), Store.open(":memory:") as store:
        for name, large in (("of_large", True), ("of_small", False)):
            proxies.register(name, part_of(name, large), origin=__name__)
        task, wanted = Task(SPACE, [parse("params")], BATCH), Wanted(["of_large", "of_small"], 400)
        whole = BudgetedSpace(SPACE, Budget(), 10, (3, 32, 32))
        found = scored_pool(task, whole, wanted, 0, store, lambda done, total: None, lambda: 0.0)
    assert 128 <= len(found.pool.archs) < 144 and found.wanted == 400


def test_a_limit_that_is_over_at_once_leaves_time_for_one_batch(tmp_path: Path) -> None:
    found = search(tmp_path, accuracy, table=None, method="random", time_limit=1e-9)
    assert found.evaluated > 0 and found.stopped.startswith("the time limit") and found.best is not None


def test_the_clock_adds_up(folder: Path) -> None:
    found = search(folder, "l2_norm", 30, table=None, max_params=700_000)
    parts = found.clock.split(found.seconds)
    assert list(parts) == ["building", "scoring", "latency", "overhead"]
    assert sum(parts.values()) == pytest.approx(found.seconds)
    assert parts["scoring"] == found.scoring_seconds > parts["overhead"] > 0 == parts["latency"]
    assert parts["building"] > 0


def test_published_budgets() -> None:
    assert [budget_of(name, SPACE) for name in ("hnas", "evolution_nasrec", "evolution")] == [20, 2048, 300]


def test_te_nas_has_a_budget_for_all_its_rounds() -> None:
    assert budget_of("te_nas", SPACE) == 4 * 64 + 1 and budget_of("te_nas", spaces["nats_sss"]) == 7 * 64 + 1
    assert budget_of("te_nas", SPACE, {"networks": 10}) == 41


def test_pruning_that_did_not_end_is_said() -> None:
    task = Task(SPACE, [parse("params")], BATCH)
    with Store.open(":memory:") as store:
        part = run_search(task, "te_nas", 30, options={"networks": 10}, store=store)
        whole = run_search(task, "te_nas", 41, options={"networks": 10}, store=store)
    assert part.stopped == "30 networks were too few for its own winner; this is the best of them"
    assert "too few" not in whole.stopped and whole.best is not None


@pytest.mark.parametrize("method", ["tpe", "reinforce", "hnas"])
def test_searches_that_would_learn_from_ranks_of_the_past_refuse_them(method: str) -> None:
    with pytest.raises(
        UserError, match=rf"The search {method} learns .*rank\(params,flops\).*: use one of evolution, "
    ):
        ez.search(proxy="rank(params,flops)", method=method, data=BATCH)


def test_searches_that_learn_nothing_may_go_by_ranks(tmp_path: Path) -> None:
    found = search(tmp_path, "rank(params,flops)", 8, table=None, method="random")
    assert found.evaluated == 8 and found.best == found.top(1)[0]


def test_feedback_has_the_name_of_its_function() -> None:
    assert Feedback(accuracy).name == "feedback:accuracy" and Feedback(accuracy, "mine").name == "feedback:mine"
