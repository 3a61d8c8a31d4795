"""NAS-Bench-101 under budgets: sizes without plans, and uniform draws however little fits."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.spaces.budget import Budget, BudgetedSpace, Size
from epochzero.spaces.nb101 import NB101
from epochzero.spaces.nb101_cell import Cell, topologies, twins
from epochzero.spaces.nb101_size import fitting
from epochzero.types import Shape

SPACE = spaces["nb101"]
CIFAR = 10, (3, 32, 32)
LEAST = 227_274
"""parameters of the smallest"""


def budgeted(space: Any = SPACE, **limits: int) -> BudgetedSpace:
    return BudgetedSpace(space, Budget(**limits), *CIFAR)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**9).map(lambda seed: SPACE.sample(Random(seed), "naslib")),
    st.sampled_from([128, 16, 10, 7]),
    st.integers(1, 20),
    st.sampled_from([(3, 32, 32), (1, 8, 12)]),
)
def test_the_size_is_the_plans(arch: Cell, stem: int, classes: int, shape: Shape) -> None:
    space = NB101(stem)
    plan = space.plan(arch, classes, shape)
    assert space.size(arch, classes, shape) == Size(plan.params, plan.flops)


def test_sizes_by_hand() -> None:
    """Of the benchmark: a straight line from input to output, and its largest cell of one convolution."""
    assert SPACE.size(SPACE.parse("output:0"), *CIFAR).params == 882_570
    assert SPACE.size(SPACE.parse("conv3x3:0/output:1"), *CIFAR).params == 10_177_674
    assert SPACE.size(SPACE.smallest(), *CIFAR).params == LEAST
    with pytest.raises(UserError, match="multiples of 4"):
        SPACE.size(SPACE.smallest(), 10, (3, 30, 32))


# Draws


def one_projection() -> list[Cell]:
    """By hand: pools weigh nothing, so of two cells of pools the one with fewer channels out of the input is smaller.

    Fewest are the least share of a vertex in the output, which nine edges let four vertices have, projected once.
    """
    wirings = [s for s in topologies() if sum(0 in into for into in s) == 1 and len(s[-1]) == 4]
    return [Cell(("maxpool3x3",) * (len(sources) - 1), sources) for sources in wirings]


def test_the_32_smallest_cells_are_drawn_alike() -> None:
    """Of 423,624. They have 75 orders together, and a cell with six is as likely as one with one."""
    space, rng = budgeted(max_params=LEAST), Random(0)
    assert not space.roomy
    drawn = [space.sample(rng) for _ in range(3200)]
    assert set(drawn) == set(one_projection()) and len(set(drawn)) == 75
    keys = Counter(map(SPACE.key, drawn))
    assert len(keys) == 32
    assert {len(twins(cell)) for cell in drawn} >= {1, 3, 6}
    assert chisquare(list(keys.values())).pvalue > 1e-3
    one_of_six = next(cell for cell in drawn if len(twins(cell)) == 6)
    orders = Counter(drawn)
    assert chisquare([orders[twin] for twin in twins(one_of_six)]).pvalue > 1e-3


def test_cells_of_which_some_orders_fit_come_as_much_less_often() -> None:
    """With a stem of 7 channels vertices differ in width, and a 1x1 convolution fits at the narrower ones alone."""
    space = NB101(stem=7)
    limit = int(1.2 * space.plan(space.smallest()).params)
    chances: Counter[str] = Counter()
    for pools in one_projection():
        for at in range(-1, len(pools.ops)):
            cell = pools._replace(ops=tuple("conv1x1" if v == at else op for v, op in enumerate(pools.ops)))
            if space.plan(cell).params <= limit:
                chances[space.key(cell)] += 1 / len(twins(cell))  # type: ignore[assignment]
    assert len(chances) == 83 and sum(chance < 0.99 for chance in chances.values()) == 41
    tight, rng = budgeted(space, max_params=limit), Random(1)
    assert not tight.roomy
    drawn = Counter(space.key(tight.sample(rng)) for _ in range(5000))
    assert drawn.keys() == chances.keys()
    scale = 5000 / sum(chances.values())
    assert chisquare([drawn[key] for key in chances], [chance * scale for chance in chances.values()]).pvalue > 1e-3


def test_the_list_is_what_rejection_comes_upon() -> None:
    """Where some 1 % of the samples fit both limits."""
    space, rng = budgeted(max_params=3 * LEAST, max_flops=100_000_000), Random(2)
    chances = {cell: 1 / len(twins(cell)) for cell in fitting(space.budget, SPACE.stem, *CIFAR)}
    assert space.roomy
    drawn = [space.sample(rng) for _ in range(150)]
    assert set(drawn) <= chances.keys()
    assert {space.sample_few(rng) for _ in range(100)} <= chances.keys()

    def kind(cell: Cell) -> tuple[int, ...]:
        return cell.ops.count("maxpool3x3"), min(len(twins(cell)) // 3, 2)

    found, share = Counter(map(kind, drawn)), Counter[tuple[int, ...]]()
    scale = 150 / sum(chances.values())
    for cell, chance in chances.items():
        share[kind(cell)] += scale * chance  # type: ignore[assignment]
    often = [one for one in share if share[one] > 10]
    assert len(often) > 3
    rest = 150 - sum(found[one] for one in often), 150 - sum(share[one] for one in often)
    assert chisquare([*(found[one] for one in often), rest[0]], [*(share[one] for one in often), rest[1]]).pvalue > 1e-3


def test_a_tight_budget_for_a_search() -> None:
    """Draws and mutations stay within it, the same on every run, and nothing is said to fit that does not."""
    first, again = budgeted(max_params=300_000), budgeted(max_params=300_000)
    drawn = [first.sample(Random(seed)) for seed in range(20)]
    assert drawn == [again.sample(Random(seed)) for seed in range(20)]
    for cell in (*drawn, *(first.mutate(cell, Random(3)) for cell in drawn)):
        assert SPACE.plan(cell).params <= 300_000
    with pytest.raises(UserError, match="at most 227,273 parameters: the smallest has 227,274"):
        budgeted(max_params=LEAST - 1)
