"""Width and depth of cells, against the thesis' figures, an enumeration of all paths, and the properties they have."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochzero.analysis.topology import (
    CELLS,
    KNOWN,
    Topology,
    of_cell,
    of_nb101,
    of_nb201,
    random_connections,
    random_operations,
    topologies,
    widest,
)
from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.spaces import nb101_cell
from epochzero.spaces.genotypes import GENOTYPES

PRINTED = {"NASNet": (5, 2), "AmoebaNet": (4, 4), "ENAS": (5, 2), "DARTS": (3.5, 3), "SNAS": (4, 2)}
ADAPTED = {"NASNet": (5, 2), "AmoebaNet": (3, 2), "ENAS": (5, 2), "DARTS": (4, 2), "SNAS": (4, 2)}
PARAMS = {
    "NASNet": (4.29, 4.32),
    "AmoebaNet": (3.60, 3.60),
    "ENAS": (4.32, 4.32),
    "DARTS": (3.83, 3.90),
    "SNAS": (3.14, 3.19),
}
"""millions, with the auxiliary tower (thesis, Table 4.1)"""


def shape(topology: Topology) -> tuple[float, int]:
    return topology.width, topology.depth


def by_paths(topology: Topology) -> tuple[Fraction, int]:
    """Width and depth from a list of all paths from an input to the output, written down one after the other."""
    reads = dict(enumerate(topology.sources, start=topology.inputs))

    def into(node: int) -> list[tuple[int, ...]]:
        if node < topology.inputs:
            return [(node,)]
        return [(*path, node) for source in reads[node] for path in into(source)]

    paths = [path for node in topology.output for path in into(node)]
    on_a_path = {node for path in paths for node in path}
    width = Fraction(0)
    for node, sources in reads.items():
        if node in on_a_path:
            living = [source for source in sources if source in on_a_path]
            width += Fraction(len([source for source in living if source < topology.inputs]), len(living))
    return width, max((len(path) for path in paths), default=0)


@pytest.mark.parametrize("name", KNOWN)
def test_known_cells_are_as_wide_and_deep_as_the_thesis_says(name: str) -> None:
    assert shape(topologies(KNOWN[name])["normal"]) == PRINTED[name]
    assert shape(topologies(widest(KNOWN[name]))["normal"]) == ADAPTED[name]


@pytest.mark.parametrize("name", KNOWN)
def test_adapted_cells_have_the_parameters_of_table_4_1(name: str) -> None:
    original, adapted = (spaces["darts"].plan(cell, auxiliary=True) for cell in (KNOWN[name], widest(KNOWN[name])))
    assert original.params / 1e6 == pytest.approx(PARAMS[name][0], abs=0.00501)
    assert adapted.params / 1e6 == pytest.approx(PARAMS[name][1], abs=0.00501)


def test_extreme_cells_are_those_of_table_7_2() -> None:
    assert shape(topologies(CELLS["WIDE"])["normal"]) == (4, 2)
    assert shape(topologies(CELLS["DEEP"])["normal"]) == (1.5, 5)


def test_first_order_darts_by_hand() -> None:
    cells = topologies(GENOTYPES["DARTS_V1"])
    assert shape(cells["normal"]) == (3.5, 3)
    assert shape(cells["reduction"]) == (1 + 0.5 + 0.5 + 0.5, 3)


@st.composite
def any_topology(draw: st.DrawFn) -> Topology:
    inputs, inner = draw(st.integers(1, 3)), draw(st.integers(0, 5))
    last = inputs + inner
    node = st.integers(0, last - 1)
    sources = tuple(
        tuple(draw(st.lists(st.integers(0, v - 1), max_size=3))) for v in range(inputs, last)
    )  # some nodes read nothing
    return Topology(inputs, sources, tuple(draw(st.sets(node, max_size=last))))


@given(any_topology())
def test_any_graph_is_measured_as_its_paths_say(topology: Topology) -> None:
    assert (Fraction(topology.width), topology.depth) == pytest.approx(by_paths(topology))


@given(st.integers(0, 10**9), st.sampled_from(["darts", "nb201"]))
def test_width_is_at_most_the_inner_nodes_and_depth_at_least_two(seed: int, space: str) -> None:
    for cell in topologies(spaces[space].sample(Random(seed))).values():
        assert 0 <= cell.width <= len(cell.alive) <= len(cell.sources)
        if cell.alive:
            assert 2 <= cell.depth <= len(cell.alive) + 1 and cell.width > 0
        else:
            assert space == "nb201" and (cell.width, cell.depth) == (0, 0), "cut in two"


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**9))
def test_cells_of_nb101(seed: int) -> None:
    arch = spaces["nb101"].sample(Random(seed))
    cell = of_nb101(arch)
    assert cell.width <= len(arch.ops) == len(cell.alive)
    assert cell.depth >= (2 if arch.ops else 1)
    variant = random_connections(arch, Random(seed))
    assert variant.ops == arch.ops and variant.edges == arch.edges
    assert nb101_cell.pruned(variant) == variant
    assert random_operations(arch, Random(seed)).sources == arch.sources


def test_cells_of_the_benchmarks_by_hand() -> None:
    nb101, nb201 = spaces["nb101"], spaces["nb201"]
    inception = nb101.parse("conv1x1:0/conv3x3:0/conv3x3:2/output:013")
    assert shape(of_nb101(inception)) == (2, 3)
    assert shape(of_nb101(nb101.parse("output:0"))) == (0, 1)
    dense = nb201.parse("|nor_conv_3x3~0|+|nor_conv_3x3~0|skip_connect~1|+|none~0|nor_conv_1x1~1|avg_pool_3x3~2|")
    assert shape(of_nb201(dense)) == (1.5, 4)
    straight = nb201.parse("|none~0|+|none~0|nor_conv_3x3~1|+|skip_connect~0|none~1|nor_conv_3x3~2|")
    assert shape(of_nb201(straight)) == (1, 2), "node 2 hears nothing, so node 3 reads the input alone"


@given(st.integers(0, 10**9), st.sampled_from(sorted(KNOWN)))
def test_variants_keep_what_they_should(seed: int, name: str) -> None:
    arch = KNOWN[name]
    other = random_connections(arch, Random(seed))
    assert [op for op, _ in other.normal] == [op for op, _ in arch.normal]
    assert other._replace(normal=arch.normal) == arch
    assert all(0 <= source < i // 2 + 2 for i, (_, source) in enumerate(other.normal))
    assert other == random_connections(arch, Random(seed))
    same = random_operations(arch, Random(seed))
    assert topologies(same) == topologies(arch)


def test_every_node_before_is_drawn_alike_often() -> None:
    rng, counts = Random(0), [0] * 5
    for _ in range(4000):
        counts[random_connections(KNOWN["DARTS"], rng).normal[-1][1]] += 1
    assert all(700 < count < 900 for count in counts), counts


@given(st.integers(0, 10**9))
def test_variants_of_nb201(seed: int) -> None:
    arch = spaces["nb201"].sample(Random(seed))
    other = random_connections(arch, Random(seed))
    assert sorted(other) == sorted(arch)
    assert [len(s) for s in of_nb201(other).sources] == [len(s) for s in of_nb201(arch).sources]
    assert of_nb201(random_operations(arch, Random(seed))) == of_nb201(arch)


def test_cut_edges_do_not_count() -> None:
    cell = (("sep_conv_3x3", 0), ("none", 1), ("skip_connect", 0), ("sep_conv_3x3", 2))
    assert shape(of_cell(cell, (2, 3))) == (1.5, 3)


def test_spaces_without_cells_are_refused() -> None:
    with pytest.raises(UserError, match="Width and depth are defined for cells of darts, nb201, nb101"):
        topologies(spaces["mobilenet"].smallest())
