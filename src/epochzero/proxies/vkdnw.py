r"""VKDNW: how evenly the data inform about the network's parameters, after the number of its layers.

    g_nl  = gradient of sample n's loss for an offset added to the first channel of layer l
    F     = mean_n g_n g_n^T            Fisher information of one parameter of each conv and linear layer
    q_k   = k-th decile of the eigenvalues of F, k = 1 .. 9;   p_k = q_k / sum_j q_j
    V     = -sum_k p_k log p_k          at most log 9
    score = number of conv and linear layers + V

The paper takes single weights as parameters, the first 128 layers, and labels drawn from the network's own outputs;
offsets and the labels of the data need one ordinary backward pass. Layers that no gradient reaches are left out of F.
The score of the paper's title, VKDNW_agg, is `rank(vkdnw,jacov,az_expressivity,az_trainability,flops)`.

Options:
    part        single for the sum, entropy for V alone

Beware: the number of layers decides, and V only orders networks of as many layers. F has at most as many eigenvalues
above 0 as the batch has samples: with more layers than about that, V falls.

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
    g = first.flatten(2).double().sum(2).T if first.dim() > 2 else first.double().T  # [M, B]
    counted = gradient.flatten(2).any(2).any(0)[:, None, None].expand(-1, 1, len(gradient))  # [M, 1, B]
    return torch.cat([g[:, :, None] * g[:, None], counted.double()], 1)  # [M, B + 1, B]


@together(products)
def product(layer: Layer, gradient: Tensor) -> Tensor:
    """Returns [B + 1, B]: the products of the samples' gradients, and a row of ones if any gradient arrives."""
    return products(layer, gradient.unsqueeze(1))[0]


def decile_entropy(kernel: Tensor) -> Tensor:
    """Returns V, from the sum of all layers' products: F and their matrix [B, B] share their nonzero eigenvalues."""
    layers = kernel[-1, 0]
    spectrum = eigenvalues(kernel[:-1]).clamp(min=0)  # [B], ascending
    at = torch.arange(1, 10, dtype=kernel.dtype, device=kernel.device) / 10 * (layers - 1)  # [9], among F's eigenvalues
    low, high = at.floor(), at.ceil()
    beyond = layers - len(spectrum)  # the first of F's eigenvalues, which are 0

    def at_rank(rank: Tensor) -> Tensor:
        place = (rank - beyond).clamp(min=0, max=len(spectrum) - 1).long()
        return torch.where(rank >= beyond, spectrum.gather(0, place), 0)

    deciles = at_rank(low) + (at - low) * (at_rank(high) - at_rank(low))
    total = deciles.sum()
    share = deciles / torch.where(total > 0, total, 1)
    return -torch.xlogy(share, share).sum()


def needs(part: str) -> Sequence[Need]:
    if part not in ("single", "entropy"):
        raise UserError(f"vkdnw takes part=single or part=entropy, not {part!r}.")
    return [need(Pass(), "structure", layer_gradients=Summed(product))]


@proxy(needs=needs, higher_is_better=True)
def vkdnw(trace: Trace, *, part: str = "single") -> Tensor:
    entropy = of_network(decile_entropy, trace, "layer_gradients")
    if entropy is None:
        raise DegenerateError("the loss does not depend on any conv or linear layer")
    return entropy if part == "entropy" else entropy + len(trace.structure.weighted)  # type: ignore[no-any-return]
