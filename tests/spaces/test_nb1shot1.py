"""NAS-Bench-1Shot1: how many cells each space has, with and without loose ends, and that they are NAS-Bench-101's."""

from __future__ import annotations

import os
from collections import Counter
from itertools import combinations, islice, product
from math import comb, prod
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.spaces.nb1shot1 import NB1Shot1, _choices
from epochzero.spaces.nb101_cell import Cell, graph, pruned
from tests.plan.test_codegen import assert_same

S1, S2, S3 = (spaces[f"nb1shot1_s{i}"] for i in (1, 2, 3))
NB101 = spaces["nb101"]
LOOSE = "conv3x3:0/conv1x1:01/maxpool3x3:02/conv3x3:13/output:02"
"""of S1; vertices 3 and 4 lead nowhere"""
drawn = st.tuples(st.sampled_from([S1, S2, S3]), st.integers(0, 10**9).map(Random))


# Counts


@pytest.mark.parametrize(("space", "count"), [(S1, 14_580), (S2, 29_160), (S3, 1_312_200)])
def test_how_many_cells(space: NB1Shot1, count: int) -> None:
    assert space.count() == count
    if count < 100_000:
        everything = set(space)
        assert len(everything) == sum(1 for _ in space) == count
        assert all(tuple(map(len, arch.sources)) == space.degrees for arch in everything)


def by_inclusion_and_exclusion(degrees: tuple[int, ...], cut: bool) -> tuple[int, int]:
    """Wirings and cells without loose ends, without listing any."""
    inner, output = range(1, len(degrees)), len(degrees)
    wirings = cells = 0
    for size in range(len(degrees)) if cut else [len(inner)]:
        for used in combinations(inner, size):
            here = 0
            for many in range(size + 1):
                for feeding in combinations(used, many):
                    ways = (comb(1 + sum(u < v for u in feeding), degrees[v - 1]) for v in (*used, output))
                    here += (-1) ** (size - many) * prod(ways)
            wirings += here
            cells += 3**size * here
    return wirings, cells


@pytest.mark.parametrize(
    ("space", "tight", "cut"),
    [(S1, (38, 3_078), (66, 3_702)), (S2, (138, 11_178), (190, 12_474)), (S3, (445, 108_135), (876, 135_900))],
)
def test_how_many_cells_without_loose_ends(space: NB1Shot1, tight: tuple[int, int], cut: tuple[int, int]) -> None:
    assert by_inclusion_and_exclusion(space.degrees, cut=False) == tight
    assert by_inclusion_and_exclusion(space.degrees, cut=True) == cut


def test_cells_without_loose_ends_one_by_one() -> None:
    assert sum(is_tight(arch) for arch in S1) == 3_078
    assert sum(is_tight(arch) for arch in S2) == 11_178


def lifted(arch: Cell) -> Cell:
    """The cell with the seven vertices of NAS-Bench-101: a spare conv1x1 if it has six."""
    spare = 6 - len(arch.sources)
    return Cell(arch.ops + ("conv1x1",) * spare, (*arch.sources[:-1], *((),) * spare, arch.sources[-1]))


def is_tight(arch: Cell) -> bool:
    return {u for sources in arch.sources for u in sources} >= set(range(1, len(arch.sources)))


def networks(space: NB1Shot1) -> int:
    return len({NB101.key(cell) for cell in {space.network(arch) for arch in space}})


def test_how_many_networks() -> None:
    assert networks(S1) == 2_685


@pytest.mark.skipif("EPOCHZERO_SLOW" not in os.environ, reason="takes two minutes: set EPOCHZERO_SLOW=1")
def test_how_many_networks_of_the_larger_spaces() -> None:
    assert networks(S2) == 7_773
    assert networks(S3) == 55_854


# Cells and networks


@settings(max_examples=20, deadline=None)
@given(drawn)
def test_the_network_is_that_of_nas_bench_101(choice: tuple[NB1Shot1, Random]) -> None:
    space, rng = choice
    arch = space.sample(rng)
    whole = lifted(arch)
    assert len(whole.sources) == 6
    assert space.parse(NB101.text(whole)) == arch
    cell = NB101.parse(space.text(arch))
    assert cell == NB101.parse(NB101.text(whole)) == pruned(graph(*NB101.matrix(whole))) == space.network(arch)
    assert space.key(arch) == NB101.key(cell)
    ours, theirs = space.plan(arch), NB101.plan(cell)
    assert (ours.params, ours.flops) == (theirs.params, theirs.flops) == space.size(arch, 10, (3, 32, 32))


def test_loose_ends_are_no_part_of_the_network() -> None:
    arch = S1.parse(LOOSE)
    assert NB101.text(S1.network(arch)) == "conv3x3:0/conv1x1:01/output:02"
    other = S1.parse(LOOSE.replace("conv3x3:13", "maxpool3x3:01"))
    assert other != arch and S1.key(other) == S1.key(arch)


def test_module_and_printed_code_are_one_network() -> None:
    assert_same(S2.plan(S2.smallest(), input_shape=(3, 4, 4)))


@pytest.mark.parametrize("space", [S1, S2, S3])
def test_nothing_is_smaller_than_the_smallest(space: NB1Shot1) -> None:
    """A pool weighs nothing, so the smallest cell has nothing else."""
    least = space.plan(space.smallest())
    pools = ("maxpool3x3",) * (len(space.degrees) - 1)
    networks = {space.network(Cell(pools, wiring)) for wiring in product(*_choices(space.degrees))}
    for cell in islice(sorted(networks), 0, None, 1 + len(networks) // 300):
        plan = NB101.plan(cell)
        assert least.params <= plan.params and least.flops <= plan.flops


# Text


@given(drawn)
def test_text_and_cell_are_one_to_one(choice: tuple[NB1Shot1, Random]) -> None:
    space, rng = choice
    arch = space.sample(rng)
    assert space.parse(space.text(arch)) == arch
    matrix, ops = NB101.matrix(lifted(arch))
    assert space.parse(f"{';'.join(''.join(map(str, row)) for row in matrix)} {','.join(ops)}") == arch


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("conv3x3:0/output:1", "vertices of nb1shot1_s1 have 1, 2, 2, 2, 2 sources, the output last; .* have 1, 1"),
        (LOOSE.replace(":13", ":3"), "have 1, 2, 2, 1, 2"),
        (LOOSE.replace("/output", "/conv1x1:4/output"), "have 1, 2, 2, 2, 1, 2"),
        (LOOSE.replace("/output:0", "/conv1x1:/output:5")[:-1], "have 1, 2, 2, 2, 0, 1"),
        (LOOSE.replace("conv3x3:0", "conv3:0"), "Did you mean 'conv3x3'"),
        ("8:8:8:8:8", "should be written as operation:sources"),
    ],
)
def test_text_that_is_no_cell(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        S1.parse(text)


def test_the_spaces_do_not_read_each_other() -> None:
    for space in (S2, S3):
        with pytest.raises(UserError, match="sources, the output last"):
            space.parse(LOOSE)


# Moves and draws


@pytest.mark.parametrize(("space", "neighbours"), [(S1, 8 + 2 + 5 + 9), (S2, 8 + 1 + 2 + 5 + 9), (S3, 10 + 31)])
def test_neighbours_differ_in_one_choice(space: NB1Shot1, neighbours: int) -> None:
    """S3: 1 + 2 + 5 + 9 + 14 other sources."""
    arch = space.sample(Random(0))
    found = space.neighbours(arch)
    assert len(found) == len(set(found)) == neighbours
    for other in found:
        assert space.parse(space.text(other)) == other
        pairs = [*zip(arch.ops, other.ops, strict=True), *zip(arch.sources, other.sources, strict=True)]
        assert sum(a != b for a, b in pairs) == 1
        assert arch in space.neighbours(other)


def test_draws_are_uniform() -> None:
    rng = Random(0)
    archs = [S1.sample(rng) for _ in range(8000)]
    for place in (lambda a: a.sources[2:], lambda a: a.ops):  # 3 * 6 * 10 wirings, 81 ways to place operations
        assert chisquare(list(Counter(map(place, archs)).values())).pvalue > 1e-3
    assert len({arch.sources for arch in archs}) == 180
    moves = Counter(S1.mutate(archs[0], rng) for _ in range(4000))
    assert set(moves) == set(S1.neighbours(archs[0]))
    assert chisquare(list(moves.values())).pvalue > 1e-3
