"""Score many networks of a space into one table.

    python -m epochzero.bare sweep --all --share --proxies "all but kernels" --data cifar10.npz --out scores.csv
    python -m epochzero.bare sweep --networks 1000 --proxies "dextr,zico(batches=4)" --workers 8 --out scores.csv

Networks are all those of the space, or drawn uniformly by seed, or read from a text file, one architecture per line.
Next to the table, a JSON file says how it was made. Rows are written every few seconds, and the same command resumes a
table that was interrupted.
"""

from __future__ import annotations

import argparse
import os
import time
from pathlib import Path

from epochzero.bare import add_crew
from epochzero.engine.device import default_device
from epochzero.study.sweep import EACH, MOST, SweepSettings, sweep


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--space", default="nb201")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--networks", type=int, default=100, help="number drawn by the seed; default: 100")
    which.add_argument("--archs", type=Path, help="a text file with one architecture a line")
    which.add_argument("--all", action="store_true", help="every architecture of the space")
    parser.add_argument("--share", action="store_true", help="cells that are the same by symmetry are scored once")
    parser.add_argument("--proxies", default="dextr", help="names, or bundles such as 'all but kernels'")
    parser.add_argument("--data", default="pink")
    parser.add_argument("--data-seed", type=int, default=0)
    parser.add_argument("--input-shape", help="of one sample of noise: 3,32,32")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--init", default="default")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--device", default=default_device())
    parser.add_argument("--tf32", action="store_true", help="let cuDNN and cuBLAS round factors to TF32")
    add_crew(parser)
    parser.add_argument(
        "--population",
        type=int,
        help="networks that a worker gets at a time at most, of which as many run together as memory allows; fewer "
        f"where they take more than a few seconds, since rows are written after each. Default: {MOST}, or {EACH} with "
        "several workers",
    )
    parser.add_argument(
        "--out", type=Path, required=True, help="the table, a CSV file; its settings go into a JSON file"
    )


def run(asked: argparse.Namespace) -> None:
    """Sweeps, and counts the time from the start of this process."""
    begun = time.perf_counter() - process_age()
    sweep(SweepSettings(**vars(asked)), begun)


def process_age() -> float:
    """Seconds since this process was started, loading torch included; 0 where the system does not tell."""
    try:
        fields = Path("/proc/self/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    except (OSError, AttributeError, ValueError, IndexError):
        return 0.0
