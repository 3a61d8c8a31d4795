"""Networks with all options of every choice, weighted by inputs of the plan (`Relaxed`) or numbers (`Supernet`).

    node = sum over options o of  w_o  *  what option o gives

With one-hot weights it is the network of one architecture. `relax(space, ...)` and `supernet(space, ...)` make one for
a space; each file of this package named for a space registers its own. NASI searches in a relaxed network, Zero-Cost-PT
in a supernet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from epochzero.errors import UserError
from epochzero.plan import Builder, Node, Plan
from epochzero.plan.ops.mixture import Mixture, Scaled, Selected, WeightedSum
from epochzero.plan.ops.wiring import Add, Input, Zero
from epochzero.types import Shape

Picks = Mapping[str, tuple[int, ...]]
"""For each choice the numbers of the chosen options, the best first."""
MIXTURE, SUM = Mixture(), Add()


@dataclass(frozen=True)
class Choice:
    """One decision of an architecture."""

    name: str
    options: tuple[str, ...]
    draws: int = 1
    """number of options in a sampled network"""
    picks: int = 1
    """number of options in the resulting architecture"""


@dataclass(frozen=True)
class Relaxed:
    """A network of all architectures of a space, with weights as inputs."""

    plan: Plan
    """plan with inputs: images, then one vector of weights per choice, in order"""
    choices: tuple[Choice, ...]
    decode: Callable[[Picks], Any]
    """returns the architecture of these picks"""

    def sampled(self, weights: Sequence[Tensor]) -> list[str]:
        """Returns the trainable parameters of the network that remains without options of weight zero.

        The loss does not depend on any other parameter: its gradient is zero, and so are derivatives of its square.
        """
        reached = self._reached(weights, through_cuts=False)
        names = dict.fromkeys(name for i in reached for name in self.plan.nodes[i].params)
        return [name for name in names if self.plan.weights[name].trainable]

    def connects(self, picks: Picks) -> bool:
        """Returns True if a path leads from the images to the output in the network of these picks."""
        rows = (torch.zeros(len(choice.options)) for choice in self.choices)
        chosen = (torch.tensor(picks[choice.name]) for choice in self.choices)
        weights = [row.index_fill(0, own, 1) for row, own in zip(rows, chosen, strict=True)]
        return self.plan.inputs[0] in self._reached(weights, through_cuts=False)

    def network(self, weights: Sequence[Tensor], shifted: bool = False) -> Plan:
        """Returns the network for weights of zero and one, without unused parts.

        With `shifted`, a map is added to each node that reads weights: an input of the plan with that node's name.
        """
        on, place, nodes = self._on(weights), dict[int, int](), list[Node]()
        for i in self._reached(weights, through_cuts=True):
            node = self.plan.nodes[i]
            weighed = isinstance(node.op, (Mixture, Scaled))
            if isinstance(node.op, Mixture):
                node = node._replace(op=SUM, inputs=_used(node, on))
            elif isinstance(node.op, Scaled):
                node = node._replace(op=SUM if on[node.inputs[0]][node.op.index] else Zero(), inputs=node.inputs[1:])
            place[i] = len(nodes)
            nodes.append(node._replace(inputs=tuple(place[s] for s in node.inputs)))
            if shifted and weighed:
                shift = Node(Input(node.shape), (), node.name, node.shape, ())
                nodes += shift, Node(SUM, (place[i], place[i] + 1), f"{node.name}.shifted", node.shape, ())
                place[i] += 2
        names = dict.fromkeys(name for node in nodes for name in node.params)
        return Plan.of(tuple(nodes), self.plan.flops, {name: self.plan.weights[name] for name in names})

    def selected(self, weights: Sequence[Tensor]) -> Plan:
        """Returns the network for weights of zero and one that runs all options and adds those of weight one."""
        on, nodes = self._on(weights), list(self.plan.nodes)
        for i, node in enumerate(nodes):
            if isinstance(node.op, Mixture):
                used = tuple(option for option, used in enumerate(on[node.inputs[0]]) if used)
                nodes[i] = node._replace(op=Selected(used))
        return Plan.of(tuple(nodes), self.plan.flops, self.plan.weights)

    def _on(self, weights: Sequence[Tensor]) -> dict[int, list[bool]]:
        """Returns, for each input of weights, which weights are not zero."""
        return {self.plan.inputs[i]: vector.ne(0).tolist() for i, vector in enumerate(weights, start=1)}

    def _reached(self, weights: Sequence[Tensor], through_cuts: bool) -> list[int]:
        """Returns the nodes, in order, that the output depends on without terms of weight zero."""
        nodes, on = self.plan.nodes, self._on(weights)
        reached, waiting = {len(nodes) - 1}, [len(nodes) - 1]
        while waiting:
            node = nodes[waiting.pop()]
            sources = node.inputs
            if isinstance(node.op, Mixture):
                sources = _used(node, on)
            elif isinstance(node.op, Scaled):
                sources = sources[1:] if through_cuts or on[sources[0]][node.op.index] else ()
            elif node.op.kind == "zero" and not through_cuts:
                sources = ()
            new = set(sources) - reached
            reached |= new
            waiting += new
        return sorted(reached)


def _used(mixture: Node, on: Mapping[int, list[bool]]) -> tuple[int, ...]:
    weights, *terms = mixture.inputs
    return tuple(term for term, used in zip(terms, on[weights], strict=True) if used)


@singledispatch
def relax(space: Any, num_classes: int, input_shape: Shape, channels: int, cells: int) -> Relaxed:
    """Returns the relaxed network of a space for this task; `cells` 0 means the number in the space's paper."""
    raise UserError(
        f"The space '{getattr(space, 'name', space)}' has no relaxed network: "
        "use nb201, darts, nb1shot1_s1, nb1shot1_s2 or nb1shot1_s3."
    )


def mix(net: Builder, blocks: Mapping[str, Plan], x: int, weights: int | Sequence[float], name: str) -> int:
    """Adds the weighted sum of the blocks applied to node x; the weights are a node of the plan or numbers.

    Blocks with the number 0 are left out; at least one must remain.
    """
    if isinstance(weights, int):
        terms = [net.inline(block, x, name=f"{name}.{option}") for option, block in blocks.items()]
        return net.add(MIXTURE, weights, *terms, name=f"{name}.mixture")
    kept = {option: weight for option, weight in zip(blocks, weights, strict=True) if weight}
    terms = [net.inline(blocks[option], x, name=f"{name}.{option}") for option in kept]
    return net.add(WeightedSum(tuple(kept.values())), *terms, name=f"{name}.mixture")


Weights = Mapping[str, tuple[float, ...]]
"""For each edge the weight of each operation; weight 0 leaves the operation out, all 0 cut the edge."""


@dataclass(frozen=True)
class Supernet:
    """A network with all operations on all edges, with weights as numbers."""

    ops: tuple[str, ...]
    cells: Mapping[str, tuple[str, ...]]
    """edges of each kind of cell"""
    crowded: Mapping[str, tuple[tuple[str, ...], ...]]
    """for each kind of cell, the groups of edges into one node, of which two may remain"""
    plan: Callable[[Weights], Plan]
    decode: Callable[[Mapping[str, str]], Any]
    """returns the architecture whose edges have these operations; other edges are cut"""
    alone: Callable[[Any], Plan]
    """the network of one architecture at the size of the supernet"""


@singledispatch
def supernet(space: Any, num_classes: int, input_shape: Shape, channels: int, cells: int) -> Supernet:
    """Returns the supernet of a space for this task; `cells` 0 means the number in the space's paper."""
    raise UserError(f"The space '{getattr(space, 'name', space)}' has no supernet of operations: use nb201 or darts.")
