"""The manifest of a run: enough to repeat it, without names of persons or machines."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from epochzero.store.sqlite import JSON

PACKAGE = Path(__file__).resolve().parents[1]


def manifest(settings: Mapping[str, JSON]) -> dict[str, JSON]:
    """Returns the resolved settings, versions, machine and command of a run that starts now.

    Unknown values are null. The user's home folder is written as `~`, the program without its folder.
    """
    return {
        "settings": _without_home(dict(settings)),
        "versions": {
            "epochzero": _version("epochzero"),
            "python": platform.python_version(),
            "torch": _version("torch"),
            "numpy": _version("numpy"),
        },
        "git": _checkout(),
        "machine": {
            "platform": platform.platform(),
            "cpu": _cpu_name(),
            "cpu_count": os.cpu_count(),
            "memory_bytes": _memory_bytes(),
        },
        "argv": _without_home([*(Path(program).name for program in sys.argv[:1]), *sys.argv[1:]]),
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _checkout() -> JSON:
    """Returns the commit, and whether the package's folder differs from it; None if it is not under git."""
    if not _git("ls-files", "--error-unmatch", "errors.py"):
        return None  # perhaps inside somebody's checkout (as in project/.venv), but not part of it
    commit, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", ".")
    return None if commit is None or changes is None else {"commit": commit, "dirty": changes != ""}


def _git(*arguments: str) -> str | None:
    """Returns git's answer in the package's folder; None without git, checkout or answer."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(
            command,
            cwd=PACKAGE,
            env=environment,
            capture_output=True,
            encoding="utf-8",
            timeout=10,
            check=True,
        )
    except (OSError, UnicodeError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _cpu_name() -> str | None:
    try:
        listing = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        listing = ""
    name = re.search(r"^model name\s*:\s*(.+)$", listing, re.MULTILINE)
    return name[1] if name else platform.processor() or None


def _memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def _without_home(value: JSON) -> JSON:
    """Replaces `--data=/home/ada/x` by `--data=~/x` at any depth of `value`."""
    if isinstance(value, str):
        for home in _homes():
            value = re.sub(rf"(?<![\w.~-]){re.escape(home)}(?![\w.-])", "~", value)
        return value
    if isinstance(value, Mapping):
        return {name: _without_home(part) for name, part in value.items()}
    if isinstance(value, Sequence):
        return [_without_home(part) for part in value]
    return value


def _homes() -> set[str]:
    """Returns the names of the home folder; none if it is the root, as in some containers."""
    try:
        home = Path.home()
    except RuntimeError:
        return set()
    return {str(home), str(home.resolve())} - {"/"}
