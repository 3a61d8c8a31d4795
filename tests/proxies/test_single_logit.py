"""A single logit with labels 0 and 1, as recommenders have it: binary cross-entropy, written out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from epochzero.engine import PlanNetwork
from epochzero.engine.loss import label_logits, label_loss
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import BatchNorm
from tests.proxies.gradients import gradient
from tests.proxies.nets import Twin, assert_scores, batch_of, chain, drawn, linear_net, score, value

X = torch.randn(6, 4, generator=torch.Generator().manual_seed(0))
Y = [0, 1, 1, 0, 1, 0]
BATCH = batch_of((X, Y), (X.flip(0) + 1, Y))


def one_logit() -> PlanNetwork:
    """With batch norm, which couples the samples."""
    return drawn(chain((4,), Linear(8), BatchNorm(), ReLU(), Linear(1)))


def losses(twin: Twin) -> list[Tensor]:
    """-log of the chance that the network gives to the label."""
    chances = 1 / (1 + (-twin(X.double())[:, 0]).exp())
    return [-(p if label else 1 - p).log() for p, label in zip(chances, Y, strict=True)]


def test_by_hand() -> None:
    # Logit 2 x of x = 0: the chance is 1/2, the loss log 2, and dL/dlogit = 1/2 - y; x = ln(3)/2: 3/4, and 3/4 - y.
    third = math.log(3) / 2
    batch = batch_of(([[third]], [0]))
    assert value(linear_net([[2.0]]), "grad_norm", batch) == pytest.approx(0.75 * third, rel=1e-6)
    assert value(linear_net([[2.0]]), "ntk_trace", batch) == pytest.approx(third**2, rel=1e-6)
    logits, y = torch.tensor([[0.0], [math.log(3)]]), torch.tensor([1, 0])
    assert label_loss(logits, y).tolist() == pytest.approx([math.log(2), math.log(4)])
    assert label_loss(logits, y, "mean").item() == pytest.approx((math.log(2) + math.log(4)) / 2)
    assert label_logits(logits, y).tolist() == logits[:, 0].tolist()


def test_several_logits_are_as_ever() -> None:
    logits, y = torch.tensor([[0.0, math.log(3)], [1.0, 1.0]]), torch.tensor([1, 0])
    assert label_loss(logits, y).tolist() == pytest.approx([math.log(4 / 3), math.log(2)])
    assert label_logits(logits, y).tolist() == pytest.approx([math.log(3), 1.0])


def test_gradients_of_the_mean_loss() -> None:
    network = one_logit()
    twin = Twin(network)
    mean = gradient(torch.stack(losses(twin)).mean(), twin)
    weights = torch.cat([w.detach().flatten() for w in twin.parameters()])
    assert_scores(network, "nasi_trace", BATCH, float(mean @ mean))
    assert_scores(network, "hnas(form=realizable,literal=true,metric=snip)", BATCH, 1 / abs(float(weights @ mean)))
    twin.zero_grad()
    torch.autograd.backward(torch.stack(losses(twin)).mean())
    pairs = [(w.detach(), w.grad) for w in twin.layer_weights]
    assert_scores(network, "snip", BATCH, sum(float((w * g).abs().sum()) for w, g in pairs if g is not None))


def test_kernels_of_each_loss_and_of_the_logit() -> None:
    network = one_logit()
    twin = Twin(network)
    rows = torch.stack([gradient(loss, twin) for loss in losses(twin)])
    assert_scores(network, "knas", BATCH, float((rows @ rows.mT).mean()))
    assert_scores(network, "nasi_trace_sum", BATCH, float(rows.square().sum()))
    logits = torch.stack([gradient(logit, twin) for logit in twin(X.double())[:, 0]])
    assert_scores(network, "ntk_trace", BATCH, float(logits.square().sum()))
    assert value(network, "ntk_trace", BATCH) == pytest.approx(value(network, "ntk_trace(of=sum)", BATCH))


def test_grasp_in_both_forms() -> None:
    network = one_logit()
    twin = Twin(network)
    leaves = twin.layer_weights
    g = torch.autograd.grad(torch.stack(losses(twin)).mean(), leaves, create_graph=True)
    along = torch.stack([(one * one.detach()).sum() for one in g]).sum()
    expected = -sum((w * h).sum().item() for w, h in zip(leaves, torch.autograd.grad(along, leaves), strict=True))
    assert_scores(network, "grasp", BATCH, expected, single=1e-3)
    everything, total = list(twin.parameters()), 0.0
    for loss in losses(twin):
        g = torch.autograd.grad(loss, everything, create_graph=True)
        along = torch.stack([(one * one.detach()).sum() for one in g]).sum()
        products = zip(everything, torch.autograd.grad(along, everything, retain_graph=True), strict=True)
        total += sum((w * h).sum().item() for w, h in products)
    literal = "hnas(form=realizable,literal=true,metric=grasp)"
    assert_scores(network, literal, BATCH, 6 / abs(total), single=1e-3)


@pytest.mark.parametrize("proxy", ["snip", "knas", "ntk_trace", "hnas", "nasi_trace", "epe_nas", "fisher", "zico"])
def test_every_kind_of_read_has_a_value(proxy: str) -> None:
    assert score(one_logit(), proxy, BATCH).ok


@pytest.mark.parametrize("proxy", ["snip", "knas", "ntk_trace", "nasi_trace"])
def test_a_third_label(proxy: str) -> None:
    found = score(one_logit(), proxy, batch_of((X, [0, 1, 2, 0, 1, 0])))
    assert (found.status, found.why) == (
        "failed",
        "the network has 1 output, and a label is 2: on noise say --classes 2",
    )
