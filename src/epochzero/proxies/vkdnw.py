r"""VKDNW: how evenly the data inform about the network's parameters, after the number of its layers.

    g_nl  = gradient of sample n's loss for an offset added to the first channel of layer l
    F     = mean_n g_n g_n^T            Fisher information of one parameter of each conv and linear layer
    q_k   = k-th decile of the eigenvalues of F, k = 1 .. 9;   p_k = q_k / sum_j q_j
    V     = -sum_k p_k log p_k          at most log 9
    score = number of conv and linear layers + V

The paper takes single weights as parameters, the first 128 layers, and labels drawn from the network's own outputs;
offsets and the labels of the data need one ordinary backward pass. The score that the paper recommends, VKDNW_agg, is
`rank(vkdnw,jacov,az_expressivity,az_trainability,flops)`.

Options:
    part        single for the sum, entropy for V alone

Beware: the number of layers decides, and V only orders networks of as many layers. F has at most as many eigenvalues
above 0 as the batch has samples: with more layers than about that, V falls. By itself V says little (.03 [-.19, .25] on
100 networks of NAS-Bench-201).

Tybl, Neumann. Training-free neural architecture search through variance of knowledge of deep network weights. CVPR
2025. arXiv:2502.04975
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from epochzero.engine import Layer, Need, Pass, Summed, Trace, need, of_network, proxy, together
from epochzero.engine.spectrum import eigenvalues
from epochzero.errors import DegenerateError, UserError


def products(layer: Layer, gradient: Tensor) -> Tensor:
    """Returns the same for many networks [B, M, ...]."""
    first = gradient[:, :, 0] if layer.kind == "conv" else gradient[..., 0]  # [B, M, ...]
    g = first.double().flatten(2).sum(2).T if first.dim() > 2 else first.double().T  # [M, B]
    return g[:, :, None] * g[:, None]  # [M, B, B]


@together(products)
def product(layer: Layer, gradient: Tensor) -> Tensor:
    """Returns [B, B], the products of the samples' gradients."""
    return products(layer, gradient.unsqueeze(1))[0]


def entropy_of_deciles(spectrum: Tensor, layers: int) -> Tensor:
    """Returns V; `spectrum` holds the eigenvalues of the sum of all layers' products, which F shares but for zeros."""
    own = torch.zeros(layers, dtype=spectrum.dtype, device=spectrum.device)
    shared = min(layers, len(spectrum))
    own[layers - shared :] = spectrum[len(spectrum) - shared :].clamp(min=0)
    deciles = own.quantile(torch.arange(1, 10, dtype=own.dtype, device=own.device) / 10)  # [9]
    total = deciles.sum()
    share = deciles / torch.where(total > 0, total, 1)
    return -torch.xlogy(share, share).sum()


def needs(part: str) -> Sequence[Need]:
    if part not in ("single", "entropy"):
        raise UserError(f"vkdnw takes part=single or part=entropy, not {part!r}.")
    return [need(Pass(), "structure", layer_gradients=Summed(product))]


# recipe 2: layers that no gradient reaches have eigenvalues of 0
@proxy(needs=needs, higher_is_better=True, recipe=2)
def vkdnw(trace: Trace, *, part: str = "single") -> Tensor:
    spectrum = of_network(eigenvalues, trace, "layer_gradients")  # [B], ascending
    if spectrum is None:
        raise DegenerateError("the loss does not depend on any conv or linear layer")
    layers = len(trace.structure.weighted)
    entropy = entropy_of_deciles(spectrum, layers)
    return entropy if part == "entropy" else entropy + layers
