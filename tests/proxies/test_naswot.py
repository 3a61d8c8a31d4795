"""naswot against counting, ReLU by ReLU, where two inputs agree."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import product

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from epochzero.api import as_network
from epochzero.data import Batch
from epochzero.engine import PlanNetwork, parse
from epochzero.errors import UserError
from epochzero.plan.ops.activation import GELU, Activation, Hardswish, ReLU, ReLU6, SiLU, Tanh
from epochzero.plan.ops.linear import Linear
from tests.proxies.nets import (
    CONNECTED,
    Twin,
    assert_scores,
    batch_of,
    chain,
    cut_net,
    drawn,
    linear_net,
    precisely,
    random_batch,
    score,
    unlabelled,
    value,
)

RECTIFIERS = nn.ReLU | nn.ReLU6 | nn.GELU | nn.SiLU | nn.Hardswish
CORNER = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
ONES = [[1.0, 1.0, 1.0]]


def determinant(matrix: list[list[int]]) -> Fraction:
    """Exact, by elimination."""
    rows = [[Fraction(entry) for entry in row] for row in matrix]
    result = Fraction(1)
    for i in range(len(rows)):
        pivot = next((r for r in range(i, len(rows)) if rows[r][i]), None)
        if pivot is None:
            return Fraction(0)
        if pivot != i:
            rows[i], rows[pivot], result = rows[pivot], rows[i], -result
        result *= rows[i][i]
        for r in range(i + 1, len(rows)):
            factor = rows[r][i] / rows[i][i]
            rows[r] = [a - factor * b for a, b in zip(rows[r], rows[i], strict=True)]
    return result


def agreements(network: PlanNetwork, batch: Batch) -> list[list[int]]:
    twin = Twin(network)
    twin(batch.part(0)[0].double())
    B = batch.size
    kernel = [[0] * B for _ in range(B)]
    for layer, given, _ in twin.outputs:
        if isinstance(layer, RECTIFIERS):
            codes = [[entry > 0 for entry in sample.flatten().tolist()] for sample in given]
            for i in range(B):
                for j in range(B):
                    for one, other in zip(codes[i], codes[j], strict=True):
                        kernel[i][j] += one == other
    return kernel


def on_corners(*inputs: str) -> Batch:
    """Inputs that switch the ReLUs of a network with `CORNER` weights as these codes say."""
    return batch_of(([[1.0 if c == "1" else -1.0 for c in code] for code in inputs], None))


def test_by_hand() -> None:
    # Codes 100 and 010 agree on one of three ReLUs: K = [[3, 1], [1, 3]], det K = 8.
    network = linear_net(CORNER, ONES, relu=True)
    assert value(network, "naswot", on_corners("100", "010")) == pytest.approx(math.log(8), rel=1e-12)


def test_zero_is_off() -> None:
    network = linear_net(CORNER, ONES, relu=True)
    batch = batch_of(([[1.0, 0.0, -0.0], [0.0, 1.0, -1.0]], None))
    assert value(network, "naswot", batch) == pytest.approx(math.log(8), rel=1e-12)


@pytest.mark.parametrize("make", [*CONNECTED, cut_net])
def test_is_the_count_of_agreeing_relus(make: Callable[[], PlanNetwork]) -> None:
    """ReLUs count wherever they are, also on a path that leads nowhere; labels are not needed."""
    network, batch = make(), random_batch()
    expected = math.log(determinant(agreements(network, batch)))
    assert value(network, "naswot", unlabelled(batch)) == pytest.approx(expected, rel=1e-9)
    assert value(network, precisely("naswot"), batch) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("make", CONNECTED)
def test_of_the_inputs_themselves(make: Callable[[], PlanNetwork]) -> None:
    """As the published code of HNAS has it: products of the ReLUs' inputs, without their signs."""
    network, batch = make(), random_batch(size=4)
    twin = Twin(network)
    twin(batch.part(0)[0].double())
    rows = torch.cat([given.flatten(1) for layer, given, _ in twin.outputs if isinstance(layer, RECTIFIERS)], 1)
    expected = torch.linalg.slogdet(rows @ rows.mT).logabsdet.item()
    assert_scores(network, "naswot(of=inputs)", batch, expected)
    with pytest.raises(UserError, match="of=signs or of=inputs"):
        _ = parse("naswot(of=outputs)").needs


@pytest.mark.parametrize("also", [ReLU6(), GELU(), SiLU(), Hardswish(), ReLU()])
def test_every_rectifier_counts(also: Activation) -> None:
    """Also beside ReLUs, and where there are none; a tanh does not."""
    mixed = chain((6,), Linear(7), ReLU(), Linear(6), also, Linear(5), Tanh(), Linear(3))
    alone = chain((6,), Linear(9), also, Linear(3))
    for network in (drawn(mixed), drawn(alone)):
        batch = random_batch((6,), size=5)
        expected = math.log(determinant(agreements(network, batch)))
        assert value(network, precisely("naswot"), batch) == pytest.approx(expected, rel=1e-9)
        module = as_network(network.plan.module(), batch)
        assert score(module, "linear_regions", batch).ok


def test_functions_of_modules_count() -> None:
    """Leaky ReLU, ELU and mish, called as functions, have the pattern of a ReLU at their place."""

    class Net(nn.Module):
        def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
            super().__init__()
            self.function = function
            self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.last(self.function(self.first(x)))
            return y

    batch, values = random_batch((6,), size=5), set()
    for function in (F.relu, F.leaky_relu, F.elu, F.mish, F.relu6, torch.selu):
        torch.manual_seed(0)
        values.add(value(as_network(Net(function), batch), "naswot", batch))
    assert len(values) == 1


def test_two_inputs_that_share_a_code_are_named() -> None:
    found = score(linear_net(CORNER, ONES, relu=True), "naswot", on_corners("100", "010", "011", "010"))
    assert found.status == "degenerate"
    assert "inputs 1 and 3 share a code" in found.why


@pytest.mark.parametrize("count", [4, 5, 6, 7, 8])
def test_different_codes_may_still_depend_on_each_other(count: int) -> None:
    """000 + 111 = 001 + 110; and A ReLUs tell apart at most A + 1 inputs."""
    codes = ["000", "111", "001", "110", "010", "101", "011", "100"][:count]
    network = linear_net(CORNER, ONES, relu=True)
    assert determinant(agreements(network, on_corners(*codes))) == 0
    found = score(network, "naswot", on_corners(*codes))
    assert found.status == "degenerate"
    assert "linearly dependent" in found.why


def test_many_dependent_codes() -> None:
    """Five ReLUs and thirty different codes: rounding must not pass for a determinant."""
    codes = ["".join(bits) for bits in product("01", repeat=5)][:30]
    identity = [[float(i == j) for j in range(5)] for i in range(5)]
    found = score(linear_net(identity, [[1.0] * 5], relu=True), "naswot", on_corners(*codes))
    assert found.status == "degenerate"
    assert "linearly dependent" in found.why


def test_a_network_without_relus() -> None:
    found = score(drawn(chain((4,), Linear(3), Tanh(), Linear(3))), "naswot", random_batch((4,)))
    assert found.status == "degenerate"
    assert "no ReLU" in found.why
