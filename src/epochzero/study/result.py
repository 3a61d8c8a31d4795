"""The result of a search, which grows while the search runs."""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from epochzero.errors import MachineError, UserError
from epochzero.frames import Framed, as_html
from epochzero.objectives.goals import Goals
from epochzero.objectives.objective import Objective
from epochzero.objectives.ranks import Ranking
from epochzero.spaces.budget import Budget
from epochzero.study.clock import Clock
from epochzero.study.facts import INSPECTED, Facts, facts_in
from epochzero.study.front import Front, Member
from epochzero.types import Score

if TYPE_CHECKING:
    from torch import nn

    from epochzero.hardware.latency import LatencyLimit
    from epochzero.plan import Plan
    from epochzero.study.methods.base import Floats
    from epochzero.study.sources import TableSource
    from epochzero.study.task import Task
    from epochzero.supernet import Found

TIME_LIMIT = "the time limit"
"""the start of `stopped` for a search that ran out of time"""
INTERRUPTED = "it was interrupted"
LEADERS = 100
"""best networks that are kept"""
PATIENCE = {"failed": 32, "degenerate": 128}
"""networks without any score after which a search gives up, if all failed, and if some have no value"""


def enough_without(networks: int, degenerate: bool) -> bool:
    """True if a search should give up after this many networks without a score; `degenerate`: some have no value."""
    return networks >= PATIENCE["degenerate" if degenerate else "failed"]


@dataclass(frozen=True)
class Candidate:
    """A network with its score."""

    arch: Any
    text: str
    score: Score


class Evaluation(NamedTuple):
    """One step of a search: a network and its scores by proxy, nan where it has none."""

    step: int
    arch: Any
    text: str
    scores: dict[str, float]


class Result(Framed):
    """The result of a search by any method, so far."""

    def __init__(self, task: Task, objective: Objective | Goals) -> None:
        self.task = task
        self.objective = Objective(objective.proxies) if isinstance(objective, Goals) else objective
        self.front: Front | None = Front(objective) if isinstance(objective, Goals) else None
        """the networks that no other beats in every objective, of a search with several objectives"""
        self.best: Candidate | None = None
        """None while no network has a score"""
        self.method, self.total = "", 0
        """`total` is the budget in networks or steps; 0 where there is none"""
        self.time_limit = math.inf
        """seconds"""
        self.evaluated, self.steps = 0, 0
        """`steps` are those of a search inside one network"""
        self.unscored: dict[str, int] = {}
        """number of networks without a score, by reason"""
        self.seconds, self.clock = 0.0, Clock()
        self.run = ""
        """its id in the store"""
        self.store: str | None = None
        """the file that keeps it; None for a store in memory"""
        self.earlier = (0, 0.0)
        """networks that earlier runs of the same search evaluated, and how many seconds their scores took"""
        self.recalled = 0
        """networks whose scores were all read from the store"""
        self.stopped = ""
        """why it ended before its budget was spent; empty if it did not"""
        self.pool = ""
        """the scored part of its pool, "12 of 200", if there was no time for all of it"""
        self.remarks: list[str] = []
        self.note = ""
        """its present activity, if that is not evaluating networks"""
        self.inside: Found | None = None
        """details of a search inside one network: the weights of its choices, and its trajectory"""
        self.limits = Budget()
        self.limit: LatencyLimit | None = None
        self.accuracies: TableSource | None = None
        """known accuracies to look the winner up in"""
        self._facts: tuple[int, Facts | None] = (0, None)
        """and of how many networks"""
        self._merit, self._degenerate = -math.inf, 0
        self._leaders: list[tuple[float, int, Any, Score]] = []
        """a heap: merit, minus the step, architecture and score of the best"""
        self._archs: list[Any] = []
        self._values = {proxy.text: array("d") for proxy in self.objective.proxies}
        self._ranking: Ranking | None = None
        """for an objective of ranks: all networks, and their ranks by each proxy"""

    def __repr__(self) -> str:
        did = f"{self.steps} steps" if self.steps else f"{self.evaluated} networks"
        best = "no score" if self.best is None else f"{self.headline}, {self.best.text}"
        return f"<Result of {self.method} in {self.task.space.name} by {self.text}: {did}, {best}>"

    @property
    def text(self) -> str:
        """The score or the objectives that the search optimises, as text."""
        return self.objective.text if self.front is None else self.front.goals.text

    @property
    def headline(self) -> str:
        """The best so far, in a few words."""
        if self.front is not None:
            return f"front of {len(self.front)}"
        return "" if self.best is None else f"best {self.best.score.value:.4g}"

    @property
    def time_left(self) -> float:
        """Seconds until the time limit."""
        return self.time_limit - self.clock.seconds

    @property
    def out_of_time(self) -> bool:
        return self.stopped.startswith(TIME_LIMIT)

    @property
    def scoring_seconds(self) -> float:
        return self.clock.spent["scoring"]

    @property
    def winner(self) -> Candidate:
        """The best network; UserError if no network has a score."""
        if self.best is None:
            raise UserError("The search found no network with a score.")
        return self.best

    @property
    def plan(self) -> Plan:
        """The best network as data; a space of modules has `module` alone."""
        space, batch, best = self.task.space, self.task.batch, self.winner
        if not hasattr(space, "plan"):
            raise UserError(f"The space '{space.name}' gives modules and no plans: use module().")
        plan: Plan = space.plan(best.arch, batch.num_classes, batch.input_shape)
        return plan

    def module(self) -> nn.Module:
        """The best network, ready to train, with the weights that it was scored with."""
        return self.task.module(self.winner.arch)

    @property
    def members(self) -> list[Member]:
        """The networks of the front, the best by the first objective first."""
        return self.the_front.members

    @property
    def goals(self) -> Goals:
        return self.the_front.goals

    @property
    def values(self) -> Floats:
        """The scores of all networks that have them, in the order of evaluation [networks, goals]."""
        return self.the_front.values

    @property
    def the_front(self) -> Front:
        """The front; UserError for a search by one objective."""
        if self.front is None:
            raise UserError("A search by one objective has no front: use top(), or search by several objectives.")
        return self.front

    @property
    def history(self) -> list[Evaluation]:
        """Every network with its scores, in the order of evaluation."""
        return self.since(0)

    def since(self, first: int) -> list[Evaluation]:
        """The history from a step on."""
        text, columns = self.task.space.text, self._values.items()
        return [
            Evaluation(step, arch, text(arch), {name: column[step] for name, column in columns})
            for step, arch in enumerate(self._archs[first:], first)
        ]

    @property
    def standing(self) -> dict[str, float]:
        """The best so far, or the size of the front, by name."""
        if self.front is not None:
            return {"front": float(len(self.front))}
        return {} if self.best is None else {"best": self.best.score.value}

    @property
    def summary(self) -> dict[str, Any]:
        """The outcome in plain values."""
        found = {"arch": None} if self.best is None else {"arch": self.best.text, "score": self.best.score.value}
        did = {"evaluated": self.evaluated or self.steps, "seconds": self.seconds, "stopped": self.stopped}
        return found | self.standing | did | {"run": self.run}

    def table(self) -> dict[str, list[Any]]:
        """The history as columns, `arch` and one per proxy; also `to_pandas()` and `to_polars()`."""
        texts = [self.task.space.text(arch) for arch in self._archs]
        return {"arch": texts, **{name: column.tolist() for name, column in self._values.items()}}

    @property
    def facts(self) -> Facts | None:
        """Facts of its first networks; None if one of them cannot run."""
        inspected = min(len(self._archs), INSPECTED)
        if self._facts[0] != inspected:
            self._facts = inspected, facts_in(self.task, self._archs)
        return self._facts[1]

    @property
    def merits(self) -> list[float | None]:
        """The merit of every network, higher is better, in the order of evaluation; None without a score."""
        return self.objective.of_rows(self._rows)

    @property
    def given_way(self) -> list[str]:
        """A sentence for each member of `auto` that does not apply to these networks."""
        return self.objective.given_way(self._rows)

    @property
    def _rows(self) -> list[tuple[float | None, ...]]:
        """The merits of every network by each proxy."""
        proxies = self.objective.proxies
        columns = ([None if math.isnan(x) else p.merit(x) for x in self._values[p.text]] for p in proxies)
        return list(zip(*columns, strict=True))

    def _repr_html_(self) -> str:
        if self.front is not None:
            return as_html(self.front.table(), [repr(self).strip("<>")], self.sentences)
        top = self.top(10)
        columns: dict[str, list[Any]] = {"arch": [one.text for one in top], self.text: [one.score.value for one in top]}
        return as_html(columns, [repr(self).strip("<>")], self.sentences)

    @property
    def sentences(self) -> list[str]:
        """Sentences that the user should read with the result."""
        without = sum(self.unscored.values())
        stopped = [f"It ended early: {self.stopped}."] if self.stopped else []
        why = max(self.unscored, key=self.unscored.__getitem__, default="")
        return [*stopped, *self.remarks, *([f"{without} have no score; most often: {why}"] if without else [])]

    def top(self, k: int) -> list[Candidate]:
        """The best k networks, the best first, the earlier of equals before the later; at most 100 are kept."""
        if self.objective.of_a_set:
            merits = self._merits()
            order = np.lexsort((np.arange(len(merits)), -merits))[: min(k, LEADERS)]
            return [self._candidate(self._archs[i], Score(float(merits[i]))) for i in order if merits[i] > -math.inf]
        leaders = heapq.nlargest(k, self._leaders, key=lambda leader: leader[:2])
        return [self._candidate(arch, score) for _, _, arch, score in leaders]

    def name_winner(self, arch: Any, scores: Mapping[str, Score]) -> None:
        """Makes an evaluated network the winner, whatever the others scored."""
        if self.objective.of_a_set:
            merit: float | None = float(self._merits()[self._archs.index(arch)])
        else:
            (merit,) = self.objective.merits([scores])
        if merit is not None and merit > -math.inf:
            self.best = self._candidate(arch, self._score(merit, scores))

    def hopeless(self) -> bool:
        """True if the search should give up because no network has a score."""
        if self.evaluated > sum(self.unscored.values()):
            return False
        return enough_without(self.evaluated, bool(self._degenerate))

    def tell(self, archs: Sequence[Any], scores: Sequence[Mapping[str, Score]]) -> tuple[Sequence[Any], Floats | None]:
        """Adds networks and keeps the best; returns their merits, and those of all networks if ranks moved them."""
        self._archs.extend(archs)
        for name, column in self._values.items():
            column.extend(by_proxy[name].value for by_proxy in scores)
        merits: Sequence[Any]
        revised: Floats | None = None
        if self.front is not None:
            merits = self.front.tell([Member(arch, self.task.space.text(arch), ()) for arch in archs], scores)
        elif self.objective.of_a_set:
            merits, revised = self._rank(scores)
        else:
            merits = self.objective.merits(scores)
        for arch, by_proxy, merit in zip(archs, scores, list[Any](merits), strict=True):
            self.evaluated += 1
            if merit is None:
                why = (self.objective if self.front is None else self.front.goals).why_not(by_proxy)
                self.unscored[why] = self.unscored.get(why, 0) + 1
                self._degenerate += all(score.status != "failed" for score in by_proxy.values())
            elif self.front is None and not self.objective.of_a_set:
                self._lead(merit, arch, self._score(merit, by_proxy))
        if self.front is not None and self.front.first is not None:
            first = self.front.first
            self.best = Candidate(first.arch, first.text, Score(first.values[0]))
        return merits, revised

    def _rank(self, scores: Sequence[Mapping[str, Score]]) -> tuple[Sequence[float | None], Floats]:
        ranking = self._ranking = self._ranking or self.objective.ranking()
        ranking.add(np.array([self.objective.row(by_proxy) for by_proxy in scores]))
        merits = self._merits()
        first = int(merits.argmax())
        if merits[first] > -math.inf:
            self.best = self._candidate(self._archs[first], Score(float(merits[first])))
        return [None if merit == -math.inf else merit for merit in merits[len(merits) - len(scores) :].tolist()], merits

    def _merits(self) -> Floats:
        """By ranks among all networks; -inf for one without a score."""
        merits = np.empty(0) if self._ranking is None else self._ranking.merits
        return np.where(np.isnan(merits), -np.inf, merits)

    def _score(self, merit: float, scores: Mapping[str, Score]) -> Score:
        return Score(merit) if self.objective.method else scores[self.objective.proxies[0].text]

    def _lead(self, merit: float, arch: Any, score: Score) -> None:
        """Keeps a network if it is one of the best; the first of equals stays."""
        if merit > self._merit:
            self.best, self._merit = self._candidate(arch, score), merit
        place = (merit, 1 - self.evaluated, arch, score)
        if len(self._leaders) < LEADERS:
            heapq.heappush(self._leaders, place)
        elif merit > self._leaders[0][0]:
            heapq.heapreplace(self._leaders, place)

    def _candidate(self, arch: Any, score: Score) -> Candidate:
        return Candidate(arch, self.task.space.text(arch), score)


def nothing_found(result: Result) -> MachineError:
    """The error for a search in which no network has a score."""
    why = max(result.unscored, key=lambda reason: result.unscored[reason], default="no network was evaluated")
    if result.evaluated == 1:
        return MachineError(f"The one network that was evaluated has no {result.text} score: {why}")
    return MachineError(f"None of the {result.evaluated} networks has a {result.text} score; most often: {why}")
