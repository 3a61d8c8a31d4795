"""Fronts, crowding and hypervolume against pymoo, against slow loops, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochzero.study.methods.base import Floats
from epochzero.study.methods.dominance import crowding, first_front, fittest, fronts, ranked
from epochzero_papers.harness.hypervolume import hypervolume

rows = st.integers(1, 4).flatmap(
    lambda objectives: st.lists(
        st.lists(st.integers(-4, 4), min_size=objectives, max_size=objectives), min_size=1, max_size=30
    )
)


def dominates(a: Floats, b: Floats) -> bool:
    return all(x >= y for x, y in zip(a, b, strict=True)) and any(x > y for x, y in zip(a, b, strict=True))


@given(rows)
@settings(deadline=None)
def test_fronts_as_they_are_defined(table: list[list[int]]) -> None:
    merits = np.array(table, float)
    left = list(range(len(merits)))
    found = [front.tolist() for front in fronts(merits)]
    for front in found:
        assert front == [i for i in left if not any(dominates(merits[j], merits[i]) for j in left)]
        left = [i for i in left if i not in front]
    assert not left
    assert first_front(merits).tolist() == found[0]


@pytest.mark.parametrize("objectives", [2, 3, 5])
def test_fronts_as_pymoo_has_them(objectives: int) -> None:
    from pymoo.util.nds.non_dominated_sorting import NonDominatedSorting

    rng = np.random.default_rng(objectives)
    for merits in (rng.normal(size=(200, objectives)), rng.integers(0, 6, size=(150, objectives)).astype(float)):
        theirs = [sorted(front.tolist()) for front in NonDominatedSorting().do(-merits)]
        assert [front.tolist() for front in fronts(merits)] == theirs


@pytest.mark.parametrize("objectives", [2, 3])
def test_crowding_as_pymoo_has_it(objectives: int) -> None:
    from pymoo.operators.survival.rank_and_crowding.metrics import calc_crowding_distance

    merits = np.random.default_rng(objectives).normal(size=(300, objectives))
    front = merits[first_front(merits)]
    theirs = calc_crowding_distance(-front)
    np.testing.assert_allclose(crowding(front), objectives * theirs)
    assert len(front) > 5
    assert np.argsort(-crowding(front), kind="stable").tolist() == np.argsort(-theirs, kind="stable").tolist()


def test_crowding_by_hand() -> None:
    line = np.array([[0.0, 10.0], [1.0, 8.0], [4.0, 2.0], [5.0, 0.0]])
    assert crowding(line).tolist() == [np.inf, 4 / 5 + 8 / 10, 4 / 5 + 8 / 10, np.inf]
    assert crowding(np.array([[1.0, 2.0]])).tolist() == [0.0]
    flat = np.column_stack([line, np.ones(4)])  # an objective that tells nothing
    assert crowding(flat).tolist() == crowding(line).tolist()


def test_survivors_are_whole_fronts_and_then_the_least_crowded() -> None:
    merits = np.array([[0.0, 0.0], [0.0, 10.0], [1.0, 8.9], [1.1, 8.8], [5.0, 5.0], [10.0, 0.0], [4.0, 4.0]])
    assert fittest(merits, 3).tolist() == [1, 5, 4]
    assert set(fittest(merits, 5).tolist()) == {1, 2, 3, 4, 5}
    assert fittest(merits, 6).tolist()[-1] == 6
    rank, distance = ranked(merits)
    assert rank.tolist() == [2, 0, 0, 0, 0, 0, 1]
    assert distance[[1, 5]].tolist() == [np.inf, np.inf]


def test_hypervolume_by_hand() -> None:
    assert hypervolume(np.array([[3.0, 1.0], [1.0, 3.0], [1.0, 1.0]]), (0, 0)) == 5.0
    assert hypervolume(np.array([[3.0, 1.0], [-1.0, 3.0]]), (0, 0)) == 3.0
    assert hypervolume(np.array([[1.0, 1.0, 1.0], [2.0, 2.0, 0.5]]), (0, 0, 0)) == 1 + 4 * 0.5 - 0.5
    assert hypervolume(np.array([[2.0], [5.0]]), (1.0,)) == 4.0
    assert hypervolume(np.empty((0, 2)), (0, 0)) == 0.0
    assert hypervolume(np.array([[1.0, 1.0]]), (1.0, 0.0)) == 0.0
    with pytest.raises(ValueError, match="at most 3 objectives, not 4"):
        hypervolume(np.ones((1, 4)), (0, 0, 0, 0))


@pytest.mark.parametrize("objectives", [2, 3])
def test_hypervolume_as_pymoo_has_it(objectives: int) -> None:
    from pymoo.indicators.hv import HV

    rng = np.random.default_rng(objectives)
    for merits in (rng.uniform(size=(60, objectives)), rng.integers(0, 5, size=(40, objectives)).astype(float)):
        reference = np.full(objectives, 0.2)
        ours = hypervolume(merits, reference.tolist())
        assert ours == pytest.approx(float(HV(ref_point=-reference)(-merits)), rel=1e-12)


@given(st.lists(st.tuples(*[st.integers(0, 5)] * 3), min_size=1, max_size=12))
@settings(deadline=None)
def test_hypervolume_counts_unit_cubes(points: list[tuple[int, int, int]]) -> None:
    cubes = sum(
        any(x < a and y < b and z < c for a, b, c in points) for x in range(5) for y in range(5) for z in range(5)
    )
    assert hypervolume(np.array(points, float), (0, 0, 0)) == pytest.approx(cubes)
