"""The content of a report: a JSON head and binary columns, compressed together.

    uint32, the length of the head | head, JSON in ASCII, spaces up to a multiple of 8 | columns, one after the other

A column is a float64 for each network, in the order of `archs` in the head, or a float32 if there are more than a
million numbers. The page thus reads 100,000 networks without parsing numbers.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from epochzero import __version__
from epochzero.engine.proxy import split_list
from epochzero.errors import UserError
from epochzero.evaluate.trust import chosen_by_flops, trust_in
from epochzero.files import finite
from epochzero.objectives.objective import parse_objective
from epochzero.report.agreement import with_each_other, with_truth
from epochzero.report.candidates import RECIPE, Candidates, candidates_of, label
from epochzero.report.drawings import SHOWN, Drawn
from epochzero.report.figures import figures_of
from epochzero.report.judgement import Judgement, judged
from epochzero.report.networks import Known, Networks
from epochzero.report.reading import Reader, reading
from epochzero.report.runs import row, siblings, summary
from epochzero.report.statements import statements
from epochzero.store import Run
from epochzero.study.facts import INSPECTED, Facts, facts_of_plans
from epochzero.study.winners import train_command

EXACT = 10**6
"""largest count of numbers that are kept in double precision"""
REASONS = 5
ALIGNED = 8


@dataclass
class Subject:
    """The run of a report, with caches for a live report."""

    store: Path
    table: Path | None = None
    targets: list[str] = field(default_factory=list)
    run: str | None = None
    """the start of the run's id; None for the latest"""
    others: list[Path] = field(default_factory=list)
    """further stores, whose latest runs are compared with it"""
    _networks: dict[str, Networks] = field(default_factory=dict)
    _known: dict[str, Known] = field(default_factory=dict)
    _pictures: dict[tuple[str, str], str] = field(default_factory=dict)

    def packed(self, reader: Reader) -> bytes:
        """The current content of the report."""
        run = reader.chosen(self.run)
        candidates = candidates_of(reader, run)
        networks = self._networks.setdefault(run.id, Networks(run))
        networks.run = run
        notes = []
        if self.table is not None:
            if run.id not in self._known:
                self._known[run.id] = Known(self.table, self.targets, run, candidates.spaces)
            notes.append(self._known[run.id].add(candidates))
        elif run.kind == "bench":
            notes.append("Give --table FILE to compare the scores with the accuracies network by network.")
        judgement = judged(run, candidates, networks.fits.get("input_shape", ()))
        notes.append(networks.add_sizes(candidates, judgement.order))
        candidates.arrange(judgement.by)
        head = _head(reader, run, candidates, judgement)
        head["statements"] = statements(run, candidates, judgement, _trust(run, candidates, judgement, networks))
        head["store"] = self.store.name
        head["compared"] = self._compared(reader, run, row(run, candidates, judgement, networks, self.store.name))
        remarks = (run.result or {}).get("remarks")
        notes += map(str, remarks if isinstance(remarks, list) else [])
        head["notes"] = [*_warnings(run, candidates, judgement), *filter(None, notes)]
        drawn = Drawn(networks, candidates, self._pictures)
        head["drawings"] = drawn.cards(judgement)
        head["hovered"] = drawn.hovered(judgement)
        first = judgement.order[0] if judgement.order else None
        named = None if first is None else (candidates.spaces[first], candidates.archs[first])
        head["layers"] = [] if named is None else networks.layers(*named)
        head["code"] = networks.code(*named) if named and judgement.searched else ""
        trains = head["code"] and run.kind == "search" and run.state == "finished" and not networks.features
        data, sizes = _option(run, "--data"), networks.fits.get("input_shape", ())
        head["train"] = train_command(self.store, data, sizes) if trains else ""
        head["fits"] = _fits(networks)
        return packed(head, candidates)

    def _compared(self, reader: Reader, run: Run, own: dict[str, Any]) -> list[dict[str, Any]]:
        rows = [own, *(summary(reader, other, self.store.name) for other in siblings(reader, run))]
        for path in self.others:
            with reading(path) as other:
                rows.append(summary(other, other.chosen(), path.name))
        return rows


def packed(head: dict[str, Any], candidates: Candidates) -> bytes:
    """Head and columns as one compressed piece."""
    columns: dict[str, Any] = {"step": np.array(candidates.steps, np.float64)}
    columns |= {column.name: column.values for column in candidates.columns.values()}
    kind = np.float64 if len(columns) * len(candidates) <= EXACT else np.float32
    head |= {"networks": len(candidates), "bytes": np.dtype(kind).itemsize}
    written = json.dumps(finite(head), separators=(",", ":"), allow_nan=False).encode()
    written += b" " * (-(len(written) + 4) % ALIGNED)
    body = b"".join(
        np.ascontiguousarray(values, np.dtype(kind).newbyteorder("<")).tobytes() for values in columns.values()
    )
    return gzip.compress(len(written).to_bytes(4, "little") + written + body, compresslevel=6, mtime=0)


def _head(reader: Reader, run: Run, candidates: Candidates, judgement: Judgement) -> dict[str, Any]:
    whys = list(dict.fromkeys(candidates.whys))
    numbers = {why: number for number, why in enumerate(whys)}
    manifest = dict(run.manifest)
    return {
        "title": _title(run),
        "method": run.settings.get("method"),
        "kind": run.kind,
        "state": run.state,
        "run": run.id,
        "started": manifest.get("started"),
        "resumed": list(run.resumed),
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "evaluated": candidates.evaluated,
        "budget": run.settings.get("budget") if judgement.searched else run.settings.get("sample"),
        "archs": candidates.archs,
        "whys": whys,
        "lacking": _lacking(candidates, judgement),
        "why": [numbers[why] for why in candidates.whys] if any(whys) else [],
        "columns": [
            {
                "name": column.name,
                "label": label(column.name),
                "kind": column.kind,
                "higher": column.higher,
                "unit": column.unit,
                "repeats": len(column.repeats),
                "averaged": column.averaged,
                "ends": None if column.ends is None else [end.tolist() for end in column.ends],
            }
            for column in candidates.columns.values()
        ],
        "by": judgement.by,
        "curves": judgement.curves,
        "searched": judgement.searched,
        "best": judgement.order[:SHOWN] if judgement.ranked else [],
        "front": judgement.front,
        "members": judgement.members,
        "draws": None
        if judgement.draws is None
        else asdict(judgement.draws) | {"spreads": judgement.draws.spreads.tolist()},
        "truths": with_truth(candidates),
        "agreement": with_each_other(candidates),
        "winner_scores": _winner_scores(reader, run),
        "time": {
            "scoring": candidates.seconds,
            "clock": (run.result or {}).get("clock"),
            "around": candidates.around,
        },
        "figures": [] if judgement.searched else figures_of(run),
        "result": {key: value for key, value in (run.result or {}).items() if key != "clock"},
        "manifest": {"settings": run.settings} | manifest,
        "runs": [{"id": one.id, "kind": one.kind, "state": one.state, "title": _title(one)} for one in reader.runs],
    }


def _option(run: Run, name: str) -> str | None:
    """What the command of a run gave for an option."""
    words = run.manifest.get("argv")
    given = [str(word) for word in words] if isinstance(words, list) else []
    apart = [after for word, after in pairwise(given) if word == name]
    joined = [word.partition("=")[2] for word in given if word.startswith(f"{name}=")]
    return next(iter(apart or joined), None)


def _title(run: Run) -> str:
    settings = run.settings
    space = settings.get("space")
    proxy = label(str(settings.get("proxy")))
    if "experiment" in settings:
        return f"Reproduction of {settings['experiment']}"
    if "method" in settings:
        goals = [label(goal.lstrip("+-")) for goal in split_list(proxy)]
        several = f"trade-offs of {', '.join(goals[:-1])} and {goals[-1]}"
        wanted = f"the best {proxy} score" if len(goals) == 1 else several
        return f"Search of {space} for {wanted}"
    if "targets" in settings:
        return f"Benchmark of scores on {space}"
    if run.kind == "rank":
        named = settings.get("networks")
        return f"{len(named)} networks ranked by {proxy}" if isinstance(named, list) else f"Ranking by {proxy}"
    kind = run.kind[:1].upper() + run.kind[1:]
    return f"{kind} of networks of {space}" if space else kind


def _winner_scores(reader: Reader, run: Run) -> list[dict[str, Any]]:
    """Further scores of the network that a search chose."""
    return [
        {"name": RECIPE.sub("", row.proxy), "arch": row.arch, "value": row.value, "why": row.why}
        for other in reader.runs
        if other.kind == "winner" and other.settings.get("search") == run.id
        for row in reader.rows(other)
    ]


def _warnings(run: Run, candidates: Candidates, judgement: Judgement) -> list[str]:
    """Warnings at the top of the report."""
    if not len(candidates):
        return ["No network has been evaluated yet." if run.state == "unfinished" else "This run evaluated no network."]
    said = []
    reasons = Counter(why for why in candidates.whys if why)
    lacking = _lacking(candidates, judgement)
    if not judgement.order:
        said.append(f"None of the {len(candidates):,} networks has a score.")
    elif lacking:
        said.append(f"{lacking:,} of the {len(candidates):,} networks {'lacks' if lacking == 1 else 'lack'} a score.")
    said += [f"{times:,} × {why}" for why, times in reasons.most_common(REASONS)]
    if run.state == "unfinished":
        said.append("The run is not finished: it is under way, or was interrupted. The same command resumes it.")
    unknown = judgement.searched and not judgement.curves
    if unknown and judgement.order:
        said.append(f"The score of the search, {run.settings['proxy']}, is unknown: load its plug-in with --plugin.")
    return said


def _lacking(candidates: Candidates, judgement: Judgement) -> int:
    """The number of networks that lack a score of the search or ranking, or any score of another run."""
    wanted = [candidates.columns[name].values for name in judgement.curves]
    missing = [np.isnan(values) for values in wanted] or [np.array(list(map(bool, candidates.whys)))]
    return int(np.any(missing, axis=0).sum())


def _trust(run: Run, candidates: Candidates, judgement: Judgement, networks: Networks) -> str:
    """The evidence on the score of a search or ranking, and the choice by FLOPs."""
    flops, merits = (candidates.columns.get(name) for name in ("flops", judgement.by))
    if not judgement.curves or not isinstance(run.settings.get("proxy"), str):
        return ""
    try:
        first = split_list(str(run.settings["proxy"]))[0].removeprefix("-").removeprefix("+")
        space = (run.result or run.settings).get("space", run.settings.get("space"))
        known = trust_in(parse_objective(first), str(space or ""), _facts(run, candidates, networks))
    except UserError:
        return ""
    if not known or judgement.front or merits is None or flops is None or flops is merits:
        return known
    values = [None if np.isnan(merit) else float(merit) for merit in merits.merits]
    return f"{known} {chosen_by_flops(candidates.archs, values, np.nan_to_num(flops.values).tolist())}".strip()


def _facts(run: Run, candidates: Candidates, networks: Networks) -> Facts | None:
    """The facts of the first networks: those that the run has kept, or what their plans say while it has none."""
    kept = (run.result or {}).get("facts")
    if isinstance(kept, dict):
        return Facts.read(kept)
    first = sorted(range(len(candidates)), key=candidates.steps.__getitem__)[:INSPECTED]
    plans = [networks.plan(candidates.spaces[at], candidates.archs[at]) for at in first]
    known = [plan for plan in plans if plan is not None]
    return facts_of_plans(known) if known and len(known) == len(plans) else None


def _fits(networks: Networks) -> str:
    if networks.features:
        return networks.features
    fits = networks.fits
    shape = "×".join(map(str, fits["input_shape"])) if "input_shape" in fits else "the space's own inputs"
    return f"{shape}, {fits['num_classes']} classes" if "num_classes" in fits else shape
