r"""Auto, the default score: few, cheap, unlike scores, chosen by evidence and frozen by version.

    q_m(i)     =  (rank_m(i) - 1/2) / N                         over a set of N networks i, by each member m
    auto:3(i)  =  (size(i) - mean size) / 3 + sum_m q_m(i)      size = log(flops) + log(params), and 3 further members
    auto:2(i)  =  mean_m q_m(i) - std_m(q_m(i)) / sqrt(4)       its 4 members' mean less its standard error
    auto:1(i)  =  sum_m Phi^-1(q_m(i))                          over 5 members

The four members of versions 2 and 3 are one of each kind: size, depth, expressivity (near) and trainability
(az_trainability on 16 samples). In version 3 size counts by its value: among networks of about the same size it says
little, and the others decide; among networks that differ widely it decides. FLOPs and parameters of 4.5 times as many
(a size larger by 3) weigh as much as the way from the last to the first place in another member. In version 2 a network
that one member ranks first and another one last is worth less than one that all find good.

`auto` is the newest version, and `auto:1` the first for ever: VERSIONS is extended, but what is in it never changes. A
member that does not apply to a set of networks (fewer than nine in ten of those with any score have it, or it is the
same for all) gives way to the next of its alternatives, the same for all networks of the set. A network that lacks a
chosen score has none, with the reason. The store keeps the members' scores only.

A single network gets a percentile instead, from 0 to 100: among random networks of its space where their scores are
known, else among networks of its size. A search that cannot use ranks that move (tpe, reinforce, pareto)
goes by the percentile among random networks, too. In a set, a search such as evolution goes by the ranks among all of
its networks. `epochzero.objectives.reference` has the formulas.

Beware: a value within one set says nothing about a network of another set. The percentile does, but beyond its random
networks it is an extrapolation.

Beware: expect less on further spaces than on the tables of the leaderboard: the forms were chosen on all of them. The
members of version 3 are those that a fixed procedure chooses without any one of seven spaces by the mean correlation;
by mean + worst, and those of version 2, without any one of six, but not without AutoFormer (docs/choice.md). Version
1's members were chosen on all tables.

Beware: where none of its members applies, it orders networks as counting FLOPs does.

The combination is ours. Its parts: Lee, Ham. AZ-NAS. CVPR 2024. arXiv:2403.19232
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import NoReturn

from epochzero.errors import UserError
from epochzero.objectives.ranks import Ranking, Term

NAME = DEFAULT = "auto"
"""the name of the combination, and the score where none is named"""
WRITTEN = re.compile(rf"\s*{NAME}\s*(?::\s*(\d+)\s*)?")


@dataclass(frozen=True)
class Member:
    """A score of the combination."""

    weight: float
    scores: tuple[str, ...]
    """the first that applies to the networks counts; the last one always applies"""
    by_value: bool = False
    """true if the first one counts by its value and not by its rank"""


@dataclass(frozen=True)
class Version:
    """A combination that is frozen."""

    members: tuple[Member, ...]
    method: str = "normal_rank"
    """form in which the scores are combined: normal_rank, agreement or shares"""

    @property
    def scores(self) -> list[str]:
        """All scores that the members may take, each once."""
        return list(dict.fromkeys(score for member in self.members for score in member.scores))

    def ranking(self) -> Ranking:
        """Returns an empty set of networks, with one column for each of `scores`."""
        places = {score: place for place, score in enumerate(self.scores)}
        terms = [Term(one.weight, tuple(places[score] for score in one.scores), one.by_value) for one in self.members]
        return Ranking(self.method, len(places), terms)

    @property
    def text(self) -> str:
        """`1 az_trainability (else near, flops) + ...`"""
        said = []
        for member in self.members:
            first, *others = member.scores
            counted = f"{first} / {1 / member.weight:g} by value" if member.by_value else f"{member.weight:g} {first}"
            said.append(counted + (f" (else {', '.join(others)})" if others else ""))
        return f"{self.method}: {' + '.join(said)}"


FOUR = ("size", "depth", "near", "az_trainability(samples=16)")
VERSIONS = {
    1: Version(
        (
            Member(1.0, ("depth", "flops")),
            Member(1.0, ("layers", "flops")),
            Member(1.0, ("az_trainability(samples=16)", "near", "flops")),
            Member(1.0, ("near", "layers", "flops")),
            Member(1.0, ("size", "flops")),
        )
    ),
    2: Version(tuple(Member(1.0, (one, "flops")) for one in FOUR), "agreement"),
    3: Version(
        (Member(1 / 3, (FOUR[0], "flops"), by_value=True), *(Member(1.0, (one, "flops")) for one in FOUR[1:])), "shares"
    ),
}
NEWEST = max(VERSIONS)


def compute(*_: object) -> NoReturn:
    raise UserError(f"{NAME} is computed from the scores of its members.")


def version_named(text: str) -> int | None:
    """Returns the version that a text names; None if it names something else, UserError for an unknown version."""
    match = WRITTEN.fullmatch(text)
    if match is None:
        return None
    number = NEWEST if match[1] is None else int(match[1])
    if number not in VERSIONS:
        known = ", ".join(f"{NAME}:{one}" for one in VERSIONS)
        raise UserError(f"There is no {NAME}:{number}. Known: {known}; {NAME} is the newest.")
    return number
