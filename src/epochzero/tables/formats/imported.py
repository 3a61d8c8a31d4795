"""`.ezb`: a benchmark that was imported already."""

from __future__ import annotations

from epochzero.tables.formats import Format, formats
from epochzero.tables.table import ENDING
from epochzero.tables.tabular import TabularBenchmark

formats.register(
    "imported",
    Format(
        f"an imported {ENDING}",
        lambda source: source.ends(ENDING),
        lambda source: TabularBenchmark.open(source.path, source.space).rows(),
    ),
)
