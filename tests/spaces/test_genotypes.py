"""Genotypes: three ways to write one, texts that are none, and which are one network up to the names of its nodes."""

from __future__ import annotations

import itertools
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochzero.errors import UserError
from epochzero.spaces.genotypes import GENOTYPES, OPS, SEARCHED, Cell, Genotype, canonical, in_order, parse

V2 = (
    "Genotype(normal=[('sep_conv_3x3', 0), ('sep_conv_3x3', 1), ('sep_conv_3x3', 0), ('sep_conv_3x3', 1), "
    "('sep_conv_3x3', 1), ('skip_connect', 0), ('skip_connect', 0), ('dil_conv_3x3', 2)], normal_concat=range(2, 6), "
    "reduce=[('max_pool_3x3', 0), ('max_pool_3x3', 1), ('skip_connect', 2), ('max_pool_3x3', 1), ('max_pool_3x3', 0), "
    "('skip_connect', 2), ('skip_connect', 2), ('max_pool_3x3', 1)], reduce_concat=range(2, 6))"
)
V2_COMPACT = (
    "(((0, 3), (1, 3), (0, 3), (1, 3), (1, 3), (0, 2), (0, 2), (2, 5)), "
    "((0, 0), (1, 0), (2, 2), (1, 0), (0, 0), (2, 2), (2, 2), (1, 0)))"
)


@st.composite
def cells(draw: st.DrawFn, most: int = 5) -> tuple[Cell, tuple[int, ...]]:
    nodes = range(2, draw(st.integers(1, most)) + 2)
    edges = [(draw(st.sampled_from(OPS)), draw(st.integers(0, node - 1))) for node in nodes for _ in range(2)]
    concat = draw(st.lists(st.sampled_from(nodes), min_size=1, unique=True))
    return tuple(edges), tuple(concat)


genotypes = st.builds(lambda normal, reduce: Genotype(*normal, *reduce), cells(), cells())


# Text


@settings(max_examples=50)
@given(genotypes)
def test_text_and_genotype_are_one_to_one(genotype: Genotype) -> None:
    assert parse(genotype.text) == genotype
    assert parse(genotype.text).text == genotype.text
    assert parse(f"  {genotype.text}\n") == genotype


def test_three_ways_to_write_one() -> None:
    found = parse("DARTS_V2")
    assert found.text == V2
    assert parse(V2) == parse(V2_COMPACT) == parse(V2_COMPACT.replace("(", "[").replace(")", "]")) == found
    as_in_the_code = V2.replace("range(2, 6)", "[2, 3, 4, 5]").replace("'", '"').replace("), (", "),\n  (")
    assert parse(as_in_the_code) == found
    other_order = "Genotype(reduce_concat=(2,), reduce=[('none', 0), ('none', 1)], normal=[('none', 0), ('none', 0)], "
    assert parse(other_order + "normal_concat=[2])").text == (
        "Genotype(normal=[('none', 0), ('none', 0)], normal_concat=range(2, 3), "
        "reduce=[('none', 0), ('none', 1)], reduce_concat=range(2, 3))"
    )


@pytest.mark.parametrize("name", GENOTYPES)
def test_published_ones(name: str) -> None:
    found = parse(name)
    assert parse(found.text) == found == GENOTYPES[name]
    nodes = 5 if name in ("NASNet", "AmoebaNet", "ENAS") else 4
    assert len(found.normal) == len(found.reduce) == 2 * nodes
    assert found.text.count("range") + found.text.count("concat=[") == 2


def test_a_gap_in_what_is_given_out_is_written_as_a_list() -> None:
    assert "reduce_concat=[3, 4, 6])" in GENOTYPES["AmoebaNet"].text
    assert "normal_concat=range(4, 7)," in GENOTYPES["AmoebaNet"].text


SHORT = "Genotype(normal={}, normal_concat={}, reduce=[('none', 0), ('none', 1)], reduce_concat=[2])"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("DARTS_V3", "No published genotype is called 'DARTS_V3'. Did you mean 'DARTS_V[12]'"),
        ("|none~0|+|none~0|none~1|+|none~0|none~1|none~2|", "is not a genotype: write Genotype"),
        ("__import__('os').system('true')", "is not a genotype"),
        ("Genotype", "No published genotype"),
        ("Genotype()", "should be written as Genotype.normal=..., normal_concat=..."),
        ("Genotype([], [], [], [])", "is not a genotype"),
        ("Genotype(**{'normal': 1})", "each of them once"),
        (V2.replace("reduce_concat", "concat"), "each of them once"),
        (SHORT.format("[]", "[2]"), "normal cell should be a list of two"),
        (SHORT.format("[('none', 0)]", "[2]"), "normal cell should be a list of two"),
        (SHORT.format("'none'", "[2]"), "normal cell should be a list of two"),
        (SHORT.format("[('none', 0), ('none', -1)]", "[2]"), "Edge 1 of the normal cell should be written as"),
        (SHORT.format("[('none', 0), ('none', True)]", "[2]"), "Edge 1 of the normal cell should be written as"),
        (SHORT.format("[(0, 'none'), ('none', 1)]", "[2]"), "Edge 0 of the normal cell should be written as"),
        (
            SHORT.format("[('none', 0), ('none', 2)]", "[2]"),
            "Node 2 of the normal cell reads node 2; it may read 0 to 1",
        ),
        (SHORT.format("[('sep_conv3x3', 0), ('none', 1)]", "[2]"), "'sep_conv3x3'. Did you mean 'sep_conv_3x3'"),
        (SHORT.format("[('none', 0), ('none', 1)]", "[]"), "normal_concat should list nodes between 2 and 2"),
        (SHORT.format("[('none', 0), ('none', 1)]", "[2, 2]"), "each at most once"),
        (SHORT.format("[('none', 0), ('none', 1)]", "[1]"), "nodes between 2 and 2"),
        (SHORT.format("[('none', 0), ('none', 1)]", "range(2, 10**9)"), "nodes between 2 and 2"),
        (SHORT.format("[('none', 0), ('none', 1)]", "range(2, 1000000000000000000000)"), "nodes between 2 and 2"),
        (SHORT.format("[('none', 0), ('none', 1)]", "print(2)"), "nodes between 2 and 2"),
        (V2_COMPACT.replace("(2, 5)", "(2, 7)"), "with an operation of 0 to 6"),
        (V2_COMPACT.replace("(2, 5)", "(2, True)"), "with an operation of 0 to 6"),
        (V2_COMPACT.replace("(2, 5)", "(5, 5)"), "Node 5 of the normal cell reads node 5"),
        (V2_COMPACT.replace("(2, 5)", "3"), "is not .source, operation."),
        (f"({V2_COMPACT}, 1)", "two cells of eight"),
        ("()", "two cells of eight"),
        ("((1, 2), (3, 4))", "two cells of eight"),
        ("(" * 5000, "is not a genotype"),
        ("-" * 9000 + "1", "is not a genotype"),
        ("[" * 90 + "]" * 90, "two cells of eight"),
        ("9" * 9000, "is not a genotype"),
        ("'\\d'", "is not a genotype"),
        (V2 + " " * 20_000, "is not a genotype"),
        ("\0", "is not a genotype"),
        ("é~0", "is not a genotype"),
    ],
)
def test_text_that_is_no_genotype(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as raised:
        parse(text)
    assert len(str(raised.value).splitlines()) == 1
    assert len(str(raised.value)) < 400


@settings(max_examples=100)
@given(st.integers(0, len(V2) - 1), st.sampled_from("()[]',0x=\n\0 "))
def test_a_damaged_text_is_a_genotype_or_refused(at: int, character: str) -> None:
    try:
        found = parse(V2[:at] + character + V2[at + 1 :])
    except UserError:
        return
    assert parse(found.text) == found


# Which are the same


def renumbered(cell: Cell, concat: tuple[int, ...], order: tuple[int, ...]) -> tuple[Cell, tuple[int, ...]] | None:
    """The cell with its nodes in another order, where no node then comes before one that it reads."""
    place = {0: 0, 1: 1} | {node: at for at, node in enumerate(order, start=2)}
    edges = [(op, place[source]) for node in order for op, source in cell[2 * node - 4 : 2 * node - 2]]
    if any(source >= i // 2 + 2 for i, (_, source) in enumerate(edges)):
        return None
    return tuple(edges), tuple(place[node] for node in concat)


def relatives(cell: Cell, concat: tuple[int, ...]) -> set[tuple[Cell, tuple[int, ...]]]:
    """Every numbering of the nodes, with edges and outputs in order."""
    orders = itertools.permutations(range(2, len(cell) // 2 + 2))
    found = (renumbered(cell, concat, order) for order in orders)
    return {(in_order(other[0]), tuple(sorted(other[1]))) for other in found if other is not None}


@settings(max_examples=60, deadline=None)
@given(cells(most=4), cells(most=4))
def test_the_canonical_form_is_the_first_of_all_numberings(
    one: tuple[Cell, tuple[int, ...]], other: tuple[Cell, tuple[int, ...]]
) -> None:
    assert canonical(*one) == min(relatives(*one))
    assert all(canonical(*relative) == canonical(*one) for relative in relatives(*one))
    assert (canonical(*one) == canonical(*other)) == bool(relatives(*one) & relatives(*other))


def test_classes_of_small_cells() -> None:
    """Three nodes with two operations: as many classes as there are orbits under swapping and renumbering."""
    ops, everything = SEARCHED[2:4], []
    pairs = [list(itertools.combinations(range(node), 2)) for node in (2, 3, 4)]
    for sources in itertools.product(*pairs):
        flat = [source for pair in sources for source in pair]
        choices = itertools.product(ops, repeat=6)
        everything += [(tuple(zip(chosen, flat, strict=True)), (2, 3, 4)) for chosen in choices]
    assert len(everything) == 1 * 3 * 6 * 2**6
    classes = {canonical(*cell) for cell in everything}
    assert len(classes) == len({frozenset(relatives(*cell)) for cell in everything}) < len(everything)


def test_swapped_edges_and_renumbered_nodes() -> None:
    cell = (("sep_conv_3x3", 0), ("skip_connect", 1), ("max_pool_3x3", 0), ("dil_conv_5x5", 1))
    swapped = (cell[1], cell[0], *cell[2:])
    exchanged = (*cell[2:], *cell[:2])
    assert in_order(swapped) == cell != in_order(exchanged)
    assert canonical(cell, (2, 3)) == canonical(swapped, (2, 3)) == canonical(exchanged, (3, 2))
    assert canonical(cell, (2,)) == canonical(exchanged, (3,)) != canonical(exchanged, (2,))


def test_nodes_that_look_alike_are_told_apart_by_who_reads_them() -> None:
    twins = (("sep_conv_3x3", 0), ("sep_conv_3x3", 1)) * 2
    both_from_one = (*twins, ("skip_connect", 0), ("skip_connect", 2), ("skip_connect", 1), ("skip_connect", 2))
    one_from_each = (*twins, ("skip_connect", 0), ("skip_connect", 2), ("skip_connect", 1), ("skip_connect", 3))
    assert canonical(both_from_one, (2, 3, 4, 5)) != canonical(one_from_each, (2, 3, 4, 5))


def test_many_equal_nodes_are_quick() -> None:
    edges = (("none", 0), ("none", 1)) * 40
    assert canonical(edges, tuple(range(2, 42))) == (edges, tuple(range(2, 42)))
    shuffled = list(range(2, 42))
    Random(0).shuffle(shuffled)
    assert canonical(edges, tuple(shuffled)) == (edges, tuple(range(2, 42)))
