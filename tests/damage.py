"""Damage to files."""

from __future__ import annotations

from pathlib import Path

from torch import Tensor


def flip(file: Path, numbers: Tensor) -> None:
    """One bit in the middle of these numbers, where a file holds them."""
    content = bytearray(file.read_bytes())
    held = numbers.numpy().tobytes()
    content[content.index(held) + len(held) // 2] ^= 1
    file.write_bytes(content)
