r"""The linear independence of the feature maps of each layer.

    1 / c = sigma_min / sigma_max      of a layer's output for one sample, a matrix [C, H*W]

of every conv, norm, activation, pool, skip and cut edge, in the order of execution; layers whose output for a sample is
a vector have none. Dextr's first term is log(1 + sum of these) (`epochzero.proxies.dextr`). As there, norms see a batch
of that one sample.

Asthana, Conrad, Ortmanns, Belagiannis. Dextr: zero-shot neural architecture search with singular value decomposition
and extrinsic curvature. TMLR 2025, Figure 3. openreview.net/forum?id=X0uPof5DVh
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from epochzero.engine import Layer, Network
from epochzero.proxies.dextr import evenness, gram


class Feature(NamedTuple):
    """One layer's output for one sample."""

    name: str
    kind: str
    """conv, norm, activation, ..."""
    channels: int
    independence: float
    """1 / c"""


def layer_independence(network: Network, x: Tensor) -> list[Feature]:
    """The independence of each layer's maps for the first sample."""
    features: list[Feature] = []

    def see(layer: Layer) -> None:
        products = gram(layer.output.detach())
        if products is not None:
            features.append(Feature(layer.name, layer.kind, layer.output.shape[1], float(evenness(products))))

    with torch.no_grad():
        network.forward(x[:1], network.weights, "train", see)
    return features
