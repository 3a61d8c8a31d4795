r"""M_Trace and kappa of the known cells, the widest and the deepest: the thesis' Table 7.2 on a machine with a GPU.

    python -m epochzero_papers known-cells --data cifar10.npz --device cuda --out known_cells.json

The same numbers as `epochzero reproduce thesis-table7.2`, which says how they are defined, with torch and numpy alone;
with `--kernel layers` those of the kernel that the thesis' code measures (`ntk_cond(of=layers)`).

Shu. Understanding and improving neural architecture search (thesis, section 7.5.3).
"""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from epochzero.analysis.topology import CELLS, topologies
from epochzero.data import Batch, load
from epochzero.engine import Handle, PlanNetwork, parse
from epochzero.engine.device import machine
from epochzero.engine.layer_kernel import layer_kernel
from epochzero.errors import DegenerateError
from epochzero.proxies.ntk import condition_number
from epochzero.spaces.darts import Darts
from epochzero.study.task import Task
from epochzero.types import Origin
from epochzero_papers.harness.options import device_option, option

TRACE, KAPPA = parse("ntk_trace"), parse("ntk_cond")


def m_trace(trace: float, samples: int) -> float:
    """sqrt(trace / m)"""
    return math.sqrt(trace / samples)


def measured(
    data: str, repeats: int, batch_size: int, channels: int, cells: int, device: str, kernel: str = "exact"
) -> dict[str, Any]:
    """Returns the values of each cell over draws of weights and images, with mean and deviation."""
    space: Any = Darts(f"darts_{channels}_{cells}", channels, cells)
    look = _exact if kernel == "exact" else _by_layers
    values_of: dict[str, dict[str, list[float]]] = {name: {"M_trace": [], "kappa": []} for name in CELLS}
    for seed in range(repeats):
        batch = load(data, size=batch_size, parts=1, seed=seed)
        for name, (trace, kappa) in zip(CELLS, look(space, batch, seed, device), strict=True):
            if trace is not None:
                values_of[name]["M_trace"].append(m_trace(trace, batch_size))
            if kappa is not None:
                values_of[name]["kappa"].append(kappa)
    return {
        name: {
            "width": topologies(CELLS[name])["normal"].width,
            "depth": topologies(CELLS[name])["normal"].depth,
            **{what: _summary(of) for what, of in values.items()},
        }
        for name, values in values_of.items()
    }


Pair = tuple[float | None, float | None]
"""trace and kappa of one kernel; None if unknown"""


def _exact(space: Any, batch: Batch, seed: int, device: str) -> Iterator[Pair]:
    scored = Task(space, [TRACE, KAPPA], batch, Origin(seed=seed), device).score(list(CELLS.values()))
    for scores, _ in scored:
        trace, kappa = (scores[proxy.text] for proxy in (TRACE, KAPPA))
        yield trace.value if trace.ok else None, kappa.value if kappa.ok else None


def _by_layers(space: Any, batch: Batch, seed: int, device: str) -> Iterator[Pair]:
    x, y = (part.to(device) for part in batch.part(0) if part is not None)
    for cell in CELLS.values():
        plan = space.plan(cell, batch.num_classes, batch.input_shape)
        network = PlanNetwork(plan, Origin(seed=seed), device)
        theta = layer_kernel(Handle(network, network.weights, x, y, seed, "train"))
        try:
            kappa = float(condition_number(theta))
        except DegenerateError:
            kappa = None
        yield float(theta.trace()), kappa


def _summary(values: list[float]) -> dict[str, Any]:
    mean = statistics.fmean(values) if values else None
    return {"values": values, "mean": mean, "deviation": statistics.stdev(values) if len(values) > 1 else None}


@dataclass(frozen=True)
class Asked:
    """The data and sizes; all fields but `out` are the arguments of `measured`."""

    data: str = option(about="an .npz file, or CIFAR as it is published")
    out: Path = option(about="the result, a JSON file")
    device: str = device_option()
    repeats: int = option(10)
    batch_size: int = option(64)
    channels: int = option(16)
    cells: int = option(8)
    kernel: Literal["exact", "layers"] = option("exact")


def run(asked: Asked) -> None:
    """Measure, and write the result to a file."""
    start, settings = time.perf_counter(), asdict(asked)
    out = settings.pop("out")
    cells = measured(**settings)
    facts = {"settings": settings, "machine": machine(asked.device), "seconds": time.perf_counter() - start}
    out.write_text(json.dumps({"cells": cells} | facts, indent=1) + "\n", encoding="utf-8")
