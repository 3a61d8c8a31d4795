"""NASRec's spaces as one set of shared weights: each network takes the first features and rows of what it uses.

    supernet = RecommenderSupernet(spaces["nasrec_small"].on(dense=13, tables=(1000,) * 26))
    supernet.network(arch, batch)          the sub-network with weights of its own, copied from the shared ones
    supernet.inside(arch)                  the same as a plan whose ops take parts of the shared weights

Both compute the same, and sigeo, zico and others that read gradients score both alike: what a sub-network does not use
has a gradient of zero. Those that read weights by themselves (params, l2_norm) or draw them anew see the whole ones
inside; so copies are scored, unless asked. For proxies of gradients the copies lack the rows of embeddings that no
sample names, which add nothing to these and on Criteo are most. Where a weight of the supernet lies in a sub-network,
and how that differs from NASRec's masks, is told in recommend/spaces/nasrec_network.py.

Zhang, Cheng, et al. NASRec: weight sharing neural architecture search for recommender systems. WWW 2023.
arXiv:2207.07187
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
from epochzero.plan import Node, Plan
from epochzero.plan.init import draw
from epochzero.plan.ops.embedding import ids_in
from epochzero.plan.ops.sliced import Places, Sliced, taken
from epochzero.recommend.spaces.nasrec import BLOCKS, Choices, Nasrec
from epochzero.recommend.spaces.nasrec_network import Block
from epochzero.types import Origin, Score, Shape

NASRECS = Origin("xavier")
"""as the published code draws, but for linear layers normal instead of uniform, of the same variance"""

TABLE = "embedding.table"
"""how the names of embeddings begin"""
OF_GRADIENTS = {"grad_norm", "plain", "sigeo", "snip", "zico"}
"""proxies to which a weight whose gradient is zero adds nothing"""


def full_path(space: Nasrec) -> Choices:
    """Every op of every block at its greatest size, reading every earlier output."""
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
        """Weights are drawn, or given: then they are used as they are, and trained in place."""
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
            raise UserError(f"These are no weights of a supernet of {self.space.name}: {wrong[0]!r} does not belong.")
        for name, param in self.params.items():
            if tuple(weights[name].shape) != param.shape:
                given = list(weights[name].shape)
                raise UserError(
                    f"The weight {name!r} should be of shape {list(param.shape)} and is {given}: was the supernet made "
                    "for another table?"
                )

    @property
    def id(self) -> str:
        """A hash of the weights, for stores."""
        content = (part for name, w in self.weights.items() for part in (name, w.detach().cpu().numpy().tobytes()))
        return f"{self.space.name}-{digest(*content)[:16]}"

    def inherited(self, places: Mapping[str, Places]) -> dict[str, Tensor]:
        """Copies of the parts of the weights at these places."""
        return {name: taken(self.weights[name], where).clone() for name, where in places.items()}

    def inside(self, path: Choices, input_shape: Shape | None = None) -> Plan:
        """A sub-network, or any path, as a plan on the shared weights themselves."""
        made = self.space.network(path, input_shape=input_shape)
        nodes = tuple(self._sharing(node, made.places) for node in made.plan.nodes)
        used = dict.fromkeys(name for node in nodes for name in node.params)
        return Plan.of(nodes, made.plan.flops, {name: self.params[name] for name in used})

    def _sharing(self, node: Node, places: Mapping[str, Places]) -> Node:
        if not node.params:
            return node
        whole = tuple(self.params[name].shape for name in node.params)
        return node._replace(op=Sliced(node.op, whole, tuple(places[name] for name in node.params)))

    def network(self, path: Choices, batch: Batch, inside: bool = False) -> PlanNetwork:
        """A sub-network for scoring on data in one table: a copy, or inside the supernet."""
        device = next(iter(self.weights.values())).device
        if inside:
            plan = self.inside(path, batch.input_shape)
            return PlanNetwork(plan, {name: self.weights[name] for name in plan.weights}, device)
        made = self.space.network(path, input_shape=batch.input_shape)
        return PlanNetwork(made.plan, self.inherited(made.places), device)

    def of_named_rows(self, batch: Batch) -> tuple[RecommenderSupernet, Batch]:
        """Without the rows of embeddings that no sample names, and the batch with ids that count those left."""
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
        self, archs: Sequence[Choices], proxies: Sequence[Proxy], batch: Batch, seed: int = 0, inside: bool = False
    ) -> list[dict[str, Score]]:
        """What the proxies say of each sub-network with the weights that it inherits."""
        supernet = self
        if not inside and OF_GRADIENTS.issuperset(proxy.name for proxy in proxies):
            supernet, batch = self.of_named_rows(batch)
        networks = (supernet.network(arch, batch, inside) for arch in archs)
        return [scored.scores for scored in score_population(networks, proxies, batch, seed)]


def named_rows(ids: Tensor) -> tuple[dict[str, Tensor], Tensor]:
    """Of each table the rows that a batch names, and the ids [B, F] as numbers of these."""
    found = [column.unique(return_inverse=True) for column in ids.unbind(1)]  # type: ignore[no-untyped-call]
    rows = {f"{TABLE}{field}": rows for field, (rows, _) in enumerate(found)}
    return rows, torch.stack([numbers for _, numbers in found], 1)
