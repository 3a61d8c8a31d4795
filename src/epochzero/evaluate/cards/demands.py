"""The data, passes and layers that a proxy needs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from epochzero.engine import Pass, Proxy
from epochzero.engine.passes import merged
from epochzero.engine.reads import BACKWARD, KERNELS, LOSS_GRADIENTS, NEED_FORWARD, OF_LAYERS, OF_TRAINABLE

COUNTS = {"B": "one for each sample", "BK": "one for each logit of each sample", "L": "one between each two blocks"}

LAYERS = {
    "every layer": {"layers"},
    "ReLU": {"relus"},
    "batch norm": {"norms"},
    "blocks": {"blocks", "block_gradients"},
    "conv, linear": OF_LAYERS,
    "all trainable": OF_TRAINABLE,
}
"""layers by the reads that use them"""


@dataclass(frozen=True)
class Demands:
    """The demands of a proxy with its settings."""

    data: str
    """`2 batches`, `1 sample`, or generated inputs: `noise`, `ones`, `circle`; `none` if nothing runs"""
    labels: bool
    backward: bool | None
    per_sample: bool | None
    """true if it takes the gradient of each sample separately"""
    second_derivatives: bool | None
    forward_passes: str
    backward_passes: str
    """numbers, with letters as in `COUNTS`; `own`, and None above, if it runs passes that it does not declare"""
    weights: str
    norms: str
    layers: str
    """types of layers that it uses; `own` likewise"""


def demands(proxy: Proxy) -> Demands:
    """The demands of this proxy with its settings."""
    passes = {run: {name for name, _ in items} for run, items in merged(proxy.needs).items()}
    runs = {run: reads for run, reads in passes.items() if reads & (NEED_FORWARD | {"network"}) or _on_circle(run)}
    every = {name for reads in passes.values() for name in reads}
    untold = "network" in every and proxy.runs == (0, "")
    forward, backward = 0, Counter[str]()
    for run, reads in runs.items():
        forward += bool(reads & NEED_FORWARD) or _on_circle(run)
        backward[""] += bool(reads & LOSS_GRADIENTS)
        backward.update(unit for read, unit in BACKWARD.items() if read in reads)
        if "network" in reads:
            forward += proxy.runs[0]
            backward.update([proxy.runs[1]] if proxy.runs[1] else [])
    counts = _written(backward)
    layers = "; ".join(name for name, reads in LAYERS.items() if reads & every)
    return Demands(
        data=_data(list(runs)),
        labels=proxy.needs_labels,
        backward=None if untold else counts != "0",
        per_sample=None if untold else bool(every & KERNELS),
        second_derivatives=None if untold else bool(every & {"hessian_gradients", "acceleration"}),
        forward_passes="own" if untold else str(forward),
        backward_passes="own" if untold else counts,
        weights=_weights(list(runs)),
        norms=", ".join(sorted({run.norm for run in runs})),
        layers=proxy.valid or layers or ("own" if untold else "any"),
    )


def _on_circle(run: Pass) -> bool:
    return run.inputs == "circle"


def _written(counts: Counter[str]) -> str:
    """A sum of passes such as `2`, `B`, `1 + B`."""
    terms = [f"{times if times > 1 or not unit else ''}{unit}" for unit, times in counts.items() if times]
    return " + ".join(terms) or "0"


def _data(runs: list[Pass]) -> str:
    of_data = [run for run in runs if run.inputs == "batch"]
    parts = []
    batches = len({run.part for run in of_data if run.only is None})
    samples = sum(last - first for first, last in {run.only for run in of_data if run.only is not None})
    if batches:
        parts.append(f"{batches} batch{'es' * (batches > 1)}")
    if samples:
        parts.append(f"{samples} sample{'s' * (samples > 1)}")
    drawn = dict.fromkeys(run.inputs for run in runs if run.inputs != "batch")
    return ", ".join([*parts, *drawn]) or "none"


def _weights(runs: list[Pass]) -> str:
    drawn = Counter(init for init, _ in {(run.init, run.draw) for run in runs if run.init})
    schemes = [f"drawn anew ({scheme}{f', {times} times' * (times > 1)})" for scheme, times in drawn.items()]
    if any(run.weights == "absolute" for run in runs):
        schemes.append("absolute values of the network's own")
    return ", ".join(schemes) or "the network's own"
