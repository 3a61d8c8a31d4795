"""What the commands share that need torch and numpy alone: `python -m epochzero.evaluate.speed.measure`, `.sweep`
and their kin.
"""

from __future__ import annotations

import datetime
import gc
import os
import platform
import re
import sys
from collections.abc import Callable

import torch

from epochzero import __version__
from epochzero.engine.precision import allow_tf32, set_flags
from epochzero.errors import MachineError, UserError
from epochzero.store import JSON
from epochzero.types import Shape

UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
COUNT = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([kmgb]?)", re.IGNORECASE)


def command(work: Callable[[], None]) -> None:
    """Run it, with the sentences and exit codes of the `epochzero` command."""
    spare_the_collector()
    try:
        work()
    except UserError as error:
        _stop(str(error), 2)
    except MachineError as error:
        _stop(str(error), 1)
    except OSError as error:
        _stop(f"{error.strerror or error}: '{error.filename or 'standard output'}'.", 2 if error.filename else 1)
    except KeyboardInterrupt:
        _stop("Stopped.", 130)


def _stop(sentence: str, code: int) -> None:
    print(f"error: {' '.join(sentence.splitlines())}", file=sys.stderr)
    sys.exit(code)


def spare_the_collector() -> None:
    """What is imported stays: looking for garbage in it would cost as much as merging a population, again and again."""
    gc.collect()
    gc.freeze()


def default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def shape(text: str | None) -> Shape | None:
    """`3,224,224` as a shape."""
    if text is None:
        return None
    sizes = text.replace("x", ",").split(",")
    if not all(size.strip().isdecimal() and 1 <= int(size) <= 100_000 for size in sizes):
        raise UserError(f"--input-shape takes whole numbers such as 3,224,224, not {text!r}.")
    return tuple(map(int, sizes))


def count(text: str | None, what: str) -> int | None:
    """`450M`, `1.5e6` or `1500000` as a whole number."""
    if text is None:
        return None
    match = COUNT.fullmatch(text.strip().replace("_", "").replace(",", ""))
    if match is None:
        raise UserError(f"{what} takes a number such as 1500000, 1.5e6 or 1.5M, not {text!r}.")
    number = float(match[1]) * UNITS[match[2].lower()]
    if not 1 <= number <= 1e18:
        raise UserError(f"{what} takes a number from 1 to 1e18, not {text!r}.")
    return int(number)


def set_precision(tf32: bool) -> None:
    """Whether convolutions and products of matrices on a GPU may round their factors to TF32.

    Here and in worker processes that are started from now on, in what is scored and in anything else.
    """
    allow_tf32(tf32)
    set_flags(tf32)


def machine(device: str) -> dict[str, JSON]:
    """What to write down about the machine with a measurement."""
    cuda = torch.device(device).type == "cuda"
    return {
        "device": torch.cuda.get_device_name(device) if cuda else platform.processor() or platform.machine(),
        "cpus": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
        "epochzero": __version__,
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
