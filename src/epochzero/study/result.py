"""What a search found, as far as it came."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import nn

from epochzero.errors import MachineError, UserError
from epochzero.objectives.objective import Objective
from epochzero.objectives.ranks import Ranking
from epochzero.plan import Plan
from epochzero.spaces.base import GivesPlans
from epochzero.study.clock import Clock
from epochzero.study.methods.base import Floats
from epochzero.study.task import Task
from epochzero.types import Score

TIME_LIMIT = "the time limit"
"""how the reason begins why a search ended early that had no more time"""
LEADERS = 100
"""how many of the best are remembered"""
PATIENCE = {"failed": 32, "degenerate": 128}
"""networks without any score after which a search gives up, where all failed, and where some have no value"""


def enough_without(networks: int, degenerate: bool) -> bool:
    """Whether so many networks without any score leave no hope; `degenerate` where some of them have no value."""
    return networks >= PATIENCE["degenerate" if degenerate else "failed"]


@dataclass(frozen=True)
class Candidate:
    """A network that was looked at."""

    arch: Any
    text: str
    score: Score


@dataclass
class Outcome:
    """What a search found."""

    task: Task
    objective: Objective
    best: Candidate | None = None
    """None while no network has a score"""
    evaluated: int = 0
    steps: int = 0
    """that a search inside one network took"""
    unscored: dict[str, int] = field(default_factory=dict)
    """how many networks have no score, by reason"""
    seconds: float = 0.0
    clock: Clock = field(default_factory=Clock, repr=False)
    run: str = ""
    earlier: tuple[int, float] = (0, 0.0)
    """networks that this run looked at in earlier sittings, and the seconds that their scores took then"""
    recalled: int = 0
    """networks whose scores were all read from the store, a file, whichever run had put them there"""
    stopped: str = ""
    """why it ended before its budget was spent; empty where it did not"""
    pool: str = ""
    """how much of its pool was scored, "12 of 200", where the time was up before it was whole"""
    remarks: list[str] = field(default_factory=list)
    """what else the user should know of how it was found"""
    note: str = ""
    """what it is doing, where that is not looking at networks"""
    _merit: float = -math.inf
    _degenerate: int = 0
    _leaders: list[tuple[float, int, Any, Score]] = field(default_factory=list, repr=False)
    """a heap: merit, minus the step, architecture and score of the best"""
    _archs: list[Any] = field(default_factory=list, repr=False)
    _ranking: Ranking | None = field(default=None, repr=False)
    """of an objective of ranks: all that were told, and how they stand by each proxy"""

    @property
    def text(self) -> str:
        """What it goes by."""
        return self.objective.text

    @property
    def headline(self) -> str:
        """What it has found so far, in a few words."""
        return "" if self.best is None else f"best {self.best.score.value:.4g}"

    @property
    def out_of_time(self) -> bool:
        return self.stopped.startswith(TIME_LIMIT)

    @property
    def scoring_seconds(self) -> float:
        return self.clock.spent["scoring"]

    @property
    def winner(self) -> Candidate:
        if self.best is None:
            raise UserError("The search found no network with a score.")
        return self.best

    @property
    def plan(self) -> Plan:
        """The best network as data; a space of modules has `module` alone."""
        space, batch, best = self.task.space, self.task.batch, self.winner
        if not isinstance(space, GivesPlans):
            raise UserError(f"The space '{space.name}' gives modules and no plans: use module().")
        return space.plan(best.arch, batch.num_classes, batch.input_shape)

    def module(self) -> nn.Module:
        """The best network, ready to train, with the weights that it was scored with."""
        return self.task.module(self.winner.arch)

    def top(self, k: int) -> list[Candidate]:
        """The best k networks, the best first, the earlier of equals before the later; at most 100 are remembered."""
        if self.objective.of_a_set:
            merits = self._merits()
            order = np.lexsort((np.arange(len(merits)), -merits))[: min(k, LEADERS)]
            return [self._candidate(self._archs[i], Score(float(merits[i]))) for i in order if merits[i] > -math.inf]
        return [self._candidate(arch, score) for _, _, arch, score in heapq.nlargest(k, self._leaders, key=_place)]

    def name_winner(self, arch: Any, scores: Mapping[str, Score]) -> None:
        """A network that was looked at is the winner, whatever others scored."""
        if self.objective.of_a_set:
            merit: float | None = float(self._merits()[self._archs.index(arch)])
        else:
            (merit,) = self.objective.merits([scores])
        if merit is not None and merit > -math.inf:
            score = Score(merit) if self.objective.method else scores[self.objective.proxies[0].text]
            self.best = self._candidate(arch, score)

    def hopeless(self) -> bool:
        """Whether so many networks have no score, and none has one, that there is no point in going on."""
        if self.evaluated > sum(self.unscored.values()):
            return False
        return enough_without(self.evaluated, bool(self._degenerate))

    def tell(
        self, archs: Sequence[Any], scores: Sequence[Mapping[str, Score]]
    ) -> tuple[Sequence[float | None], Floats | None]:
        """Count networks and keep the best; their merits, and where ranks moved those of all networks so far."""
        if self.objective.of_a_set:
            return self._rank(archs, scores)
        merits = self.objective.merits(scores)
        for arch, found, merit in zip(archs, scores, merits, strict=True):
            self._count(found, merit)
            if merit is not None:
                score = Score(merit) if self.objective.method else found[self.objective.proxies[0].text]
                self._lead(merit, arch, score)
        return merits, None

    def _rank(
        self, archs: Sequence[Any], scores: Sequence[Mapping[str, Score]]
    ) -> tuple[Sequence[float | None], Floats]:
        self._archs.extend(archs)
        ranking = self._ranking = self._ranking or Ranking(self.objective.method, len(self.objective.proxies))
        ranking.add(np.array([self.objective.row(found) for found in scores]))
        merits = self._merits()
        new = [None if merit == -math.inf else merit for merit in merits[len(merits) - len(archs) :].tolist()]
        for found, merit in zip(scores, new, strict=True):
            self._count(found, merit)
        first = int(merits.argmax())
        if merits[first] > -math.inf:
            self.best = self._candidate(self._archs[first], Score(float(merits[first])))
        return new, merits

    def _merits(self) -> Floats:
        """Of all that were told, by ranks; -inf where a network has none."""
        found = np.empty(0) if self._ranking is None else self._ranking.merits
        return np.where(np.isnan(found), -np.inf, found)

    def _count(self, found: Mapping[str, Score], merit: float | None) -> None:
        self.evaluated += 1
        if merit is None:
            why = self._why_not(found)
            self.unscored[why] = self.unscored.get(why, 0) + 1
            self._degenerate += all(score.status != "failed" for score in found.values())

    def _why_not(self, found: Mapping[str, Score]) -> str:
        return self.objective.why_not(found)

    def _lead(self, merit: float, arch: Any, score: Score) -> None:
        """Keep it if it is one of the best; the first of equals stays."""
        if merit > self._merit:
            self.best, self._merit = self._candidate(arch, score), merit
        place = (merit, -self.evaluated, arch, score)
        if len(self._leaders) < LEADERS:
            heapq.heappush(self._leaders, place)
        elif merit > self._leaders[0][0]:
            heapq.heapreplace(self._leaders, place)

    def _candidate(self, arch: Any, score: Score) -> Candidate:
        return Candidate(arch, self.task.space.text(arch), score)


def nothing_found(outcome: Outcome) -> MachineError:
    """What to raise where no network has a score."""
    why = max(outcome.unscored, key=lambda reason: outcome.unscored[reason], default="no network was looked at")
    if outcome.evaluated == 1:
        return MachineError(f"The one network that was looked at has no {outcome.text} score: {why}")
    return MachineError(f"None of the {outcome.evaluated} networks has a {outcome.text} score; most often: {why}")


def _place(leader: tuple[float, int, Any, Score]) -> tuple[float, int]:
    return leader[:2]
