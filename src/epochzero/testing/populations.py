"""Comparing the scores of a population with those of its networks one at a time, in double precision on the CPU."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from epochzero.data import Batch
from epochzero.engine import Need, PlanNetwork, Proxy, score_network
from epochzero.engine.failure import REASONS
from epochzero.engine.passes import merged
from epochzero.engine.population.joint_run import can_run, run_together
from epochzero.engine.population.population import Population
from epochzero.engine.score import score_together
from epochzero.errors import UserError
from epochzero.plan import Plan
from epochzero.types import Score

REL, ABS = 1e-7, 1e-10
"""largest error of a score in double precision; the logarithm of a small difference loses half of the digits"""


class Member(NamedTuple):
    """A network with its scores by itself."""

    plan: Plan
    scores: Mapping[str, Score]


def precise(proxy: Proxy) -> Proxy:
    """The same proxy with all its passes in double precision."""
    needs = [Need(replace(need.run, dtype="float64"), need.reads) for need in proxy.needs]
    return replace(proxy, needs_of=needs)


def same(one: Score, other: Score) -> bool:
    """Returns True if two scores are equal up to rounding in double precision, or lack a value for the same reason."""
    if not (one.ok and other.ok):
        return (one.status, one.why) == (other.status, other.why)
    return math.isclose(one.value, other.value, rel_tol=REL, abs_tol=ABS)


def by_itself(plan: Plan, proxies: Sequence[Proxy], batch: Batch, seed: int = 0) -> Member:
    """A network with what the proxies say of it when it runs alone."""
    try:
        return Member(plan, score_network(PlanNetwork(plan), proxies, batch, seed).scores)
    except UserError:
        raise
    except Exception as error:
        names = ", ".join(proxy.text for proxy in proxies)
        raise AssertionError(f"{names} raises {type(error).__name__} for a network by itself: {error}") from error


def check_same_in_a_population(
    kind: str, members: Sequence[Member], proxies: Sequence[Proxy], batch: Batch, seed: int = 0
) -> None:
    """The networks of a population score as they do one at a time."""
    together = score_together([PlanNetwork(member.plan) for member in members], proxies, batch, seed)
    for proxy in proxies:
        for member, joint in zip(members, together, strict=True):
            one, other = member.scores[proxy.text], joint[proxy.text]
            assert same(one, other), (
                f"{proxy.text} is {shown(one)} for a network by itself, and {shown(other)} for the same network in a "
                f"population of {len(members)} ({kind})"
            )


def check_population_runs(
    kind: str, members: Sequence[Member], proxies: Sequence[Proxy], batch: Batch, seed: int = 0
) -> None:
    """A proxy's code for many networks does not raise if each of them has a score separately.

    The engine would run the networks one at a time instead, and nobody would notice.
    """
    population = Population([PlanNetwork(member.plan) for member in members])
    for proxy in proxies:
        if not all(member.scores[proxy.text].ok for member in members):
            continue
        for run, items in merged(proxy.needs).items():
            if can_run(run, items, population, batch):
                try:
                    run_together(run, items, population, batch, seed)
                except (RuntimeError, ValueError, TypeError, *REASONS) as error:
                    raise AssertionError(
                        f"{proxy.text} raises {type(error).__name__} for several networks at once ({kind}): {error}"
                    ) from error


def shown(score: Score) -> str:
    """The value, or why there is none."""
    return f"{score.value!r}" if score.ok else f"{score.status} ({score.why})"
