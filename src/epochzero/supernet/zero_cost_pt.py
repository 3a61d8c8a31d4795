r"""Zero-Cost-PT: decide the edges of an untrained supernet one by one, by what a proxy says once an operation is gone.

A proposal: all edges in random order (one of each kind of cell in a step), on each the operation without which the
score is worst,

    o* = argmin_o  S(supernet with o removed from the edge)

The other |O| - 1 operations of that edge have the weight 1/|O| each; undecided edges keep softmax(alpha) with
alpha ~ 1e-3 N(0, 1), decided ones have their operation alone. Then, at each node that more than two edges reach, the
edge without which the score is best goes, until two are left; this stage goes by naswot, whatever the proxy. Each step
has data of its own. The distinct proposals are then scored as networks of their own, naswot on 100 batches and any
other proxy on one, and the best is the architecture.

    steps       decisions: a proposal takes 17 on DARTS (14 edges, 3 nodes) and 6 on NAS-Bench-201; so 170 are the
                ten proposals of the paper, and of Dextr's DARTS search (there with batches of 16)
    proxy       any; one for which lower is better is turned round

Xiang, Dudziak, Abdelfattah, Chau, Lane, Wen. Zero-cost operation scoring in differentiable architecture search.
AAAI 2023. arXiv:2106.06799
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random
from typing import Any

import torch

from epochzero.data import Batch
from epochzero.engine import PlanNetwork, Proxy, parse, score_population
from epochzero.errors import UserError
from epochzero.plan import Plan, generator
from epochzero.plan.init import check
from epochzero.supernet.base import AfterStep, Found, State, methods, resumed, rolled, settings_of
from epochzero.supernet.relaxed import supernet
from epochzero.types import Origin, Score

SPREAD = 1e-3
"""the deviation of alpha"""
KEPT = 2
"""edges that stay at a crowded node"""
PROPOSALS = 10
VALIDATIONS = 100
"""batches on which naswot judges a proposal"""


@methods.registers("zero_cost_pt")
class ZeroCostPT:
    """Zero-Cost-PT on a space that has a supernet of operations."""

    def __init__(
        self,
        space: Any,
        batch: Batch,
        seed: int = 0,
        device: str = "cpu",
        *,
        proxy: str = "naswot",
        edge_proxy: str = "naswot",
        validations: int = 0,
        init: str = "default",
        channels: int = 16,
        cells: int = 0,
    ) -> None:
        if validations < 0 or channels < 2 or channels % 2 or cells < 0:
            raise UserError(
                "Zero-Cost-PT needs an even number of channels, and numbers of validations and cells that are 0 or "
                f"more, not {channels}, {validations} and {cells}."
            )
        self.space, self.batch, self.seed, self.device = space, batch, seed, device
        self.proxy, self.edge_proxy = parse(proxy), parse(edge_proxy)
        self.validations = validations or (VALIDATIONS if self.proxy.name == "naswot" else 1)
        self.origin = Origin(init, seed)
        check(self.origin)
        self.supernet = supernet(space, batch.num_classes, batch.input_shape, channels, cells)
        edges = max(map(len, self.supernet.cells.values()))
        self.each = edges + max(map(len, self.supernet.crowded.values()))
        """steps of one proposal"""
        self.steps = PROPOSALS * self.each
        self._undecided = {edge: self._start(edge) for cell in self.supernet.cells.values() for edge in cell}
        scoring: State = {"proxy": self.proxy.text, "edge_proxy": self.edge_proxy.text, "validations": self.validations}
        network: State = {"init": init, "channels": channels, "cells": cells}
        self._settings = settings_of("zero_cost_pt", space, batch, seed, **scoring, **network)

    def run(self, steps: int, progress: AfterStep | None = None, state: State | None = None) -> Found:
        """Takes steps until there are `steps`; those that do not make up a whole proposal are not taken."""
        if steps < self.each:
            raise UserError(f"A proposal of Zero-Cost-PT takes {self.each} steps here, and the budget is {steps}.")
        steps -= steps % self.each
        fresh: State = {"decided": {}, "cut": [], "proposals": [], "scores": []}
        now: Any = resumed(state, self._settings, steps, fresh)
        while now["step"] < steps:
            now = self._step({**now, "decided": dict(now["decided"])})
            if progress is not None:
                progress(now)
        return self._validated(now)

    def standing(self, state: State) -> str:
        """The last score, and how many proposals there are."""
        now: Any = state
        return f"{self.proxy.text} {now['scores'][-1]:.4g}, {len(now['proposals'])} proposals"

    def _step(self, now: Any) -> Any:
        """One edge or one node of each kind of cell, and after the last of them the proposal."""
        proposal, at = divmod(now["step"], self.each)
        data = rolled(self.batch, now["step"])
        scores = [*now["scores"]]
        for kind, edges in self.supernet.cells.items():
            rng = Random(f"{self.seed}/{proposal}/{at}/{kind}")
            if at < len(edges):
                edge = rng.choice([edge for edge in edges if edge not in now["decided"]])
                now["decided"][edge], score = self._operation(edge, now, data)
                scores.append(score)
            elif waiting := [node for node in self.supernet.crowded[kind] if len(set(node) - set(now["cut"])) > KEPT]:
                now["cut"] = self._cut(rng.choice(waiting), now, data)
        now |= {"step": now["step"] + 1, "scores": scores}
        if at + 1 == self.each:
            kept = {edge: op for edge, op in now["decided"].items() if edge not in now["cut"]}
            text = self.space.text(self.supernet.decode(kept))
            now |= {"decided": {}, "cut": [], "proposals": [*now["proposals"], text]}
        return now

    def _operation(self, edge: str, now: Any, data: Batch) -> tuple[str, float]:
        """The operation without which the score is worst, and that score."""
        ops = self.supernet.ops
        removed = [self._plan(now, {edge: tuple(0.0 if op == gone else 1 / len(ops) for op in ops)}) for gone in ops]
        scores = self._scores(removed, self.proxy, data)
        worst = min((i for i, score in enumerate(scores) if score.ok), key=lambda i: self.proxy.merit(scores[i].value))
        return ops[worst], scores[worst].value

    def _cut(self, node: Sequence[str], now: Any, data: Batch) -> list[str]:
        """All edges that are cut once only two are left at this node."""
        cut = list(now["cut"])
        while len(left := [edge for edge in node if edge not in cut]) > KEPT:
            fewer = [self._plan(now, {gone: (0.0,) * len(self.supernet.ops) for gone in (*cut, edge)}) for edge in left]
            scores = self._scores(fewer, self.edge_proxy, data)
            merits = [self.edge_proxy.merit(score.value) if score.ok else -math.inf for score in scores]
            cut.append(left[merits.index(max(merits))])
        return cut

    def _plan(self, now: Any, changed: dict[str, tuple[float, ...]]) -> Plan:
        ops = self.supernet.ops
        alone = {edge: tuple(float(op == only) for op in ops) for edge, only in now["decided"].items()}
        return self.supernet.plan({**self._undecided, **alone, **changed})

    def _scores(self, plans: Sequence[Plan], proxy: Proxy, data: Batch) -> list[Score]:
        """The scores of networks that share their weights; UserError where none has any."""
        networks = (PlanNetwork(plan, self.origin, self.device) for plan in plans)
        scores = [one.scores[proxy.text] for one in score_population(networks, [proxy], data, self.seed)]
        if not any(score.ok for score in scores):
            raise UserError(f"The proxy {proxy.text} has no score for these networks ({scores[0].why}): use another.")
        return scores

    def _start(self, edge: str) -> tuple[float, ...]:
        alpha = SPREAD * torch.randn(
            len(self.supernet.ops), dtype=torch.float64, generator=generator(self.seed, "zero_cost_pt", "alpha", edge)
        )
        return tuple(torch.softmax(alpha, 0).tolist())

    def _validated(self, now: Any) -> Found:
        """The best of the distinct proposals as networks of their own."""
        texts = list(dict.fromkeys(now["proposals"]))
        plans = [self.supernet.alone(self.space.parse(text)) for text in texts]
        merits = [0.0] * len(texts)
        for i in range(self.validations if len(texts) > 1 else 0):
            scores = self._scores(plans, self.proxy, rolled(self.batch, i))
            of_each = [self.proxy.merit(score.value) if score.ok else -math.inf for score in scores]
            merits = [before + merit for before, merit in zip(merits, of_each, strict=True)]
        best = texts[merits.index(max(merits))]
        judged = dict(zip(texts, merits, strict=True))
        return Found(self.space.parse(best), now["step"], {"score": now["scores"]}, {"proposals": judged}, now)
