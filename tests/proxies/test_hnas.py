"""hnas against its formulas, with metrics that have oracles of their own and literal ones from one sample at a time."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from epochzero.data import Batch
from epochzero.engine import PlanNetwork, parse
from epochzero.errors import UserError
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.norm import BatchNorm
from epochzero.plan.ops.pool import GlobalAvgPool
from epochzero.plan.ops.wiring import Zero
from tests.proxies.gradients import gradient, gram, rows_together, sample_losses
from tests.proxies.nets import (
    CONNECTED,
    IMAGE,
    Twin,
    assert_scores,
    batch_of,
    chain,
    conv_net,
    cut_net,
    dead_path_net,
    drawn,
    labels,
    layerless_net,
    linear_net,
    precisely,
    random_batch,
    score,
    shared_net,
    unlabelled,
    value,
)

SIZE = 5
METRICS = {
    "grad": "grad_norm",
    "snip": "snip",
    "grasp": "grasp",
    "knas": "knas",
    "knas_label": "knas(variant=label)",
    "fisher": "fisher",
    "synflow": "synflow",
    "naswot": "naswot",
    "naswot_raw": "naswot(of=inputs)",
}


def thesis(m: float, kappa: float, mu: float = 0, nu: float = 0, t: float = 1) -> float:
    return kappa / m + mu * math.pow(abs(m * m - nu), 2 * t)


def code(m: float, kappa: float, mu: float = 0, nu: float = 0) -> float:
    return mu * abs(m**2 - nu**2) + kappa / (m + 1e-6)


def non_realizable(m: float, kappa: float, samples: int, rate: float = 1, t: float = 1) -> float:
    return samples / 2 * math.pow(abs(1 - rate * m * m / samples), 2 * t) + kappa / m


def kernel(network: PlanNetwork, batch: Batch) -> tuple[float, float]:
    """sqrt(trace/m) and the condition number."""
    theta = gram(rows_together(Twin(network), batch, "label")).detach()
    eigenvalues = torch.linalg.eigvalsh(theta)
    return math.sqrt(theta.trace().item() / len(theta)), (eigenvalues[-1] / eigenvalues[0]).item()


def test_by_hand() -> None:
    # x = (1, 0) and (0, 2) of one label through a linear layer: Theta = diag(1, 4), M = sqrt(5/2), kappa = 4.
    network, batch = linear_net([[1.0, 2.0], [3.0, 4.0]]), batch_of(([[1.0, 0.0], [0.0, 2.0]], [0, 0]))
    m = math.sqrt(2.5)
    for settings, expected in (
        ("", 4 / m),
        ("mu=2,nu=3,t=1", 4 / m + 2 * 0.5**2),
        ("mu=2,nu=3,t=1.5", 4 / m + 2 * 0.5**3),
        ("form=code,mu=2,nu=3", 4 / (m + 1e-6) + 2 * 6.5),
        ("form=realizable", 1 / m),
        ("form=non_realizable,rate=0.4,t=2", 1 * (1 - 0.4 * 2.5 / 2) ** 4 + 4 / m),
    ):
        assert value(network, f"hnas({settings})", batch) == pytest.approx(expected, rel=1e-6), settings


@pytest.mark.parametrize("make", CONNECTED)
def test_the_trace_in_every_form(make: Callable[[], PlanNetwork]) -> None:
    network, batch = make(), random_batch(size=SIZE)
    m, kappa = kernel(network, batch)
    for settings, expected in (
        ("", thesis(m, kappa)),
        ("mu=3,nu=0.5,t=2", thesis(m, kappa, 3, 0.5, 2)),
        ("form=code", code(m, kappa)),
        ("form=code,mu=3,nu=5", code(m, kappa, 3, 5)),
        ("form=realizable", 1 / m),
        ("form=non_realizable,rate=0.3,t=3", non_realizable(m, kappa, SIZE, 0.3, 3)),
    ):
        assert_scores(network, f"hnas({settings})", batch, expected, single=1e-2, double=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_in_every_form(metric: str) -> None:
    """As the experiments ran them: the proxy of that name as it stands, but for KNAS, of which the root is taken."""
    network, batch = scale_free_net(), random_batch(size=SIZE)
    m = value(network, precisely(METRICS[metric]), batch)
    m = math.sqrt(m) if metric.startswith("knas") else m
    _, kappa = kernel(network, batch)
    for settings, expected in (
        ("mu=0.1,nu=2", thesis(m, kappa, 0.1, 2)),
        ("form=code,mu=0.1,nu=2", code(m, kappa, 0.1, 2)),
        ("form=realizable", 1 / m),
        ("form=non_realizable,rate=0.1", non_realizable(m, kappa, SIZE, 0.1)),
    ):
        assert_scores(network, f"hnas(metric={metric},{settings})", batch, expected, single=1e-2, double=1e-6)


def test_knas_is_the_root_of_the_mean_of_all_products() -> None:
    """Eq. D.11, one pair of samples at a time, by the gradients of the loss."""
    network, batch = conv_net(), random_batch(size=SIZE)
    rows = rows_together(Twin(network), batch, "loss")
    total = sum((one * other).sum().item() for one in rows for other in rows)
    assert_scores(network, "hnas(metric=knas,form=realizable)", batch, SIZE / math.sqrt(total))


def scale_free_net() -> PlanNetwork:
    """Every layer is followed by a norm, so that H w = -g for it and GraSP is |g|^2: above 0, as it rarely is else."""
    layers = (Conv(4, 3, padding=1), BatchNorm(), ReLU(), Conv(3, 3, padding=1), BatchNorm(affine=False), ReLU())
    return drawn(chain(IMAGE, *layers, GlobalAvgPool()))


# ---- literal forms


def literal_grasp(network: PlanNetwork, batch: Batch, step: float = 1e-5) -> float:
    """theta . H_i g_i by differences of the gradient of one sample's loss; batch norm sees all samples."""
    twin = Twin(network)
    start = torch.nn.utils.parameters_to_vector(twin.parameters()).detach()

    def gradient_of(sample: int, at: Tensor) -> Tensor:
        torch.nn.utils.vector_to_parameters(at, twin.parameters())
        losses = sample_losses(twin(batch.part(0)[0].double()), labels(batch))
        return gradient(losses[sample], twin)

    total = 0.0
    for sample in range(batch.size):
        g = gradient_of(sample, start)
        hg = (gradient_of(sample, start + step * g) - gradient_of(sample, start - step * g)) / (2 * step)
        total += (start * hg).sum().item()
    return abs(total / batch.size)


def literal(metric: str, network: PlanNetwork, batch: Batch) -> float:
    if metric == "grasp":
        return literal_grasp(network, batch)
    twin = Twin(network)
    rows = rows_together(twin, batch, "loss")
    mean = sum(rows[1:], rows[0]) / len(rows)
    theta = torch.nn.utils.parameters_to_vector(twin.parameters())
    return math.sqrt(mean.square().sum().item()) if metric == "grad" else abs((theta * mean).sum().item())


@pytest.mark.parametrize("metric", ["grad", "snip", "grasp"])
@pytest.mark.parametrize("make", CONNECTED)
def test_literal_forms_are_loops_over_samples(make: Callable[[], PlanNetwork], metric: str) -> None:
    """Over everything trainable, biases and norms too."""
    network, batch = make(), random_batch(size=SIZE)
    m = literal(metric, network, batch)
    _, kappa = kernel(network, batch)
    plain = f"hnas(metric={metric},literal=true"
    assert_scores(network, f"{plain},form=realizable)", batch, 1 / m, single=1e-3, double=1e-6)
    assert_scores(network, f"{plain},mu=7,nu=0.2)", batch, thesis(m, kappa, 7, 0.2), single=1e-2, double=1e-5)


def test_literal_forms_by_hand() -> None:
    # Logits (log 3, 0), label 1: p = 3/4 of the wrong class, g = (p, -p), H = p (1 - p) [[1, -1], [-1, 1]].
    # |g| = p sqrt 2, theta . g = p log 3, theta . H g = 2 p^2 (1 - p) log 3.
    network, batch = linear_net([[math.log(3)], [0.0]]), batch_of(([[1.0]], [1]))
    for metric, m in (
        ("grad", 0.75 * math.sqrt(2)),
        ("snip", 0.75 * math.log(3)),
        ("grasp", 2 * 0.75**2 * 0.25 * math.log(3)),
    ):
        found = value(network, f"hnas(metric={metric},literal=true,form=realizable)", batch)
        assert found == pytest.approx(1 / m, rel=1e-5), metric


def test_literal_grasp_is_the_whole_hessian() -> None:
    """All second derivatives of a two-layer network, one sample at a time."""
    network = linear_net([[1.0, -2.0], [0.5, 1.5]], [[1.0, 0.3], [-0.7, 2.0], [0.1, 0.4]], relu=True)
    batch = random_batch((2,), size=SIZE)
    twin = Twin(network)
    first, second = (p.detach() for p in twin.parameters())
    theta = torch.cat([first.flatten(), second.flatten()])
    total = torch.zeros((), dtype=torch.float64)
    for x, y in zip(batch.part(0)[0].double(), labels(batch), strict=True):

        def loss(at: Tensor, x: Tensor = x, y: Tensor = y) -> Tensor:
            hidden = torch.relu(at[:4].view(2, 2) @ x)
            return sample_losses((at[4:].view(3, 2) @ hidden)[None], y[None])[0]

        total += theta @ torch.func.hessian(loss)(theta) @ torch.func.grad(loss)(theta)
    expected = SIZE / abs(total.item())
    assert_scores(network, "hnas(metric=grasp,literal=true,form=realizable)", batch, expected)


def test_literal_forms_differ_from_those_of_the_experiments() -> None:
    network, batch = drawn(chain(IMAGE, Conv(3, 3), BatchNorm(), ReLU(), GlobalAvgPool())), random_batch(size=SIZE)
    for metric in ("grad", "snip", "grasp"):
        found = value(network, f"hnas(metric={metric},form=realizable)", batch)
        assert value(network, f"hnas(metric={metric},form=realizable,literal=true)", batch) != pytest.approx(found)


# ---- where there is no bound


def test_a_metric_that_is_not_positive() -> None:
    """Weights of 0 have no SNIP."""
    zeros = linear_net([[0.0, 0.0], [0.0, 0.0]])
    batch = batch_of(([[1.0, 0.0], [0.0, 2.0]], [0, 1]))
    for settings in ("metric=snip", "metric=snip,literal=true", "metric=grasp,form=realizable"):
        found = score(zeros, f"hnas({settings})", batch)
        assert found.status == "degenerate"
        assert "positive" in found.why


def test_grasp_counts_by_its_size() -> None:
    network, batch = conv_net(), random_batch()
    m = value(network, "grasp", batch)
    assert m < 0
    assert value(network, "hnas(metric=grasp,form=realizable)", batch) == pytest.approx(-1 / m, rel=1e-6)


def test_a_cut_network() -> None:
    """Its kernel is singular. Without kappa, the bias of the head is still there to be learnt."""
    network, batch = cut_net(), random_batch()
    for settings in ("", "form=code", "form=non_realizable", "metric=grad,literal=true"):
        found = score(network, f"hnas({settings})", batch)
        assert found.status == "degenerate"
        assert "singular" in found.why
    assert value(network, "hnas(form=realizable)", batch) == pytest.approx(1)
    assert value(network, "hnas(metric=grad,literal=true,form=realizable)", batch) == pytest.approx(
        1 / math.sqrt(value(network, "nasi_trace", batch)), rel=1e-6
    )


@pytest.mark.parametrize("metric", ["grad", "snip", "grasp"])
def test_nothing_to_train(metric: str) -> None:
    written = f"hnas(metric={metric},literal=true,form=realizable)"
    assert score(layerless_net(), written, random_batch((3, 6, 6))).status == "degenerate"
    behind_a_cut = drawn(chain(IMAGE, Conv(3, 3), Zero(), GlobalAvgPool()))
    assert score(behind_a_cut, written, random_batch()).status == "degenerate"


@pytest.mark.parametrize("settings", ["", "metric=grasp,literal=true", "metric=grad,form=realizable"])
def test_labels_that_do_not_fit(settings: str) -> None:
    found = score(shared_net(), f"hnas({settings})", unlabelled(random_batch(size=SIZE)))
    assert found.status == "failed"
    assert "needs labels" in found.why
    beyond = batch_of((random_batch(size=2).part(0)[0], [0, 3]))
    found = score(dead_path_net(), f"hnas({settings})", beyond)
    assert found.status == "failed"
    assert "3 outputs" in found.why


def test_lower_is_better() -> None:
    assert not parse("hnas").higher_is_better


@pytest.mark.parametrize(
    "settings",
    [
        *("metric=zico", "form=bound", "metric=trace,literal=true", "metric=naswot,literal=true"),
        *("t=0", "t=nan", "mu=inf", "nu=nan", "form=non_realizable,rate=nan"),
    ],
)
def test_impossible_settings_are_refused(settings: str) -> None:
    with pytest.raises(UserError, match="hnas"):
        _ = parse(f"hnas({settings})").needs
