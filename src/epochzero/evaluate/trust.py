"""Trust in a score on some networks: evidence, facts that are outside it, and the choice by FLOPs.

trust_in(parse_objective("auto"), "nb201", facts)
"auto:1 ranks networks of nb201 with a Spearman correlation of .85 [.82, .87] ..., counting FLOPs with .72."
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any

from epochzero.errors import UserError
from epochzero.evaluate.cards import card_of
from epochzero.evaluate.evidence import Table, tables
from epochzero.objectives.objective import Objective, is_looked_up
from epochzero.stats.text import short
from epochzero.study.facts import Facts

if TYPE_CHECKING:
    from epochzero.study.ranking import Ranking
    from epochzero.study.result import Result
    from epochzero.study.task import Task

FLOPS = "flops"
COUNTED = 300
"""networks of a search whose FLOPs are counted at its end, at most"""
FAR = 10
"""ratio of sizes from which a network is much smaller or larger than the tested ones"""
EQUAL = 0.05
"""difference of median correlations up to which the score and FLOPs are equally good"""
MOST = 2
"""warnings that are quoted"""
WORDS = {
    "width": "widths_vary",
    "depth": "depths_vary",
    "transformer": "attention",
}
"""words of a warning, and the fact under which it applies"""


def trust_in_search(result: Result) -> str:
    """Returns the trust in the score of a search, and the choice by FLOPs among its networks."""
    objective, task = result.objective, result.task
    if result.front is not None:
        first = result.goals.goals[0]
        objective = first.auto or Objective((first.proxy,))
    known = trust_in(objective, task.space.name, result.facts)
    if result.evaluated < 2 or result.front is not None or objective.text == FLOPS:
        return known
    history = result.history
    if len(history) > COUNTED and FLOPS not in history[0].scores:
        return known
    flops = [one.scores[FLOPS] if FLOPS in one.scores else _flops(task, one.arch) for one in history]
    return f"{known} {chosen_by_flops([one.text for one in history], result.merits, flops)}".strip()


def trust_in_ranking(ranking: Ranking) -> str:
    """Returns the trust in the score of a ranking; its own sentences have the choice by FLOPs."""
    if not any(row.status == "ok" for row in ranking.rows):
        return ""
    return trust_in(ranking.objective, ranking.space, ranking.facts)


def _flops(task: Task, arch: Any) -> float:
    try:
        return task.size(arch).flops
    except UserError:
        return 0


def trust_in(objective: Objective, space: str, facts: Facts | None = None) -> str:
    """Returns sentences on how well the score is known to rank such networks; empty for accuracies themselves."""
    if any(map(is_looked_up, objective.proxies)):
        return ""
    name = objective.text
    tested = [table for table in tables() if name in table.known]
    own = [table for table in tested if table.space == space]
    here = f"networks of {space}" if space and space != "given" else "these networks"
    if not tested:
        return f"How well {name} ranks {here} was not measured: train several of the best."
    near = own or _nearest(tested, facts)
    spaces = dict.fromkeys(table.space for table in near)
    if own:
        said = f"{name} ranks {here} with a Spearman correlation of {_figures(near, name)}"
    else:
        said = f"{name} was not tested on {here}; on {_listed(spaces)}, the nearest that it was tested on, it has a "
        said += f"Spearman correlation of {_figures(near, name)}"
    warned = () if own else _warnings(objective, facts)
    return " ".join([f"{said}{_versus_flops(near, name)}.", *_outside(near, facts), *warned])


def chosen_by_flops(names: Sequence[str], merits: Sequence[float | None], flops: Sequence[float]) -> str:
    """Returns a sentence on the network with the most FLOPs among these, and its place by the score."""
    if len(names) < 2 or all(merit is None for merit in merits) or len(set(flops)) < 2:
        return ""
    first = max(range(len(names)), key=lambda i: flops[i])
    merit = merits[first]
    if merit is None:
        return f"Counting FLOPs would have chosen {names[first]}, which has no score."
    place = 1 + sum(other is not None and other > merit for other in merits)
    if place == 1:
        return "Counting FLOPs would have chosen the same network."
    return f"Counting FLOPs would have chosen {names[first]}, number {place:,} of {len(names):,} by this score."


def _nearest(tested: Sequence[Table], facts: Facts | None) -> list[Table]:
    """The tables whose networks are most like these: with attention or not, of varying width or not."""
    for alike in ("attention widths_vary", "attention"):
        near = [
            table
            for table in tested
            if facts and table.facts and all(getattr(table.facts, of) == getattr(facts, of) for of in alike.split())
        ]
        if near:
            return near
    return list(tested)


def _figures(near: Sequence[Table], name: str) -> str:
    known = [table.known[name] for table in near]
    if len(known) == 1:
        figures = f"{short(known[0].spearman, 2)} [{short(known[0].low, 2)}, {short(known[0].high, 2)}]"
        return f"{figures} with {near[0].target} ({near[0].networks:,} networks)"
    return _middle([one.spearman for one in known])


def _middle(rhos: Sequence[float]) -> str:
    if len(rhos) == 1:
        return short(rhos[0], 2)
    middle, low, high = (short(pick(rhos), 2) for pick in (median, min, max))
    return f"{middle} (median of {len(rhos)} tables, {low} to {high})"


def _versus_flops(near: Sequence[Table], name: str) -> str:
    both = [table for table in near if FLOPS in table.known]
    if name == FLOPS or not both:
        return ""
    by_flops = [table.known[FLOPS].spearman for table in both]
    lead = median(by_flops) - median(table.known[name].spearman for table in both)
    also = "" if lead < -EQUAL else f": counting FLOPs is {'better' if lead > EQUAL else 'as good'} here"
    return f", and counting FLOPs has {_middle(by_flops)}{also}"


def _outside(near: Sequence[Table], facts: Facts | None) -> Iterator[str]:
    """A sentence on how these networks differ from the tested ones."""
    known = [table.facts for table in near if table.facts]
    if facts is None or not known:
        return
    sides = [one.input[-1] for one in known]
    ways = {
        "they have attention": facts.attention and not any(one.attention for one in known),
        "not all have norms": not facts.norm and all(one.norm for one in known),
        "their widths vary": facts.widths_vary and not any(one.widths_vary for one in known),
        "their depths vary": facts.depths_vary and not any(one.depths_vary for one in known),
        f"their inputs are small ({'x'.join(map(str, facts.input))})": 2 * facts.input[-1] <= min(sides),
        f"their inputs are large ({'x'.join(map(str, facts.input))})": facts.input[-1] >= 2 * max(sides),
        "some are much smaller": FAR * facts.flops[0] < min(one.flops[0] for one in known),
        "some are much larger": facts.flops[1] > FAR * max(one.flops[1] for one in known),
    }
    if found := [way for way, applies in ways.items() if applies]:
        yield f"These networks are unlike the tested ones: {_listed(found)}."


def _warnings(objective: Objective, facts: Facts | None) -> Iterator[str]:
    """The warnings of the scores' cards that apply to such networks."""
    facts_of_words = [word for word, fact in WORDS.items() if facts and getattr(facts, fact)]
    if facts and not facts.norm:
        facts_of_words.append("batch norm")
    quoted = 0
    for proxy in objective.proxies:
        try:
            beware = card_of(Objective((proxy,))).beware
        except (UserError, TypeError):
            continue
        for line in beware:
            if quoted < MOST and any(word in line for word in facts_of_words):
                quoted += 1
                yield f"Beware of {proxy.text}: {line}"


def _listed(words: Sequence[str] | dict[str, None]) -> str:
    *first, last = words
    return f"{', '.join(first)} and {last}" if first else last
