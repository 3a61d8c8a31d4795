"""Counts, shapes and settings as people write them: `1.5M`, `3,224,224`, `population=100`."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress

from epochzero.errors import UserError
from epochzero.types import Shape

MOST_WORKERS = 4096
"""largest number of workers, and of threads of each, that is accepted"""
UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
COUNT = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)\s*([kmgb]?)", re.IGNORECASE)


def count(given: str | float | None, option: str) -> int | None:
    """`450M`, `1.5e6`, `1500000` or a number as a whole number."""
    if given is None:
        return None
    match = COUNT.fullmatch(str(given).strip().replace("_", "").replace(",", ""))
    if match is None:
        raise UserError(f"{option} takes a number such as 1500000, 1.5e6 or 1.5M, not {given!r}.")
    number = float(match[1]) * UNITS[match[2].lower()]
    if not 1 <= number <= 1e18:
        raise UserError(f"{option} takes a number from 1 to 1e18, not {given!r}.")
    return int(number)


def shape(text: str | None) -> Shape | None:
    """`3,224,224` or `3x224x224` as a shape."""
    if text is None:
        return None
    sizes = [size.strip() for size in re.split("[,x]", text)]
    if not all(size.isdecimal() and 1 <= int(size) <= 100_000 for size in sizes):
        raise UserError(f"--input-shape takes whole numbers such as 3,224,224, not {text!r}.")
    return tuple(map(int, sizes))


def skips(unreadable: str) -> bool:
    """True for `skip`, False for `stop`."""
    if unreadable not in ("stop", "skip"):
        raise UserError(f"--unreadable takes stop or skip, not {unreadable!r}.")
    return unreadable == "skip"


def key_values(pairs: Iterable[str]) -> dict[str, int | float | str]:
    """`["population=100"]` as a dictionary, numbers as numbers."""
    read: dict[str, int | float | str] = {}
    for pair in pairs:
        key, equals, value = (piece.strip() for piece in pair.partition("="))
        if not equals or not key or not value:
            raise UserError(f"--option takes key=value, not {pair!r}.")
        read[key.replace("-", "_")] = number(value)
    return read


def number(text: str) -> int | float | str:
    """A whole number if it is one, else a float, else the text itself."""
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text
