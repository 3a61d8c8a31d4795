"""Every op by itself: shape, parameters, cost, derivatives, printed code and refusals, against what really happens."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from epochzero.plan import Builder, Plan, execute, execute_jet
from epochzero.plan.ops.activation import GELU, Hardswish, ReLU, ReLU6, Sigmoid, SiLU, Tanh
from epochzero.plan.ops.attention import Attention, RelativeAttention
from epochzero.plan.ops.base import Op
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm, LayerNorm
from epochzero.plan.ops.pool import AvgPool, GlobalAvgPool, MaxPool, TokenMean
from epochzero.plan.ops.token import ClassToken, PositionEmbedding, ToTokens
from epochzero.plan.ops.wiring import Add, Concat, Flatten, Identity, Multiply, Narrow, Pick, Shift, Tiles, Zero
from epochzero.types import Shape
from tests.plan.test_codegen import assert_formatted, assert_same

IMAGE = (4, 7, 6)
ROW = (5, 12)

CASES: list[tuple[Op, tuple[Shape, ...], Shape]] = [
    (Conv(6, 3, stride=2, padding=1, bias=True), (IMAGE,), (6, 4, 3)),
    (Conv(4, (1, 7), stride=(1, 2), padding=(0, 3)), (IMAGE,), (4, 7, 3)),
    (Conv(8, (3, 1), dilation=2, groups=2), (IMAGE,), (8, 3, 6)),
    (Linear(3), (ROW,), (5, 3)),
    (Linear(3, bias=False), ((12,),), (3,)),
    (BatchNorm(), (IMAGE,), IMAGE),
    (BatchNorm(affine=False, eps=1e-3), (IMAGE,), IMAGE),
    (LayerNorm(), (ROW,), ROW),
    (LayerNorm(eps=1e-6, affine=False), ((12,),), (12,)),
    *[(op, (IMAGE,), IMAGE) for op in (ReLU(), ReLU6(), GELU(), SiLU(), Sigmoid(), Tanh(), Hardswish())],
    (MaxPool(3, 1, padding=1), (IMAGE,), IMAGE),
    (MaxPool(3, 2, padding=1), (IMAGE,), (4, 4, 3)),
    (MaxPool(2, 2), (IMAGE,), (4, 3, 3)),
    (AvgPool(3, 1, padding=1), (IMAGE,), IMAGE),
    (AvgPool(3, 2, padding=1, count_padding=True), (IMAGE,), (4, 4, 3)),
    (AvgPool(3, 1, padding=1, count_padding=True), (IMAGE,), IMAGE),
    (GlobalAvgPool(), (IMAGE,), (4,)),
    (GlobalAvgPool(keep=True), (IMAGE,), (4, 1, 1)),
    (TokenMean(), (ROW,), (12,)),
    (TokenMean(1), (ROW,), (12,)),
    (Add(), (IMAGE, IMAGE, IMAGE), IMAGE),
    (Multiply(), (IMAGE, IMAGE), IMAGE),
    (Multiply(), (IMAGE, (4, 1, 1)), IMAGE),
    (Concat(), (IMAGE, (1, 7, 6), IMAGE), (9, 7, 6)),
    (Concat(), (ROW, (2, 12)), (7, 12)),
    (Concat(-1), (ROW, (5, 3)), (5, 15)),
    (Concat(1), (ROW, (5, 3)), (5, 15)),
    (Narrow(3), (IMAGE,), (3, 7, 6)),
    (Narrow(4), (IMAGE,), IMAGE),
    (Pick(2), ((3, *IMAGE),), IMAGE),
    (Pick(0), (ROW,), (12,)),
    (Tiles(3), ((2, 9, 6),), (9, 2, 3, 2)),
    (Shift(), (IMAGE,), IMAGE),
    (Flatten(), (IMAGE,), (168,)),
    (Identity(), (IMAGE,), IMAGE),
    (Zero(), (IMAGE,), IMAGE),
    (Zero(stride=2), (IMAGE,), (4, 4, 3)),
    (Zero(channels=9, stride=2), (IMAGE,), (9, 4, 3)),
    (Zero(channels=2), (IMAGE,), (2, 7, 6)),
    (ToTokens(), (IMAGE,), (42, 4)),
    (ClassToken(), (ROW,), (6, 12)),
    (PositionEmbedding(), (ROW,), ROW),
    (Attention(2), (ROW,), (5, 4)),
    (RelativeAttention(2), ((10, 18),), (10, 6)),
    (RelativeAttention(1, farthest=1), ((17, 6),), (17, 2)),
]


def plan_of(op: Op, inputs: tuple[Shape, ...]) -> Plan:
    net = Builder()
    net.add(op, *(net.input(shape, f"in{i}") for i, shape in enumerate(inputs)), name="op")
    return net.plan()


@dataclass(frozen=True)
class Given:
    """A plan of one op, with random weights and three random inputs for each of its own: x, v and a."""

    plan: Plan
    weights: dict[str, Tensor]
    curves: list[tuple[Tensor, Tensor, Tensor]]

    @staticmethod
    def of(op: Op, inputs: tuple[Shape, ...]) -> Given:
        plan = plan_of(op, inputs)
        rng = torch.Generator().manual_seed(1)

        def noise(*shape: int) -> Tensor:
            return torch.randn(*shape, generator=rng, dtype=torch.float64)

        weights = {name: noise(*p.shape) if p.trainable else noise(*p.shape).abs() for name, p in plan.weights.items()}
        return Given(plan, weights, [(3 * noise(3, *s), noise(3, *s), noise(3, *s)) for s in inputs])

    def at(self, t: Tensor) -> Tensor:
        """The output at t, the inputs being x + t v + t^2/2 a."""
        return execute(self.plan, self.weights, [x + t * v + t * t / 2 * a for x, v, a in self.curves])

    def of_time(self, t: float) -> Tensor:
        return self.at(torch.tensor(t, dtype=torch.float64))


each = pytest.mark.parametrize(("op", "inputs", "output"), CASES, ids=str)


@each
def test_shape_and_parameters_are_what_they_say(op: Op, inputs: tuple[Shape, ...], output: Shape) -> None:
    plan = plan_of(op, inputs)
    module = plan.module()
    assert plan.output_shape == output
    assert module(*(torch.randn(3, *shape) for shape in inputs)).shape == (3, *output)
    assert plan.params == sum(p.numel() for p in module.parameters())


@each
def test_the_cost_is_half_of_what_torch_counts(op: Op, inputs: tuple[Shape, ...], output: Shape) -> None:
    plan = plan_of(op, inputs)
    module = plan.module().eval().to("meta")
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        module(*(torch.empty(3, *shape, device="meta") for shape in inputs))
    assert counter.get_total_flops() == 2 * 3 * plan.flops
    assert (plan.flops > 0) == (op.kind in ("conv", "linear", "attention"))


@each
def test_derivatives_along_a_curve(op: Op, inputs: tuple[Shape, ...], output: Shape) -> None:
    case = Given.of(op, inputs)
    h = 1e-3
    before2, before, here, after, after2 = (case.of_time(k * h) for k in (-2, -1, 0, 1, 2))
    first = (before2 - 8 * before + 8 * after - after2) / (12 * h)
    second = (-before2 + 16 * before - 30 * here + 16 * after - after2) / (12 * h * h)
    for found, expected in zip(execute_jet(case.plan, case.weights, case.curves), (here, first, second), strict=True):
        assert torch.allclose(found, expected, rtol=1e-6, atol=1e-6 * max(1.0, expected.abs().max().item()))


@each
def test_a_second_backward_pass_gives_the_same_curvature(op: Op, inputs: tuple[Shape, ...], output: Shape) -> None:
    case = Given.of(op, inputs)
    t = torch.zeros((), dtype=torch.float64, requires_grad=True)
    y = case.at(t)
    along = torch.randn(y.shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    _, velocity, acceleration = execute_jet(case.plan, case.weights, case.curves)
    if op.kind == "zero":
        assert not y.requires_grad and not velocity.any() and not acceleration.any()
        return
    (first,) = torch.autograd.grad((y * along).sum(), t, create_graph=True)
    assert torch.allclose(first, (velocity * along).sum(), rtol=1e-9)
    (second,) = torch.autograd.grad(first, t)
    assert torch.allclose(second, (acceleration * along).sum(), rtol=1e-9, atol=1e-9)


@each
def test_printed_code_does_the_same(op: Op, inputs: tuple[Shape, ...], output: Shape) -> None:
    assert_formatted(assert_same(plan_of(op, inputs)))


@each
def test_memory_formats_do_not_matter(op: Op, inputs: tuple[Shape, ...], output: Shape) -> None:
    case = Given.of(op, inputs)
    plain = [x for x, _, _ in case.curves]
    other = [x.contiguous(memory_format=torch.channels_last) if x.dim() == 4 else x for x in plain]
    wanted = execute(case.plan, case.weights, plain)
    assert torch.allclose(execute(case.plan, case.weights, other), wanted, rtol=1e-12, atol=1e-12)
    turned = [(x, v, a) for x, (_, v, a) in zip(other, case.curves, strict=True)]
    for a, b in zip(
        execute_jet(case.plan, case.weights, turned), execute_jet(case.plan, case.weights, case.curves), strict=True
    ):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-10)


@each
def test_drawings_name_it(op: Op, inputs: tuple[Shape, ...], output: Shape) -> None:
    plan = plan_of(op, inputs)
    label = op.label()
    assert 0 < len(label) <= 20
    assert len(label) == 1 or label in plan.drawn()
    assert "<svg" in plan.svg()


@pytest.mark.parametrize(
    ("op", "inputs", "why"),
    [
        (Conv(4, 3), (ROW,), r"needs an input of shape \(C, H, W\) and got \(5, 12\)"),
        (Conv(4, (1, 9)), (IMAGE,), "a window of 9 does not fit into a map of size 6"),
        (Linear(4), ((),), "needs an input with at least one axis"),
        (MaxPool(3, 1, padding=2), (IMAGE,), "pads by more than half of its window"),
        (MaxPool(9, 1), (IMAGE,), "a window of 9 does not fit"),
        (Multiply(), (IMAGE, (4,)), r"cannot multiply a map of shape \(4, 7, 6\) by one of shape \(4,\)"),
        (Multiply(), ((4,), (4, 1, 1)), "cannot multiply"),
        (Concat(), (IMAGE, (4, 7, 5)), "cannot join maps of shapes"),
        (Concat(), (IMAGE, (7, 6)), "cannot join maps of shapes"),
        (Concat(3), (IMAGE, IMAGE), "needs inputs that have that axis"),
        (Narrow(5), (IMAGE,), "cannot keep 5 channels of an input of shape"),
        (Narrow(0), (IMAGE,), "cannot keep 0 channels"),
        (Pick(4), (IMAGE,), "has no entry 4"),
        (Pick(0), ((4,),), "has no entry 0"),
        (Tiles(4), ((2, 9, 6),), "an image of 9×6 cannot be cut into 4×4 equal tiles"),
        (Shift(), (ROW,), "needs an input of shape"),
        (Zero(stride=2), (ROW,), "needs an input of shape"),
        (TokenMean(5), (ROW,), "leaves none of 5 tokens"),
        (ClassToken(), (IMAGE,), r"needs an input of shape \(N, E\) and got \(4, 7, 6\)"),
        (PositionEmbedding(), (IMAGE,), "needs an input of shape"),
        (Attention(5), (ROW,), "12 features are no queries, keys and values of 5 heads"),
        (RelativeAttention(2), ((9, 12),), "needs a class token and a square grid of tokens, and 9 tokens are none"),
        (RelativeAttention(2), ((1, 12),), "1 tokens are none"),
    ],
    ids=str,
)
def test_shapes_that_do_not_fit_are_refused(op: Op, inputs: tuple[Shape, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        plan_of(op, inputs)


@pytest.mark.parametrize("size", [8, 7])
def test_a_shifted_image_is_what_factorized_reduce_reads(size: int) -> None:
    x = torch.randn(2, 3, size, size)
    moved = Shift().run((x,), ())
    assert torch.equal(moved[:, :, :-1, :-1], x[:, :, 1:, 1:])
    assert not moved[:, :, -1].any() and not moved[..., -1].any()
    seen, cut = moved[:, :, ::2, ::2], x[:, :, 1::2, 1::2]
    assert seen.shape == x[:, :, ::2, ::2].shape
    assert torch.equal(seen[:, :, : cut.shape[2], : cut.shape[3]], cut)


def test_tiles_come_row_by_row() -> None:
    x = torch.arange(2 * 9 * 6.0).view(1, 2, 9, 6)
    tiles = Tiles(3).run((x,), ())
    assert torch.equal(tiles[0, 5], x[0, :, 3:6, 4:6])


@st.composite
def mixtures(draw: st.DrawFn) -> Plan:
    """Images of four channels that go through anything, in blocks anywhere, and meet at the end."""
    net = Builder()
    sources = [net.input((4, 5, 5))]
    single = [Conv(4, (3, 1), padding=(1, 0)), BatchNorm(), GELU(), Hardswish(), MaxPool(3, 1, 1), Shift(), Zero()]
    for i in range(draw(st.integers(1, 8))):
        block = draw(st.sampled_from(["", "a.", "a.b.", "c."]))
        op = draw(st.sampled_from([*single, Multiply(), Add(), Concat()]))
        arity = 2 if op in (Multiply(), Add(), Concat()) else 1
        x = net.add(op, *(draw(st.sampled_from(sources)) for _ in range(arity)), name=f"{block}n{i}")
        sources.append(net.add(Narrow(4), x, name=f"{block}cut{i}") if op == Concat() else x)
    x = net.add(ToTokens(), sources[-1], name="tokens")
    x = net.add(ClassToken(), x, name="token")
    x = net.add(Linear(12), net.add(LayerNorm(), x, name="norm"), name="qkv")
    net.add(TokenMean(1), net.add(RelativeAttention(2), x, name="attention"), name="mean")
    return net.plan()


@settings(max_examples=15, deadline=None)
@given(mixtures())
def test_any_mixture_is_printed_as_it_is(plan: Plan) -> None:
    assert_same(plan)
