"""An op needs `run` alone; the rest are facts with defaults, which the engine looks up."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from epochzero.engine.population.grouped_ops import Apart, grouped
from epochzero.engine.population.merge import merge
from epochzero.plan import Builder, Plan
from epochzero.plan.execute import execute
from epochzero.plan.init import draw
from epochzero.plan.ops.base import Op
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.pool import AvgPool, GlobalAvgPool
from epochzero.plan.ops.wiring import Add, Concat, Identity, Narrow, Zero
from epochzero.types import Origin


@dataclass(frozen=True, slots=True)
class Cube(Op):
    """x^3."""

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[0] ** 3


@dataclass(frozen=True, slots=True)
class Power(Op):
    """x^n, of many networks at once."""

    exponent: int

    channelwise = True
    drawn_as = "^{op.exponent}"
    printed_as = "{0} ** {op.exponent}"

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return x[0] ** self.exponent


def plan(op: Op, channels: int) -> Plan:
    net = Builder()
    x = net.add(Conv(channels, 3, padding=1), net.input((3, 6, 6)), name="conv")
    net.add(GlobalAvgPool(), net.add(op, x, name="power"), name="pool")
    return net.plan()


def test_defaults_of_an_op_with_nothing_but_run() -> None:
    op = Cube()
    assert (op.name, op.label(), op.kind, op.wiring, op.routine_step()) == ("cube", "cube", "", "", "")
    assert op.shape((4, 6, 6)) == (4, 6, 6) and not op.params((4, 6, 6)) and op.macs((4, 6, 6)) == 0
    assert op.code((4, 6, 6)) == "" and "cube" in plan(op, 4).drawn()
    with pytest.raises(NotImplementedError):
        op.expression("a")
    assert isinstance(grouped(op, 3, (4, 6, 6)), Apart)


def test_labels_and_expressions_have_fields() -> None:
    assert Power(3).label() == "^3" and Power(2).expression("a") == "a ** 2"
    assert "** 2" in plan(Power(2), 4).code()


@pytest.mark.parametrize("op", [Cube(), Power(3)])
def test_a_population_runs_it(op: Op) -> None:
    """At once or one after the other, as its facts say."""
    plans = [plan(op, 4)] * 3
    merged = merge(plans)
    x = torch.randn(2, 3, 6, 6, dtype=torch.float64)
    weights = [{k: v.double() for k, v in draw(plans[0].weights, Origin(seed=i)).items()} for i in range(3)]
    packed = {name: torch.cat([weights[network][own] for network, own in pack]) for name, pack in merged.packs.items()}
    joint = execute(merged.plan, packed, (x.repeat(1, 3, 1, 1),)).unflatten(1, (3, -1))  # type: ignore[no-untyped-call]
    for i in range(3):
        torch.testing.assert_close(joint[:, i], execute(plans[i], weights[i], (x,)))


def test_the_grouped_form_of_an_op_keeps_its_name() -> None:
    for op in (Conv(4, 3, padding=1), AvgPool(3, 1, 1)):
        assert grouped(op, 3, (4, 6, 6)).name == op.name


def test_ops_that_connect_others_say_how() -> None:
    assert [op.wiring for op in (Add(), Concat(), Concat(axis=-1), Narrow(2))] == ["sum", "join", "", "join"]
    assert [op.routine_step() for op in (Identity(), Zero(), Add())] == ["wiring", "wiring", ""]
