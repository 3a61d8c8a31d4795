"""Several runs side by side: the best so far of each, and what they found.

Runs of the same store are taken up if they are searches of the same space by the same score.
"""

from __future__ import annotations

from typing import Any

from epochzero.report.candidates import Candidates, candidates_of, label
from epochzero.report.drawings import rising
from epochzero.report.judgement import Judgement, judged
from epochzero.report.networks import Networks
from epochzero.report.reading import Reader
from epochzero.store import Run

MOST = 12
"""runs that are compared"""
SAME = ("space", "proxy")
APART = ("seed", "origin", "batch", "sources")
"""settings that follow from the seed"""


def siblings(reader: Reader, run: Run) -> list[Run]:
    """The other searches of a store that can be compared with a run."""
    if run.kind != "search":
        return []
    alike = (
        other
        for other in reader.related(run, "search")
        if all(other.settings.get(name) == run.settings.get(name) for name in SAME)
    )
    return list(alike)[: MOST - 1]


def summary(reader: Reader, run: Run, store: str) -> dict[str, Any]:
    """A run as a row of the comparison."""
    candidates = candidates_of(reader, run)
    networks = Networks(run)
    return row(run, candidates, judged(run, candidates, networks.fits.get("input_shape", ())), networks, store)


def row(run: Run, candidates: Candidates, judgement: Judgement, networks: Networks, store: str) -> dict[str, Any]:
    """A run as a row of the comparison, from what is known of it."""
    column = candidates.columns.get(judgement.by)
    steps = [] if column is None else list(rising(range(len(candidates)), column.merits))
    best = steps[-1] if steps else None
    params, flops = (None, None)
    if best is not None:
        params, flops = networks.size(candidates.spaces[best], candidates.archs[best])
    clock = (run.result or {}).get("clock")
    settings = run.settings
    return {
        "name": f"{store} {run.id[:6]}",
        "method": settings.get("method"),
        "seed": settings.get("seed"),
        "group": repr(sorted((name, str(value)) for name, value in settings.items() if name not in APART)),
        "state": run.state,
        "evaluated": candidates.evaluated,
        "by": judgement.by,
        "label": label(judgement.by),
        "higher": bool(column is not None and column.higher),
        "value": None if column is None or best is None else float(column.values[best]),
        "met": None if best is None else candidates.steps[best] + 1,
        "steps": [candidates.steps[at] + 1 for at in steps],
        "values": [] if column is None else [float(column.values[at]) for at in steps],
        "params": params,
        "flops": flops,
        "seconds": sum(clock.values()) if isinstance(clock, dict) else None,
        "arch": "" if best is None else candidates.archs[best],
    }
