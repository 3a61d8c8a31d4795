r"""M_Trace and kappa of the known cells, the widest and the deepest: the thesis' Table 7.2 where there is a GPU.

    python -m epochzero.analysis.known_cells --data cifar10.npz --device cuda --out known_cells.json

The same numbers as `epochzero reproduce thesis-table7.2`, which says how they are defined, with torch and numpy alone.

Shu. Understanding and improving neural architecture search (thesis, section 7.5.3).
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from pathlib import Path
from typing import Any

from epochzero.analysis.topology import CELLS, topologies
from epochzero.data import load
from epochzero.engine import parse
from epochzero.run.bare import command, default_device, machine
from epochzero.run.task import Task
from epochzero.spaces.darts import Darts
from epochzero.types import Origin

TRACE, KAPPA = parse("ntk_trace"), parse("ntk_cond")


def m_trace(trace: float, samples: int) -> float:
    """sqrt(trace / m)"""
    return math.sqrt(trace / samples)


def measured(data: str, repeats: int, batch_size: int, channels: int, cells: int, device: str) -> dict[str, Any]:
    """Of each cell the values of each draw of weights and images, their mean and their deviation."""
    space: Any = Darts(f"darts_{channels}_{cells}", channels, cells)
    found: dict[str, dict[str, list[float]]] = {name: {"M_trace": [], "kappa": []} for name in CELLS}
    for seed in range(repeats):
        batch = load(data, size=batch_size, parts=1, seed=seed)
        scored = Task(space, [TRACE, KAPPA], batch, Origin(seed=seed), device).score(list(CELLS.values()))
        for name, (scores, _) in zip(CELLS, scored, strict=True):
            if scores[TRACE.text].ok:
                found[name]["M_trace"].append(m_trace(scores[TRACE.text].value, batch_size))
            if scores[KAPPA.text].ok:
                found[name]["kappa"].append(scores[KAPPA.text].value)
    return {
        name: {
            "width": topologies(CELLS[name])["normal"].width,
            "depth": topologies(CELLS[name])["normal"].depth,
            **{what: _summary(of) for what, of in values.items()},
        }
        for name, values in found.items()
    }


def _summary(values: list[float]) -> dict[str, Any]:
    mean = statistics.fmean(values) if values else None
    return {"values": values, "mean": mean, "deviation": statistics.stdev(values) if len(values) > 1 else None}


def main() -> None:
    """Measure as the command line says."""
    parser = argparse.ArgumentParser(
        prog="python -m epochzero.analysis.known_cells",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--data", required=True, help="an .npz file, or CIFAR as it is published")
    parser.add_argument("--out", type=Path, required=True, help="the result, a JSON file")
    parser.add_argument("--device", default=default_device())
    for name, usual in (("repeats", 10), ("batch-size", 64), ("channels", 16), ("cells", 8)):
        parser.add_argument(f"--{name}", type=int, default=usual, help=f"default: {usual}")
    asked = vars(parser.parse_args())
    out, start = asked.pop("out"), time.perf_counter()
    found = measured(**asked)
    facts = {"settings": asked, "machine": machine(asked["device"]), "seconds": time.perf_counter() - start}
    out.write_text(json.dumps({"cells": found} | facts, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    command(main)
