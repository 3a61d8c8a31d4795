r"""Structure: baselines that count layers, channels and values, and run nothing.

    depth       = convolutions and linear layers on the longest path from input to output
    layers      = number of layers of a kind
    width       = mean over convolutions and linear layers of log C          C output channels
    activations = sum over convolutions and linear layers of the values that each gives for one sample

Options:
    path        (depth) longest or shortest
    kind        (layers) weights for convolutions and linear layers, or conv, linear, norm, activation, pool,
                attention, identity, zero

Beware: baselines. They see neither weights nor data; a proxy that does not beat them measures size.

Beware (depth): where the longest paths of all networks are equal, all tie. A zero operation ends a path.

Beware (width): it ignores depth and wiring: networks of one width tie.

Beware (activations): it grows with the resolution at which layers work more than with their weights.

Kadlecova, Lukasik, Pilat, Vidnerova, Safari, Neruda, Hutter. Surprisingly strong performance prediction with neural
graph features. ICML 2024. arXiv:2404.16551; activations: Radosavovic, Kosaraju, Girshick, He, Dollar. Designing
network design spaces. CVPR 2020. arXiv:2003.13678
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import get_args

from epochzero.engine import Need, Pass, Trace, need, proxy
from epochzero.errors import DegenerateError, UserError
from epochzero.plan.ops.base import Kind

READS = [need(Pass(), "structure")]
KINDS = ("weights", *(kind for kind in get_args(Kind) if kind))


def needs_path(path: str) -> Sequence[Need]:
    if path not in ("longest", "shortest"):
        raise UserError(f"depth takes path=longest or path=shortest, not {path!r}.")
    return READS


@proxy(needs=needs_path, higher_is_better=True)
def depth(trace: Trace, *, path: str = "longest") -> float:
    """Depth: the number of convolutions and linear layers on the longest path from input to output."""
    paths = trace.structure.paths
    if paths is None:
        raise DegenerateError("no path leads from the input to the output")
    return paths.longest if path == "longest" else paths.shortest


def needs_kind(kind: str) -> Sequence[Need]:
    if kind not in KINDS:
        raise UserError(f"layers takes a kind of {', '.join(KINDS)}, not {kind!r}.")
    return READS


@proxy(needs=needs_kind, higher_is_better=True)
def layers(trace: Trace, *, kind: str = "weights") -> float:
    """Layers: the number of convolutions and linear layers, or of another kind of layer."""
    structure = trace.structure
    return len(structure.weighted) if kind == "weights" else sum(layer.kind == kind for layer in structure.layers)


@proxy(needs=READS, higher_is_better=True)
def width(trace: Trace) -> float:
    """Width: the mean logarithm of the number of channels of convolutions and linear layers."""
    channels = [layer.channels for layer in trace.structure.weighted]
    if not channels:
        raise DegenerateError("the network has no conv or linear layer")
    return sum(map(math.log, channels)) / len(channels)


@proxy(needs=READS, higher_is_better=True)
def activations(trace: Trace) -> float:
    """Activations: the number of values that convolutions and linear layers give for one sample."""
    return sum(layer.values for layer in trace.structure.weighted)
