from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochzero.errors import UserError
from epochzero.plan import Builder, Plan
from epochzero.plan.blocks import TIMES, alive, labels, members, units
from epochzero.plan.drawing.draw import svg, text
from epochzero.plan.drawing.layout import Box, arrange
from epochzero.plan.drawing.sketch import clean, short, sketch
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.wiring import Add, Concat, Zero
from epochzero.registry import spaces
from epochzero.spaces.darts import Darts
from epochzero.spaces.genotypes import GENOTYPES
from epochzero.spaces.nb201 import NB201, OPS
from tests.plan.plan_tangles import tangles

SPACE = NB201()
MIXED = ("nor_conv_3x3", "skip_connect", "nor_conv_1x1", "none", "avg_pool_3x3", "nor_conv_3x3")
CUT = ("none", "nor_conv_3x3", "nor_conv_3x3", "skip_connect", "avg_pool_3x3", "none")
"""nothing reaches node 1; nothing leaves node 2"""
NAMESPACE = "{http://www.w3.org/2000/svg}"


class Picture:
    """An SVG read back."""

    def __init__(self, source: str) -> None:
        self.root = ET.fromstring(source)

    def marked(self, *classes: str) -> list[ET.Element]:
        return [e for e in self.root.iter() if set(classes) <= set(e.get("class", "").split())]

    def said(self, *classes: str) -> list[str]:
        texts = (item.findall(f"{NAMESPACE}text") for item in self.marked(*classes))
        return [" ".join(each.text or "" for each in lines) for lines in texts]

    def tops(self, stem: str) -> list[tuple[float, str]]:
        """Boxes whose first line begins so, from the top down."""
        found = zip(self.marked("box"), self.said("box"), strict=True)
        shapes = ((box.find(f"{NAMESPACE}rect"), said) for box, said in found if said.startswith(stem))
        return sorted((float(shape.get("y", 0)), said) for shape, said in shapes if shape is not None)


def chain(*names: str) -> Plan:
    net = Builder()
    x = net.input((4,))
    for name in names:
        x = net.add(Linear(4), x, name=name)
    return net.plan()


@settings(max_examples=15, deadline=None)
@given(st.tuples(*[st.sampled_from(OPS)] * 6))
def test_a_cell_is_six_boxes_between_four_circles(cell: tuple[str, ...]) -> None:
    picture = Picture(svg(SPACE.plan(cell), "cell0"))
    assert picture.said("node") == ["0 input", "1", "2", "3 output"]
    spoken = dict(zip(OPS, ("zero", "skip", "conv 1×1", "conv 3×3", "avg pool 3×3"), strict=True))
    assert picture.said("box") == [spoken[op] for op in cell]
    assert len(picture.marked("edge")) == len(picture.marked("tip")) == 12


def test_what_nothing_passes_through_is_dead() -> None:
    mixed = Picture(svg(SPACE.plan(MIXED), "cell0"))
    assert mixed.said("item", "dead") == ["zero"]
    assert len(mixed.marked("edge", "dead")) == 2
    cut = Picture(svg(SPACE.plan(CUT), "cell0"))
    assert cut.said("box", "dead") == ["zero", "conv 3×3", "conv 3×3", "avg pool 3×3", "zero"]
    assert cut.said("node", "dead") == ["1", "2"]
    assert len(cut.marked("edge", "dead")) == 10
    none = Picture(svg(SPACE.plan(("none",) * 6), "cell0"))
    assert len(none.marked("edge", "dead")) == 12


def test_the_network_is_a_row_of_blocks_with_equal_ones_drawn_once() -> None:
    plan = SPACE.plan(MIXED)
    picture = Picture(svg(plan))
    assert picture.said("box") == [
        "input 3×32×32",
        "stem 16×32×32 464 params",
        "cell 0–4 16×32×32 5 × 4.96k params",
        "reduce1 32×16×16 14.5k params",
        "cell 5–9 32×16×16 5 × 19.6k params",
        "reduce2 64×8×8 57.6k params",
        "cell 10–14 64×8×8 5 × 78.2k params",
        "head 10 778 params",
        "output 10",
    ]
    assert not picture.marked("dead")
    assert Picture(svg(SPACE.plan(("none",) * 6))).said("box", "dead")[0].startswith("stem")


def test_a_long_network_is_broken_into_rows() -> None:
    items = [Box(100, 40)] * 20
    placed = arrange(items, [(i, i + 1) for i in range(19)])
    assert len({centre.y for centre in placed.centres}) == 3
    assert placed.width < 1100


def test_pictures_say_what_they_show() -> None:
    picture = Picture(svg(SPACE.plan(MIXED), "cell0"))
    assert picture.root.get("role") == "img"
    title, about = picture.root.find(f"{NAMESPACE}title"), picture.root.find(f"{NAMESPACE}desc")
    assert title is not None and title.text == "cell0"
    assert about is not None and "node1 ─ avg pool 3×3 ─▶ output" in (about.text or "")


def test_names_are_text_and_never_markup() -> None:
    wicked = '<script>alert("&")</script>\x00\x1b[31m\ud800]]>'
    plan = chain(f"{wicked}.a", f"{wicked}.b", "x.y")
    for block in ("", wicked):
        source = svg(plan, block)
        source.encode("utf-8")
        assert Picture(source).said("box")
        assert not Picture(source).root.findall(f".//{NAMESPACE}script")
        assert "\x1b" not in text(plan, block)
        assert "\x00" not in text(plan, block)


def test_several_blocks_stand_below_each_other() -> None:
    plan = SPACE.plan(MIXED)
    one, other, both = (Picture(svg(plan, block)) for block in ("cell0", "reduce1", ("cell0", "reduce1")))
    assert both.said("box") == [*one.said("box"), *other.said("box")]
    assert [e.text for e in both.marked("title")] == ["cell0", "reduce1"]
    assert float(both.root.get("height", 0)) == float(one.root.get("height", 0)) + float(other.root.get("height", 0))
    assert float(both.root.get("width", 0)) == max(float(p.root.get("width", 0)) for p in (one, other))
    title = both.root.find(f"{NAMESPACE}title")
    assert title is not None and title.text == "cell0, reduce1"
    assert text(plan, ("cell0", "reduce1")) == f"{text(plan, 'cell0')}\n{text(plan, 'reduce1')}"
    assert svg(plan, ("cell0",)) == svg(plan, "cell0")


@pytest.mark.parametrize(
    "space", [Darts("any", 4, cells, imagenet) for cells in range(1, 9) for imagenet in (False, True)]
)
def test_a_normal_and_a_reduction_cell_are_drawn(space: Darts) -> None:
    """A network of one or two cells has reduction cells alone."""
    plan = space.plan(GENOTYPES["DARTS_V2"], 10, (3, 64, 64))
    drawn = text(plan, space.cell_block).split("\n\n")
    assert [("/2" in cell and "max pool" in cell) for cell in drawn] == ([False, True] if space.cells > 2 else [True])
    if space.cells > 3:
        assert all("input 2" in cell for cell in drawn)


@pytest.mark.parametrize("space", [Darts("any", 4, 6), Darts("any", 4, 6, search_edges=True)])
def test_every_operation_of_a_darts_cell_has_a_name(space: Darts) -> None:
    plans = [space.plan(space.sample(Random(seed))) for seed in range(20)]
    drawn = [text(plan, space.cell_block) for plan in plans]
    assert not any(re.search(r"edge\d_\d", each) for each in drawn)
    assert any("dw conv 5×5 /2, conv 1×1, ×2" in each for each in drawn)
    assert any("2 × conv 1×1 /2" in each for each in drawn)


def test_strided_operations_by_name() -> None:
    space, other = Darts("any", 4, 6), spaces["transnas_micro"]
    _, reduction = text(space.plan(GENOTYPES["NASNet"]), space.cell_block).split("\n\n")
    assert [reduction.count(f"dw conv {k}×{k} /2, conv 1×1, ×2") for k in (3, 5, 7)] == [0, 2, 2]
    assert "2 × conv 1×1 /2" in text(other.plan(("skip_connect",) * 6), "cell0")


def test_cells_are_called_normal_and_reduction_and_inputs_stand_in_order() -> None:
    space = Darts("any", 4, 6)
    for seed in range(20):
        plan = space.plan(space.sample(Random(seed)))
        for block, called in zip(space.cell_block, ("normal cell (cell1)", "reduction cell (cell2)"), strict=True):
            picture = Picture(svg(plan, block))
            assert [title.text for title in picture.marked("title")] == [called]
            assert [said for _, said in picture.tops("input")] == ["input 1", "input 2"]


@pytest.mark.parametrize("squeeze", [False, True])
def test_a_block_of_a_string_says_its_kernels_widths_and_repetitions(squeeze: bool) -> None:
    space = spaces["mobilenet"]
    arch = space.parse(
        "SuperConvK3BNRELU(3,16,2,1)SuperResIDWE6K3(16,24,2,8,2)SuperResIDWE1K7(24,32,2,40,1)"
        "SuperResIDWE2K5(32,48,2,48,3)SuperResIDWE4K3(48,64,2,16,1)SuperConvK1BNRELU(64,2048,1,1)"
    )
    plan = space.plan(arch, 10, (3, 64, 64), squeeze=squeeze)
    assert {item.name: ", ".join(item.inside) for item in sketch(plan, "").items if item.inside} == {
        "block1": "conv 1×1 → 48, dw conv 3×3 /2, conv 1×1 → 8, conv 1×1 → 144, dw conv 3×3, conv 1×1 → 24, ×2",
        "block2": "conv 1×1 → 40, dw conv 7×7 /2, conv 1×1, conv 1×1 → 32, dw conv 7×7, conv 1×1",
        "block3": "conv 1×1 → 96, dw conv 5×5 /2, conv 1×1 → 48, ×6",
        "block4": "conv 1×1 → 64, dw conv 3×3 /2, conv 1×1 → 16, conv 1×1 → 256, dw conv 3×3, conv 1×1 → 64",
    }
    assert "block3 conv 1×1 → 96 dw conv 5×5 /2 conv 1×1 → 48 ×6 48×" in " ".join(Picture(svg(plan)).said("box"))
    assert "block3 ─ conv 1×1 → 96 ─ dw conv 5×5 /2 ─ conv 1×1 → 48 ─ ×6 ─" in text(plan, space.cell_block)


def test_tiles_of_a_jigsaw_stand_in_order_and_share_their_weights() -> None:
    space = spaces["transnas_micro_jigsaw"]
    plan = space.plan(space.smallest(), 5, (9, 3, 16, 16))
    picture = Picture(svg(plan))
    assert [said.split(" 3×")[0] for _, said in picture.tops("no.")] == [f"no. {k}" for k in range(9)]
    first, *others = [said for _, said in picture.tops("backbone")]
    assert first.startswith("backbone ") and first.endswith(" params")
    assert [said.split()[0] for said in others] == [f"backbone{k}" for k in range(1, 9)]
    assert all(said.endswith(" shared weights") for said in others)


def test_paths_that_could_change_places_stand_in_order() -> None:
    paths = [(1, 2), (3, 4), (5, 6), (7, 8)]
    edges = [edge for a, b in paths for edge in ((0, a), (a, b), (b, 9))]
    centres = arrange([Box(40, 20 + 10 * k) for k in range(10)], edges).centres
    assert [centres[a].y for a, _ in paths] == sorted({centres[b].y for _, b in paths})


def test_what_is_summed_or_of_several_kinds_is_not_told_as_a_path() -> None:
    net = Builder()
    x = net.input((4, 8, 8))
    for name, join, kernel in (("sum", Add(), 1), ("two", Concat(), 3), ("one", Concat(), 1)):
        a = net.add(Conv(4, 1), x, name=f"c.{name}.a")
        b = net.add(Conv(4, kernel, padding=kernel // 2), x, name=f"c.{name}.b")
        x = net.add(join, a, b, name=f"c.{name}.join")
    assert [item.lines for item in sketch(net.plan(), "c").items[1:4]] == [("sum",), ("two",), ("2 × conv 1×1",)]


def test_an_unknown_block_gets_a_hint() -> None:
    for drawing in (svg, text):
        with pytest.raises(UserError, match=r"no block called 'cel0'\. Did you mean 'cell0'\?"):
            drawing(SPACE.plan(MIXED), "cel0")
    with pytest.raises(UserError, match="no block called 'a'"):
        svg(chain("a"), "a")


def test_drawings_do_not_change() -> None:
    assert svg(SPACE.plan(MIXED), "cell0") == svg(SPACE.plan(MIXED), "cell0")
    assert SPACE.plan(CUT).svg() == SPACE.plan(CUT).svg("")


def test_a_cell_as_text() -> None:
    assert SPACE.plan(MIXED).drawn("cell0").splitlines() == [
        "cell0  16×32×32 → 16×32×32  4.96k parameters  4.98M multiply-accumulates",
        "input ─ conv 3×3 ─────▶ node1",
        "input ─ skip ─────────▶ node2",
        "node1 ─ conv 1×1 ─────▶ node2",
        "input ╌ zero ╌╌╌╌╌╌╌╌╌▷ output",
        "node1 ─ avg pool 3×3 ─▶ output",
        "node2 ─ conv 3×3 ─────▶ output",
    ]


def test_a_network_as_text_fits_a_terminal() -> None:
    lines = text(SPACE.plan(MIXED)).splitlines()
    assert lines[1:] == [
        "input ─ stem ─ cell 0–4 ×5 ─ reduce1 ─ cell 5–9 ×5 ─ reduce2 ─",
        "      ─ cell 10–14 ×5 ─ head ─▶ output",
    ]


def test_a_block_of_two_paths_as_text() -> None:
    assert text(SPACE.plan(MIXED), "reduce1").splitlines()[1:] == [
        "input ─ avg pool 2×2 /2, conv 1×1 ─▶ output",
        "input ─ conv 3×3 /2 ─ conv 3×3 ────▶ output",
    ]


def test_a_block_that_something_else_reads_too_is_not_joined_with_the_next() -> None:
    net = Builder()
    x = net.input((4,))
    a = net.add(ReLU(), x, name="out.a.relu")
    b = net.add(ReLU(), a, name="out.b.relu")
    net.add(Add(), a, b, name="sum")
    assert Picture(svg(net.plan(), "out")).said("box") == ["input", "relu", "relu", "output 1", "output 2"]


@settings(max_examples=60, deadline=None)
@given(tangles())
def test_any_plan_can_be_drawn(plan: Plan) -> None:
    blocks = {node.name.rpartition(".")[0] for node in plan.nodes}
    for block in sorted(blocks | {""}):
        seen = sketch(plan, block)
        picture = Picture(svg(plan, block))
        assert len(picture.marked("item")) == len(seen.items)
        assert len(picture.marked("edge")) == len(seen.links)
        assert text(plan, block).count("\n") >= 2


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[Box], list[tuple[int, int]]]:
    count = draw(st.integers(1, 12))
    sizes = st.sampled_from([Box(40, 40, True), Box(90, 34), Box(140, 70)])
    pairs = st.sampled_from(list(combinations(range(count), 2)) or [(0, 0)])
    edges = draw(st.lists(pairs, unique=True, max_size=18)) if count > 1 else []
    return [draw(sizes) for _ in range(count)], edges


@settings(max_examples=100, deadline=None)
@given(graphs())
def test_boxes_never_overlap_and_arrows_point_to_the_right(
    graph: tuple[list[Box], list[tuple[int, int]]],
) -> None:
    boxes, edges = graph
    placed = arrange(boxes, edges)
    for a, b in combinations(range(len(boxes)), 2):
        across = abs(placed.centres[a].x - placed.centres[b].x) >= (boxes[a].width + boxes[b].width) / 2
        down = abs(placed.centres[a].y - placed.centres[b].y) >= (boxes[a].height + boxes[b].height) / 2
        assert across or down
    for box, centre in zip(boxes, placed.centres, strict=True):
        assert box.width / 2 <= centre.x + 1e-6
        assert centre.x + box.width / 2 <= placed.width + 1e-6
        assert box.height / 2 <= centre.y + 1e-6
        assert centre.y + box.height / 2 <= placed.height + 1e-6
    if len(boxes) < 10:
        assert all(placed.centres[a].x < placed.centres[b].x for a, b in edges)


def test_the_longest_path_is_straight_and_a_shortcut_goes_around() -> None:
    placed = arrange([Box(40, 40)] * 4, [(0, 1), (1, 2), (2, 3), (0, 3)])
    assert len({centre.y for centre in placed.centres}) == 1
    assert placed.arrows[0].path.count("C") == 0
    assert placed.arrows[3].path.count("C") == 2


def test_a_box_stands_in_the_middle_unless_an_arrow_would_run_behind_it() -> None:
    edges = [(0, 1), (0, 2), (0, 4), (1, 4), (2, 3), (3, 4), (4, 5)]
    alone, crossed = (arrange([Box(100, 40)] * 6, each).centres for each in (edges, [*edges, (2, 5)]))
    assert alone[1].x == (alone[0].x + alone[4].x) / 2
    assert crossed[1].x == crossed[2].x


def test_units_are_the_direct_parts_in_running_order() -> None:
    plan = SPACE.plan(MIXED)
    cell = units(plan, "cell3")
    assert [unit.path for unit in cell] == [
        *("edge10", "node1", "edge20", "edge21", "node2", "edge30", "edge31", "edge32", "node3"),
    ]
    assert [len(unit.nodes) for unit in cell] == [3, 1, 1, 3, 1, 1, 1, 3, 1]
    assert labels(plan, cell[0].nodes) == ["conv 3×3"]


def test_alive_is_what_lies_on_a_path_from_input_to_output() -> None:
    net = Builder()
    x = net.input((4,))
    a = net.add(Linear(4), x, name="b.a")
    z = net.add(Zero(), a, name="b.z")
    after = net.add(ReLU(), z, name="b.after")
    net.add(Linear(4), a, name="b.aside")
    net.add(Add(), a, after, name="b.sum")
    plan = net.plan()
    assert {plan.nodes[i].name for i in alive(plan, members(plan, "b"))} == {"b.a", "b.sum"}


def test_repeated_ops_are_counted() -> None:
    net = Builder()
    x = net.input((4, 8, 8))
    for i in range(2):
        x = net.add(Conv(4, 3, padding=1), x, name=f"c.sep.deep{i}")
        x = net.add(Conv(4, 1), x, name=f"c.sep.point{i}")
        x = net.add(BatchNorm(), x, name=f"c.sep.norm{i}")
    for i in range(3):
        x = net.add(Conv(4, 1), x, name=f"c.same.conv{i}")
    items = sketch(net.plan(), "c").items
    assert [item.lines for item in items[1:3]] == [("conv 3×3", "conv 1×1", "×2"), ("3 × conv 1×1",)]


def test_only_the_first_repetition_may_have_another_stride() -> None:
    net = Builder()
    x = net.input((4, 64, 64))
    for name, strides in (("first", (2, 1)), ("each", (2, 2)), ("last", (1, 2))):
        for i, stride in enumerate(strides):
            x = net.add(Conv(4, 3, stride, padding=1), x, name=f"c.{name}.deep{i}")
            x = net.add(Conv(4, 1), x, name=f"c.{name}.point{i}")
    for i in range(4):
        x = net.add(Conv(4, 3, 1 if i else 2, padding=1), x, name=f"c.same.conv{i}")
    items = sketch(net.plan(), "c").items[1:5]
    twice = ("conv 3×3 /2", "conv 1×1", "×2")
    assert [item.lines for item in items] == [twice, twice, ("last",), ("conv 3×3 /2", "3 × conv 3×3")]


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (0, "0"),
        (999, "999"),
        (1000, "1.00k"),
        (9_996, "10.0k"),
        (73_306, "73.3k"),
        (999_700, "1.00M"),
        (10**12, "1.00T"),
    ],
)
def test_short_numbers(number: int, said: str) -> None:
    assert short(number) == said


def test_clean_text_is_short_and_printable() -> None:
    assert clean("a\nb") == "a\N{REPLACEMENT CHARACTER}b"
    assert clean("x" * 99) == "x" * 27 + "…"


def test_blocks_of_a_whole_network_name_their_parts() -> None:
    """Heads and ratios of transformers, operators of recommenders; edges of a cell have no names."""
    former = spaces["autoformer_tiny"]
    layers = sketch(former.plan(former.parse("192:" + ",".join(["3x4"] * 11 + ["4x3.5"]))), "").items
    assert [item.inside for item in layers if item.look == "block"] == [
        ("attention, 3 heads", f"mlp {TIMES}4"),
        ("attention, 4 heads", f"mlp {TIMES}3.5"),
    ]
    nasrec = spaces["nasrec_small"]
    block = "dot-product:16@0/linear-3d:32@0/0,0/merge,fm"
    rest = "|".join(f"linear-2d:16@{i}/linear-3d:16@{i}/0,0/plain" for i in range(1, 7))
    items = {item.name: item.inside for item in sketch(nasrec.plan(nasrec.parse(f"{block}|{rest}")), "").items}
    assert items["block1"] == ("dot → 16", f"rows → 32{TIMES}16", f"merge → 8{TIMES}16", "fm → 16")
    cell = spaces["nb201"]
    assert not any(item.inside for item in sketch(cell.plan(cell.sample(Random(0))), "").items if "cell" in item.name)
