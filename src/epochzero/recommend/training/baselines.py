r"""Click models designed by hand, as baselines of a search: from logistic regression to DCNv2.

All map dense [B, D] and ids [B, F] to a logit [B], with embeddings of 16 features. In DLRM a network turns the dense
features into one vector. In the others, dense feature d is a field with the vector x_d v_d, so that there are M = D + F
fields e_1 .. e_M.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor, nn

from epochzero.errors import UserError
from epochzero.plan.ops.embedding import Tables
from epochzero.plan.ops.numeric import StandardisedNumbers
from epochzero.registry import check_known

WIDTH = 16
"""features of an embedding"""
DEEP = (400, 400)
"""widths of the hidden layers of the deep part"""
MAPS = (64, 64)
"""numbers of maps in the layers of xDeepFM's CIN"""
ATTENTION = (64, 64, 64)
"""widths of AutoInt's layers of attention"""
HEADS = 2
CROSSES = 3
"""cross layers of DCNv2"""
FIELD_SCALE = 0.01
"""standard deviation of initial fields; with that of DLRM, the products of forty fields would dominate the logit"""


def perceptron(sizes: Sequence[int], last: bool = False) -> nn.Sequential:
    """Linear layers, each with a ReLU, but not after the output layer of the network (`last`)."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(sizes):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1] if last else layers)


class DLRM(nn.Module):
    r"""A vector z_0 of the dense features, the embeddings z_1 .. z_F, and all their products:

        logit = top( z_0, [z_i . z_j for j < i] )

    Naumov et al. Deep learning recommendation model for personalization and recommendation systems. 2019.
    arXiv:1906.00091
    """

    pairs: Tensor

    def __init__(
        self,
        dense: int,
        rows: Sequence[int],
        width: int = WIDTH,
        bottom: Sequence[int] = (512, 256),
        top: Sequence[int] = (512, 256),
    ) -> None:
        super().__init__()
        vectors = len(rows) + 1
        self.embedding = Tables(tuple(rows), width)
        self.bottom = perceptron([dense, *bottom, width])
        self.top = perceptron([width + vectors * (vectors - 1) // 2, *top, 1], last=True)
        below = torch.tril_indices(vectors, vectors, -1)
        self.register_buffer("pairs", below[0] * vectors + below[1], persistent=False)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        z = self.bottom(dense)  # [B, width]
        vectors = torch.cat([z[:, None], self.embedding(ids)], 1)  # [B, F + 1, width]
        logit: Tensor = self.top(torch.cat([z, products(vectors, self.pairs)], 1))  # [B, 1]
        return logit.squeeze(1)


def products(vectors: Tensor, pairs: Tensor) -> Tensor:
    """The products [B, pairs] of pairs of vectors [B, N, width], at the indices `pairs` of the flat N x N matrix."""
    return (vectors @ vectors.mT).flatten(1)[:, pairs]


class Fields(nn.Module):
    """All features as vectors [B, D + F, width], x_d v_d for the dense ones."""

    def __init__(self, dense: int, rows: Sequence[int], width: int) -> None:
        super().__init__()
        self.embedding = Tables(tuple(rows), width)
        self.dense = nn.Parameter(torch.empty(dense, width))
        for weight in self.parameters():
            nn.init.normal_(weight, std=FIELD_SCALE)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        return torch.cat([dense[:, :, None] * self.dense, self.embedding(ids)], 1)


class Logistic(nn.Module):
    r"""Logistic regression on the dense features and on one effect for each value:  logit = b + sum_m w_m."""

    def __init__(self, dense: int, rows: Sequence[int]) -> None:
        super().__init__()
        self.single, self.bias = Fields(dense, rows, 1), nn.Parameter(torch.zeros(1))

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        single: Tensor = self.single(dense, ids)  # [B, M, 1]
        return self.bias + single.flatten(1).sum(1)


class FM(nn.Module):
    r"""A factorisation machine:  logit = b + sum_m w_m + sum_(i<j) e_i . e_j.  Rendle, ICDM 2010."""

    def __init__(self, dense: int, rows: Sequence[int]) -> None:
        super().__init__()
        self.fields, self.logistic = Fields(dense, rows, WIDTH), Logistic(dense, rows)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        logit: Tensor = self.logistic(dense, ids)
        return logit + factorisation(self.fields(dense, ids))


class DeepFM(nn.Module):
    r"""A factorisation machine and a deep network on the same embeddings:

        logit = b + sum_m w_m + sum_(i<j) e_i . e_j + deep(e_1 .. e_M)

    where w_m is the weight of a value, or x_d w_d of a dense feature.

    Guo, Tang, Ye, Li, He. DeepFM: a factorization-machine based neural network for CTR prediction. IJCAI 2017.
    arXiv:1703.04247
    """

    def __init__(self, dense: int, rows: Sequence[int]) -> None:
        super().__init__()
        self.fields, self.single = Fields(dense, rows, WIDTH), Fields(dense, rows, 1)
        self.deep = perceptron([(dense + len(rows)) * WIDTH, *DEEP, 1], last=True)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        e = self.fields(dense, ids)  # [B, M, width]
        logit: Tensor = self.deep(e.flatten(1))  # [B, 1]
        single: Tensor = self.single(dense, ids)  # [B, M, 1]
        return logit.squeeze(1) + single.flatten(1).sum(1) + factorisation(e)  # [B]


def factorisation(e: Tensor) -> Tensor:
    """sum_(i<j) e_i . e_j = (|sum_i e_i|^2 - sum_i |e_i|^2) / 2 of e [B, M, width]. Rendle, ICDM 2010."""
    return (e.sum(1).square() - e.square().sum(1)).sum(1) / 2  # [B]


class XDeepFM(nn.Module):
    r"""Single effects, a deep network, and a compressed interaction network (CIN) of the embeddings X^0 = (e_1 .. e_M):

        X^k_h = sum_(i,j) W^k_hij (X^(k-1)_i * X^0_j)    (entry by entry),    p^k_h = sum of the entries of X^k_h
        logit = b + sum_m w_m + w . (p^1, p^2, ...) + deep(e_1 .. e_M)

    Lian et al. xDeepFM: combining explicit and implicit feature interactions for recommender systems. KDD 2018.
    arXiv:1803.05170
    """

    def __init__(self, dense: int, rows: Sequence[int]) -> None:
        super().__init__()
        count = dense + len(rows)
        self.fields, self.single = Fields(dense, rows, WIDTH), Fields(dense, rows, 1)
        self.interactions = nn.ParameterList(
            torch.randn(after, before * count) / (before * count) ** 0.5 for before, after in pairwise([count, *MAPS])
        )
        self.pooled = nn.Linear(sum(MAPS), 1, bias=False)
        self.deep = perceptron([count * WIDTH, *DEEP, 1], last=True)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        e = self.fields(dense, ids)  # [B, M, width]
        maps, pooled = e, []
        for weights in self.interactions:
            maps = compressed(maps, e, weights)  # [B, H, width]
            pooled.append(maps.sum(2))
        logit: Tensor = self.deep(e.flatten(1)) + self.pooled(torch.cat(pooled, 1))  # [B, 1]
        single: Tensor = self.single(dense, ids)  # [B, M, 1]
        return logit.squeeze(1) + single.flatten(1).sum(1)  # [B]


def compressed(maps: Tensor, e: Tensor, weights: Tensor) -> Tensor:
    """One layer of the CIN: [B, H, width] from maps [B, H', width], e [B, M, width] and weights [H, H' M]."""
    outer = (maps.mT[..., None] * e.mT[..., None, :]).flatten(2)  # [B, width, H' M]
    return (outer @ weights.mT).mT


class Interacting(nn.Module):
    r"""AutoInt's layer: every field attends to all fields, in several heads h, and is added by a projection:

    a^h_mk = softmax_k( (Q_h e_m) . (K_h e_k) ),    e'_m = ReLU( concat_h( sum_k a^h_mk V_h e_k ) + R e_m )
    """

    def __init__(self, width_in: int, width_out: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.kept = (nn.Linear(width_in, width_out, bias=False) for _ in range(4))

    def forward(self, e: Tensor) -> Tensor:
        q, k, v = (
            part(e).unflatten(2, (self.heads, -1)).transpose(1, 2) for part in (self.query, self.key, self.value)
        )  # each [B, heads, M, width / heads]
        mixed = torch.softmax(q @ k.mT, -1) @ v
        return torch.relu(mixed.transpose(1, 2).flatten(2) + self.kept(e))  # [B, M, width]


class AutoIntPlus(nn.Module):
    r"""Layers of self-attention over the fields, and a deep network on the same embeddings:

        logit = b + w . (e'_1 .. e'_M) + deep(e_1 .. e_M)

    Song et al. AutoInt: automatic feature interaction learning via self-attentive neural networks. CIKM 2019.
    arXiv:1810.11921
    """

    def __init__(self, dense: int, rows: Sequence[int]) -> None:
        super().__init__()
        count = dense + len(rows)
        self.fields = Fields(dense, rows, WIDTH)
        layers = (Interacting(before, after, HEADS) for before, after in pairwise([WIDTH, *ATTENTION]))
        self.attention = nn.Sequential(*layers)
        self.seen = nn.Linear(count * ATTENTION[-1], 1)
        self.deep = perceptron([count * WIDTH, *DEEP, 1], last=True)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        e = self.fields(dense, ids)  # [B, M, width]
        logit: Tensor = self.seen(self.attention(e).flatten(1)) + self.deep(e.flatten(1))  # [B, 1]
        return logit.squeeze(1)


class DCNv2(nn.Module):
    r"""Cross layers and a deep network side by side on x_0 = (e_1 .. e_M), joined by one linear layer:

        x_(l+1) = x_0 * (W_l x_l + b_l) + x_l

    Wang et al. DCN V2: improved deep & cross network and practical lessons for web-scale learning to rank systems. WWW
    2021. arXiv:2008.13535
    """

    def __init__(self, dense: int, rows: Sequence[int]) -> None:
        super().__init__()
        size = (dense + len(rows)) * WIDTH
        self.fields = Fields(dense, rows, WIDTH)
        self.cross = nn.ModuleList(nn.Linear(size, size) for _ in range(CROSSES))
        self.deep = perceptron([size, *DEEP])
        self.last = nn.Linear(size + DEEP[-1], 1)

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        x = first = self.fields(dense, ids).flatten(1)  # [B, M width]
        for layer in self.cross:
            x = first * layer(x) + x
        logit: Tensor = self.last(torch.cat([x, self.deep(first)], 1))  # [B, 1]
        return logit.squeeze(1)


class Scaled(nn.Module):
    """A model of standardised dense features."""

    def __init__(self, dense: int, model: nn.Module) -> None:
        super().__init__()
        self.standardised, self.model = StandardisedNumbers(dense), model

    def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
        logit: Tensor = self.model(self.standardised(dense), ids)
        return logit


BASELINES: dict[str, type[nn.Module]] = {
    "logistic": Logistic,
    "fm": FM,
    "dlrm": DLRM,
    "deepfm": DeepFM,
    "xdeepfm": XDeepFM,
    "autoint+": AutoIntPlus,
    "dcnv2": DCNv2,
}
"""the neural ones; `trees` (trees.py) are another"""


def baseline(name: str, dense: int, rows: Sequence[int], scaled: bool = False) -> nn.Module:
    """The baseline of this name, with weights drawn by torch's generator; `scaled`: of standardised dense features."""
    check_known(name, BASELINES, f"No baseline is called '{name}'")
    if not rows:
        raise UserError(f"The baseline '{name}' needs categorical columns, and the table has none.")
    model = BASELINES[name](dense, rows)
    return Scaled(dense, model) if scaled else model
