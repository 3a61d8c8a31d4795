"""Coefficients as papers print them."""

from __future__ import annotations


def short(value: float, digits: int = 3) -> str:
    """`.892`, `-.10`, `1.000`"""
    rounded = round(value, digits) + 0.0  # which turns -0.0 into 0.0
    written = f"{rounded:.{digits}f}"
    return written.replace("0.", ".", 1) if abs(rounded) < 1 else written
