"""Cores and memory that this process may use: affinity, and limits of control groups, which containers set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

GROUPS = Path("/sys/fs/cgroup")
PROC = Path("/proc")


def cores() -> int:
    """Returns the number of cores that this process may use, at least 1."""
    own = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [*_of_groups("cpu.max"), *_of_groups("cpu.cfs_quota_us", "cpu.cfs_period_us")]
    granted = [quota / period for quota, period in quotas if quota > 0]  # -1 is no limit
    return max(1, int(min([own, *granted])))


def copies() -> float:
    """Returns how many more processes as large as this one has been fit into memory; infinity if no system says."""
    free = [_kib(PROC / "meminfo", "MemAvailable")]
    limits = [*_of_groups("memory.max", "memory.current")]
    limits += _of_groups("memory.limit_in_bytes", "memory.usage_in_bytes")
    free += [most - used for most, used in limits]
    peak = _kib(PROC / "self" / "status", "VmHWM")
    return float("inf") if peak == float("inf") else max(0.0, min(free) / peak)


def _of_groups(*names: str) -> Iterator[list[float]]:
    """The numbers in these files of each control group around this process, of either version; `max` is infinity."""
    for line in _text(PROC / "self" / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        root = GROUPS / controllers if controllers else GROUPS
        group = root / path.lstrip("/")
        for place in (group, *group.parents):
            texts = [_text(place / name) for name in names]
            if all(texts):
                yield [float(word.replace("max", "inf")) for text in texts for word in text.split()]
            if place == root:
                break


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _kib(path: Path, field: str) -> float:
    """A field such as `VmHWM:  1024 kB`, in bytes."""
    lines = (line.split() for line in _text(path).splitlines() if line.startswith(f"{field}:"))
    return next((1024 * float(words[1]) for words in lines), float("inf"))
