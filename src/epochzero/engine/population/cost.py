"""One by one or as a population: which is faster on a GPU, by counted work and a short calibration of the device.

A network of N nodes with M multiply-accumulates and A activations a sample takes, for a pass over B samples with
derivatives of order d, on the host and on the device

    work      = weight(d) (M B / macs + 8 A B / bytes)      seconds: each activation is written and read once
    host      = N launch times(d)                           and 700 launches for a network, whatever its size
    alone     = max(host, 4 work)                           host and device overlap
    together  = max(host / P, (1 + 11 s) work) + N launch / 2        of each of P networks

s is the share of the activations outside of routines, where maps of several networks are joined by copies and run as
grouped convolutions; the last term is what merging costs the host. `launch`, `macs` and `bytes` are measured once for a
device (about a second) and kept in a file. So small layers run in crowds and large ones alone, in any space.

The constants are from the suite's first run on one H200 (2026-11-19): layers took 3 to 8 times as long as `work` alone
and, outside of routines, 8 to 14 times together, over six spaces, so the choice is rough. On a CPU networks always run
alone: their scores do not depend on neighbours then.
"""

from __future__ import annotations

import json
import math
import os
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from epochzero.files import write_json
from epochzero.plan import Builder, Plan, execute
from epochzero.plan.init import draw
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.base import Op
from epochzero.plan.ops.conv import Conv
from epochzero.types import Origin

VERSION = 2
"""of what is measured and how"""
MOVED = 8
"""bytes for each activation: written and read"""
MERGING = 0.5
"""launches that merging a node takes as long as"""
WEIGHT = (1, 3, 6)
"""work of a pass with derivatives of this order, in forward passes"""
HOST = (4, 10, 12)
"""launches that such a pass takes as long as on the host, for each node, with all that is read of it"""
EACH = 700
"""launches that a network takes as long as on the host, beside its nodes"""
ALONE, TOGETHER, IN_ROUTINES = 4, 12, 1
"""times the work at a device's best that its kernels take"""
REPEATS = 5
LAYERS = 40
"""of the small network that is timed"""


@dataclass(frozen=True)
class Calibration:
    """The speed of a device."""

    launch: float
    """seconds for an operation on small tensors and its node"""
    macs: float
    """multiply-accumulates a second of a large convolution"""
    bytes: float
    """read and written a second by a copy"""


class Crossing(NamedTuple):
    """A pass over a network."""

    samples: int
    order: int
    """of its derivatives"""
    joined: int
    """activations of a sample that are copied where networks run together"""


def device_seconds(plan: Plan, passes: Iterable[Crossing], speed: Calibration) -> float:
    """Returns the seconds that a device works for a network that runs alone: what several processes cannot share."""
    return sum(ALONE * _work(plan, one, speed) for one in passes)


def _work(plan: Plan, one: Crossing, speed: Calibration) -> float:
    seconds = plan.flops / speed.macs + MOVED * plan.activations / speed.bytes
    return WEIGHT[one.order] * one.samples * seconds


def alone_is_faster(plan: Plan, passes: Iterable[Crossing], networks: float, speed: Calibration) -> bool:
    """Returns True if a network like this one is faster alone than in a population of this size."""
    launches = plan.totals.nodes * speed.launch
    alone = each = EACH * speed.launch
    together = MERGING * launches + each / networks
    for one in passes:
        work, (_, order, joined) = _work(plan, one, speed), one
        apart = joined / max(1, plan.activations)
        times = IN_ROUTINES + apart * (TOGETHER - IN_ROUTINES)
        alone += max(HOST[order] * launches, ALONE * work)
        together += max(HOST[order] * launches / networks, times * work)
    return alone < together


def suits_tape(plan: Plan) -> bool:
    """Returns True for a network whose layers nearly all have a backward pass of their own.

    Alone it then runs faster by a tape (`epochzero.engine.population.tape`) than by autograd, which other layers need.
    """
    layers = [node.op for node in plan.nodes if node.params]
    return sum(type(op).recorded is not Op.recorded for op in layers) >= OWN_BACKWARD * len(layers) > 0


OWN_BACKWARD = 0.9
"""of the layers with parameters; darts, mobilenet, mnasnet and resnet were faster by tape, autoformer_tiny slower"""


H200 = Calibration(launch=15e-6, macs=25e12, bytes=4e12)
"""about that of one, for a device that cannot be measured"""


@cache
def calibration(device: torch.device) -> Calibration:
    """Returns the speed of a device, from the file of an earlier process or measured now."""
    name = torch.cuda.get_device_name(device)
    facts = {"version": VERSION, "device": name, "torch": torch.__version__}
    file = cache_folder() / f"calibration-{''.join(c if c.isalnum() else '-' for c in name)}.json"
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        speed = Calibration(**kept.pop("speed"))
        fits = all(0 < value < math.inf for value in asdict(speed).values())
        why = "" if fits and kept == facts else "is of another version" if fits else "is damaged"
    except FileNotFoundError:
        speed, why = None, "missing"
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        speed, why = None, "is damaged"
    if speed is not None and not why:
        return speed
    if why != "missing":
        warnings.warn(f"'{file}' {why}: the speed of the device is measured again.", RuntimeWarning, stacklevel=2)
    try:
        speed = measured_speed(device)
    except RuntimeError:  # no memory is left, for one
        return H200
    with suppress(OSError):  # measured again by the next process
        file.parent.mkdir(parents=True, exist_ok=True)
        write_json(file, facts | {"speed": asdict(speed)})
    return speed


def cache_folder() -> Path:
    """Returns the folder of files that may be removed at any time."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "epochzero"


def measured_speed(device: torch.device) -> Calibration:
    """Measures a device, in about a second."""
    large = device.type != "cpu"
    net = Builder()
    x = net.input((4, 4, 4))
    for i in range(LAYERS // 2):
        x = net.add(ReLU(), net.add(Conv(4, 3, padding=1), x, name=f"conv{i}"), name=f"relu{i}")
    plan = net.plan()
    weights = {name: own.to(device) for name, own in draw(plan.weights, Origin()).items()}
    image = torch.ones(2, 4, 4, 4, device=device)
    with torch.no_grad():
        launch = quickest(lambda: execute(plan, weights, (image,)), device) / plan.totals.nodes
        maps = torch.ones(64 if large else 4, 128, 32, 32, device=device)
        window = torch.ones(128, 128, 3, 3, device=device)
        convolving = quickest(lambda: torch.conv2d(maps, window, padding=1), device)
        source = torch.ones(2**27 if large else 2**22, device=device)
        target = torch.empty_like(source)
        copying = quickest(lambda: target.copy_(source), device)
    return Calibration(launch, maps.numel() * window[0].numel() / convolving, MOVED * source.numel() / copying)


def quickest(work: Callable[[], object], device: torch.device) -> float:
    """Returns the seconds of the fastest of a few runs, after one that is not timed."""
    seconds = []
    for _ in range(REPEATS + 1):
        start = time.perf_counter()
        work()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        seconds.append(time.perf_counter() - start)
    return min(seconds[1:])
