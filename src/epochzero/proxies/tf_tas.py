r"""TF-TAS DSS, for transformers: the diversity of attention layers and the signal flow through the other layers.

    R     = sum of logits      weights replaced by their absolute values, input all ones
    score = log [ sum over attention weights  ||dR/dW||_* ||W||_*          (nuclear norms)
                + sum over other linear weights  sum |dR/dW * W| ]

Attention weights are those of linear layers that map a width to itself, and pairs of layers that map it to three times
the width of all heads (queries, keys and values together) and from that width back (the projection). The form of the
paper, on a stand-alone network: in the published code the weights are not absolute, and queries, keys and values add
nothing. The logarithm is taken.

Beware: for transformers only; a network without such a linear layer has no score. Attention is recognised by shapes, so
a square layer of a perceptron counts as attention. If a module hides its projections, as fused kernels may, the score
fails with that reason. Convolutions (the patch embedding) do not count.

Zhou, Zheng, Wu, Pan, Ji. Training-free transformer architecture search. CVPR 2022. arXiv:2203.12217
"""

from __future__ import annotations

import torch
from torch import Tensor

from epochzero.engine import Trace, need, proxy
from epochzero.engine.spectrum import nuclear_norms
from epochzero.errors import DegenerateError
from epochzero.proxies.synflow import POSITIVE
from epochzero.types import Shape


def attends(before: Shape | None, shape: Shape, after: Shape | None) -> bool:
    """Returns True for a weight of an attention layer, by its shape and those of the weights before and after it."""
    wide, width = shape
    projects = before == (3 * width, wide)
    return wide == width or projects or (wide % 3 == 0 and after == (width, wide // 3))


# recipe 2: in populations of AutoFormer networks, layers that work on tokens were missing
# recipe 3: a negative sum of logits, as after layer norms, has a score too
@proxy(
    needs=[need(POSITIVE, "weights", "log_gradients", "logits")],
    higher_is_better=True,
    valid="attention, linear",
    recipe=3,
)
def tf_tas(trace: Trace) -> Tensor:
    attention: dict[Shape, list[tuple[Tensor, Tensor]]] = {}
    rest = []
    shapes = [None, *(tuple(w.shape) for w in trace.weights), None]
    for i, (weight, gradient) in enumerate(zip(trace.weights, trace.log_gradients, strict=True)):
        if weight.dim() == 2 and attends(shapes[i], weight.shape, shapes[i + 2]):
            attention.setdefault(tuple(weight.shape), []).append((weight, gradient))
        elif weight.dim() == 2:
            rest.append((weight * gradient).abs().sum())
    if not attention:
        raise DegenerateError("is for transformers, and no linear layer here has the shape of an attention layer")
    flow = trace.logits.sum().abs()  # layer norms may turn its sign
    norms = (nuclear_norms(torch.stack([torch.stack(pair) for pair in of])) for of in attention.values())  # [L, 2] each
    share = torch.stack([each.prod(1).sum() for each in norms] + rest).sum()
    if not torch.isfinite(flow) or flow == 0 or share <= 0:
        raise DegenerateError("no signal flows from the input to the output, or more than double precision holds")
    return flow.log() + share.log()
