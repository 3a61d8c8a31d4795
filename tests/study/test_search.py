"""Searches: what they draw, whom they breed from, when they end, and what the loop makes of the scores."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
from scipy.stats import chisquare

from epochzero import data
from epochzero.engine import Pass, Proxy, Trace, need
from epochzero.errors import DegenerateError, UnknownNameError, UserError
from epochzero.objectives.goals import parse_goals
from epochzero.registry import options_of, searches, spaces
from epochzero.spaces.budget import Budget, BudgetedSpace
from epochzero.spaces.nb201 import NB201, Cell
from epochzero.store import Store
from epochzero.study.loop import run_search
from epochzero.study.methods.evolution import Evolution
from epochzero.study.methods.random import RandomSearch
from epochzero.study.result import Result
from epochzero.study.task import Task

SPACE = spaces["nb201"]
BATCH = data.pink(size=2)
LIMITS = Budget(max_params=700_000, max_flops=90_000_000)


def counted(cell: Cell) -> tuple[int, int]:
    """Parameters and multiply-accumulates of a cell's network, by hand."""
    large, small = cell.count("nor_conv_3x3"), cell.count("nor_conv_1x1")
    return 73_306 + 243_040 * large + 28_000 * small, 7_783_040 + 35_389_440 * large + 3_932_160 * small


def fits_by_hand(cell: Cell) -> bool:
    params, flops = counted(cell)
    return params <= 700_000 and flops <= 90_000_000


# Budgets


def test_the_counts_by_hand_are_those_of_the_plan() -> None:
    rng = Random(0)
    for cell in (SPACE.smallest(), *(SPACE.sample(rng) for _ in range(20))):
        plan = SPACE.plan(cell)
        assert (plan.params, plan.flops) == counted(cell)


def test_budgeted_samples_are_uniform_over_what_fits() -> None:
    space, rng = BudgetedSpace(SPACE, LIMITS, 10, (3, 32, 32)), Random(0)
    drawn = [space.sample(rng) for _ in range(3000)]
    fitting = [cell for cell in SPACE if fits_by_hand(cell)]
    assert 0.2 < len(fitting) / 15_625 < 0.9, "the budget has to cut, and to leave something"
    assert all(map(fits_by_hand, drawn))

    def compare(statistic: Callable[[Cell], object]) -> None:
        found, share = Counter(map(statistic, drawn)), Counter(map(statistic, fitting))
        expected = [count * len(drawn) / len(fitting) for count in share.values()]
        assert chisquare([found[value] for value in share], expected).pvalue > 1e-3

    compare(lambda cell: (cell.count("nor_conv_3x3"), cell.count("nor_conv_1x1") > 1))
    compare(lambda cell: cell.count("none"))
    compare(lambda cell: cell[5])


def test_budgeted_mutation_is_uniform_over_the_neighbours_that_fit() -> None:
    space, rng = BudgetedSpace(SPACE, LIMITS, 10, (3, 32, 32)), Random(0)
    parent = ("nor_conv_3x3", "nor_conv_3x3", "none", "nor_conv_1x1", "skip_connect", "avg_pool_3x3")
    fitting = [cell for cell in SPACE.neighbours(parent) if fits_by_hand(cell)]
    assert 5 < len(fitting) < 24
    children = Counter(space.mutate(parent, rng) for _ in range(6000))
    assert set(children) == set(fitting) == set(space.neighbours(parent))
    assert chisquare(list(children.values())).pvalue > 1e-3


class Line:
    """The numbers below a thousand, each the neighbour of every other; number n has n parameters."""

    name = "line"

    def sample(self, rng: Random) -> int:
        return rng.randrange(1000)

    def mutate(self, arch: int, rng: Random) -> int:
        return (arch + rng.randrange(1, 1000)) % 1000

    def neighbours(self, arch: int) -> list[int]:
        return [n for n in range(1000) if n != arch]

    def smallest(self) -> int:
        return 0

    def plan(self, arch: int, *_: Any) -> Any:
        return SimpleNamespace(params=arch, flops=0)


def test_the_one_neighbour_that_fits_is_found_however_rare() -> None:
    space = BudgetedSpace(Line(), Budget(max_params=1), 10, (3, 32, 32))  # type: ignore[arg-type]
    rng = Random(0)
    assert [space.mutate(0, rng) for _ in range(30)] == [1] * 30


def test_where_no_neighbour_fits_a_new_sample_does() -> None:
    space = BudgetedSpace(Line(), Budget(max_params=0), 10, (3, 32, 32))  # type: ignore[arg-type]
    assert space.neighbours(0) == []
    assert space.mutate(0, Random(0)) == 0


@pytest.mark.parametrize(
    ("budget", "says"),
    [
        (Budget(max_params=73_305), "No nb201 network has at most 73,305 parameters: the smallest has 73,306"),
        (Budget(max_flops=1), "No nb201 network has at most 1 multiply-accumulates: the smallest has 7,783,040"),
    ],
)
def test_a_budget_that_no_network_meets(budget: Budget, says: str) -> None:
    with pytest.raises(UserError, match=says):
        BudgetedSpace(SPACE, budget, 10, (3, 32, 32))
    assert BudgetedSpace(SPACE, Budget(max_params=73_306), 10, (3, 32, 32)).fits(SPACE.smallest())


# Asking and telling


class Family:
    """An architecture is the list of its ancestors, so that a child names its parent."""

    def sample(self, rng: Random) -> tuple[int, ...]:
        return (rng.randrange(10**9),)

    def mutate(self, arch: tuple[int, ...], rng: Random) -> tuple[int, ...]:
        return (*arch, rng.randrange(10**9))


class Few:
    def __init__(self, size: int) -> None:
        self.size = size

    def sample(self, rng: Random) -> int:
        return rng.randrange(self.size)

    def mutate(self, arch: int, rng: Random) -> int:
        return (arch + 1) % self.size


def test_the_oldest_leaves_however_good() -> None:
    """Everyone takes part in every tournament, so the parent is the best alive."""
    search = Evolution(Family(), 0, population=5, tournament=5, batch=1)
    first = search.ask(5)
    assert all(len(arch) == 1 for arch in first)
    search.tell(first, [100.0, 4.0, 3.0, 2.0, 1.0])
    children = []
    for merit in (0.0, 0.5, 0.1, 0.2, 0.3, 0.4, 0.0, 0.0):
        children += search.ask(1)
        search.tell(children[-1:], [merit])
    parents = [child[:-1] for child in children]
    assert parents[:5] == first, "each has one child, which pushes it out"
    assert parents[5:7] == [children[1]] * 2, "then comes the best of the children, with 0.5, until it is too old"
    assert parents[7] == children[5], "and after it the one with 0.4"
    assert len(search.alive) == 5


def test_a_network_without_a_score_never_wins_against_one_with() -> None:
    search = Evolution(Family(), 3, population=6, tournament=6, batch=1)
    first = search.ask(6)
    search.tell(first, [None, None, None, None, None, -1e300])
    for _ in range(5):
        (child,) = search.ask(1)
        assert child[:-1] == first[5]
        search.tell([child], [None])


def test_a_tournament_of_networks_without_scores_still_has_a_winner() -> None:
    search = Evolution(Family(), 0, population=4, tournament=2, batch=2)
    for _ in range(6):
        archs = search.ask(2)
        assert len(archs) == 2
        search.tell(archs, [None, None])
    assert any(len(arch) > 1 for _, arch in search.alive)


def test_small_tournaments_choose_among_few() -> None:
    """A tournament of one is a uniform draw of the parent."""
    search = Evolution(Family(), 0, population=4, tournament=1, batch=1)
    first = search.ask(4)
    search.tell(first, [4.0, 3.0, 2.0, 1.0])
    parents = Counter(child[:-1] for child in search.ask(2000))  # nothing is told: the same four stay alive
    assert chisquare([parents[arch] for arch in first]).pvalue > 1e-3


@pytest.mark.parametrize("make", [RandomSearch, Evolution])
def test_a_tiny_space_is_exhausted(make: Callable[..., Any]) -> None:
    search = make(Few(7), 0)
    asked: list[int] = []
    while archs := search.ask(4):
        search.tell(archs, [float(arch) for arch in archs])
        asked += archs
    assert sorted(asked) == list(range(7))
    assert search.ask(1) == []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"population": 5}, "A tournament of 10 cannot be drawn from a population of 5"),
        ({"tournament": 0}, "A tournament of 0"),
    ],
)
def test_options_that_make_no_evolution(options: dict[str, int], says: str) -> None:
    with pytest.raises(UserError, match=says):
        Evolution(Family(), 0, **options)


@pytest.mark.parametrize("method", ["evolution_nasrec", *(n for n in searches if "batch" in options_of(searches[n]))])
def test_a_search_asks_for_one_at_least(method: str) -> None:
    options: dict[str, Any] = {"children" if method == "evolution_nasrec" else "batch": 0}
    few = {"networks": 2, "proxy": "params", "proxies": "params"}
    options |= {name: value for name, value in few.items() if name in options_of(searches[method])}
    with pytest.raises(UserError, match=f"{method} asks for at least 1 architecture at a time, not 0"):
        found(sized(), method, options=options, objective=parse_goals("params,-flops") if method == "pareto" else None)


# The loop


def sized(higher_is_better: bool = True, least: int = 0) -> Proxy:
    """A proxy that knows the number of parameters, and has no value for a network with too few of them."""

    def compute(trace: Trace) -> float:
        if trace.params < least:
            raise DegenerateError("too small to say")
        return float(trace.params)

    return Proxy("sized", compute, [need(Pass(), "params")], higher_is_better, {})


def found(
    proxy: Proxy, method: str = "random", evaluations: int = 40, space: Any = SPACE, **given: Any
) -> tuple[Result, list[tuple[str, float]]]:
    """Returns the result of a search, and the networks that its run evaluated."""
    with Store.open(":memory:") as store:
        outcome = run_search(Task(space, [proxy], BATCH), method, evaluations, store=store, **given)
        (run,) = store.runs()
        (steps,) = run.history().values()
        assert run.state == "finished"
        assert run.result is not None
        assert run.result["best"] == (outcome.best and outcome.best.text)
        assert [step.step for step in steps] == list(range(outcome.evaluated))
        return outcome, [(step.arch, step.scores[proxy.text][0].value) for step in steps]


@pytest.mark.parametrize("method", ["random", "evolution"])
@pytest.mark.parametrize("higher", [True, False])
def test_the_winner_is_the_best_in_the_declared_direction(method: str, higher: bool) -> None:
    outcome, history = found(sized(higher), method, 70)
    values = [value for _, value in history]
    assert outcome.best is not None
    assert outcome.best.score.value == (max(values) if higher else min(values))
    assert outcome.best.text == next(arch for arch, value in history if value == outcome.best.score.value)
    assert outcome.plan.params == outcome.best.score.value


def test_evolution_climbs() -> None:
    """The largest of 15,625 networks is found in 250 looks, upwards, and the smallest downwards."""
    up, _ = found(sized(), "evolution", 250)
    down, _ = found(sized(False), "evolution", 250)
    assert up.best is not None
    assert up.best.score.value == 1_531_546
    assert down.best is not None
    assert down.best.score.value == 73_306


@pytest.mark.parametrize("method", ["random", "evolution"])
def test_the_same_seed_gives_the_same_search(method: str) -> None:
    first, second, other = (found(sized(), method, 80, seed=seed)[1] for seed in (4, 4, 5))
    assert first == second != other
    assert len(dict(first)) == 80, "an architecture came twice"
    shorter = found(sized(), method, 24, seed=4)[1]
    assert first[:24] == shorter, "a larger budget begins like a smaller one"


@pytest.mark.parametrize("method", ["random", "evolution"])
def test_every_candidate_meets_both_limits(method: str) -> None:
    _, history = found(sized(), method, 100, budget=LIMITS)
    assert len(history) == 100
    assert all(fits_by_hand(SPACE.parse(text)) for text, _ in history)


def test_networks_without_a_score_are_counted_by_reason() -> None:
    outcome, history = found(sized(least=500_000), "evolution", 60)
    missing = sum(math.isnan(value) for _, value in history)
    assert 0 < missing < 60
    assert outcome.unscored == {"too small to say": missing}
    assert outcome.evaluated == 60


def test_a_search_in_which_nothing_has_a_score() -> None:
    outcome, history = found(sized(least=10**9), "evolution", 60)
    assert outcome.best is None
    assert outcome.unscored == {"too small to say": 60} and len(history) == 60
    with pytest.raises(UserError, match="found no network with a score"):
        _ = outcome.plan


class FewCells(NB201):
    """Four cells of nb201."""

    name = "few"
    cells: Sequence[Cell] = [(op,) * 6 for op in ("none", "skip_connect", "nor_conv_1x1", "nor_conv_3x3")]

    def __iter__(self) -> Iterator[Cell]:
        return iter(self.cells)

    def sample(self, rng: Random) -> Cell:
        return rng.choice(self.cells)

    def mutate(self, arch: Cell, rng: Random) -> Cell:
        return rng.choice([cell for cell in self.cells if cell != arch])


@pytest.mark.parametrize("method", ["random", "evolution"])
def test_a_space_smaller_than_the_budget_ends_the_search(method: str) -> None:
    outcome, history = found(sized(), method, 1000, FewCells())
    assert outcome.evaluated == len(history) == 4
    assert outcome.best is not None
    assert outcome.best.arch == ("nor_conv_3x3",) * 6


def test_the_first_of_equals_wins() -> None:
    outcome, history = found(Proxy("same", lambda trace: 1.0, [need(Pass(), "params")], True, {}), "random", 20)
    assert outcome.best is not None
    assert outcome.best.text == history[0][0]


def test_what_earlier_sittings_did_is_told_apart() -> None:
    task = Task(SPACE, [sized()], data.pink(size=1))

    def stop_half_way(outcome: Result) -> None:
        if outcome.evaluated == 10:
            raise KeyboardInterrupt

    with Store.open(":memory:") as store:
        search: dict[str, Any] = {"evaluations": 20, "options": {"batch": 5}, "store": store}
        with pytest.raises(KeyboardInterrupt):
            run_search(task, "random", progress=stop_half_way, **search)
        outcome = run_search(task, "random", **search)
        (run,) = store.runs()
        (steps,) = run.history().values()
    seconds = sum(took for step in steps[:10] for _, took in step.scores.values())
    assert outcome.earlier[0] == 10 and outcome.earlier[1] == pytest.approx(seconds) and seconds > 0
    clock: Any = (run.result or {})["clock"]
    assert clock["scoring in earlier runs"] == round(outcome.earlier[1], 3)


def test_progress_counts_from_nothing_to_the_budget() -> None:
    counts: list[int] = []
    found(sized(), "evolution", 20, progress=lambda outcome: counts.append(outcome.evaluated))
    assert counts == [0, 8, 16, 20]


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"popultion": 5}, UnknownNameError, "no option 'popultion'. Did you mean 'population'. It has population, to"),
        ({"population": "many"}, UserError, r"takes int for 'population' \(default 50\), not 'many'"),
        ({"tournament": 2.5}, UserError, r"takes int for 'tournament' \(default 10\), not 2.5"),
        ({"population": 5}, UserError, "A tournament of 10 cannot be drawn from a population of 5"),
    ],
)
def test_options_that_the_search_does_not_take(options: dict[str, Any], error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        found(sized(), "evolution", options=options)


@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_numbers_that_are_not_finite_are_refused_before_a_pool_is_scored(value: float) -> None:
    with pytest.raises(UserError, match=f"The search hnas takes a finite number for 'scale', not {value}"):
        found(sized(), "hnas", options={"scale": value})


@pytest.mark.parametrize("evaluations", [0, -1])
def test_a_budget_of_nothing(evaluations: int) -> None:
    with pytest.raises(UserError, match=f"at least 1 evaluation, not {evaluations}"):
        found(sized(), evaluations=evaluations)


def test_scores_of_an_older_recipe_are_not_found_in_the_store() -> None:
    computed = []

    def compute(trace: Trace) -> float:
        computed.append(trace.params)
        return float(trace.params)

    first = Proxy("sized", compute, [need(Pass(), "params")], True, {})
    space = spaces["nb201"]
    with Store.open(":memory:") as store:
        for proxy, times in ((first, 1), (first, 1), (replace(first, recipe=2), 2), (first, 2)):
            task = Task(space, [proxy], data.load("pink", size=2))
            scores, _ = task.evaluate([space.smallest()], store, store.begin_run("test", {"at": proxy.key}, {}), 0)
            assert list(scores[0]) == ["sized"]
            assert len(computed) == times
