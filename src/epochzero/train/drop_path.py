r"""Scheduled drop path: a path into a sum is left out for some samples, so that no path can rely on the others.

    y = sum_i m_i x_i / (1 - d)        m_i ~ Bernoulli(1 - d), drawn anew for each sample and path

Skips are never dropped. Larsson, Maire, Shakhnarovich. FractalNet. ICLR 2017. arXiv:1605.07648; scheduled by Zoph et
al. CVPR 2018. arXiv:1707.07012
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from epochzero.plan import Plan
from epochzero.plan.ops.base import Op
from epochzero.plan.ops.wiring import Add, Identity


@dataclass(frozen=True, slots=True, eq=False)
class DroppingSum(Op):
    """The sum of its inputs, some of them dropped at random."""

    droppable: tuple[bool, ...]
    often: float
    rng: Generator
    unique = True

    def run(self, x: tuple[Tensor, ...], w: tuple[Tensor, ...]) -> Tensor:
        total: Tensor | None = None
        for term, may_go in zip(x, self.droppable, strict=True):
            kept = self._dropped(term) if may_go else term
            total = kept if total is None else total + kept
        assert total is not None
        return total

    def _dropped(self, x: Tensor) -> Tensor:
        shape = (len(x), *[1] * (x.dim() - 1))
        kept = torch.rand(shape, generator=self.rng) >= self.often  # [B, 1, 1, 1]
        return x * (kept / (1 - self.often)).to(x.device, x.dtype)


def with_drop_path(plan: Plan, often: float, rng: Generator) -> Plan:
    """The same network with this share of its paths dropped at random during training."""
    if not often:
        return plan
    readers = Counter(source for node in plan.nodes for source in node.inputs)

    def is_path(source: int) -> bool:
        """True if only the sum reads this value. A value that others read too is a skip connection, as is Identity."""
        return readers[source] == 1 and not isinstance(plan.nodes[source].op, Identity)

    nodes = [
        node._replace(op=DroppingSum(tuple(map(is_path, node.inputs)), often, rng))
        if isinstance(node.op, Add)
        else node
        for node in plan.nodes
    ]
    return Plan.of(tuple(nodes), plan.flops, plan.weights, plan.auxiliary)
