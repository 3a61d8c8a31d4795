"""NAS-Bench-201: sizes known from the benchmark, its 15,625 cells and 6,466 classes, and uniform draws."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from pathlib import Path
from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from epochzero.errors import UserError
from epochzero.plan.execute import execute
from epochzero.plan.init import draw
from epochzero.registry import spaces
from epochzero.spaces.nb201 import EDGES, OPS, Cell
from epochzero.types import Origin

SPACE = spaces["nb201"]
TABLE = Path(__file__).parents[2] / "../shared/data/nb201.csv.gz"
ALL_3X3 = ("nor_conv_3x3",) * 6
SKIPPING = ("nor_conv_3x3",) * 3 + ("skip_connect",) + ("nor_conv_3x3",) * 2
cells = st.tuples(*[st.sampled_from(OPS)] * 6)


# Sizes


@pytest.mark.parametrize("edge", range(6))
def test_what_an_edge_costs(edge: int) -> None:
    """Five cells of each width w: 9 w^2 weights and a norm of 2 w for a 3x3 convolution, w^2 and 2 w for a 1x1."""
    empty = SPACE.smallest()
    base = SPACE.plan(empty).params
    costs = {op: SPACE.plan((*empty[:edge], op, *empty[edge + 1 :])).params - base for op in OPS}
    assert costs == {
        "none": 0,
        "skip_connect": 0,
        "avg_pool_3x3": 0,
        "nor_conv_3x3": 243_040,
        "nor_conv_1x1": 5 * sum(w * w + 2 * w for w in (16, 32, 64)),
    }


def test_a_smaller_image_costs_less_but_weighs_the_same() -> None:
    small, large = SPACE.plan(SKIPPING, input_shape=(3, 16, 16)), SPACE.plan(SKIPPING)
    assert small.params == large.params
    assert 4 * (small.flops - 640) == large.flops - 640  # all but the classifier's 64 * 10 scale with the pixels


@pytest.mark.parametrize("shape", [(3, 32), (3, 30, 32), (3, 32, 6), (3, 2, 2), (32,)])
def test_an_image_that_cannot_be_halved_twice_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(UserError, match=r"multiples of 4.* not " + "x".join(map(str, shape))):
        SPACE.plan(SKIPPING, input_shape=shape)


# Cells


def test_every_cell_once() -> None:
    everything = list(SPACE)
    assert SPACE.count() == len(everything) == len(set(everything)) == 15_625
    assert len({SPACE.text(cell) for cell in everything}) == 15_625


def test_6466_classes() -> None:
    assert len({SPACE.key(cell) for cell in SPACE}) == 6_466


def test_the_classes_are_those_of_the_benchmark() -> None:
    """The table's `unique_str` may be written in another way: what matters is which cells share one."""
    if not TABLE.is_file():
        pytest.skip("the table nb201.csv.gz is not beside the repository")
    with gzip.open(TABLE, "rt", newline="") as file:
        pairs = {(SPACE.key(SPACE.parse(row["arch_str"])), row["unique_str"]) for row in csv.DictReader(file)}
    assert len(pairs) == len({ours for ours, _ in pairs}) == len({theirs for _, theirs in pairs}) == 6_466


def test_cells_of_one_class_compute_the_same() -> None:
    """Node 1 is the input itself, so edges from either may change places: with their weights, nothing changes."""
    one = ("skip_connect", "nor_conv_3x3", "avg_pool_3x3", "none", "nor_conv_1x1", "skip_connect")
    other = ("skip_connect", "avg_pool_3x3", "nor_conv_3x3", "nor_conv_1x1", "none", "skip_connect")
    assert SPACE.key(one) == SPACE.key(other)
    plans = [SPACE.plan(cell, input_shape=(3, 8, 8)) for cell in (one, other)]
    weights = draw(plans[0].weights, Origin())
    swap = {"edge20": "edge21", "edge31": "edge30"}
    moved = {".".join(swap.get(part, part) for part in name.split(".")): w for name, w in weights.items()}
    x = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    outputs = [execute(plan, w, (x,)) for plan, w in zip(plans, (weights, moved), strict=True)]
    assert torch.allclose(outputs[0], outputs[1], atol=1e-5)
    assert outputs[0].std() > 0.01


@given(cells)
def test_24_neighbours_each_one_edge_away(cell: Cell) -> None:
    neighbours = SPACE.neighbours(cell)
    assert len(neighbours) == len(set(neighbours)) == 24
    assert all(sum(a != b for a, b in zip(cell, other, strict=True)) == 1 for other in neighbours)
    assert all(cell in SPACE.neighbours(other) for other in neighbours)


# Text


@given(cells)
def test_text_and_cell_are_one_to_one(cell: Cell) -> None:
    text = SPACE.text(cell)
    assert SPACE.parse(text) == cell
    assert SPACE.parse(f"  {text}\n") == cell
    assert [edge.split("~")[1] for edge in text.replace("+", "").strip("|").split("|") if edge] == [
        str(source) for _, source in EDGES
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("|none~0|", "An nb201 string is 3 nodes joined by '.', not 1: '.none~0.'"),
        ("|none~0|+|none~0|none~1|+|none~0|none~1|", "Node 3 of .* should be written as .op~0.op~1.op~2.\\."),
        ("none~0+|none~0|none~1|+|none~0|none~1|none~2|", "Node 1 of .* should be written as .op~0.\\."),
        ("|none~0|+|none~0|none~0|+|none~0|none~1|none~2|", "Edge 'none~0' of node 2 should be written as op~1"),
        ("|none~0|+|none~0|none~²|+|none~0|none~1|none~2|", "Edge 'none~²' of node 2 should be written as op~1"),
        ("|none~0|+|none~0|none|+|none~0|none~1|none~2|", "Edge 'none' of node 2 should be written as op~1"),
        ("|conv3x3~0|+|none~0|none~1|+|none~0|none~1|none~2|", "no operation 'conv3x3'. Did you mean 'nor_conv_3x3'"),
        ("|NONE~0|+|none~0|none~1|+|none~0|none~1|none~2|", "no operation 'NONE'"),
    ],
)
def test_text_that_is_no_cell(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        SPACE.parse(text)


# Draws


def test_samples_are_uniform() -> None:
    """Of each edge, of each pair of neighbouring edges, and of how many convolutions there are."""
    rng = Random(0)
    drawn = [SPACE.sample(rng) for _ in range(20_000)]
    for edge in range(6):
        assert chisquare(list(Counter(cell[edge] for cell in drawn).values())).pvalue > 1e-3
    assert chisquare(list(Counter(cell[2:4] for cell in drawn).values())).pvalue > 1e-3
    convs = Counter(sum("conv" in op for op in cell) for cell in drawn)
    of_all = Counter(sum("conv" in op for op in cell) for cell in SPACE)
    expected = [of_all[k] * len(drawn) / SPACE.count() for k in range(7)]
    assert chisquare([convs[k] for k in range(7)], expected).pvalue > 1e-3


def test_mutation_is_uniform_over_the_neighbours() -> None:
    rng = Random(1)
    children = Counter(SPACE.mutate(SKIPPING, rng) for _ in range(12_000))
    assert set(children) == set(SPACE.neighbours(SKIPPING))
    assert chisquare(list(children.values())).pvalue > 1e-3
