"""Every op of ours alone, with any settings, in random small plans."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from epochzero.plan import ops
from epochzero.plan.ops.activation import GELU, Activation, Hardswish, ReLU, ReLU6, Sigmoid, SiLU, Tanh
from epochzero.plan.ops.attention import Attention, RelativeAttention
from epochzero.plan.ops.base import Op
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.embedding import Embedding, Ids
from epochzero.plan.ops.linear import GroupedLinear, Linear
from epochzero.plan.ops.mixture import Mixture, Scaled, Selected, WeightedSum
from epochzero.plan.ops.norm import BatchNorm, LayerNorm
from epochzero.plan.ops.numeric import Piecewise, RowOfEach, Standardised, Total
from epochzero.plan.ops.pool import AvgPool, GlobalAvgPool, MaxPool, TokenMean, Window
from epochzero.plan.ops.recommender import AsRows, FactorMachine, FaintNorm, Padded, PairProducts, Turned
from epochzero.plan.ops.token import ClassToken, PositionEmbedding, ToTokens
from epochzero.plan.ops.wiring import (
    Add,
    Concat,
    Flatten,
    Identity,
    Input,
    Multiply,
    Narrow,
    Pick,
    Shift,
    Tiles,
    Zero,
)
from epochzero.testing import check_op
from epochzero.types import Shape

TESTS = Path(__file__).parents[1]

Ops = tuple[Op, tuple[Shape, ...]]
"""An op, and the shapes of its inputs."""

few = st.integers(1, 4)
yes = st.booleans()


@st.composite
def images(draw: st.DrawFn, least: int = 3, channels: st.SearchStrategy[int] = few) -> Shape:
    return draw(channels), draw(st.integers(least, 6)), draw(st.integers(least, 6))


@st.composite
def rows(draw: st.DrawFn) -> Shape:
    return draw(st.integers(2, 5)), draw(st.integers(2, 6))


counts = st.lists(few, min_size=1, max_size=3).map(tuple)
anything = st.one_of(images(), rows(), st.tuples(st.integers(2, 6)))


def of(op: Callable[..., Op], shape: st.SearchStrategy[Shape], **fields: Any) -> st.SearchStrategy[Ops]:
    """The op with any of these settings, on one input."""
    return st.builds(lambda s, **chosen: (op(**chosen), (s,)), shape, **fields)


@st.composite
def convolutions(draw: st.DrawFn) -> Ops:
    groups = draw(st.integers(1, 3))
    shape = draw(images(3, st.integers(1, 2).map(lambda c: c * groups)))
    kernel = draw(st.tuples(st.integers(1, 3), st.integers(1, 3)) | st.integers(1, 3))
    conv = Conv(
        groups * draw(st.integers(1, 2)), kernel, draw(st.integers(1, 2)), 2, draw(st.integers(1, 2)), groups, draw(yes)
    )
    return conv, (shape,)


@st.composite
def pools(draw: st.DrawFn, /, op: Callable[[int, int, int], Op]) -> Ops:
    return op(draw(st.integers(2, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 1))), (draw(images()),)


@st.composite
def concats(draw: st.DrawFn) -> Ops:
    shape = draw(anything)
    axis = draw(st.integers(-len(shape), len(shape) - 1))
    sizes = draw(st.lists(few, min_size=1, max_size=3))
    at = axis % len(shape)
    return Concat(axis), tuple((*shape[:at], size, *shape[at + 1 :]) for size in sizes)


@st.composite
def attentions(draw: st.DrawFn, relative: bool) -> Ops:
    heads, width = draw(st.integers(1, 2)), draw(st.integers(2, 3))  # torch counts products of width 1 otherwise
    if relative:
        op: Op = RelativeAttention(heads, draw(st.integers(1, 3)))
        return op, ((1 + draw(st.sampled_from((1, 4, 9))), 3 * heads * width),)
    return Attention(heads), ((draw(st.integers(1, 5)), 3 * heads * width),)


@st.composite
def sums(draw: st.DrawFn, op: Callable[[int], Op]) -> Ops:
    shape, terms = draw(anything), draw(st.integers(1, 3))
    return op(terms), (shape,) * terms


PUBLISHED: dict[type[Op], st.SearchStrategy[Ops]] = {
    Conv: convolutions(),
    Linear: of(Linear, anything, out_features=few, bias=yes),
    GroupedLinear: st.builds(
        lambda count, width, out, bias: (GroupedLinear(count, out, bias), ((count * width,),)), few, few, few, yes
    ),
    BatchNorm: of(BatchNorm, images(), eps=st.sampled_from((1e-5, 1e-3)), affine=yes),
    LayerNorm: of(LayerNorm, rows(), affine=yes),
    FaintNorm: of(FaintNorm, rows(), scale=st.just(0.5)),
    **{op: of(op, anything) for op in (ReLU, ReLU6, GELU, SiLU, Sigmoid, Tanh, Hardswish)},
    MaxPool: pools(MaxPool),
    AvgPool: pools(AvgPool)
    | pools(lambda kernel, stride, padding: AvgPool(kernel, stride, padding, count_padding=True)),
    GlobalAvgPool: of(GlobalAvgPool, images(), keep=yes),
    TokenMean: of(TokenMean, rows(), start=st.integers(0, 1)),
    Add: sums(lambda _: Add()),
    WeightedSum: sums(lambda terms: WeightedSum(tuple(0.5 + i for i in range(terms)))),
    Multiply: st.builds(lambda s, gate: (Multiply(), (s, (s[0], 1, 1) if gate else s)), images(), yes),
    Concat: concats(),
    Narrow: of(Narrow, anything, size=st.integers(1, 1)) | st.builds(lambda s: (Narrow(s[0]), (s,)), anything),
    Pick: of(Pick, images() | rows(), index=st.just(0)) | st.builds(lambda s: (Pick(s[0] - 1), (s,)), rows()),
    Tiles: st.builds(lambda c, g, h, w: (Tiles(g), ((c, g * h, g * w),)), few, st.integers(1, 3), few, few),
    Shift: of(Shift, images()),
    Flatten: of(Flatten, anything),
    Identity: of(Identity, anything),
    Zero: of(Zero, anything) | of(Zero, images(), channels=st.none() | few, stride=st.integers(1, 2)),
    ToTokens: of(ToTokens, images()),
    ClassToken: of(ClassToken, rows()),
    PositionEmbedding: of(PositionEmbedding, rows()),
    Attention: attentions(relative=False),
    RelativeAttention: attentions(relative=True),
    Turned: of(Turned, rows()),
    PairProducts: st.builds(lambda s: (PairProducts(), ((s[1],), s)), rows()),
    FactorMachine: of(FactorMachine, rows()),
    AsRows: st.builds(lambda n, e: (AsRows(n), ((n * e,),)), few, few),
    Padded: of(Padded, st.tuples(few), zeros=few),
    Standardised: of(Standardised, st.tuples(few)),
    Piecewise: of(Piecewise, st.tuples(few), intervals=few),
    RowOfEach: of(RowOfEach, rows(), width=few),
    Total: of(Total, rows()),
    Embedding: st.builds(lambda counts, width: (Embedding(counts, width), ((len(counts),),)), counts, few),
}
"""every op of ours with any settings, on inputs of any shape"""
NOT_ALONE: dict[type[Op], str] = {
    Op: "what all ops have in common",
    Activation: "what activations have in common",
    Window: "what pools have in common",
    Input: "where data enters: it runs nothing",
    Ids: "it gives whole numbers, which Embedding alone takes: it is checked in front of that",
    Mixture: "its first input, the weights of a supernet's paths, has no batch axis",
    Scaled: "its first input has no batch axis",
    Selected: "its first input has no batch axis",
}


def has_a_test_of_its_own(kind: type[Op]) -> bool:
    """Returns True if a test file calls `check_op` on this op."""
    call = re.compile(rf"check_op\(\s*{kind.__name__}\(")
    return any(call.search(file.read_text()) for file in TESTS.rglob("test_*.py"))


def test_every_op_is_in_the_table_or_has_a_reason_not_to_be_or_a_test_of_its_own() -> None:
    modules = [import_module(f"{ops.__name__}.{module.name}") for module in iter_modules(ops.__path__)]
    classes = {
        one for module in modules for one in vars(module).values() if inspect.isclass(one) and issubclass(one, Op)
    }
    known = PUBLISHED.keys() | NOT_ALONE.keys()
    assert known <= classes
    assert [one.__name__ for one in classes - known if not has_a_test_of_its_own(one)] == []


@pytest.mark.parametrize("kind", PUBLISHED, ids=lambda kind: kind.__name__)
def test_every_op_of_ours_alone_in_random_small_plans(kind: type[Op]) -> None:
    @settings(max_examples=3, derandomize=True, database=None, deadline=None)
    @given(PUBLISHED[kind], st.integers(0, 2**32))
    def holds(case: Ops, seed: int) -> None:
        op, shapes = case
        feed = (Ids(op.rows),) if isinstance(op, Embedding) else ()
        check_op(op, *shapes, feed=feed, seed=seed)

    holds()
