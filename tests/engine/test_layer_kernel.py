"""The kernel from hooks on layers: exact if no layer mixes samples, else parts that sum to the gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from epochzero.analysis.topology import KNOWN
from epochzero.engine import Handle, PlanNetwork
from epochzero.engine.layer_kernel import LAYERS, layer_kernel, sample_parts
from epochzero.spaces.darts import Darts
from epochzero.types import Origin

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(4, 3, 8, 8, generator=GENERATOR)
Y = torch.tensor([0, 2, 1, 2])


def small() -> tuple[PlanNetwork, list[str]]:
    plan = Darts("darts_tiny", 2, 2).plan(KNOWN["DARTS"], 3, (3, 8, 8))
    network = PlanNetwork(plan, Origin(seed=0), torch.device("cpu"))
    return network, [name for node in plan.nodes if node.op.kind in LAYERS for name in node.params]


def gradient(network: PlanNetwork, names: list[str], x: Tensor, y: Tensor, norm: str) -> dict[str, Tensor]:
    leaves = {name: network.weights[name].detach().clone().requires_grad_() for name in names}
    logits = network.forward(x, {**network.weights, **leaves}, norm)  # type: ignore[arg-type]
    chosen = logits[torch.arange(len(x)), y].sum()
    found = torch.autograd.grad(chosen, list(leaves.values()), allow_unused=True)
    return {name: g for name, g in zip(names, found, strict=True) if g is not None}


def test_samples_that_do_not_see_each_other_have_the_exact_kernel() -> None:
    network, names = small()
    rows = [gradient(network, names, X[i : i + 1], Y[i : i + 1], "eval") for i in range(4)]
    flat = torch.stack([torch.cat([g.flatten() for g in row.values()]) for row in rows]).double()
    found = layer_kernel(Handle(network, network.weights, X, Y, 0, "eval"))
    torch.testing.assert_close(found, flat @ flat.mT, rtol=1e-4, atol=1e-6)


def test_under_batch_statistics_the_parts_make_up_the_gradient() -> None:
    network, names = small()
    parts = sample_parts(Handle(network, network.weights, X, Y, 0, "train"))
    whole = gradient(network, names, X, Y, "train")
    assert whole.keys() == parts.keys() and len(parts) > 5
    for name, part in parts.items():
        torch.testing.assert_close(part.sum(0), whole[name], rtol=1e-3, atol=1e-4)
