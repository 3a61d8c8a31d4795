"""A relaxed network: every option of every choice side by side, weighted by vectors that are inputs of the plan.

    node = sum over options o of  w_o  *  what option o gives

With one-hot weights it is the network of one architecture. `relax(space, ...)` makes it for a space; each file of this
package that knows a space adds to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch
from typing import Any, NamedTuple

import torch
from torch import Tensor

from epochzero.errors import UserError
from epochzero.plan import Builder, Node, Plan
from epochzero.plan.ops.mixture import Mixture, Scaled, Selected, WeightedSum
from epochzero.plan.ops.wiring import Add, Input, Zero
from epochzero.types import Shape

Picks = Mapping[str, tuple[int, ...]]
"""for each choice the numbers of the options that were chosen, the best first"""
MIXTURE, SUM = Mixture(), Add()


@dataclass(frozen=True)
class Choice:
    """One decision of an architecture."""

    name: str
    options: tuple[str, ...]
    draws: int = 1
    """how many options a sampled network has at a time"""
    picks: int = 1
    """how many the architecture that comes out has"""


@dataclass(frozen=True)
class Relaxed:
    """A network of all architectures of a space."""

    plan: Plan
    """its inputs: images, then one vector of weights for each choice, in their order"""
    choices: tuple[Choice, ...]
    decode: Callable[[Picks], Any]
    """the architecture of the space that these picks stand for"""

    def sampled(self, weights: Sequence[Tensor]) -> list[str]:
        """The trainable parameters of the network that is left where weights are zero.

        The loss does not depend on any other: its gradient is zero, and so is any derivative of the square of that.
        """
        reached = self._reached(weights, through_cuts=False)
        names = dict.fromkeys(name for i in reached for name in self.plan.nodes[i].params)
        return [name for name in names if self.plan.weights[name].trainable]

    def connects(self, picks: Picks) -> bool:
        """Whether a path leads from the images to the output of the network of these picks."""
        rows = (torch.zeros(len(choice.options)) for choice in self.choices)
        chosen = (torch.tensor(picks[choice.name]) for choice in self.choices)
        weights = [row.index_fill(0, own, 1) for row, own in zip(rows, chosen, strict=True)]
        return self.plan.inputs[0] in self._reached(weights, through_cuts=False)

    def network(self, weights: Sequence[Tensor], shifted: bool = False) -> Plan:
        """The network that weights of zero and one sample, without what it does not use.

        With `shifted`, a map is added to each node that reads weights: an input of the plan by the name of that node.
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
        """The whole network for weights of zero and one: every option is run, those of weight zero are not added."""
        on, nodes = self._on(weights), list(self.plan.nodes)
        for i, node in enumerate(nodes):
            if isinstance(node.op, Mixture):
                used = tuple(option for option, used in enumerate(on[node.inputs[0]]) if used)
                nodes[i] = node._replace(op=Selected(used))
        return Plan.of(tuple(nodes), self.plan.flops, self.plan.weights)

    def _on(self, weights: Sequence[Tensor]) -> dict[int, list[bool]]:
        """For each input of weights, which are not zero."""
        return {self.plan.inputs[i]: vector.ne(0).tolist() for i, vector in enumerate(weights, start=1)}

    def _reached(self, weights: Sequence[Tensor], through_cuts: bool) -> list[int]:
        """The nodes on the way back from the output that skips terms of weight zero, in order."""
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
    """The relaxed network of a space for this task; `cells` 0 stands for as many as the space's paper searches with."""
    raise UserError(
        f"The space '{getattr(space, 'name', space)}' has no relaxed network: "
        "use nb201, darts, nb1shot1_s1, nb1shot1_s2 or nb1shot1_s3."
    )


class Usual(NamedTuple):
    """How NASI searches a space unless told otherwise."""

    steps: int = 100
    nu: str = "mean"
    without: str = ""
    cells: int = 0


@singledispatch
def usual(space: Any) -> Usual:
    """Those of the paper, but for spaces of which better ones were measured."""
    return Usual()


def mix(net: Builder, blocks: Mapping[str, Plan], x: int, weights: int | Sequence[float], name: str) -> int:
    """What the blocks make of node x, summed with the weights: a node of the plan that holds them, or numbers.

    A block whose number is 0 is left out, and so may not be all of them.
    """
    if isinstance(weights, int):
        terms = [net.inline(block, x, name=f"{name}.{option}") for option, block in blocks.items()]
        return net.add(MIXTURE, weights, *terms, name=f"{name}.mixture")
    kept = {option: weight for option, weight in zip(blocks, weights, strict=True) if weight}
    terms = [net.inline(blocks[option], x, name=f"{name}.{option}") for option in kept]
    return net.add(WeightedSum(tuple(kept.values())), *terms, name=f"{name}.mixture")
