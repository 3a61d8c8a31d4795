"""`python -m epochzero.bare`: searches, sweeps and measurements on a machine with torch and numpy alone."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from epochzero.errors import explained
from epochzero.executors.worker import freeze_garbage


def add_crew(parser: argparse.ArgumentParser) -> None:
    """Adds the options that say who scores."""
    parser.add_argument(
        "--workers", type=int, help="processes that share the device; default: 1, or on a CPU all cores"
    )
    parser.add_argument("--threads", type=int, help="threads for each network on a CPU; default: what is faster")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="the same bits each time: deterministic, on one thread, one by one",
    )


def command(work: Callable[[], object]) -> None:
    """Runs a program with the error messages and exit codes of the `epochzero` command."""
    freeze_garbage()
    try:
        work()
    except KeyboardInterrupt:
        sentence, code = "Stopped.", 130
    except Exception as error:
        sentence, code = explained(error)
    else:
        return
    print(f"error: {sentence}", file=sys.stderr)
    sys.exit(code)
