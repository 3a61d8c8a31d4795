"""Ops of recommenders: against loops, finite differences, torch's counter and their own printed code."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from epochzero.plan import Builder, Plan, execute, execute_jet
from epochzero.plan.ops.base import Op
from epochzero.plan.ops.embedding import Embedding, Ids
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import LayerNorm
from epochzero.plan.ops.numeric import Piecewise, RowOfEach, Standardised, Total
from epochzero.plan.ops.recommender import AsRows, FactorMachine, FaintNorm, Padded, PairProducts, Turned
from epochzero.plan.ops.sliced import Places, first, length, regions, taken
from epochzero.plan.ops.wiring import Narrow
from epochzero.types import Shape
from tests.plan.test_codegen import assert_formatted, assert_same
from tests.plan.test_ops_each import Given, plan_of
from tests.recommend.sub_networks import Sliced

ROWS = (5, 12)
CASES: list[tuple[Op, tuple[Shape, ...], Shape]] = [
    (Turned(), (ROWS,), (12, 5)),
    (PairProducts(), ((12,), ROWS), (15,)),
    (PairProducts(), ((3,), (1, 3)), (1,)),
    (FactorMachine(), (ROWS,), (12,)),
    (AsRows(4), ((12,),), (4, 3)),
    (Padded(3), ((12,),), (15,)),
    (FaintNorm(0.17), (ROWS,), ROWS),
    (Standardised(), ((12,),), (12,)),
    (Piecewise(4), ((5,),), (5, 4)),
    (RowOfEach(3), (ROWS,), (5, 3)),
    (Total(), (ROWS,), (5,)),
]
each = pytest.mark.parametrize(("op", "inputs", "output"), CASES, ids=str)


@each
def test_shape_parameters_and_cost(op: Op, inputs: tuple[Shape, ...], output: Shape) -> None:
    plan = plan_of(op, inputs)
    module = plan.module()
    assert plan.output_shape == output
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        assert module(*(torch.randn(3, *shape) for shape in inputs)).shape == (3, *output)
    assert counter.get_total_flops() == 2 * 3 * plan.flops
    assert plan.params == sum(p.numel() for p in module.parameters())


@each
def test_derivatives_along_a_curve(op: Op, inputs: tuple[Shape, ...], output: Shape) -> None:
    case, h = Given.of(op, inputs), 1e-3
    before2, before, here, after, after2 = (case.of_time(k * h) for k in (-2, -1, 0, 1, 2))
    slope = (before2 - 8 * before + 8 * after - after2) / (12 * h)
    bend = (-before2 + 16 * before - 30 * here + 16 * after - after2) / (12 * h * h)
    for found, expected in zip(execute_jet(case.plan, case.weights, case.curves), (here, slope, bend), strict=True):
        assert torch.allclose(found, expected, rtol=1e-6, atol=1e-6 * max(1.0, expected.abs().max().item()))


@each
def test_printed_code_and_drawing(op: Op, inputs: tuple[Shape, ...], output: Shape) -> None:
    plan = plan_of(op, inputs)
    assert_formatted(assert_same(plan))
    assert op.label() in plan.drawn()


@pytest.mark.parametrize(
    ("op", "inputs", "why"),
    [
        (Turned(), ((3,),), r"needs an input of shape \(N, E\) and got \(3,\)"),
        (PairProducts(), ((4,), ROWS), "does not match rows"),
        (FactorMachine(), ((3,),), "needs an input of shape"),
        (AsRows(5), ((12,),), "cannot be cut into 5 equal rows"),
        (Padded(1), (ROWS,), "needs a vector"),
        (Standardised(), (ROWS,), "needs a vector"),
        (Piecewise(2), (ROWS,), "needs a vector"),
        (Total(), ((3,),), "needs an input of shape"),
        (Embedding((3, 4), 2), ((3,),), "2 tables need as many ids"),
        (Ids((3, 4)), ((1,),), "does not end with 2 ids"),
    ],
    ids=str,
)
def test_shapes_that_do_not_fit_are_refused(op: Op, inputs: tuple[Shape, ...], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        plan_of(op, inputs)


def test_pairs_are_every_product_once() -> None:
    vector, rows = torch.randn(2, 4, dtype=torch.float64), torch.randn(2, 3, 4, dtype=torch.float64)
    found = PairProducts().run((vector, rows), ())
    for sample in range(2):
        every = [vector[sample], *rows[sample]]
        expected = [float(every[i] @ every[j]) for i in range(4) for j in range(i)]
        assert found[sample].tolist() == pytest.approx(expected, rel=1e-5)


def test_a_factorisation_machine_is_twice_the_sum_over_pairs() -> None:
    rows = torch.randn(2, 5, 3, dtype=torch.float64)
    pairs = [(i, j) for i, j in product(range(5), range(5)) if i < j]
    expected = 2 * torch.stack([rows[:, i] * rows[:, j] for i, j in pairs]).sum(0)
    assert torch.allclose(FactorMachine().run((rows,), ()), expected)


def test_a_faint_norm_is_a_layer_norm_of_small_scale() -> None:
    norm = torch.nn.LayerNorm(12)
    torch.nn.init.constant_(norm.weight, 0.17)
    x = torch.randn(3, *ROWS)
    assert torch.allclose(plan_of(FaintNorm(0.17), (ROWS,)).module()(x), norm(x), atol=1e-6)


# Embeddings


def table_network(rows: tuple[int, ...] = (3, 5)) -> Plan:
    """Two numbers and two ids in one table, as the engine gives them."""
    net = Builder()
    table = net.input((4,), "table")
    vector = net.add(Linear(6), net.add(Narrow(2), table, name="dense"), name="vector")
    found = net.add(Embedding(rows, 6), net.add(Ids(rows), table, name="ids"), name="embedding")
    net.add(PairProducts(), vector, found, name="pairs")
    return net.plan()


def test_an_id_names_a_row_of_its_own_table() -> None:
    op = Embedding((3, 5), 2)
    tables = (torch.arange(6.0).view(3, 2), 100 + torch.arange(10.0).view(5, 2))
    found = op.run((torch.tensor([[2, 0], [0, 4]]),), tables)
    assert found.tolist() == [[[4, 5], [100, 101]], [[0, 1], [108, 109]]]
    assert {name: param.shape for name, param in op.params((2,)).items()} == {"table0": (3, 2), "table1": (5, 2)}
    assert op.macs((2,)) == 0


@pytest.mark.parametrize("ids", [[3, 0], [0, 5], [-1, 0]])
def test_an_id_beyond_its_table_is_an_error(ids: list[int]) -> None:
    op = Embedding((3, 5), 2)
    with pytest.raises(IndexError):
        op.run((torch.tensor([ids]),), (torch.zeros(3, 2), torch.zeros(5, 2)))


def test_any_number_is_some_id_of_its_field() -> None:
    table = torch.tensor([[9.0, 2.0, 4.0], [9.0, 3.2, -1.0], [0.5, 2.9, 2.0**24]])
    assert Ids((3, 5)).run((table,), ()).tolist() == [[2, 4], [0, 4], [0, 2**24 % 5]]


def test_ids_do_not_move() -> None:
    plan = table_network()
    weights = {name: w.double() for name, w in plan.module().weights().items()}
    x = torch.tensor([[0.3, -1.0, 2.0, 4.0], [1.0, 2.0, 0.0, 1.0]], dtype=torch.float64)
    v, a = torch.randn(2, 4, dtype=torch.float64), torch.randn(2, 4, dtype=torch.float64)
    moved = torch.tensor([1.0, 1.0, 0.0, 0.0])
    h = 1e-4

    def at(t: float) -> Tensor:
        return execute(plan, weights, (x + (t * v + t * t / 2 * a) * moved,))

    value, velocity, acceleration = execute_jet(plan, weights, ((x, v, a),))
    assert torch.equal(value, at(0))
    assert torch.allclose(velocity, (at(h) - at(-h)) / (2 * h), atol=1e-6)
    assert torch.allclose(acceleration, (at(h) - 2 * at(0) + at(-h)) / h**2, atol=1e-5)


def test_embeddings_are_printed_with_their_network() -> None:
    source = assert_same(table_network())
    assert_formatted(source)
    names: dict[str, Any] = {}
    exec(compile(source, "printed", "exec", dont_inherit=True), names)
    assert names["Network"]()(torch.zeros(2, 4)).shape == (2, 3)


# Parts of shared weights

PLACES: Places = (((0, 2),), ((1, 3), (4, 6)))


def test_a_part_is_what_indexing_gives() -> None:
    whole = torch.arange(35.0).view(5, 7)
    assert torch.equal(taken(whole, PLACES), whole[:2][:, [1, 2, 4, 5]])
    assert [length(ranges) for ranges in PLACES] == [2, 4]
    copied = torch.zeros(2, 4)
    for there, here in regions(PLACES):
        copied[here] = whole[there]
    assert torch.equal(copied, taken(whole, PLACES))
    assert first((2, 3)) == (((0, 2),), ((0, 3),))


def test_an_op_on_parts_is_the_op_on_copies_of_them() -> None:
    op = Sliced(Linear(2), ((5, 7), (5,)), (PLACES, (((3, 5),),)))
    whole = torch.randn(5, 7, requires_grad=True)
    bias, x = torch.randn(5), torch.randn(3, 4)
    y = op.run((x,), (whole, bias))
    assert torch.equal(y, Linear(2).run((x,), (whole[:2][:, [1, 2, 4, 5]], bias[3:])))
    (gradient,) = torch.autograd.grad(y.square().sum(), whole)
    used = torch.zeros(5, 7, dtype=torch.bool)
    used[:2, [1, 2, 4, 5]] = True
    assert gradient[used].all() and not gradient[~used].any()
    assert (op.kind, op.label(), op.macs((4,)), op.shape((4,))) == ("linear", "linear", 8, (2,))
    assert [param.shape for param in op.params((4,)).values()] == [(5, 7), (5,)]
    jet = op.jet(((x, x, x),), (whole, bias))
    assert torch.allclose(jet[1], jet[0] - bias[3:], atol=1e-6)


def test_parts_of_another_shape_are_refused() -> None:
    with pytest.raises(ValueError, match="the part of it is another"):
        plan_of(Sliced(Linear(3), ((5, 7), (5,)), (PLACES, (((0, 3),),))), ((4,),))
    norm = Sliced(LayerNorm(), ((9,), (9,)), ((((0, 4),),), (((0, 4),),)))
    assert plan_of(norm, ((4,),)).params == 18
