r"""The tangent kernel from hooks on layers, as HNAS's published code measures it.

    g_i = sum over layers of the part of d(sum_j a_j)/d theta that goes through the maps of sample i
    Theta_ij = < g_i, g_j >         a_j the logit of sample j's class; theta the convolutions and linear layers

If no layer mixes samples, g_i is the gradient of a_i and this is the exact kernel. Batch norms that use the batch's
statistics couple them: then sample i's maps move all logits, the parts of a channel's samples nearly cancel, and the
smallest eigenvalue is far smaller than that of the exact kernel (`ntk_cond`).

Shu, Dai, Wu, Low. Unifying and boosting gradient-based training-free neural architecture search. NeurIPS 2022.
arXiv:2201.09785
"""

from __future__ import annotations

import torch
from torch import Tensor

from epochzero.engine.failure import PassFailedError
from epochzero.engine.loss import check_labels, label_logits
from epochzero.engine.network import Handle, PlanNetwork, plan_for
from epochzero.plan import execute
from epochzero.plan.ops.base import Op
from epochzero.plan.plan import Node

LAYERS = ("conv", "linear")


def sample_parts(run: Handle) -> dict[str, Tensor]:
    """Returns each sample's part of the gradient of the summed logits of their classes, by weight: [B, weight]."""
    network, y = run.network, run.y
    assert y is not None
    if not isinstance(network, PlanNetwork):
        raise PassFailedError("the kernel from hooks on layers needs a network of a space, and this is a module")
    seen: list[tuple[Node, Tensor, Tensor]] = []

    def watch(node: Node, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        if node.op.kind in LAYERS:
            seen.append((node, inputs[0].detach(), output))

    with torch.enable_grad():
        weights = {name: w.detach().requires_grad_(name in network.trainable) for name, w in run.weights.items()}
        logits = execute(plan_for(network.plan, run.norm), weights, (run.x,), watch)
        check_labels(logits.shape, y)
        outputs = [output for _, _, output in seen]
        gradients = torch.autograd.grad(label_logits(logits, y).sum(), outputs, allow_unused=True)
    found: dict[str, Tensor] = {}
    for (node, inputs, _), gradient in zip(seen, gradients, strict=True):
        if gradient is not None:
            own = [weights[name].detach() for name in node.params]
            parts = _of_each(node.op, own, inputs, gradient)
            for name, part in zip(node.params, parts, strict=True):
                found[name] = found[name] + part if name in found else part
    return found


def _of_each(op: Op, weights: list[Tensor], inputs: Tensor, gradients: Tensor) -> list[Tensor]:
    """Returns the gradients of a layer's weights, sample by sample."""
    leaves = tuple(weight.requires_grad_() for weight in weights)
    each = []
    for x, gradient in zip(inputs, gradients, strict=True):
        with torch.enable_grad():
            output = op.run((x.unsqueeze(0),), leaves)
        each.append(torch.autograd.grad(output, leaves, gradient.unsqueeze(0)))
    return [torch.stack(of_weight) for of_weight in zip(*each, strict=True)]


def layer_kernel(run: Handle) -> Tensor:
    """Returns the kernel [B, B], in double precision."""
    rows = [part.flatten(1).double() for part in sample_parts(run).values()]
    kernel: Tensor = torch.stack([row @ row.mT for row in rows]).sum(0)
    return kernel
