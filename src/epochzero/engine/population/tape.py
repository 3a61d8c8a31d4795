"""A run of a merged plan whose gradients can be taken any number of times.

Autograd runs one node at a time, and neither sums nor ReLUs, for which it would keep too much. It would add up one full
tensor for each node that reads some maps of a value; here one `GatherSum` does: the gradient of every map is the sum of
the gradients that its readers send.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import GradientEdge, get_gradient_edge

from epochzero.engine.population.grouped_ops import GatherSum, back_sum
from epochzero.plan.execute import Watch, run_nodes
from epochzero.plan.ops.base import Back
from epochzero.plan.plan import Node, Plan

Seen = Callable[[Node, Tensor], None]
"""Called with each node but ReLUs and skips, and the gradient of its output."""


BackSums = dict[tuple[tuple[GatherSum | None, int], ...], GatherSum]
"""sums of gradients by the readers of a value, kept from run to run of the same plan"""
INPUT = ""


class _Local(NamedTuple):
    """The autograd graph of one node."""

    inputs: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    output: GradientEdge
    """not the output itself, which may no longer be needed"""

    def back(self, gradient: Tensor, leaves: list[Tensor]) -> Sequence[Tensor | None]:
        """Returns the gradients of these leaves. A graph of one function runs without autograd's engine."""
        function = self.output.node
        sources = [node for node, _ in function.next_functions]
        simple = bool(sources) and all(node is None or _is_leaf(node) for node in sources)
        if not simple or isinstance(function, BackwardCFunction):
            return torch.autograd.grad(self.output, leaves, gradient, retain_graph=True, allow_unused=True)
        back = function(gradient)  # type: ignore[operator]
        found = zip(sources, back if isinstance(back, tuple) else (back,), strict=False)
        by_leaf = {id(node.variable): own for node, own in found if node is not None}  # type: ignore[attr-defined]
        each = [(leaf, by_leaf.get(id(leaf))) for leaf in leaves]
        return [own if own is None or own.shape == leaf.shape else own.sum_to_size(leaf.shape) for leaf, own in each]


class _Sent(NamedTuple):
    """A gradient sent to a value: of the maps that a gather read of it, or of all of them."""

    gradient: Tensor
    gather: GatherSum | None
    which: int
    """the value is this input of the gather"""


def _read_once(plan: Plan) -> set[int]:
    """Returns the ReLUs whose output only one node reads."""
    readers = Counter(j for node in plan.nodes for j in node.inputs)
    return {j for j, count in readers.items() if count == 1 and plan.nodes[j].op.rectifies}


def _is_leaf(node: Any) -> bool:
    return hasattr(node, "variable")


def _gathers(node: Node) -> bool:
    return isinstance(node.op, GatherSum)


def _skips(node: Node) -> bool:
    """Returns True for a node whose output is its input."""
    return node.op.kind == "identity"


class Tape:
    """The values of one run, kept as far as its backward pass needs them."""

    def __init__(
        self,
        plan: Plan,
        weights: Mapping[str, Tensor],
        inputs: Sequence[Tensor],
        follow: Collection[str],
        follow_inputs: bool = False,
        watch: Watch | None = None,
        sums: BackSums | None = None,
    ) -> None:
        self.plan = plan
        self._local: dict[int, _Local] = {}
        self._backs: dict[int, Back] = {}
        """the backward passes of ops that have their own"""
        self._rectified: dict[int, Tensor] = {}
        self._sole = _read_once(plan)
        self._follow = frozenset(follow)
        self._followed = [False] * len(plan.nodes)
        self._sums: BackSums = {} if sums is None else sums
        for index in plan.inputs:
            self._followed[index] = follow_inputs

        def run(i: int, node: Node, x: tuple[Tensor, ...]) -> Tensor:
            output = self._run(i, node, x, tuple([weights[name] for name in node.params]))
            if watch is not None:
                watch(node, x, output)
            return output

        with torch.no_grad():
            result = run_nodes(plan, inputs, run)[-1]
        assert result is not None
        self.output = result

    def _run(self, i: int, node: Node, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        followed = [self._followed[j] for j in node.inputs]
        named = [name in self._follow for name in node.params]
        self._followed[i] = any(followed) or any(named)
        if not self._followed[i] or node.op.rectifies or node.op.wiring == "sum" or _gathers(node) or _skips(node):
            output = node.op.run(x, w)
            if self._followed[i] and node.op.rectifies:
                self._rectified[i] = output
            return output
        recorded = node.op.recorded(x, w)
        if recorded is not None:
            output, self._backs[i] = recorded
            return output
        with torch.enable_grad():
            inputs = tuple([v.detach().requires_grad_(f) for v, f in zip(x, followed, strict=True)])
            weights = tuple([v.detach().requires_grad_(f) for v, f in zip(w, named, strict=True)])
            output = node.op.run(inputs, weights)
        self._followed[i] = output.requires_grad
        if output.requires_grad:
            self._local[i] = _Local(inputs, weights, get_gradient_edge(output))
        return output.detach()

    @torch.no_grad()
    def gradients(self, of_output: Tensor, names: Collection[str], seen: Seen | None = None) -> dict[str, Tensor]:
        """Returns the gradients of <output, of_output> for those of these parameters on which it depends.

        Only what is followed can be asked for.
        """
        wanted = set(names)
        grads: dict[str, Tensor] = {}
        sent: list[list[_Sent]] = [[] for _ in self.plan.nodes]
        sent[-1].append(_Sent(of_output, None, 0))
        for i in range(len(self.plan.nodes) - 1, -1, -1):
            if not sent[i] or not self._followed[i]:
                continue
            node = self.plan.nodes[i]
            if _skips(node):  # gradients pass through a skip unsummed
                sent[node.inputs[0]] += sent[i]
                sent[i] = []
                continue
            gradient = self._arrived(sent[i], self._rectified.get(i))
            sent[i] = []
            if seen is not None and i not in self._rectified:
                seen(node, gradient)
            if not node.inputs:
                if INPUT in wanted:
                    grads[INPUT] = gradient
            elif isinstance(node.op, GatherSum):
                for which, j in enumerate(node.inputs):
                    sent[j].append(_Sent(gradient, node.op, which))
            elif node.op.rectifies or node.op.wiring == "sum":
                for j in node.inputs:
                    sent[j].append(_Sent(gradient, None, 0))
            elif i in self._backs:
                self._back(i, node, gradient, wanted, grads, sent)
            else:
                self._back_by_autograd(i, node, gradient, wanted, grads, sent)
        return grads

    def _back(
        self,
        i: int,
        node: Node,
        gradient: Tensor,
        wanted: set[str],
        grads: dict[str, Tensor],
        sent: list[list[_Sent]],
    ) -> None:
        source = node.inputs[0]
        through = source in self._sole and node.op.kind == "conv"  # the ReLU before it, by the same kernel
        params = [name in wanted for name in node.params]
        of_inputs, of_params = self._backs[i](gradient, [self._followed[source]], params, through)
        grads |= {name: own for name, own in zip(node.params, of_params, strict=True) if own is not None}
        if of_inputs[0] is not None:
            to = self.plan.nodes[source].inputs[0] if through else source
            sent[to].append(_Sent(of_inputs[0], None, 0))

    def _back_by_autograd(
        self,
        i: int,
        node: Node,
        gradient: Tensor,
        wanted: set[str],
        grads: dict[str, Tensor],
        sent: list[list[_Sent]],
    ) -> None:
        local = self._local[i]
        inputs, weights, _ = local
        places = [j for j, x in zip(node.inputs, inputs, strict=True) if x.requires_grad]
        names = [name for name in node.params if name in wanted]
        leaves = [x for x in inputs if x.requires_grad]
        leaves += [w for name, w in zip(node.params, weights, strict=True) if name in wanted]
        if not leaves:
            return
        back = local.back(gradient, leaves)
        for j, own in zip(places, back, strict=False):
            if own is not None:
                sent[j].append(_Sent(own, None, 0))
        grads |= {name: own for name, own in zip(names, back[len(places) :], strict=True) if own is not None}

    def _arrived(self, sent: list[_Sent], on: Tensor | None) -> Tensor:
        """Sums the gradients sent to a value; `on` is that value where it is the output of a ReLU, passed as well."""
        if all(one.gather is None for one in sent):
            whole, *others = [one.gradient for one in sent]
            for other in others:
                whole = whole + other
            return whole if on is None else torch.ops.aten.threshold_backward(whole, on, 0)
        key = tuple([(gather, which) for _, gather, which in sent])
        if key not in self._sums:
            maps = next((gather.table.sizes[which] for gather, which in key if gather is not None), 1)
            self._sums[key] = back_sum(key, maps)
        gradients = tuple([gradient for gradient, _, _ in sent])
        return self._sums[key].run(gradients, ()) if on is None else self._sums[key].run_where(gradients, on)
