"""Devices: checks, the default device, and the facts that are recorded with a measurement."""

from __future__ import annotations

import datetime
import os
import platform
from typing import Any

import torch

from epochzero import __version__
from epochzero.errors import UserError


def usable(device: str) -> None:
    """Raises UserError for a device that this machine does not have."""
    try:
        torch.device(device)
    except RuntimeError:
        raise UserError(f"The device '{device}' cannot be used here (torch knows no such device): try cpu.") from None
    try:
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, ImportError) as error:
        reason = str(error).strip().splitlines()[0].split(". ")[0]
        if "busy or unavailable" in reason:
            reason = "another process has it to itself, or left it so: wait, or look at nvidia-smi"
        raise UserError(f"The device '{device}' cannot be used here ({reason}): try cpu.") from None


def default_device() -> str:
    return "cuda" if torch.cuda.is_available() else "cpu"


def machine(device: str) -> dict[str, Any]:
    """Returns facts about the machine and its software, recorded with a measurement."""
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
