"""Plans with an auxiliary output, and blocks that share their parameters."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from epochzero.engine import PlanNetwork
from epochzero.errors import UserError
from epochzero.plan import Builder, Plan
from epochzero.plan.ops.activation import ReLU, Sigmoid
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import AvgPool, GlobalAvgPool
from epochzero.plan.ops.wiring import Add, Concat, Flatten, Multiply, Pick
from epochzero.plan.printing.code import code
from tests.plan.test_codegen import assert_formatted, assert_same, network


def towered(auxiliary: bool = True, inside: str = "auxiliary") -> Plan:
    net = Builder()
    x = net.add(Conv(4, 3, padding=1), net.input((3, 6, 6)), name="stem.conv")
    x = net.add(BatchNorm(), x, name="stem.norm")
    y = 0
    if auxiliary:
        y = net.add(AvgPool(2, 2), x, name=f"{inside}.pool")
        y = net.add(BatchNorm(), net.add(Conv(5, 1), y, name=f"{inside}.conv"), name=f"{inside}.norm")
        net.add(Flatten(), y, name=f"{inside}.aside")
        y = net.add(Linear(10), net.add(Flatten(), y, name=f"{inside}.flat"), name=f"{inside}.linear")
    x = net.add(ReLU(), x, name="relu")
    x = net.add(GlobalAvgPool(), x, name="end.mean")
    net.add(Linear(10), x, name="end.last")
    return net.plan(auxiliary=y if auxiliary else None)


def test_the_tower_counts_as_parameters_but_not_as_work() -> None:
    plan, bare = towered(), towered(auxiliary=False)
    assert plan.params == sum(p.numel() for p in plan.module().parameters())
    assert plan.params - bare.params == 4 * 5 + 10 + 45 * 10 + 10
    assert plan.flops == bare.flops
    assert plan.trunk.params == bare.params
    assert bare.trunk is bare
    assert plan.layer_weights == bare.layer_weights
    with FlopCounterMode(display=False) as counter:
        plan.module().eval()(torch.randn(1, 3, 6, 6))
    assert counter.get_total_flops() == 2 * plan.flops


def test_training_gives_both_outputs_and_evaluation_one() -> None:
    plan = towered()
    ours = plan.module()
    x = torch.randn(4, 3, 6, 6)
    logits, auxiliary = ours(x)
    assert logits.shape == auxiliary.shape == (4, 10)
    assert torch.equal(logits, towered(auxiliary=False).module()(x))
    remembered = ours.get_buffer("auxiliary.norm.running_mean").clone()
    assert remembered.any()
    assert ours.eval()(x).shape == (4, 10)
    assert torch.equal(ours.get_buffer("auxiliary.norm.running_mean"), remembered)
    (logits * 0).sum().backward(retain_graph=True)
    auxiliary.sum().backward()
    assert ours.get_parameter("auxiliary.conv.weight").grad is not None


def test_the_engine_never_runs_the_tower() -> None:
    seen: list[str] = []
    with_tower, without = PlanNetwork(towered()), PlanNetwork(towered(auxiliary=False))
    x = torch.randn(4, 3, 6, 6)
    y = with_tower.forward(x, with_tower.weights, "train", lambda layer: seen.append(layer.name))
    assert torch.equal(y, without.forward(x, without.weights, "train"))
    assert seen == ["stem.conv", "stem.norm", "relu", "end.mean", "end.last"]
    jet = (x, torch.ones_like(x), torch.zeros_like(x))
    for norm in ("train", "eval", "off"):
        pairs = zip(with_tower.jet(jet, with_tower.weights, norm), without.jet(jet, without.weights, norm), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("inside", ["auxiliary", "aux.deep"])
def test_printed_code_has_both_outputs_too(inside: str) -> None:
    plan = towered(inside=inside)
    source = code(plan)
    assert_formatted(source)
    assert "-> Tensor | tuple[Tensor, Tensor]:" in source and "if self.training:" in source
    printed, ours = network(source), plan.module()
    printed.load_state_dict(ours.state_dict(), strict=True)
    x = torch.randn(4, 3, 6, 6)
    for a, b in zip(printed(x), ours(x), strict=True):
        assert torch.equal(a, b)
    assert torch.equal(printed.eval()(x), ours.eval()(x))
    for name, value in ours.state_dict().items():
        assert torch.equal(printed.state_dict()[name], value), name


def test_a_tower_of_loose_nodes_is_printed_too() -> None:
    net = Builder()
    x = net.add(Linear(4), net.input((4,)), name="first")
    y = net.add(Linear(2), net.add(ReLU(), x, name="side_relu"), name="side")
    net.add(Linear(2), x, name="last")
    plan = net.plan(auxiliary=y)
    printed, ours = network(code(plan)), plan.module()
    printed.load_state_dict(ours.state_dict(), strict=True)
    x_data = torch.randn(3, 4)
    assert all(torch.equal(a, b) for a, b in zip(printed(x_data), ours(x_data), strict=True))


def test_an_auxiliary_output_on_the_way_to_the_output_needs_no_tower() -> None:
    net = Builder()
    x = net.add(Linear(4), net.input((4,)), name="first")
    net.add(Linear(2), x, name="last")
    plan = net.plan(auxiliary=x)
    logits, early = plan.module()(torch.randn(3, 4))
    assert (logits.shape, early.shape) == ((3, 2), (3, 4))
    assert plan.trunk.params == plan.params


def test_a_tower_mixed_into_another_block_cannot_be_printed() -> None:
    with pytest.raises(UserError, match=r"'end' cannot be printed as code.*a block of its own"):
        code(towered(inside="end"))


def test_drawings_show_both_outputs() -> None:
    assert "▶ auxiliary" in towered().drawn() and "▶ output" in towered().drawn()
    assert "dead" not in towered().svg().partition("</style>")[2]


def test_an_auxiliary_output_that_cannot_be() -> None:
    net = Builder()
    last = net.add(Linear(4), net.input((4,)), name="first")
    with pytest.raises(ValueError, match=f"node {last} cannot be the auxiliary output"):
        net.plan(auxiliary=last)
    with pytest.raises(ValueError, match="node 9 cannot be the auxiliary output"):
        net.plan(auxiliary=9)
    whole = Builder()
    with pytest.raises(ValueError, match="'net' has an auxiliary output of its own"):
        whole.inline(towered(), whole.input((3, 6, 6)), name="net")


def encoder() -> Plan:
    net = Builder()
    x = net.add(Conv(4, 3), net.input((3, 6, 6)), name="conv")
    gate = net.add(GlobalAvgPool(keep=True), x, name="gate.pool")
    gate = net.add(Sigmoid(), net.add(Conv(4, 1, bias=True), gate, name="gate.conv"), name="gate.sigmoid")
    net.add(BatchNorm(), net.add(Multiply(), x, gate, name="gate.times"), name="norm")
    return net.plan()


def jigsaw(tiles: int) -> Plan:
    """Each tile through the same encoder, on its own statistics, then side by side."""
    net, block = Builder(), encoder()
    image = net.input((tiles, 3, 6, 6))
    found = []
    for i in range(tiles):
        tile = net.add(Pick(i), image, name=f"tile{i}")
        found.append(net.inline(block, tile, name=f"encoder{i}", shares="encoder0" if i else None))
    x = net.add(GlobalAvgPool(), net.add(Concat(), *found, name="join"), name="pool")
    net.add(Linear(10), x, name="linear")
    return net.plan()


def test_a_shared_encoder_is_counted_once_and_runs_for_each_tile() -> None:
    plan, single = jigsaw(3), encoder()
    assert plan.params == single.params + 12 * 10 + 10 == sum(p.numel() for p in plan.module().parameters())
    assert plan.flops == 3 * single.flops + 120
    assert len([name for name in plan.layer_weights if "encoder" in name]) == 2


def test_a_shared_encoder_is_the_reference_loop() -> None:
    plan = jigsaw(3)
    ours = plan.module()
    x = torch.randn(4, 3, 3, 6, 6)
    alone = encoder().module()
    alone.load_state_dict({n.removeprefix("encoder0."): v for n, v in ours.state_dict().items() if "encoder" in n})
    seen = torch.cat([alone(x[:, i]) for i in range(3)], 1).mean((2, 3))
    weight, bias = (ours.get_parameter(f"linear.{name}") for name in ("weight", "bias"))
    assert torch.equal(ours(x), torch.nn.functional.linear(seen, weight, bias))
    for name, value in alone.state_dict().items():
        assert torch.equal(ours.state_dict()[f"encoder0.{name}"], value), name


def test_a_shared_encoder_is_printed_once() -> None:
    source = assert_same(jigsaw(9))
    assert_formatted(source)
    assert source.count("self.encoder0 = ") == 1 and source.count("self.encoder0(") == 9


def test_only_a_block_like_it_can_share() -> None:
    net = Builder()
    x = net.input((3, 6, 6))
    with pytest.raises(ValueError, match="'b' cannot share the parameters of 'a': none here is like it"):
        net.inline(encoder(), x, name="b", shares="a")
    net.inline(encoder(), x, name="a")
    net.inline(encoder(), x, name="b", shares="a")
    other = Builder()
    other.add(Conv(4, 1), other.input((3, 6, 6)), name="conv")
    with pytest.raises(ValueError, match="cannot share"):
        net.inline(other.plan(), x, name="c", shares="a")
    net.add(Add(), x, name="sum")
    assert net.plan().params == encoder().params
