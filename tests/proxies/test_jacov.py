"""jacov against numpy's correlation and eigenvalues of gradients taken one output at a time."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import epochzero as ez
from epochzero import data
from epochzero.data import Batch
from epochzero.engine import Need, PlanNetwork, parse, score_population
from epochzero.engine.population.grouping import PopulationMode
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.pool import GlobalAvgPool
from tests.engine.population.test_lockstep import some_plans
from tests.proxies.nets import (
    CONNECTED,
    Twin,
    assert_scores,
    batch_of,
    chain,
    cut_net,
    drawn,
    linear_net,
    random_batch,
    score,
    unlabelled,
    value,
)

STEP = 1e-6
CORNER = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]


def from_eigenvalues(*eigenvalues: float) -> float:
    return -sum(math.log(e + 1e-5) + 1 / (e + 1e-5) for e in eigenvalues)


def correlated(network: PlanNetwork, batch: Batch) -> float:
    x = batch.part(0)[0].double().requires_grad_()
    logits = Twin(network)(x)
    rows = torch.zeros_like(x)  # [B, ...]
    for logit in logits.flatten():
        rows += torch.autograd.grad(logit, x, retain_graph=True)[0]
    eigenvalues = np.linalg.eigvals(np.corrcoef(rows.flatten(1).numpy()))
    return from_eigenvalues(*np.real(eigenvalues).tolist())


def test_by_hand() -> None:
    # The sum of the ReLUs of x: J is where x is positive, (1, 0, 0) and (0, 1, 0). Centred (2, -1, -1)/3 and
    # (-1, 2, -1)/3, with squared length 2/3 each and product -1/3: correlation -1/2, eigenvalues 1/2 and 3/2.
    network = linear_net(CORNER, [[1.0, 1.0, 1.0]], relu=True)
    batch = batch_of(([[1.0, -1.0, -1.0], [-1.0, 1.0, -1.0]], None))
    assert value(network, "jacov", batch) == pytest.approx(from_eigenvalues(0.5, 1.5), rel=1e-12)


def test_inputs_that_the_network_treats_alike() -> None:
    # The same J twice: correlation 1, eigenvalues 0 and 2, and 1 / 1e-5 rules.
    network = linear_net(CORNER, [[1.0, 1.0, 1.0]], relu=True)
    batch = batch_of(([[1.0, -1.0, -1.0], [2.0, -3.0, -4.0]], None))
    assert value(network, "jacov", batch) == pytest.approx(from_eigenvalues(0.0, 2.0), rel=1e-9)


@pytest.mark.parametrize("make", CONNECTED)
def test_is_numpys_correlation_and_eigenvalues(make: Callable[[], PlanNetwork]) -> None:
    """Labels are not needed."""
    network, batch = make(), random_batch()
    assert_scores(network, "jacov", unlabelled(batch), correlated(network, batch))


def test_is_the_difference_of_outputs_for_each_input() -> None:
    """With a norm that couples the samples, a row is what the logits of the whole batch feel of one sample."""
    network, batch = CONNECTED[0](), random_batch(size=3)
    twin, x = Twin(network), batch.part(0)[0].double()
    rows = np.zeros((3, x[0].numel()))
    with torch.no_grad():
        for n in range(3):
            for i in range(x[0].numel()):
                step = torch.zeros_like(x)
                step[n].view(-1)[i] = STEP
                rows[n, i] = (twin(x + step).sum() - twin(x - step).sum()).item() / (2 * STEP)
    expected = from_eigenvalues(*np.linalg.eigvalsh(np.corrcoef(rows)).tolist())
    assert_scores(network, "jacov", batch, expected, double=1e-6)


def test_a_cut_network_has_no_jacobian() -> None:
    found = score(cut_net(), "jacov", random_batch())
    assert found.status == "degenerate"
    assert "does not depend on the input" in found.why


def test_an_input_on_which_every_relu_is_off_is_named() -> None:
    network = linear_net(CORNER, [[1.0, 1.0, 1.0]], relu=True)
    batch = batch_of(([[1.0, -1.0, -1.0], [-1.0, 1.0, -1.0], [-1.0, -1.0, -1.0]], None))
    found = score(network, "jacov", batch)
    assert found.status == "degenerate"
    assert "input 2" in found.why


def test_a_response_that_is_the_same_everywhere_has_no_correlation() -> None:
    """The output does depend on the input, but on its mean alone."""
    network = drawn(chain((1, 5, 5), GlobalAvgPool(), Linear(3)))
    found = score(network, "jacov", random_batch((1, 5, 5)))
    assert found.status == "degenerate"
    assert "correlation" in found.why


def test_one_sample_cannot_be_compared() -> None:
    found = score(CONNECTED[0](), "jacov", random_batch(size=1))
    assert (found.status, found.why) == ("failed", "needs at least 2 samples, and the batch has 1")


@pytest.mark.parametrize("name", ["jacov", "epe_nas"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lockstep", ["always", "never"])
def test_gradients_that_are_rounding_have_no_correlation(name: str, dtype: str, lockstep: PopulationMode) -> None:
    """Nothing but a mean and a linear layer follows on TransNAS-Bench-101's last norms: what they give sums to zero."""
    batch = data.pink((3, 32, 32), size=4, num_classes=3)
    asked = parse(name)
    asked = replace(asked, needs_of=[Need(replace(n.run, dtype=dtype), n.reads) for n in asked.needs])  # type: ignore[arg-type]
    unfelt, felt = (some_plans(space, 2, (3, 32, 32)) for space in ("transnas_micro", "nb201"))
    for plans, status in ((unfelt, "degenerate"), (felt, "ok")):
        found = score_population([PlanNetwork(plan) for plan in plans], [asked], batch, 0, lockstep)
        assert [one.scores[name].status for one in found] == [status] * 2
        assert status == "ok" or "no more than rounding" in found[0].scores[name].why


def test_small_responses_are_no_rounding() -> None:
    """They shrink from layer to layer, and what arrives is exact in all its digits; biases rule the logits."""
    deep = nn.Sequential(nn.Flatten(), *(layer for _ in range(30) for layer in (nn.Linear(12, 12), nn.ReLU())))
    for module in deep.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, 0.02, 0.05, generator=torch.Generator().manual_seed(0))
            nn.init.constant_(module.bias, 1.0)
    assert ez.score(deep, "jacov", data=data.pink((3, 2, 2), size=4))["jacov"].ok
