from __future__ import annotations

import builtins
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from epochzero.errors import UserError
from epochzero.plan import Builder, Plan
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.base import Op, Param
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import AvgPool, GlobalAvgPool
from epochzero.plan.ops.wiring import Add, Identity
from epochzero.plan.printing.code import code
from epochzero.spaces.nb201 import NB201, OPS
from epochzero.types import Shape
from tests.fresh import Fresh
from tests.plan.plan_tangles import tangles

SPACE = NB201()
CONVS = ("nor_conv_1x1", "nor_conv_3x3") * 3
MIXED = ("nor_conv_3x3", "nor_conv_1x1", "skip_connect", "none", "nor_conv_3x3", "avg_pool_3x3")


def network(source: str) -> nn.Module:
    """The printed network, where nothing but torch and the standard library's collections can be imported."""

    def only_torch(name: str, *rest: Any) -> Any:
        assert name in ("torch", "collections")
        return __import__(name, *rest)

    namespace = {"__builtins__": {**vars(builtins), "__import__": only_torch}, "__name__": "printed"}
    exec(source, namespace)
    made: nn.Module = namespace["Network"]()  # type: ignore[operator]
    return made


def inputs_of(plan: Plan) -> list[Tensor]:
    noise = torch.Generator().manual_seed(0)
    return [torch.randn(4, *plan.nodes[i].shape, generator=noise) for i in plan.inputs]


def assert_same(plan: Plan) -> str:
    """The printed network has the plan's parameters and its outputs, bit for bit, in training and after."""
    source = code(plan)
    printed, ours = network(source), plan.module()
    printed.load_state_dict(ours.state_dict(), strict=True)
    assert sum(p.numel() for p in printed.parameters()) == plan.params
    inputs = inputs_of(plan)
    for training in (True, True, False):
        printed.train(training)
        ours.train(training)
        assert torch.equal(printed(*inputs), ours(*inputs))
    remembered = {name: value for name, value in printed.state_dict().items() if "tracked" not in name}
    assert remembered.keys() == ours.state_dict().keys()
    for name, value in ours.state_dict().items():
        assert torch.equal(remembered[name], value), name
    return source


def assert_formatted(source: str) -> None:
    pytest.importorskip("ruff")
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "--line-length=110", "--diff", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


@settings(max_examples=10, deadline=None)
@given(st.tuples(*[st.sampled_from(OPS)] * 6))
def test_any_nb201_network_is_printed_as_it_is(cell: tuple[str, ...]) -> None:
    source = assert_same(SPACE.plan(cell, input_shape=(3, 8, 8)))
    assert len(source.splitlines()) < 130


@pytest.mark.parametrize("op", OPS)
def test_cells_of_one_operation(op: str) -> None:
    source = assert_same(SPACE.plan((op,) * 6, input_shape=(3, 8, 8)))
    assert len(source.splitlines()) < 120


@pytest.mark.parametrize("cell", [CONVS, MIXED, ("none",) * 6])
def test_the_source_is_formatted(cell: tuple[str, ...]) -> None:
    assert_formatted(code(SPACE.plan(cell)))


def test_equal_blocks_share_a_class_and_say_their_widths() -> None:
    source = code(SPACE.plan(MIXED))
    assert re.findall(r"^class (\w+)", source, re.MULTILINE) == [
        "Conv3x3",
        "Cell",
        "Reduce",
        "Head",
        "Network",
    ]
    assert source.count("= Cell(16)") == source.count("= Cell(32)") == source.count("= Cell(64)") == 5
    assert "self.reduce2 = Reduce(32, 64)  # 64 x 8 x 8" in source
    assert "self.edge21 = nn.Identity()" in source
    assert "return torch.zeros_like(x) + self.edge31(node1) + self.edge32(node2)" in source


def test_the_head_says_what_the_network_costs() -> None:
    first = code(SPACE.plan(("none",) * 6)).splitlines()[0]
    assert first == "# 73,306 parameters; 7,783,040 multiply-accumulates for an input of 3 x 32 x 32."


def test_the_source_runs_in_a_python_of_its_own(tmp_path: Path, fresh: Fresh) -> None:
    plan = SPACE.plan(MIXED, input_shape=(3, 8, 8))
    ours = plan.module().eval()
    (x,) = inputs_of(plan)
    torch.save({"weights": dict(ours.state_dict()), "x": x}, tmp_path / "given.pt")
    (tmp_path / "model.py").write_text(code(plan), encoding="utf-8")
    script = f"""
import sys, torch
sys.path.insert(0, {str(tmp_path)!r})
from model import Network
given = torch.load({str(tmp_path / "given.pt")!r}, weights_only=True)
network = Network().eval()
network.load_state_dict(given["weights"])
assert not any("epochzero" in name for name in sys.modules)
torch.save(network(given["x"]), {str(tmp_path / "out.pt")!r})
"""
    done = fresh(script)
    assert done.code == 0, done.err
    assert torch.allclose(torch.load(tmp_path / "out.pt", weights_only=True), ours(x), atol=1e-6)


def test_several_inputs_keep_their_order_and_names() -> None:
    net = Builder()
    image, table = net.input((3, 6, 6), "image"), net.input((5,), "table")
    x = net.add(Linear(8), table, name="tower.linear")
    y = net.add(Conv(8, 3), image, name="eye.conv")
    y = net.add(GlobalAvgPool(), y, name="eye.pool")
    net.add(Add(), x, y, name="sum")
    assert "def forward(self, image: Tensor, table: Tensor) -> Tensor:" in assert_same(net.plan())


def test_inputs_whose_names_stand_for_something_else_get_others() -> None:
    net = Builder()
    a, b = net.input((4,), "torch"), net.input((4,), "self")
    net.add(Add(), a, b, name="nn")
    assert "forward(self, torch_2: Tensor, self_2: Tensor)" in assert_same(net.plan())


def test_every_attribute_of_the_ops_is_printed() -> None:
    net = Builder()
    x = net.input((4, 9, 9))
    x = net.add(Conv(8, 3, stride=2, padding=2, dilation=2, groups=4, bias=True), x, name="a.conv")
    x = net.add(BatchNorm(eps=1e-3, momentum=0.3, affine=False), x, name="a.norm")
    x = net.add(AvgPool(3, 2, padding=1), x, name="pool")
    x = net.add(GlobalAvgPool(), x, name="mean")
    x = net.add(BatchNorm(), x, name="flat_norm")
    net.add(Linear(2, bias=False), x, name="linear")
    assert_formatted(assert_same(net.plan()))


def test_a_block_with_two_outputs() -> None:
    net = Builder()
    x = net.input((4,))
    a = net.add(Linear(4), x, name="fork.left")
    b = net.add(Linear(4), a, name="fork.right")
    c = net.add(ReLU(), a, name="late")
    net.add(Add(), b, c, name="sum")
    source = assert_same(net.plan())
    assert "-> tuple[Tensor, Tensor]:" in source
    assert_formatted(source)


def test_blocks_that_read_each_other_are_opened() -> None:
    net = Builder()
    x = net.input((4,))
    a = net.add(Linear(4), x, name="dense.first")
    b = net.add(Linear(4), a, name="sparse.first")
    c = net.add(Linear(4), b, name="dense.second")
    net.add(Add(), net.add(Linear(4), c, name="sparse.second"), a, name="sum")
    source = assert_same(net.plan())
    assert "self.dense = nn.Module()" in source
    assert "self.dense.second = nn.Linear(4, 4)" in source


def test_a_branch_that_nothing_reads_still_keeps_its_statistics() -> None:
    net = Builder()
    x = net.input((4, 3, 3))
    net.add(BatchNorm(), x, name="aside.norm")
    y = net.add(Conv(4, 1), x, name="conv")
    net.add(Add(), x, y, name="sum")
    assert "        self.aside(x)\n" in assert_same(net.plan())


def test_statistics_are_kept_even_under_an_expression_that_nothing_reads() -> None:
    net = Builder()
    x = net.input((4,))
    net.add(Add(), net.add(BatchNorm(), x, name="norm"), name="aside")
    net.add(Add(), x, x, name="sum")
    assert "        self.norm(x)\n" in assert_same(net.plan())


def test_a_shared_op_is_called_twice() -> None:
    net = Builder()
    x = net.input((4,))
    x = net.add(Linear(4), x, name="first")
    x = net.add(ReLU(), x, name="relu")
    net.add(Linear(4), x, name="second", shares="first")
    source = assert_same(net.plan())
    assert source.count("nn.Linear(") == 1
    assert source.count("self.first(x)") == 2


def siamese(shared: Op) -> Plan:
    """Two encoders side by side, the second with the parameters of the first but for its own op `shared`."""
    net = Builder()
    left, right = net.input((3, 6, 6), "left"), net.input((3, 6, 6), "right")
    codes = []
    for side, x, conv in (("a", left, Conv(4, 3)), ("b", right, shared)):
        y = net.add(conv, x, name=f"{side}.stem.conv", shares="a.stem.conv" if side == "b" else None)
        y = net.add(BatchNorm(), y, name=f"{side}.stem.norm", shares="a.stem.norm" if side == "b" else None)
        codes.append(net.add(GlobalAvgPool(), y, name=f"{side}.pool"))
    net.add(Add(), *codes, name="sum")
    return net.plan()


def test_a_shared_block_is_called_twice() -> None:
    source = assert_same(siamese(Conv(4, 3)))
    assert "return self.a(left) + self.a(right)" in source


def test_parameters_shared_in_another_way_are_refused() -> None:
    with pytest.raises(UserError, match=r"'b' uses the parameters of 'a', which printed code can only do where"):
        code(siamese(Conv(4, 3, stride=2)))
    net = Builder()
    x = net.add(Linear(4), net.input((4,)), name="a.linear")
    net.add(Linear(4), x, name="b.other", shares="a.linear")
    with pytest.raises(UserError, match="uses the parameters of"):
        code(net.plan())


def test_ops_without_parameters_may_share_a_name() -> None:
    net = Builder()
    x = net.input((4, 8, 8))
    x = net.add(AvgPool(2, 2), x, name="pool")
    x = net.add(AvgPool(3, 1), x, name="pool")
    x = net.add(ReLU(), x, name="conv")
    x = net.add(Identity(), x, name="train")
    net.add(Conv(2, 1), x, name="conv")
    assert_formatted(assert_same(net.plan()))


def test_a_chain_with_the_name_of_a_list_method_is_no_sequential() -> None:
    net = Builder()
    x = net.add(Linear(4), net.input((4,)), name="block.append")
    net.add(Linear(4), x, name="block.insert")
    assert "nn.Sequential" not in assert_same(net.plan())


@settings(max_examples=40, deadline=None)
@given(tangles())
def test_any_graph_with_any_blocks_is_printed_as_it_is(plan: Plan) -> None:
    assert_same(plan)


def test_an_empty_network_gives_its_input_back() -> None:
    net = Builder()
    net.input((4,))
    assert_same(net.plan())


@pytest.mark.parametrize("name", ["class.conv", "1st", "a b", "x = 1; import os #", "__all", "ﬁx", "a..b", ""])
def test_names_that_are_no_identifiers_are_refused(name: str) -> None:
    net = Builder()
    net.add(Linear(4), net.input((4,)), name=name)
    with pytest.raises(UserError, match="is not a plain Python identifier"):
        code(net.plan())


@pytest.mark.parametrize("name", ["train", "forward.linear", "_modules"])
def test_parameters_cannot_live_where_torch_keeps_something_else(name: str) -> None:
    net = Builder()
    net.add(Linear(4), net.input((4,)), name=name)
    with pytest.raises(UserError, match="that attribute is taken"):
        code(net.plan())


def test_a_block_called_none_is_no_none() -> None:
    net = Builder()
    x = net.input((4,))
    y = net.add(Linear(4), x, name="none.linear")
    net.add(Add(), x, y, name="none.sum")
    assert "class None2(nn.Module):" in assert_same(net.plan())


@dataclass(frozen=True)
class Silent(Op):
    """An op that says no code for itself."""


@dataclass(frozen=True)
class Scale(Op):
    """An op with a parameter and no module."""

    def params(self, *inputs: Shape) -> dict[str, Param]:
        return {"scale": Param((1,), "one")}

    def expression(self, *names: str) -> str:
        return f"{names[0]} * 2"


@pytest.mark.parametrize(("op", "why"), [(Silent(), "has none"), (Scale(), "has parameters, but no module")])
def test_ops_that_cannot_be_printed_are_refused(op: Op, why: str) -> None:
    net = Builder()
    net.add(op, net.input((4,)), name="odd")
    with pytest.raises(UserError, match=f"'odd' cannot be printed as code: its op .* {why}"):
        code(net.plan())
