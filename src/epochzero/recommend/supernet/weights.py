"""The supernet of a NASRec space: one set of shared weights, of which each network takes the first features and rows.

    supernet = RecommenderSupernet(spaces["nasrec_small"].on(dense=13, tables=(1000,) * 26))
    supernet.network(arch, batch)          the sub-network with a copy of its part of the shared weights

For proxies of gradients the copies lack the rows of embeddings that no sample names: most of them on Criteo, and
without effect on these scores. spaces/nasrec_network.py describes which part of a weight a sub-network takes, and how
that differs from NASRec's masks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from epochzero.data import Batch, from_tensors
from epochzero.data.batch import digest
from epochzero.engine import PlanNetwork, Proxy, score_population
from epochzero.errors import UserError
from epochzero.plan.init import draw
from epochzero.plan.ops.embedding import ids_in
from epochzero.plan.ops.sliced import Places, taken
from epochzero.recommend.spaces.nasrec import BLOCKS, Choices, Nasrec
from epochzero.recommend.spaces.nasrec_network import Block
from epochzero.types import Origin, Score

NASRECS = Origin("xavier")
"""as in the published code, but linear layers are normal instead of uniform, with the same variance"""

TABLE = "embedding.table"
"""prefix of the names of embeddings"""
OF_GRADIENTS = {"grad_norm", "plain", "sigeo", "snip", "zico"}
"""proxies to which a weight of gradient zero adds nothing"""


def full_path(space: Nasrec) -> Choices:
    """Every op of every block at its largest size, with all earlier outputs as inputs."""
    widest, most = max(space.widths), max(space.rows)
    every = (tuple(range(number)) for number in range(1, BLOCKS + 1))
    return tuple(
        Block(space.dense_ops, space.sparse_ops, widest, most, True, True, *([inputs] * 4)) for inputs in every
    )


class RecommenderSupernet:
    """The weights that all networks of a space share."""

    def __init__(
        self,
        space: Nasrec,
        weights: Origin | Mapping[str, Tensor] = NASRECS,
        device: str | torch.device = "cpu",
    ) -> None:
        """Draws the weights, or takes given ones, which are then trained in place."""
        self.space = space
        self.params = space.network(full_path(space), bare=False).plan.weights
        if isinstance(weights, Origin):
            self.weights = {name: tensor.clone() for name, tensor in draw(self.params, weights).items()}
        else:
            self.check(weights)
            self.weights = dict(weights)
        self.weights = {name: tensor.to(device) for name, tensor in self.weights.items()}

    def check(self, weights: Mapping[str, Tensor]) -> None:
        """UserError for weights of another supernet."""
        if wrong := sorted(weights.keys() ^ self.params.keys()):
            raise UserError(f"These are not weights of a supernet of {self.space.name}: {wrong[0]!r} does not belong.")
        for name, param in self.params.items():
            if tuple(weights[name].shape) != param.shape:
                given = list(weights[name].shape)
                raise UserError(
                    f"The weight {name!r} should be of shape {list(param.shape)} and is {given}: was the supernet made "
                    "for another table?"
                )

    @property
    def id(self) -> str:
        """A hash of the weights, which identifies them in stores."""
        content = (part for name, w in self.weights.items() for part in (name, w.detach().cpu().numpy().tobytes()))
        return f"{self.space.name}-{digest(*content)[:16]}"

    def inherited(self, places: Mapping[str, Places]) -> dict[str, Tensor]:
        """Copies of the parts of the weights at these places."""
        return {name: taken(self.weights[name], where).clone() for name, where in places.items()}

    def network(self, path: Choices, batch: Batch) -> PlanNetwork:
        """A sub-network for scoring on data in one table, with copies of its weights."""
        device = next(iter(self.weights.values())).device
        made = self.space.network(path, input_shape=batch.input_shape)
        return PlanNetwork(made.plan, self.inherited(made.places), device)

    def of_named_rows(self, batch: Batch) -> tuple[RecommenderSupernet, Batch]:
        """The supernet without the rows of embeddings that no sample names, and the batch with new ids."""
        x, y = zip(*(batch.part(i) for i in range(batch.parts)), strict=True)
        table, labels = torch.cat(x), None if y[0] is None else torch.cat(y)
        named, ids = named_rows(ids_in(table, self.space.tables))
        left = {name: weight[named[name]] if name in named else weight for name, weight in self.weights.items()}
        space = replace(self.space, tables=tuple(len(rows) for rows in named.values()))
        few = from_tensors(
            (table[:, : self.space.dense], ids), labels, parts=batch.parts, num_classes=batch.num_classes
        )
        return RecommenderSupernet(space, left), few

    def scores(
        self, archs: Sequence[Choices], proxies: Sequence[Proxy], batch: Batch, seed: int = 0
    ) -> list[dict[str, Score]]:
        """The scores of each sub-network with its inherited weights."""
        supernet = self
        if OF_GRADIENTS.issuperset(proxy.name for proxy in proxies):
            supernet, batch = self.of_named_rows(batch)
        networks = (supernet.network(arch, batch) for arch in archs)
        return [scored.scores for scored in score_population(networks, proxies, batch, seed)]


def named_rows(ids: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """The rows of each embedding table that a batch names, and the ids [B, F] as indices of these rows."""
    columns = [column.unique(return_inverse=True) for column in ids.unbind(1)]  # type: ignore[no-untyped-call]
    rows = {f"{TABLE}{field}": rows for field, (rows, _) in enumerate(columns)}
    return rows, torch.stack([indices for _, indices in columns], 1)
