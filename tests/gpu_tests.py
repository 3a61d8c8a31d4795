"""Runs the tests that need a GPU, each in a process of its own, several at once, and prints what each one took.

    PYTHONPATH=src python -m tests.gpu_tests --seconds 100

Most of their time is the compilation of kernels, which keeps one core busy. Tests that are not done in time have not
been checked, and are named; the exit code is 0 only if every test passed. With torch, numpy and Triton alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import unittest
from collections.abc import Iterator
from tempfile import TemporaryFile
from typing import IO, NamedTuple

MODULES = ("tests.test_gpu_lone", "tests.test_gpu_kernels", "tests.test_gpu_replay", "tests.test_gpu_side_stream")
FIRST = (
    "test_cells",
    "test_depthwise",
    "test_transformers",
    "test_modules_by",
    "test_operations",
    "test_populations",
    "test_recorded",
    "test_convolutions",
    "test_a_gradient",
)
"""the longest ones"""
AT_ONCE = 10


class Running(NamedTuple):
    """A test that has been started."""

    name: str
    process: subprocess.Popen[bytes]
    said: IO[bytes]
    since: float


def names() -> list[str]:
    """Every test, the longest first."""

    def each(suite: unittest.TestSuite) -> Iterator[str]:
        for one in suite:
            if isinstance(one, unittest.TestSuite):
                yield from each(one)
            else:
                yield one.id()

    found = each(unittest.defaultTestLoader.loadTestsFromNames(MODULES))
    return sorted(found, key=lambda name: not name.rpartition(".")[2].startswith(FIRST))


def start(name: str) -> Running:
    said = TemporaryFile()  # noqa: SIM115
    process = subprocess.Popen([sys.executable, "-m", "unittest", name], stdout=said, stderr=subprocess.STDOUT)
    return Running(name, process, said, time.perf_counter())


def outcome(code: int, said: str) -> str:
    """passed, failed, or skipped, which is not passed."""
    if code:
        return "FAILED"
    return "skipped" if "skipped=" in said else "passed"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=100.0, help="after which the tests under way are ended")
    parser.add_argument("--only", default="", help="parts of names, separated by commas")
    asked = parser.parse_args()
    begun = time.perf_counter()
    waiting = [name for name in names() if any(part in name for part in asked.only.split(","))]
    at_once = max(1, min(AT_ONCE, (os.cpu_count() or 2) - 2))
    running: list[Running] = []
    passed = every = 0
    while waiting or running:
        while waiting and len(running) < at_once:
            running.append(start(waiting.pop(0)))
        time.sleep(0.05)
        late = time.perf_counter() - begun > asked.seconds
        for one in list(running):
            code = one.process.poll()
            if code is None and not late:
                continue
            running.remove(one)
            if code is None:
                one.process.kill()
                one.process.wait()
            one.said.seek(0)
            said = one.said.read().decode(errors="replace")
            one.said.close()
            result = "NOT CHECKED (no time)" if code is None else outcome(code, said)
            every, passed = every + 1, passed + (result == "passed")
            print(f"{time.perf_counter() - one.since:7.1f} s  {result:8} {one.name}", flush=True)
            if result == "FAILED":
                print(said[-3000:], flush=True)
        if late:
            for name in waiting:
                print(f"    0.0 s  NOT CHECKED (no time) {name}", flush=True)
            every, waiting = every + len(waiting), []
    print(f"{passed} of {every} tests passed in {time.perf_counter() - begun:.0f} s", flush=True)
    return int(passed < every)


if __name__ == "__main__":
    sys.exit(main())
