"""The results of a pass are computed while the next one runs, and freed then."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any
from weakref import WeakSet

import pytest
import torch

from epochzero import data
from epochzero.engine import PlanNetwork, parse, pending, score_population
from epochzero.engine.gpu.block_run import BlockRun
from epochzero.engine.gpu.routine_run import RoutineRun
from epochzero.engine.passes import Pass
from epochzero.engine.population import population, scoring
from epochzero.engine.population.columns import ResultColumns, Rows
from epochzero.engine.population.grouping import MemoryBudget
from epochzero.engine.population.joint_run import run_together
from epochzero.engine.population.population import Population
from epochzero.engine.population.tape import Tape
from epochzero.engine.single import score as single
from epochzero.engine.single.run import run_pass
from epochzero.registry import spaces
from epochzero.types import Score
from tests.engine.population.test_lockstep import SHAPE, assert_equal, precise, some_plans

BATCH = data.load("pink", input_shape=SHAPE, num_classes=3, size=4)
ASKED = [precise(name) for name in ("zico", "jacov", "naswot")]
"""zico reads two passes, of which the others read the first"""
Note = tuple[str, str]
pytestmark = pytest.mark.usefixtures("shallow_nb201")


@pytest.fixture
def fours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Populations of four."""

    def in_groups(networks: Iterable[Any], *_: Any) -> Iterator[list[Any]]:
        left = iter(networks)
        while group := list(islice(left, 4)):
            yield group

    monkeypatch.setattr(scoring, "in_groups", in_groups)


@pytest.fixture
def notes(fours: None, monkeypatch: pytest.MonkeyPatch) -> list[Note]:
    """The steps in their order, with their populations."""
    noted: list[Note] = []
    names: dict[int, str] = {}
    together, computed, prepared = scoring._together, pending._computed, scoring._prepared

    def prepare(networks: Any, lockstep: Any) -> Any:
        name = f"{len(names)}"
        names.update(dict.fromkeys(map(id, networks), name))
        noted.append(("plan", name))
        return prepared(networks, lockstep)

    def launch(run: Any, items: Any, of: Population, *rest: Any) -> Any:
        name = names[id(of.networks[0])]
        noted.append((f"launch {run.part}", name))
        found = together(run, items, of, *rest)
        assert found is not None
        found.facts["name"] = [name]
        return found

    def compute(proxy: Any, needs: Any, found: Any, count: int) -> Any:
        noted.append((proxy.name, found[0].facts["name"][0]))
        return computed(proxy, needs, found, count)

    monkeypatch.setattr(scoring, "_prepared", prepare)
    monkeypatch.setattr(scoring, "_together", launch)
    monkeypatch.setattr(pending, "_computed", compute)
    return noted


def scored(count: int, lockstep: Any = "always") -> list[dict[str, Score]]:
    networks = [PlanNetwork(plan) for plan in some_plans("nb201", count, seed=3)]
    return [one.scores for one in score_population(networks, ASKED, BATCH, 0, lockstep)]


@pytest.fixture(scope="module")
def alone(shallow_nb201: None) -> list[dict[str, Score]]:
    return scored(8, "never")


def assert_alike(found: list[dict[str, Score]], alone: list[dict[str, Score]]) -> None:
    for one, other in zip(found, alone, strict=True):
        assert list(one) == list(other)
        assert_equal(one, other)


def test_proxies_are_computed_one_pass_behind(notes: list[Note], alone: list[dict[str, Score]]) -> None:
    assert_alike(scored(8), alone)
    names = list(dict.fromkeys(name for _, name in notes))
    assert [(what, names.index(name)) for what, name in notes] == [
        ("plan", 0),
        ("launch 0", 0),
        ("launch 1", 0),
        ("plan", 1),
        ("jacov", 0),
        ("naswot", 0),
        ("launch 0", 1),
        ("zico", 0),
        ("launch 1", 1),
        ("jacov", 1),
        ("naswot", 1),
        ("zico", 1),
    ]


def out_of_memory(function: Callable[..., Any], when: Callable[..., bool]) -> Callable[..., Any]:
    def cramped(*given: Any) -> Any:
        if when(*given):
            raise torch.OutOfMemoryError("CUDA out of memory")
        return function(*given)

    return cramped


@pytest.mark.usefixtures("fours")
def test_a_population_without_room_halves_when_the_one_before_is_done(
    alone: list[dict[str, Score]], monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def full(*given: Any) -> bool:
        sizes.append(given[2].size)
        return len(sizes) == 3

    monkeypatch.setattr(scoring, "run_together", out_of_memory(run_together, full))
    assert_alike(scored(8), alone)
    assert sizes == [4, 4, 4, 2, 2, 2, 2]


@pytest.mark.usefixtures("fours")
def test_a_lone_network_runs_when_the_population_before_it_has_gone(
    alone: list[dict[str, Score]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot halve: what is left of others must not stand in its way."""
    under_way: WeakSet[ResultColumns] = WeakSet()

    def together(*given: Any) -> ResultColumns:
        under_way.add(found := run_together(*given))
        return found

    monkeypatch.setattr(scoring, "run_together", together)
    monkeypatch.setattr(single, "run_pass", out_of_memory(run_pass, lambda *_: bool(under_way)))
    assert_alike(scored(5), alone[:5])


def test_room_that_was_too_little_is_less_from_then_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a population halves, and in later calls with the same room; networks of a GPU are taken at their word."""
    memory, networks = MemoryBudget(), [PlanNetwork(plan) for plan in some_plans("nb201", 8, seed=3)]
    before = memory.share
    monkeypatch.setattr(scoring, "run_together", out_of_memory(run_together, lambda *given: given[2].size > 4))
    score_population(networks, ASKED, BATCH, 0, "always", memory)
    assert memory.share < before
    on_gpu = PlanNetwork(networks[0].plan, device="cuda")
    assert memory.bytes_for(on_gpu, "auto", lambda _: 1000) == 1000 * memory.share
    assert memory.bytes_for(networks[0], "auto", lambda _: 1000) == 0, "a CPU runs one by one"


def test_recordings_of_a_pass_go_with_its_last_draw(monkeypatch: pytest.MonkeyPatch) -> None:
    left: list[tuple[int, int]] = []
    let_go_of = Population.let_go_of

    def noting(population: Population, kind: Pass) -> None:
        before = len(population.replays)
        let_go_of(population, kind)
        left.append((before, len(population.replays)))

    monkeypatch.setattr(Population, "let_go_of", noting)
    networks = [PlanNetwork(plan) for plan in some_plans("nb201", 3, seed=3)]
    score_population(networks, [parse("swap(repeats=3,samples=4)"), parse("zen(repeats=2)")], BATCH, 0, "always")
    assert left == [(1, 0), (2, 1), (1, 0)], "swap's, then zen's with and without the nudge"


@pytest.mark.parametrize(("times", "launches"), [(1, 4), (2, 4), (3, 8)])
def test_a_proxy_without_room_beside_the_next_pass_waits(
    times: int, launches: int, notes: list[Note], alone: list[dict[str, Score]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It runs with both passes of the next population, then with none; only then the population is halved."""
    left = [times]

    def full(proxy: Any, *_: Any) -> bool:
        left[0] -= proxy.name == "zico"
        return proxy.name == "zico" and left[0] >= 0

    monkeypatch.setattr(pending, "_computed", out_of_memory(pending._computed, full))
    assert_alike(scored(8), alone)
    assert sum(what.startswith("launch") for what, _ in notes) == launches


@pytest.mark.parametrize("by_routines", [False, True])
@pytest.mark.usefixtures("fours")
def test_nothing_is_left_of_a_population_and_no_garbage_is_looked_for(
    by_routines: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Networks that are cut off, and proxies that refuse them, are no exception."""
    there: WeakSet[Any] = WeakSet()
    most: list[int] = []

    def noting(kind: type) -> None:
        begin = kind.__init__  # type: ignore[misc]

        def noted(self: Any, *given: Any, **named: Any) -> None:
            there.add(self)
            begin(self, *given, **named)

        monkeypatch.setattr(kind, "__init__", noted)

    for kind in (Population, BlockRun, Tape, RoutineRun, ResultColumns, Rows):
        noting(kind)

    def counting(*given: Any) -> Any:
        assert not gc.isenabled()
        most.append(sum(isinstance(one, (BlockRun, Tape, RoutineRun)) for one in there))
        most.append(sum(isinstance(one, Population) for one in there) - 1)
        return run_together(*given)

    monkeypatch.setattr(scoring, "run_together", counting)
    monkeypatch.setattr(population, "runs_here", lambda _: by_routines)
    space = spaces["nb201"]
    plans = [*some_plans("nb201", 7, seed=3), space.plan(space.smallest(), 3, SHAPE)]
    asked = [parse(text) for text in ("zico", "jacov", "naswot", "synflow", "grasp", "fmi", "ntk_trace", "swap")]
    gc.collect()
    score_population((PlanNetwork(plan) for plan in plans), asked, BATCH, 0, "always")
    assert gc.isenabled() and len(most) > 20
    assert max(most) <= 1, "no run is there when the next begins, nor a third population"
    assert not there


def test_garbage_is_looked_for_where_networks_run_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []

    def looking(*given: Any) -> Any:
        seen.append(gc.isenabled())
        return run_pass(*given)

    monkeypatch.setattr(single, "run_pass", looking)
    scored(2, "never")
    assert seen and all(seen)
