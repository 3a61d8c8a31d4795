"""`epochzero predict`, the old spelling of `epochzero recommend predict`."""

from __future__ import annotations

from epochzero.cli.recommend.old_spelling import predict

__all__ = ["predict"]
