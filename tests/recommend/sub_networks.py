"""Sub-networks inside the shared weights of a supernet, the oracle for the copies that the product scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from epochzero.data import Batch
from epochzero.engine import PlanNetwork, Proxy, score_population
from epochzero.plan import Plan
from epochzero.plan.ops.base import Jet, Kind, Op, Param
from epochzero.plan.ops.sliced import Places, length, taken
from epochzero.recommend.spaces.nasrec import Choices
from epochzero.recommend.supernet.weights import RecommenderSupernet
from epochzero.types import Score, Shape


@dataclass(frozen=True, slots=True)
class Sliced(Op):
    """An op with parts of its parameters in place of the whole ones."""

    op: Op
    whole: tuple[Shape, ...]
    """the shapes of its parameters, of which it takes parts"""
    places: tuple[Places, ...]

    @property
    def kind(self) -> Kind:  # type: ignore[override]
        return self.op.kind

    @property
    def linear(self) -> bool:  # type: ignore[override]
        return self.op.linear

    def shape(self, *inputs: Shape) -> Shape:
        return self.op.shape(*inputs)

    def params(self, *inputs: Shape) -> dict[str, Param]:
        own = self.op.params(*inputs)
        for (name, param), places in zip(own.items(), self.places, strict=True):
            if param.shape != tuple(map(length, places)):
                raise ValueError(f"{self.op} has {name!r} of shape {param.shape}, and the part of it is another")
        return {name: replace(own[name], shape=shape) for name, shape in zip(own, self.whole, strict=True)}

    def macs(self, *inputs: Shape) -> int:
        return self.op.macs(*inputs)

    def _parts(self, w: Sequence[Tensor]) -> tuple[Tensor, ...]:
        return tuple(taken(whole, places).contiguous() for whole, places in zip(w, self.places, strict=True))

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        return self.op.run(x, self._parts(w))

    def jet(self, x: tuple[Jet, ...], w: tuple[Tensor, ...]) -> Jet:
        return self.op.jet(x, self._parts(w))

    def label(self) -> str:
        return self.op.label()


def inside(supernet: RecommenderSupernet, path: Choices, input_shape: Shape | None = None) -> Plan:
    """A path as a plan whose ops take parts of the shared weights themselves."""
    made = supernet.space.network(path, input_shape=input_shape)
    nodes = []
    for node in made.plan.nodes:
        whole = tuple(supernet.params[name].shape for name in node.params)
        places = tuple(made.places[name] for name in node.params)
        nodes.append(node._replace(op=Sliced(node.op, whole, places)) if node.params else node)
    used = dict.fromkeys(name for node in nodes for name in node.params)
    return Plan.of(nodes, made.plan.flops, {name: supernet.params[name] for name in used})


def scores_inside(
    supernet: RecommenderSupernet, archs: Sequence[Choices], proxies: Sequence[Proxy], batch: Batch
) -> list[dict[str, Score]]:
    plans = [inside(supernet, arch, batch.input_shape) for arch in archs]
    networks = (PlanNetwork(plan, {name: supernet.weights[name] for name in plan.weights}) for plan in plans)
    return [one.scores for one in score_population(networks, proxies, batch, 0)]
