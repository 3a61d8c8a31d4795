"""The fields of a dataclass as command-line options of a study; `epochzero_papers.__main__` reads them."""

from __future__ import annotations

from dataclasses import MISSING, field
from typing import Any

from epochzero.engine.device import default_device


def option(default: Any = MISSING, about: str = "", *, positional: bool = False) -> Any:
    """Returns a field with a help text; without a default the option has to be given."""
    return field(default=default, metadata={"about": about, "positional": positional})


def device_option() -> Any:
    """Returns the field of a device: cuda where there is a GPU, cpu elsewhere."""
    about = "cpu, cuda, cuda:1, ...; default: cuda where there is a GPU"
    return field(default_factory=default_device, metadata={"about": about})
