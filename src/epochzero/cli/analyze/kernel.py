"""`epochzero analyze kernel`: trace and condition number of a network's tangent kernel."""

from __future__ import annotations

import math

from epochzero.cli.analyze.subjects import Asked, analyzed, explained
from epochzero.cli.console import number
from epochzero.cli.options import BatchSize
from epochzero.engine import parse, score_network
from epochzero.types import Score

TRACE, KAPPA = parse("ntk_trace"), parse("ntk_cond")


def kernel(asked: Asked, batch_size: BatchSize = 64) -> None:
    """M_Trace and kappa of the tangent kernel at initialisation: how fast a network can learn, and how unevenly.

    Wide cells have smaller ones than deep cells (thesis, section 7.3.5).
    """
    subjects = analyzed(asked, batch_size)
    with explained():
        scores = {
            name: score_network(network, [TRACE, KAPPA], subjects.batch, asked.seed).scores
            for name, network in subjects.networks.items()
        }
    networks, lines = {}, {}
    for name, of in scores.items():
        trace, kappa = of[TRACE.text], of[KAPPA.text]
        m = math.sqrt(trace.value / subjects.batch.size) if trace.ok else None
        networks[name] = {"M_trace": m, "kappa": kappa.value if kappa.ok else None}
        lines[name] = [f"M_Trace   {_written(trace, m)}", f"kappa     {_written(kappa, kappa.value)}"]
    asked.show("kernel", {"networks": networks, "data": subjects.batch.about}, lines, dict)


def _written(score: Score, value: float | None) -> str:
    return f"none: {score.why}" if value is None or not score.ok else number(value)
