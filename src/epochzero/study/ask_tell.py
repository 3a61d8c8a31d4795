"""A search that asks for architectures and is told their scores, for people who evaluate networks themselves."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from epochzero.errors import UserError
from epochzero.objectives.objective import FEEDBACK, Objective, looked_up
from epochzero.quantities import count
from epochzero.registry import searches, spaces
from epochzero.spaces.budget import Budget
from epochzero.store import Evaluated, Store, manifest
from epochzero.store.database import MEMORY
from epochzero.study.loop import make_search
from epochzero.study.methods.base import Pooling
from epochzero.study.result import Result
from epochzero.study.task import Task
from epochzero.types import Score, Setting

if TYPE_CHECKING:
    from epochzero.spaces.base import AnySpace


class Study:
    """Proposes architectures of a space by any search method, and learns from the scores it is told.

    study = Study(space="nb201", method="evolution", seed=0, store="study.db")
    archs = study.ask(8)
    study.tell(archs, [train_and_test(arch) for arch in archs])
    study.result().best.text

    Higher scores are better; None, nan or a failed `Score` is a network without one. With a store on disk, the same
    program resumes: `ask` skips what the store knows already. Scores are stored under `name`, so that studies with
    different ways of scoring should have different names.
    """

    kind: type[Result] = Result

    def __init__(
        self,
        space: str | AnySpace = "nb201",
        method: str = "evolution",
        *,
        seed: int = 0,
        store: str | Path = ":memory:",
        name: str = "told",
        options: Mapping[str, Any] | None = None,
        max_params: str | float | None = None,
        max_flops: str | float | None = None,
    ) -> None:
        from epochzero.engine.space_networks import batch_for

        if isinstance(searches[method], Pooling):
            raise UserError(f"The search {method} scores a pool of its own first: use epochzero.search.")
        if getattr(searches[method], "fewest", 1) > 1:
            raise UserError(f"The search {method} needs several objectives: use epochzero.search.")
        self.space: AnySpace = spaces[space] if isinstance(space, str) else space
        proxy = looked_up(f"{FEEDBACK}{name}")
        self._proxy = proxy
        self._result = self.kind(Task(self.space, (proxy,), batch_for(self.space, size=1)), Objective((proxy,)))
        self._result.method = method
        self._store = Store.open(store)
        self._setting = Setting(self.space.name, proxy.name, "looked up")
        limits = Budget(count(max_params, "max_params"), count(max_flops, "max_flops"))
        self._result.limits, options = limits, dict(options or {})
        self._search = make_search(self._result, seed, options, self._store, lambda result: None)
        settings = {
            "space": self.space.name,
            "proxy": proxy.text,
            "method": method,
            "options": options,
            "seed": seed,
            "max_params": limits.max_params,
            "max_flops": limits.max_flops,
        }
        self._run = self._store.begin_run("study", settings, manifest(settings))
        self._result.run = self._run.id
        self._result.store = None if self._store.path == MEMORY else self._store.path
        self._asked: deque[list[Any]] = deque()
        """batches that the search does not know the scores of yet"""
        self._steps: dict[Any, int] = {}
        """of the architectures in these batches"""
        self._told: dict[Any, Score] = {}

    def ask(self, n: int = 1) -> list[Any]:
        """Returns at most n architectures to evaluate; none when the space is exhausted."""
        while archs := self._search.ask(n):
            first = self._result.evaluated + len(self._steps)
            self._steps |= {arch: first + place for place, arch in enumerate(archs)}
            self._asked.append(archs)
            texts = {self.space.text(arch): arch for arch in archs}
            known = self._store.scores(self._setting, self._proxy.key, list(texts))
            self._result.recalled += len(known)
            self._learn({texts[text]: score for text, score in known.items()})
            if len(known) < len(archs):
                return [arch for text, arch in texts.items() if text not in known]
        return []

    def tell(self, archs: Sequence[Any], scores: Sequence[float | Score | None]) -> None:
        """Stores the scores of architectures that were asked for; the search learns from whole batches."""
        if len(archs) != len(scores):
            raise UserError(f"{len(archs)} architectures cannot have {len(scores)} scores: give one for each.")
        for arch in archs:
            if arch not in self._steps or arch in self._told:
                raise UserError(f"{self.space.text(arch)} was not asked for, or its score is known already.")
        self._learn({arch: _score(score) for arch, score in zip(archs, scores, strict=True)})

    def result(self) -> Result:
        """The result so far; its `best` is None while nothing has a score."""
        self._result.seconds = self._result.clock.seconds
        return self._result

    def _learn(self, scores: Mapping[Any, Score]) -> None:
        """Stores scores, and passes whole batches on to the search in the order of asking."""
        key, text = self._proxy.key, self.space.text
        steps = [Evaluated(self._steps[arch], text(arch), {key: (score, 0.0)}) for arch, score in scores.items()]
        if steps:
            self._run.record(self._setting, steps)
        self._told |= scores
        while self._asked and all(arch in self._told for arch in self._asked[0]):
            batch = self._asked.popleft()
            told = [{self._proxy.text: self._told.pop(arch)} for arch in batch]
            for arch in batch:
                del self._steps[arch]
            merits, _ = self._result.tell(batch, told)
            self._search.tell(batch, merits)

    def close(self) -> None:
        """Closes the store."""
        self._store.close()

    def __enter__(self) -> Study:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _score(told: float | Score | None) -> Score:
    if isinstance(told, Score):
        return told
    value = math.nan if told is None else float(told)
    return Score(value) if math.isfinite(value) else Score.failed(f"no score, but {told}")
