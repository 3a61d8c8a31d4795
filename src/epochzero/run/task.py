"""What is to be scored, on what, with which weights: everything but the architectures."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch

from epochzero.data import Batch
from epochzero.engine import PlanNetwork, Proxy, score_population
from epochzero.errors import UserError
from epochzero.plan import Plan
from epochzero.plan.init import check
from epochzero.spaces.base import Space
from epochzero.store import Evaluated, Run, Store
from epochzero.types import Origin, Score, Setting


@dataclass(frozen=True)
class Task:
    """Scores architectures of a space, looking up first what the store has."""

    space: Space
    proxies: Sequence[Proxy]
    batch: Batch
    origin: Origin = Origin()
    device: str = "cpu"

    def __post_init__(self) -> None:
        check(self.origin)
        usable(self.device)

    @property
    def setting(self) -> Setting:
        return Setting(self.space.name, self.batch.id, str(self.origin))

    def plan(self, arch: Any) -> Plan:
        return self.space.plan(arch, self.batch.num_classes, self.batch.input_shape)

    def score(self, archs: Sequence[Any]) -> list[tuple[dict[str, Score], float]]:
        """The scores of each architecture by proxy, with the seconds that they took."""
        networks = (PlanNetwork(partial(self.plan, arch), self.origin, self.device) for arch in archs)
        scored = score_population(networks, self.proxies, self.batch, self.origin.seed)
        return [(one.scores, one.seconds) for one in scored]

    def evaluate(self, archs: Sequence[Any], store: Store, run: Run, step: int) -> tuple[list[dict[str, Score]], float]:
        """Scores from the store or computed now, recorded as steps of the run; and the seconds it took."""
        texts = [self.space.text(arch) for arch in archs]
        names = [proxy.text for proxy in self.proxies]
        known = {name: store.scores(self.setting, name, texts) for name in names}
        missing = [i for i, text in enumerate(texts) if any(text not in known[name] for name in names)]
        start = time.perf_counter()
        computed = dict(zip(missing, self.score([archs[i] for i in missing]), strict=True)) if missing else {}
        seconds = time.perf_counter() - start
        results, rows = [], []
        for i, text in enumerate(texts):
            fresh, took = computed.get(i, ({}, 0.0))
            scores = {name: known[name].get(text) or fresh[name] for name in names}
            results.append(scores)
            rows.append(Evaluated(step + i, text, {name: (score, took) for name, score in scores.items()}))
        run.record(self.setting, rows)
        return results, seconds


def usable(device: str) -> None:
    """UserError for a device that this machine does not have."""
    try:
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).strip().splitlines()[0].split(". ")[0]
        raise UserError(f"The device '{device}' cannot be used here ({reason}): try cpu.") from None
