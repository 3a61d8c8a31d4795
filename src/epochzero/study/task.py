"""A scoring task: space, proxies, data, weights and executor; everything but the architectures."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from epochzero.errors import UserError
from epochzero.executors.base import Announced, Executor, ScoredBatch
from epochzero.executors.local import LOCAL
from epochzero.objectives.objective import TABLE, is_looked_up
from epochzero.spaces.base import check_complete
from epochzero.store import Evaluated, Run, Store
from epochzero.strict import batch_name
from epochzero.types import Origin, Score, Setting

if TYPE_CHECKING:
    from torch import nn

    from epochzero.data import Batch
    from epochzero.engine import Proxy
    from epochzero.engine.population.grouping import MemoryBudget
    from epochzero.spaces.base import AnySpace, Measured
    from epochzero.study.sources import Source
    from epochzero.types import Footprint


@dataclass(frozen=True)
class Task:
    """Scores architectures of a space, looking up first what the store has."""

    space: AnySpace
    proxies: Sequence[Proxy]
    batch: Batch
    origin: Origin = Origin()
    device: str = "cpu"
    executor: Executor = field(default=LOCAL, repr=False, compare=False)
    """scores what `evaluate` does not find in the store"""
    sources: tuple[Source, ...] = field(default=(), repr=False, compare=False)
    """give the scores of some of the proxies instead"""
    ahead: int = field(default=0, compare=False)
    """batches that a search asks for before the scores of the first are told"""

    def __post_init__(self) -> None:
        from epochzero.engine.device import usable
        from epochzero.plan.init import check

        check_complete(self.space)
        check(self.origin)
        if not self.executor.elsewhere:
            usable(self.device)

    @cached_property
    def _memory(self) -> MemoryBudget:
        from epochzero.engine.population.grouping import MemoryBudget

        return MemoryBudget()

    @property
    def setting(self) -> Setting:
        return Setting(self.space.name, batch_name(self.batch.id), str(self.origin))

    def size(self, arch: Any) -> Measured:
        from epochzero.engine.space_networks import size_of

        return size_of(self.space, arch, self.batch)

    def memory(self, arch: Any) -> Footprint | None:
        """The memory of one sample; None for a module that cannot run without values."""
        from epochzero.engine.failure import PassFailedError
        from epochzero.engine.memory import footprint_of
        from epochzero.engine.space_networks import network_of

        try:
            return footprint_of(network_of(self.space, arch, self.batch, self.origin), self.batch)
        except PassFailedError:
            return None

    def module(self, arch: Any) -> nn.Module:
        """An ordinary module with the weights that the architecture is scored with."""
        from epochzero.engine.space_networks import module_of

        return module_of(self.space, arch, self.batch, self.origin)

    def score(self, archs: Sequence[Any]) -> ScoredBatch:
        """The scores of each architecture by proxy, with the seconds that they took: here and now."""
        from epochzero.engine.score import score_population
        from epochzero.engine.space_networks import network_of

        networks = (network_of(self.space, arch, self.batch, self.origin, self.device) for arch in archs)
        scored = score_population(networks, self.proxies, self.batch, self.origin.seed, memory=self._memory)
        return [(one.scores, one.seconds) for one in scored]

    def by_source(self) -> list[tuple[Source | None, list[Proxy]]]:
        """The proxies of each source; None is the executor. UserError for a column that no table has."""
        by_source: dict[Source | None, list[Proxy]] = {}
        for proxy in self.proxies:
            source = next((source for source in self.sources if source.covers(proxy)), None)
            if source is None and is_looked_up(proxy):
                column = proxy.name.removeprefix(TABLE)
                raise UserError(f"{proxy.name} needs a table with a column '{column}': name one with --table FILE.")
            by_source.setdefault(source, []).append(proxy)
        return list(by_source.items())

    def held(self, archs: Sequence[Any], store: Store) -> list[bool]:
        """For each architecture, true if the store has every score."""
        texts = [self.space.text(arch) for arch in archs]
        known = [
            store.scores(self._setting(source), proxy.key, texts)
            for source, proxies in self.by_source()
            for proxy in proxies
        ]
        return [all(text in scores for scores in known) for text in texts]

    def _setting(self, source: Source | None) -> Setting:
        """The setting of a source's scores, or of the executor's."""
        return self.setting if source is None else Setting(self.space.name, source.name, "looked up")

    def evaluate(
        self, archs: Sequence[Any], store: Store, run: Run | None, step: int, new: set[int] | None = None
    ) -> tuple[list[dict[str, Score]], float]:
        """Returns scores from the store, or computed or looked up now, and the seconds that took.

        They are recorded as steps of the run, if there is one. The indices of architectures for which the store lacked
        a score are added to `new`.
        """
        new = set() if new is None else new
        if not self.sources:
            return self._evaluate(None, archs, store, run, step, new)
        scores: list[dict[str, Score]] = [{} for _ in archs]
        seconds = 0.0
        for source, proxies in self.by_source():
            part = replace(self, proxies=proxies, sources=())
            more, took = part._evaluate(source, archs, store, run, step, new)
            scores = [old | added for old, added in zip(scores, more, strict=True)]
            seconds += took
        return [{proxy.text: one[proxy.text] for proxy in self.proxies} for one in scores], seconds

    def begin(self, archs: Sequence[Any], store: Store) -> None:
        """Lets the executor begin with the scores that `evaluate` will ask it for, if it takes announcements."""
        if not isinstance(self.executor, Announced):
            return
        for source, proxies in self.by_source():
            if source is None:
                part = replace(self, proxies=proxies, sources=())
                texts = [self.space.text(arch) for arch in archs]
                for its_part, lacking in part._lacking(part._known(self.setting, texts, store)):
                    self.executor.begin(its_part, [archs[i] for i in lacking])

    def _known(self, setting: Setting, texts: Sequence[str], store: Store) -> list[dict[str, Score]]:
        """The scores of each network that the store has, by proxy."""
        known = {proxy.text: store.scores(setting, proxy.key, texts) for proxy in self.proxies}
        return [{name: scores[text] for name, scores in known.items() if text in scores} for text in texts]

    def _lacking(self, known: Sequence[Mapping[str, Score]]) -> Iterator[tuple[Task, list[int]]]:
        """Tasks of the proxies that networks lack, with the indices of those that lack the same ones."""
        names = [proxy.text for proxy in self.proxies]
        lacks = [frozenset(names).difference(scores) for scores in known]
        for missing in dict.fromkeys(filter(None, lacks)):
            part = replace(self, proxies=[proxy for proxy in self.proxies if proxy.text in missing])
            yield part, [i for i, lack in enumerate(lacks) if lack == missing]

    def _evaluate(
        self, source: Source | None, archs: Sequence[Any], store: Store, run: Run | None, step: int, new: set[int]
    ) -> tuple[list[dict[str, Score]], float]:
        """The same by one source, or by the executor."""
        setting = self._setting(source)
        score = self.executor.score if source is None else source.score
        texts = [self.space.text(arch) for arch in archs]
        keys = {proxy.text: proxy.key for proxy in self.proxies}
        known = self._known(setting, texts, store)
        timed = [{name: (score_, 0.0) for name, score_ in scores.items()} for scores in known]
        start = time.perf_counter()
        for part, lacking in self._lacking(known):
            new.update(lacking)
            scored = score(part, [archs[i] for i in lacking])
            for i, (scores, took) in zip(lacking, scored, strict=True):
                timed[i] |= {name: (score_, took / len(scores)) for name, score_ in scores.items()}
        seconds = time.perf_counter() - start
        kept = [{keys[name]: score_ for name, score_ in scores.items()} for scores in timed]
        if run is not None:
            run.record(setting, [Evaluated(step + i, text, kept[i]) for i, text in enumerate(texts)])
        return [{name: scores[name][0] for name in keys} for scores in timed], seconds
