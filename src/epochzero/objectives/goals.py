"""Several goals at once, without weights between them: `dextr,-flops,latency`.

parse_goals("dextr,-flops")                            the score as its proxy declares it, and few multiply-accumulates
parse_goals("dextr,latency")                           milliseconds, less is better
parse_goals("auto,-flops")                             the percentile by `auto` among reference networks
parse_goals("table:cifar10_test,-table:raspi4")        columns of a table: one high, one low

A name alone is optimised in the direction that its proxy declares; `-` before it minimises, `+` maximises.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from epochzero.engine.proxy import Proxy, split_list
from epochzero.errors import UserError
from epochzero.objectives.objective import COMBINED, Objective, looked_up, parse_objective
from epochzero.types import Score, Shape

LATENCY = replace(looked_up("latency"), higher_is_better=False)
"""a measured latency, as if it were a proxy"""


@dataclass(frozen=True)
class Goal:
    """A score and the direction in which it is optimised."""

    proxy: Proxy
    higher: bool
    auto: Objective | None = None
    """gives the score in place of the proxy, which then only bears its name"""

    @property
    def text(self) -> str:
        sign = "" if self.higher == self.proxy.higher_is_better else "+" if self.higher else "-"
        return f"{sign}{self.proxy.text}"

    @property
    def proxies(self) -> tuple[Proxy, ...]:
        """Those that a network has to be scored by."""
        return (self.proxy,) if self.auto is None else self.auto.proxies

    def score(self, scores: Mapping[str, Score]) -> Score:
        """Returns a network's score from those by proxy."""
        if self.auto is None:
            return scores[self.proxy.text]
        (merit,) = self.auto.merits([scores])
        return Score.degenerate(self.auto.why_not(scores)) if merit is None else Score(merit)

    def merit(self, value: float) -> float:
        """Returns the value with its sign turned so that higher is better."""
        return value if self.higher else -value


@dataclass(frozen=True)
class Goals:
    """Two or more goals."""

    goals: tuple[Goal, ...]

    @property
    def proxies(self) -> tuple[Proxy, ...]:
        return tuple({proxy.text: proxy for goal in self.goals for proxy in goal.proxies}.values())

    @property
    def text(self) -> str:
        return ",".join(goal.text for goal in self.goals)

    def calibrated(self, space: str, shape: Shape) -> Goals:
        """Returns the goals with `auto` as the percentile among reference networks of the space."""
        own = (goal.auto and goal.auto.calibrated(space, shape) for goal in self.goals)
        return Goals(tuple(replace(goal, auto=auto) for goal, auto in zip(self.goals, own, strict=True)))

    def values(self, scores: Mapping[str, Score]) -> tuple[float, ...] | None:
        """Returns a network's scores in the order of the goals; None if it lacks one."""
        own = [goal.score(scores) for goal in self.goals]
        return tuple(score.value for score in own) if all(score.ok for score in own) else None

    def merits(self, values: Sequence[float]) -> tuple[float, ...]:
        """Returns the values with their signs turned so that higher is better."""
        return tuple(goal.merit(value) for goal, value in zip(self.goals, values, strict=True))

    def why_not(self, scores: Mapping[str, Score]) -> str:
        """Returns the reasons for a network's missing scores."""
        own = ((goal.proxy.text, goal.score(scores)) for goal in self.goals)
        return "; ".join(f"{name}: {score.why}" for name, score in own if not score.ok)


def parse_goals(text: str) -> Goals:
    """Returns two or more different goals, separated by commas outside parentheses."""
    goals = tuple(map(_goal, split_list(text)))
    if len({goal.proxy.text for goal in goals}) < max(2, len(goals)):
        raise UserError(
            f"A front needs at least two different objectives, such as 'dextr,-flops', and {text!r} does not name them."
        )
    return Goals(goals)


def _goal(text: str) -> Goal:
    sign = text[0] if text[0] in "+-" else ""
    name = text.removeprefix(sign).strip()
    if COMBINED.fullmatch(name):
        raise UserError(f"{name} weighs its proxies against each other: name them as objectives of their own.")
    objective = Objective((LATENCY,)) if name == LATENCY.name else parse_objective(name)
    auto = objective if objective.made_of else None
    proxy = objective.proxies[0] if auto is None else objective.as_proxy
    return Goal(proxy, {"+": True, "-": False, "": proxy.higher_is_better}[sign], auto)
