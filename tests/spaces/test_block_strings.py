"""The spaces of ZenNAS's block strings: text, validity, ZenNAS's moves, and how they are sampled."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.spaces.block_networks import Arch, Block
from epochzero.spaces.block_strings import LOG_SCALE, WIDTHS, BlockStrings, layers_of, moved, ways
from epochzero.testing.spaces import check_moves, check_plan, check_text

MOBILE, RESNET = spaces["mobilenet"], spaces["resnet"]
BOTH = pytest.mark.parametrize("space", [MOBILE, RESNET], ids=lambda space: space.name)
ENDS = "SuperConvK3BNRELU(3,8,2,1){}SuperConvK1BNRELU(8,2048,1,1)"
BODY = "SuperResIDWE1K3(8,8,{},8,{})"


def mobile(*blocks: tuple[int, int]) -> str:
    """A mobilenet string of the lightest blocks with these strides and sub-layers."""
    return ENDS.format("".join(BODY.format(*block) for block in blocks))


@pytest.mark.parametrize("name", ["mobilenet", "mobilenet_16", "resnet"])
def test_where_zennas_starts_every_promise_is_kept(name: str) -> None:
    """Those of the smallest and of random networks are in test_contract.py."""
    shape = (3, 8, 8) if name == "resnet" else (3, 32, 32)
    space = spaces[name]
    check_text(space, space.initial)
    check_moves(space, space.initial, Random(0))
    check_plan(space.plan(space.initial, 10, shape))


@BOTH
def test_nothing_is_smaller_than_the_smallest(space: BlockStrings) -> None:
    least = space.size(space.smallest(), 10, (3, 32, 32))
    rng = Random(0)
    others = [*space.neighbours(space.smallest()), *(space.sample(rng) for _ in range(200))]
    for size in (space.size(arch, 10, (3, 32, 32)) for arch in others):
        assert least.params < size.params and least.flops < size.flops


# Text


@BOTH
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_text_and_structure_are_one_to_one(space: BlockStrings, seed: int) -> None:
    arch = space.sample(Random(seed))
    text = space.text(arch)
    assert space.parse(text) == space.parse(f" {text}\n") == arch
    assert text.count("(") == len(arch)


def test_a_string_block_by_block() -> None:
    first, body, *_, last = MOBILE.parse(MOBILE.start)
    assert first == Block("SuperConvK3BNRELU", 8, 2)
    assert body == Block("SuperResIDWE6K3", 32, 2, bottleneck=8, layers=1)
    assert last == Block("SuperConvK1BNRELU", 2048, 1)
    assert RESNET.initial[4] == Block("SuperResK3K3", 64, 2, 32, 1)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "is a row of blocks .* not ''"),
        (MOBILE.start[:-1], r"not 'SuperConvK1BNRELU\(128,2048,1,1'"),
        (MOBILE.start + ";", "not ';'"),
        (MOBILE.start.replace("E6K3(8", "E3K3(8"), "no block 'SuperResIDWE3K3'. Did you mean 'SuperResIDWE"),
        (MOBILE.start.replace("E6K3(8", "E6K9(8"), "no block 'SuperResIDWE6K9'. Did you mean 'SuperResIDWE6K"),
        (RESNET.start, "mobilenet has no block 'SuperResK3K3'"),
        ("|nor_conv_3x3~0|+|none~0|none~1|+|none~0|none~1|none~2|", "is a row of blocks"),
        (MOBILE.start.replace("(8,32,2,8,1)", "(8,32,2,8)"), "should be written as SuperResIDWE6K3.in,out,stride,bott"),
        (MOBILE.start.replace("(3,8,2,1)", "(3,8,2)"), "should be written as SuperConvK3BNRELU.in,out,stride,1."),
        (MOBILE.start.replace("(8,32,2,8,1)", "(8,32,2,-8,1)"), "with whole numbers"),
        (MOBILE.start.replace("(8,32,2,8,1)", "(8,32,2,08,1)"), "with whole numbers"),
        (MOBILE.start.replace("(8,32,2,8,1)", "(8, 32,2,8,1)"), "with whole numbers"),
        (MOBILE.start.replace("(8,32,2,8,1)", "(8,32,2,٨,1)"), "with whole numbers"),
        (MOBILE.start.replace("(8,32,2,8,1)", f"(8,{'9' * 5000},2,8,1)"), "with whole numbers"),
        (
            MOBILE.start.replace("(32,48,", "(40,48,"),
            r"SuperResIDWE6K3\(40,48,2,32,1\) should take the 32",
        ),
        (MOBILE.start.replace("(3,8,2,1)", "(1,8,2,1)"), "should take the 3 channels of the block before, not 1"),
        (MOBILE.start.replace("(8,32,2,8,1)", "(8,32,2,12,1)"), "multiples of 8 up to 2,048; a SuperResIDWE6K3 has 12"),
        (MOBILE.start.replace("8,32,2", "8,2056,2").replace("32,48", "2056,48"), "up to 2,048; .* has 2,056"),
        (MOBILE.start.replace("2048", "1024"), "last convolution of mobilenet has 2,048 channels, not 1,024"),
        (MOBILE.start.replace("(3,8,2,1)", "(3,8,1,1)"), "ends of mobilenet have strides 2 and 1, and 1 sub-layer"),
        (MOBILE.start.replace("2048,1,1)", "2048,1,2)"), "ends of mobilenet have strides 2 and 1, and 1 sub-layer"),
        ("SuperConvK3BNRELU(3,8,2,1)SuperConvK1BNRELU(8,2048,1,1)", "then body blocks, then"),
        (ENDS.format("SuperConvK3BNRELU(8,8,2,1)"), "then body blocks, then"),
        (ENDS.format(""), "then body blocks, then"),
        (mobile((2, 1), (2, 1), (2, 1)), "begin with 2, and 4 of them are 2 and the rest 1, not '.2, 2, 2.'"),
        (mobile((1, 1), (2, 1), (2, 1), (2, 1), (2, 1)), "begin with 2"),
        (mobile((2, 1), (2, 1), (2, 1), (4, 1)), "begin with 2, and 4 of them are 2"),
        (mobile((2, 6), (2, 1), (2, 1), (2, 1)), "has 6 sub-layers; mobilenet writes a block of 6 or more as two"),
        (mobile((2, 5), (2, 5), (2, 2), (2, 1)), "at most 14 sub-layers, .* and 8 body blocks; this one has 15 and 4"),
        (mobile(*[(2, 1)] * 4, *[(1, 1)] * 5), "8 body blocks; this one has 11 and 9"),
    ],
)
def test_text_that_is_no_structure(text: str, says: str) -> None:
    with pytest.raises(UserError, match=says) as caught:
        MOBILE.parse(text)
    assert len(str(caught.value)) < 500


def test_the_last_width_is_free_in_resnet_alone() -> None:
    assert RESNET.parse(RESNET.start.replace("64,128", "64,136"))[-1].width == 136
    with pytest.raises(UserError, match="multiples of 8"):
        RESNET.parse(RESNET.start.replace("64,128", "64,130"))
    with pytest.raises(UserError, match="resnet has no block 'SuperResIDWE6K3'"):
        RESNET.parse(MOBILE.start)


def test_deeper_networks_have_a_space_of_their_own() -> None:
    """ZiCo's network of 1 G multiply-accumulates."""
    text = (
        "SuperConvK3BNRELU(3,48,2,1)SuperResIDWE1K7(48,48,2,72,1)SuperResIDWE1K7(48,80,2,128,1)"
        "SuperResIDWE2K7(80,160,2,144,3)SuperResIDWE4K7(160,288,2,232,4)SuperResIDWE6K5(288,232,1,208,5)"
        "SuperConvK1BNRELU(232,2048,1,1)"
    )
    assert layers_of(spaces["mobilenet_16"].parse(text)) == 16
    with pytest.raises(UserError, match="at most 14 sub-layers"):
        MOBILE.parse(text)


# Moves


@pytest.mark.parametrize(
    ("width", "widths"),
    [(8, (8, 16)), (32, (16, 24, 32, 40, 48, 64, 80)), (2048, (816, 1024, 1368, 1640, 2048))],
)
def test_widths_one_move_away(width: int, widths: tuple[int, ...]) -> None:
    """Times 2.5, 2, 1.5, 1.25, 1 and their inverses, by hand; 8 * 2.5 / 8 = 2.5 is rounded to even, so to 16."""
    assert moved(width) == widths


def test_how_many_neighbours_the_first_structure_has() -> None:
    """By hand. First convolution: 8 to 16. Of a body block: 12 kinds, widths, bottlenecks, 1 to 3 sub-layers."""
    by_block = [1, *(12 * len(moved(b.width)) * len(moved(b.bottleneck)) * 3 - 1 for b in MOBILE.initial[1:-1])]
    assert len(MOBILE.neighbours(MOBILE.initial)) == sum(by_block)
    assert len(moved(128)) == 9 and len(moved(8)) == 2


def test_a_block_of_six_sub_layers_is_split() -> None:
    arch = MOBILE.parse(mobile((2, 5), (2, 1), (2, 1), (2, 1)))
    split = MOBILE.parse(mobile((2, 3), (1, 4), (2, 1), (2, 1), (2, 1)))
    assert split in MOBILE.neighbours(arch)
    assert {tuple(b.layers for b in other[1:3]) for other in MOBILE.neighbours(arch) if len(other) > len(arch)} == {
        (3, 3),
        (3, 4),
    }


def test_no_move_goes_beyond_the_depth_of_the_space() -> None:
    arch = MOBILE.parse(mobile((2, 5), (2, 5), (2, 1), (2, 1)))
    assert max(map(layers_of, MOBILE.neighbours(arch))) == 14
    assert any(layers_of(other) == 12 for other in MOBILE.neighbours(arch))


@BOTH
def test_moves_and_steps_stay_in_the_space(space: BlockStrings) -> None:
    rng = Random(0)
    walked = stepped = space.initial
    for _ in range(400):
        walked, stepped = space.mutate(walked, rng), space.redraw(stepped, rng)
        assert space.parse(space.text(walked)) == walked
        assert space.parse(space.text(stepped)) == stepped


def test_mutation_takes_each_block_and_each_of_its_moves_alike() -> None:
    rng = Random(0)
    blocks: Counter[int] = Counter()
    kinds: Counter[str] = Counter()
    for _ in range(3000):
        child = RESNET.mutate(RESNET.initial, rng)
        (at,) = [i for i, (a, b) in enumerate(zip(RESNET.initial, child, strict=True)) if a != b]
        blocks[at] += 1
        kinds[child[2].kind] += at == 2
    assert chisquare([blocks[i] for i in range(6)]).pvalue > 1e-3
    assert chisquare([kinds[kind] for kind in RESNET.kinds]).pvalue > 1e-3


# Draws


def skeletons(space: BlockStrings, arch: Arch) -> tuple[tuple[int, int], ...]:
    return tuple((block.stride, block.layers) for block in arch[1:-1])


@pytest.mark.parametrize(("n", "most"), [(1, 3), (3, 7), (4, 12), (5, 9), (2, 1)])
def test_ways_to_spread_sub_layers(n: int, most: int) -> None:
    assert ways(n, most) == sum(sum(layers) <= most for layers in itertools.product(range(1, 6), repeat=n))


def test_skeletons_are_uniform() -> None:
    """In a space of 10 sub-layers: four blocks hold at most 8, so 69 skeletons by enumeration."""
    small = BlockStrings("small", MOBILE.kinds, MOBILE.sub_layer, MOBILE.start, 10, False, 1000, 224)
    all_of_them = [
        tuple(zip((2, 2, 2, 2), layers, strict=True))
        for layers in itertools.product(range(1, 6), repeat=4)
        if sum(layers) <= 8
    ]
    assert small.max_blocks == 4
    rng = Random(0)
    drawn = Counter(skeletons(small, small.sample(rng)) for _ in range(6000))
    assert set(drawn) == set(all_of_them)
    assert chisquare(list(drawn.values())).pvalue > 1e-3


@BOTH
def test_kinds_are_uniform_and_widths_on_a_log_scale(space: BlockStrings) -> None:
    rng = Random(0)
    blocks = [space.sample(rng)[1] for _ in range(4000)]
    assert chisquare(list(Counter(block.kind for block in blocks).values())).pvalue > 1e-3
    log_scale = [(low - high) / LOG_SCALE[-1] for low, high in zip(LOG_SCALE, (0.0, *LOG_SCALE), strict=False)]
    for widths in (Counter(b.width for b in blocks), Counter(b.bottleneck for b in blocks)):
        expected = [4000 * share for share in log_scale]
        assert chisquare([widths[width] for width in WIDTHS], expected).pvalue > 1e-3
    assert log_scale[0] == pytest.approx(64 * log_scale[63])


@BOTH
def test_walks_of_redrawn_parts_end_as_samples_do(space: BlockStrings) -> None:
    """The number of blocks, of sub-layers in all and of blocks before the second halving; and a width."""
    rng = Random(0)
    ends = []
    for _ in range(250):
        arch = space.smallest()
        for _ in range(400):
            arch = space.redraw(arch, rng)
        ends.append(arch)
    drawn = [space.sample(rng) for _ in range(8000)]
    for statistic in (
        len,
        layers_of,
        lambda arch: [block.stride for block in arch[2:]].index(2),
        lambda arch: min(arch[-2].width, 160),
        lambda arch: arch[2].kind,
    ):
        found, share = Counter(map(statistic, ends)), Counter(map(statistic, drawn))
        common = [value for value, count in share.items() if count > 200]
        rest = len(drawn) - sum(share[value] for value in common)
        observed = [found[value] for value in common] + [len(ends) - sum(found[value] for value in common)]
        expected = [share[value] * len(ends) / len(drawn) for value in common] + [rest * len(ends) / len(drawn)]
        pairs = [(o, e) for o, e in zip(observed, expected, strict=True) if e]
        assert chisquare([o for o, _ in pairs], [e for _, e in pairs]).pvalue > 1e-3


def test_zennas_walks_from_its_first_structure() -> None:
    assert MOBILE.walk(Random(0), moves=0) == MOBILE.initial
    (changed,) = [i for i, (a, b) in enumerate(zip(MOBILE.initial, MOBILE.walk(Random(1), 1), strict=True)) if a != b]
    assert 0 <= changed < 5
    assert MOBILE.walk(Random(0), 50) == MOBILE.walk(Random(0), 50) != MOBILE.walk(Random(2), 50)
    assert MOBILE.walk(Random(0), 30, fits=lambda arch: layers_of(arch) == 6) != MOBILE.initial
    assert layers_of(MOBILE.walk(Random(0), 30, fits=lambda arch: layers_of(arch) == 6)) == 6


def test_a_size_is_refused_where_a_plan_is() -> None:
    arch = MOBILE.smallest()
    for shape in ((3, 0, 0), (3, 32), (3, 32, -1)):
        for measured in (MOBILE.size, MOBILE.plan):
            with pytest.raises(UserError, match="mobilenet takes images CxHxW, such as 3x224x224, not 3x"):
                measured(arch, 10, shape)


def test_how_many_there_are() -> None:
    """Every string of a space cut down to 8 sub-layers, so 2 body blocks at most, counted one skeleton at a time."""
    start = "SuperConvK3BNRELU(3,8,1,1)SuperResK3K3(8,16,1,8,1)SuperResK3K3(16,32,2,16,1)SuperConvK1BNRELU(32,128,1,1)"
    small = BlockStrings("small", RESNET.kinds, RESNET.sub_layer, start, 8, True, 10, 32)
    skeletons = 0
    for blocks in (1, 2, 3):
        for strides in itertools.product((1, 2), repeat=blocks):
            for layers in itertools.product(range(1, 8), repeat=blocks):
                body = "".join(f"SuperResK3K3(8,8,{s},8,{n})" for s, n in zip(strides, layers, strict=True))
                try:
                    small.parse(f"SuperConvK3BNRELU(3,8,1,1){body}SuperConvK1BNRELU(8,8,1,1)")
                except UserError:
                    continue
                skeletons += 1
                assert blocks == 2
    assert skeletons == 5 * 5 - 10, "two blocks of 1 to 5 sub-layers, at most 6 in all"
    assert small.count() == skeletons * (6 * 256 * 256) ** 2 * 256**2
