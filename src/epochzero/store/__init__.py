"""Results on disk: scores, runs, what they were made with, and their export."""

from epochzero.store.adding import add
from epochzero.store.export import export
from epochzero.store.manifest import manifest
from epochzero.store.salvage import salvage
from epochzero.store.sqlite import JSON, Evaluated, Run, ScoreRow, Store

__all__ = ["JSON", "Evaluated", "Run", "ScoreRow", "Store", "add", "export", "manifest", "salvage"]
