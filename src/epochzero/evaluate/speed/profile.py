"""Where the time of scoring goes: how long a GPU is busy, its kernels, and the functions that keep the host busy."""

from __future__ import annotations

import cProfile
import pstats
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from torch._C._autograd import DeviceType
from torch.profiler import ProfilerActivity, profile

from epochzero.evaluate.speed.timing import Job, scorer, settle
from epochzero.registry import spaces

MOST = 10
"""kernels and functions that are named"""
SHOWN = 90
"""characters of a kernel's name"""
FEW = 4
"""networks that are profiled"""


@dataclass(frozen=True)
class Cost:
    """A kernel or function, by name."""

    name: str
    calls: float
    """for each network"""
    ms: float
    """for each network"""


@dataclass(frozen=True)
class Profile:
    """The costs of a network, in milliseconds."""

    networks: int
    wall: float
    """without a profiler"""
    busy: float
    """in which at least one kernel or copy runs"""
    launches: float
    """kernels and copies"""
    kernels: tuple[Cost, ...]
    functions: tuple[Cost, ...]
    """of the processor, without what they call; under Python's profiler, which makes them slower"""


def profiled(job: Job) -> Profile:
    """Scores a few networks of a job three times: as they are, and under each profiler."""
    space = spaces[job.space]
    archs = [space.parse(text) for text in job.archs[:FEW]]
    kind, activity = (
        (DeviceType.CPU, ProfilerActivity.CPU) if job.device == "cpu" else (DeviceType.CUDA, ProfilerActivity.CUDA)
    )
    with scorer(job) as score:
        score(archs)
        settle(job.device)
        start = time.perf_counter()
        score(archs)
        settle(job.device)
        wall = time.perf_counter() - start
        with profile(activities=[activity]) as ran:
            score(archs)
            settle(job.device)
        with cProfile.Profile() as called:
            score(archs)
            settle(job.device)
    assert ran.profiler is not None and ran.profiler.kineto_results is not None
    events = [event for event in ran.profiler.kineto_results.events() if event.device_type() == kind]
    count = len(archs)
    spans = [(event.start_ns(), event.start_ns() + event.duration_ns()) for event in events]
    calls, took = Counter[str](), Counter[str]()
    for event in events:
        calls[event.name()] += 1
        took[event.name()] += event.duration_ns()
    kernels = [Cost(name[:SHOWN], calls[name] / count, ns / count / 1e6) for name, ns in took.most_common(MOST)]
    busy = union(spans) / count / 1e6
    return Profile(count, 1e3 * wall / count, busy, len(events) / count, tuple(kernels), _functions(called, count))


def union(spans: Iterable[tuple[int, int]]) -> int:
    """Returns the length of what intervals cover together."""
    covered, until = 0, None
    for begin, end in sorted(spans):
        start = begin if until is None else max(begin, until)
        covered += max(0, end - start)
        until = end if until is None else max(until, end)
    return covered


def _functions(called: cProfile.Profile, count: int) -> tuple[Cost, ...]:
    known = pstats.Stats(called).stats  # type: ignore[attr-defined]
    costs = [
        Cost(f"{Path(file).name}:{line}({name})"[:SHOWN], calls / count, 1e3 * own / count)
        for (file, line, name), (_, calls, own, _, _) in known.items()
    ]
    return tuple(sorted(costs, key=lambda cost: -cost.ms)[:MOST])


def as_text(title: str, found: Profile) -> str:
    """A profile in a few lines."""
    share = found.busy / found.wall if found.wall else 0.0
    lines = [
        f"profile of {title}: {found.wall:.1f} ms a network, device busy {found.busy:.2f} ms ({share:.0%}), "
        f"{found.launches:.0f} kernels and copies"
    ]
    for head, costs in (("device", found.kernels), ("processor", found.functions)):
        lines += [f"  {head:9} {cost.ms:8.2f} ms {cost.calls:8.0f} calls  {cost.name}" for cost in costs]
    return "\n".join(lines)
