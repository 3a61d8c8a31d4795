"""Tangent kernels against inner products of gradients taken one number at a time, in one block or in many."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from epochzero.engine import Pass, PlanNetwork, Proxy, Trace, need
from epochzero.engine.passes import Norm
from epochzero.engine.single import kernels
from epochzero.engine.single.kernels import rows_of, tangent_kernel, tangent_kernel_apart
from tests.proxies.gradients import gram, rows_together
from tests.proxies.nets import (
    CONNECTED,
    Twin,
    batch_of,
    conv_net,
    cut_net,
    labels,
    linear_net,
    random_batch,
    score,
    value,
)

KINDS = ["loss", "label", "sum", "outputs"]


def entry(of: str, i: int, j: int) -> Proxy:
    """One number of the kernel that the engine computes, as a proxy."""

    def compute(trace: Trace) -> float:
        return float(getattr(trace, f"kernel_{of}")[i, j])

    return Proxy(f"entry_{i}_{j}", compute, [need(Pass(dtype="float64"), f"kernel_{of}")], True, {})


def jacobians(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The bytes of every block of gradients, as they come."""
    seen: list[int] = []
    multiply = kernels._gram

    def counting(jacobian: Tensor) -> Tensor:
        seen.append(jacobian.untyped_storage().nbytes())
        return multiply(jacobian)

    monkeypatch.setattr(kernels, "_gram", counting)
    return seen


def test_by_hand() -> None:
    # logits W x with W 2 x 2. For x = (1, 2) and (3, -1), of labels 0, 1: x.x = 5, 10 and x.x' = 1.
    # The logit of label k has gradient x in row k, so that different labels do not meet; the sum has x in both rows.
    leaf = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    logits = torch.tensor([[1.0, 2.0], [3.0, -1.0]]) @ leaf.mT
    y = torch.tensor([0, 1])
    assert tangent_kernel(rows_of("kernel_label", logits, y), [leaf]).tolist() == [[5, 0], [0, 10]]
    assert tangent_kernel(rows_of("kernel_sum", logits, None), [leaf]).tolist() == [[10, 2], [2, 20]]
    apart = [[5, 0, 1, 0], [0, 5, 0, 1], [1, 0, 10, 0], [0, 1, 0, 10]]
    assert tangent_kernel(rows_of("kernel_outputs", logits, None), [leaf]).tolist() == apart


@pytest.mark.parametrize("of", KINDS)
@pytest.mark.parametrize("make", [*CONNECTED, cut_net])
def test_many_blocks_are_one_block(make: Callable[[], PlanNetwork], of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With room for seven numbers of each row, large parameters are cut and small ones put together."""
    twin, batch = Twin(make()), random_batch(size=4)
    logits = twin(batch.part(0)[0].double())
    rows = rows_of(f"kernel_{of}", logits, labels(batch))
    leaves: list[Tensor] = list(twin.parameters())
    whole = tangent_kernel(rows, leaves)
    monkeypatch.setattr(kernels, "ROWS_BYTES", 7 * 8 * len(rows))
    largest = jacobians(monkeypatch)
    expected = gram(rows_together(twin, batch, of))
    assert torch.allclose(whole, expected, rtol=1e-10, atol=1e-12)
    assert torch.allclose(tangent_kernel(rows, leaves), expected, rtol=1e-10, atol=1e-12)
    assert len(largest) > sum(leaf.numel() for leaf in leaves) / 7 - 1
    assert max(largest) == kernels.ROWS_BYTES


@pytest.mark.parametrize(("together", "room"), [(1, 2**30), (3, 2**30), (64, 2**30), (64, 5000), (64, 900)])
@pytest.mark.parametrize("make", [*CONNECTED, cut_net])
def test_rows_in_one_batched_pass_are_rows_one_by_one(
    make: Callable[[], PlanNetwork], together: int, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The GPU's version, run on the CPU."""
    monkeypatch.setattr(kernels, "ROWS_TOGETHER", together)
    monkeypatch.setattr(kernels, "ROWS_BYTES", room)
    network, x = make(), random_batch(size=4).part(0)[0].double()
    weights = {name: w.detach().double().requires_grad_() for name, w in network.weights.items()}
    rows = rows_of("kernel_outputs", network.forward(x, weights, "train"), None)
    leaves = [weights[name] for name in network.trainable]
    for block in kernels._blocks(leaves, len(rows)):
        slow = kernels._one_by_one(rows, block, len(rows))
        assert slow.nbytes <= room
        assert torch.allclose(kernels._batched(rows, block), slow, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("of", KINDS)
@pytest.mark.parametrize("norm", ["eval", "off"])
def test_samples_that_no_layer_mixes_run_alone(of: str, norm: Norm, monkeypatch: pytest.MonkeyPatch) -> None:
    def whole(trace: Trace) -> float:
        read: Tensor = getattr(trace, f"kernel_{of}")
        return float(read.flatten() @ torch.linspace(1, 2, read.numel(), dtype=torch.float64))

    asked = Proxy("whole", whole, [need(Pass(dtype="float64", norm=norm), f"kernel_{of}")], True, {})
    network, batch = conv_net(), random_batch(size=4)
    assert not network.mixes_samples(norm)
    apart = value(network, asked, batch)
    with monkeypatch.context() as little_room:
        little_room.setattr(kernels, "ROWS_BYTES", 1000)
        assert value(network, asked, batch) == pytest.approx(apart, rel=1e-10)
    monkeypatch.setattr(PlanNetwork, "mixes_samples", lambda self, norm: True)
    assert apart == pytest.approx(value(network, asked, batch), rel=1e-10)


def test_samples_that_run_alone_are_forgotten() -> None:
    """While one runs, at most the last row of the one before is still there."""
    leaf, rows, seen = torch.ones(3, requires_grad=True), torch.zeros(8), list[weakref.ref[Tensor]]()

    def rows_of_sample(i: int) -> Tensor:
        assert not any(row() is not None for row in seen[:-1])
        made = (leaf * (i + 1)).exp()[:2]
        seen.append(weakref.ref(made))
        return made

    found = tangent_kernel_apart(rows, rows_of_sample, 4, [leaf])
    slopes = torch.tensor([(i + 1) * math.exp(i + 1) for i in range(4)], dtype=torch.float64)
    expected = torch.kron(torch.outer(slopes, slopes), torch.eye(2, dtype=torch.float64))
    assert torch.allclose(found, expected, rtol=1e-5)
    assert len(seen) == 4


@pytest.mark.parametrize("name", ["ntk_trace", "knas", "grasp"])
def test_labels_are_checked_where_samples_run_alone(name: str) -> None:
    found = score(linear_net([[1.0, 2.0], [0.5, 1.0]]), name, batch_of(([[1.0, 0.0], [0.0, 1.0]], [1, 2])))
    assert (found.status, found.why) == (
        "failed",
        "the network has 2 outputs, and a label is 2: on noise say --classes 2",
    )


def test_only_a_batch_norm_in_training_mixes_samples() -> None:
    assert conv_net().mixes_samples("train")
    assert not conv_net().mixes_samples("eval")
    assert not linear_net([[1.0, 2.0]]).mixes_samples("train")


def test_a_block_takes_as_much_as_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten rows of single precision are 40 bytes for each number of a parameter."""
    leaves = [torch.zeros(n) for n in (3, 2, 9, 1, 1, 1, 4)]
    monkeypatch.setattr(kernels, "ROWS_BYTES", 5 * 40)
    blocks = [[(len(leaf), start, stop) for leaf, start, stop in block] for block in kernels._blocks(leaves, 10)]
    assert blocks == [
        [(3, 0, 3), (2, 0, 2)],
        [(9, 0, 5)],
        [(9, 5, 9), (1, 0, 1)],
        [(1, 0, 1), (1, 0, 1)],
        [(4, 0, 4)],
    ]


def test_one_large_parameter_never_takes_more_than_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = torch.Generator().manual_seed(0)
    x, small = torch.randn(6, 500, generator=rng), torch.randn(3, generator=rng, requires_grad=True)
    large = torch.randn(3, 500, generator=rng, requires_grad=True)
    rows = ((x @ large.mT).tanh() * small).sum(1)  # [6]
    whole = tangent_kernel(rows, [large, small])
    monkeypatch.setattr(kernels, "ROWS_BYTES", 2000)
    seen = jacobians(monkeypatch)
    assert torch.allclose(tangent_kernel(rows, [large, small]), whole, rtol=1e-5)
    assert max(seen) <= 2000
    assert sum(seen) == 6 * 1503 * 4, "every number once"


@pytest.mark.parametrize("of", KINDS)
def test_the_engine_reads_the_same_in_many_blocks(of: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network, batch = conv_net(), random_batch(size=4)
    expected = gram(rows_together(Twin(network), batch, of))
    for room in (kernels.ROWS_BYTES, 1000):
        monkeypatch.setattr(kernels, "ROWS_BYTES", room)
        for i, j in ((0, 0), (1, 3), (3, 1)):
            assert value(network, entry(of, i, j), batch) == pytest.approx(expected[i, j].item(), rel=1e-9)


def test_nothing_to_differentiate_is_zero() -> None:
    assert tangent_kernel(torch.ones(2), [torch.ones(3)]).tolist() == [[0, 0], [0, 0]]
    used, unused = torch.ones(2, requires_grad=True), torch.ones(5, requires_grad=True)
    assert tangent_kernel((used * 3).sum()[None], [used, unused]).tolist() == [[18]]


def test_a_label_beyond_the_last_class() -> None:
    found = score(linear_net([[1.0], [2.0]]), entry("label", 0, 0), random_batch((1,)))
    assert found.status == "failed"
    assert "2 outputs" in found.why
