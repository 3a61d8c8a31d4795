"""The three statements at the top of a report: what was found, how far to trust it, what a cheaper network would lose.

    {"title": "Found", "text": "auto:3 1.492, .19 ahead of the runner-up. Evaluation 89 of 120.", "network": None}

A network is one that the statement is about and that the page offers to show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from epochzero.report.candidates import Candidates, Column, label
from epochzero.report.figures import figures_of
from epochzero.report.judgement import Judgement
from epochzero.stats.text import short
from epochzero.store import Run

COSTS = ("latency", "flops", "params")
"""the costs that a cheaper network is sought by, the first that is known"""
HALF = 0.5
LETTERS = {"G": 1e9, "M": 1e6, "k": 1e3}


def statements(run: Run, candidates: Candidates, judgement: Judgement, trust: str) -> list[dict[str, Any]]:
    """The statements, without those that the run says nothing about."""
    if not judgement.searched:
        told = _of_figures(run, candidates, judgement)
    elif judgement.front:
        told = [_front(candidates, judgement), _statement("Trust", trust), _knee(candidates, judgement)]
    else:
        told = [_found(candidates, judgement), _statement("Trust", trust), _cheaper(candidates, judgement)]
    return [one for one in told if one["text"]]


def _statement(title: str, text: str, network: int | None = None) -> dict[str, Any]:
    return {"title": title, "text": text, "network": network}


def said(column: Column, value: float) -> str:
    """A value with its unit, `188.7 M` or `8.492`; costs with a sign for large ones."""
    if column.kind == "cost" or abs(value) >= 1e6:
        for letter, size in LETTERS.items():
            if abs(value) >= size:
                return f"{value / size:.4g}\u00a0{letter}"
    return f"{value:.4g}{' ' if column.unit else ''}{column.unit}"


def _found(candidates: Candidates, judgement: Judgement) -> dict[str, Any]:
    """The best network's value, its distance to the next, and the evaluation that found it."""
    column = candidates.columns.get(judgement.by)
    ranked = [] if column is None else [at for at in judgement.order if not np.isnan(column.values[at])]
    if column is None or not ranked:
        return _statement("Found", "")
    best, merits = ranked[0], column.merits
    level = sum(bool(merits[at] == merits[best]) for at in ranked) - 1
    behind = [float(merits[at]) for at in ranked if merits[at] < merits[best]]
    text = f"{label(column.name)} {said(column, float(column.values[best]))}"
    if judgement.draws:
        text += f" ± {judgement.draws.spreads[best]:.2g} over {judgement.draws.count} draws"
    text += f", level with {level} other{'s' if level > 1 else ''}" if level else ""
    if behind:
        text += f", {said(column, float(merits[best]) - max(behind))} ahead of the {'next' if level else 'runner-up'}"
    text += "."
    if judgement.draws:
        also = [candidates.archs[at] for at in judgement.draws.first if at != best]
        text += f" Not significantly different from it: {', '.join(also)}." if also else ""
        return _statement("First", text)
    return _statement("Found", f"{text} At evaluation {candidates.steps[best] + 1:,} of {candidates.evaluated:,}.")


def _costly(candidates: Candidates, judgement: Judgement, best: int) -> Column | None:
    known = [candidates.columns[name] for name in COSTS if name in candidates.columns and name != judgement.by]
    return next((column for column in known if column.kind == "cost" and column.values[best] > 0), None)


def _cheaper(candidates: Candidates, judgement: Judgement) -> dict[str, Any]:
    """The best network of those that cost half as much."""
    column = candidates.columns.get(judgement.by)
    ranked = [] if column is None else [at for at in judgement.order if not np.isnan(column.values[at])]
    cost = _costly(candidates, judgement, ranked[0]) if ranked else None
    if column is None or cost is None or len(ranked) < 2:
        return _statement("Cost", "")
    best, costs, name = ranked[0], cost.values, label(cost.name)
    whole = said(cost, float(costs[best]))
    place = next((k for k, at in enumerate(ranked) if costs[at] <= HALF * costs[best]), None)
    if place is None:
        least = said(cost, float(np.nanmin(costs[ranked])))
        return _statement(
            "Cost", f"It has {whole} {name}. No network with half as many was evaluated; the fewest are {least}."
        )
    at = ranked[place]
    text = (
        f"The best network with at most half its {name} ({said(cost, float(costs[at]))} instead of {whole}) has "
        f"{label(column.name)} {said(column, float(column.values[at]))} instead of "
        f"{said(column, float(column.values[best]))}: number {place + 1:,} of {len(ranked):,}."
    )
    return _statement("Cost", text, at)


def _front(candidates: Candidates, judgement: Judgement) -> dict[str, Any]:
    n, goals = len(judgement.front), len(judgement.curves)
    every = "both goals" if goals == 2 else f"all {goals} goals"
    ends = "; ".join(
        f"{label(name)} {said(column, float(min(values)))} to {said(column, float(max(values)))}"
        for name in judgement.curves
        for column in [candidates.columns[name]]
        for values in [column.values[judgement.front]]
    )
    them = "network is" if n == 1 else "networks are"
    return _statement("Found", f"{n:,} of {len(candidates):,} {them} beaten by no other in {every}: {ends}.")


def _knee(candidates: Candidates, judgement: Judgement) -> dict[str, Any]:
    """From the best network of the first goal to the knee."""
    parts = {part["role"]: part["network"] for part in corners(candidates, judgement)}
    if len(parts) < 2 or "knee" not in parts:
        return _statement("Cost", "")
    best, knee = parts["best"], parts["knee"]
    goals = [candidates.columns[name] for name in judgement.curves]
    now, before = ([said(goal, float(goal.values[at])) for goal in goals] for at in (knee, best))
    changes = ", ".join(f"{label(g.name)} {a} instead of {b}" for g, a, b in zip(goals, now, before, strict=True))
    return _statement("Cost", f"At the knee of the front: {changes}.", knee)


def corners(candidates: Candidates, judgement: Judgement) -> list[dict[str, Any]]:
    """The best network of a front by its first goal, its knee, and its cheap end, the best by the second goal.

    The knee is the nearest to the best value of every goal, each between 0 and 1 over the front; on a scale of
    logarithms if the largest value is 10 times the smallest or more.
    """
    front = np.array(judgement.front)
    if not len(front):
        return []
    goals = [candidates.columns[name] for name in judgement.curves]
    away = np.zeros(len(front))
    for column in goals:
        values = column.values[front]
        if values.min() > 0 and values.max() >= 10 * values.min():
            values = np.log(values)
        reach = np.ptp(values)
        share = (values - values.min()) / reach if reach else np.ones(len(front))
        away += np.square(1 - share if column.higher else share)
    roles = {
        "best": front[int(np.argmax(goals[0].merits[front]))],
        "knee": front[int(np.argmin(away))],
        "cheap end": front[int(np.argmax(goals[min(1, len(goals) - 1)].merits[front]))],
    }
    placed: dict[int, str] = {}
    for role, at in roles.items():
        placed.setdefault(int(at), role)
    return [{"role": role, "network": at} for at, role in placed.items()]


def _of_figures(run: Run, candidates: Candidates, judgement: Judgement) -> list[dict[str, Any]]:
    """The findings of a benchmark or a reproduction."""
    figures = [one for one in figures_of(run) if one["value"] is not None and one["low"] is not None]
    papers = [one for one in figures if one["paper"] is not None]
    if papers:
        inside = sum(one["low"] <= one["paper"] <= one["high"] for one in papers)
        each = f"{inside} of {len(papers)} figures of the paper lie within our 95 % intervals."
        far = max(papers, key=lambda one: abs(one["value"] - one["paper"]))
        most = f"{far['name']}: {short(far['value'])} {_interval(far)}; the paper has {short(far['paper'])}."
        return [_statement("Found", each), _statement("Farthest from it", most)]
    if run.kind == "ensemble":
        return _of_ensemble(run, judgement)
    ranks = [one for one in figures if one["statistic"] == "spearman"]
    return list(_of_benchmark(run, candidates, ranks)) if run.kind == "bench" and ranks else []


def _of_ensemble(run: Run, judgement: Judgement) -> list[dict[str, Any]]:
    """The error of an ensemble beside the mean of its members', and how often these disagree."""
    known = {one["name"]: one["value"] for one in figures_of(run)}
    if not {"error", "ate", "ppd"} <= known.keys():
        return []
    members = len(judgement.members)
    error, alone = short(known["error"]), short(known["ate"])
    found = f"{members} members together have a test error of {error}, alone {alone} on average."
    why = f"Two members predict different classes for a share of {short(known['ppd'])} of the test images."
    return [_statement("Found", found), _statement("Why", why)]


def _of_benchmark(run: Run, candidates: Candidates, ranks: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    targets = run.settings.get("targets")
    target = str(targets[0]) if isinstance(targets, list) and targets else ""
    own = {one["name"].removesuffix(f" {target}"): one for one in ranks if one["name"].endswith(f" {target}")}
    if not own:
        return
    first = max(own, key=lambda name: own[name]["value"])
    within = [name for name in own if name != first and own[name]["value"] >= own[first]["low"]]
    best = (
        f"{first} orders the networks best by {target}: Spearman {short(own[first]['value'])} {_interval(own[first])}."
    )
    yield _statement("Found", f"{best} {_flops(own, first)}".strip())
    doubt = f"Within its 95 % interval: {', '.join(within)}." if within else "No other score lies within its interval."
    yield _statement("Trust", f"{own[first]['n']:,} networks, drawn at random. {doubt}")
    yield _statement("Cost", _seconds(candidates.seconds, max(1, candidates.evaluated)))


def _flops(own: Mapping[str, dict[str, Any]], first: str) -> str:
    one = own.get("flops")
    return "" if one is None or first == "flops" else f"Counting FLOPs has {short(one['value'])} {_interval(one)}."


def _seconds(spent: Mapping[str, float], networks: int) -> str:
    """The time of a network, by scores that were timed together."""
    rows = sorted(spent.items(), key=lambda item: item[1])
    if not rows:
        return ""
    each = [f"{_duration(s / networks)} for {name.partition(':')[0]}" for name, s in rows]
    return f"Scoring one network took {', '.join([each[0], *each[1:][-2:]])}."


def _duration(seconds: float) -> str:
    return f"{1000 * seconds:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _interval(one: Mapping[str, Any]) -> str:
    return f"[{short(one['low'])}, {short(one['high'])}]"
