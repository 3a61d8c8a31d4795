"""Rank agreement of our scores with those of another source, proxy by proxy, as a Markdown table.

    python benchmarks/agreement.py docs/data/nb201_1000_cifar10.csv.gz --with zc_nb201_9445.csv.gz --prefix cifar10_

Ours: files of `python -m epochzero.bare sweep`. The other source: such a file too, or a table with a column
arch_str and
one column for each proxy, its name after the prefix (`nwot` is naswot), as NAS-Bench-Suite-Zero's values are published.
"""

from __future__ import annotations

import argparse
import csv
import gzip
from pathlib import Path

from correlations import COLUMNS, SWEPT, read_scores
from epochzero.errors import DegenerateError
from epochzero.stats import spearman

ALIASES = {"nwot": "naswot"}
Values = dict[str, dict[str, float]]
"""proxy to architecture to value"""


def read(path: Path, prefix: str) -> Values:
    """The values of either kind of file."""
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", newline="", encoding="utf-8") as file:
        rows = csv.DictReader(file)
        if any(set(rows.fieldnames or ()) >= known for known in (COLUMNS, SWEPT)):
            return scored(path)
        names = {c: c.removeprefix(prefix) for c in rows.fieldnames or () if c.startswith(prefix) and c != "arch_str"}
        found: Values = {ALIASES.get(name, name): {} for name in names.values()}
        for row in rows:
            for column, name in names.items():
                if row[column]:
                    found[ALIASES.get(name, name)][row["arch_str"]] = float(row[column])
    return found


def scored(*paths: Path) -> Values:
    return {
        proxy: {arch: score.value for arch, score in of_arch.items() if score.ok}
        for proxy, of_arch in read_scores(paths).items()
    }


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scores", type=Path, nargs="+")
    parser.add_argument("--with", dest="other", type=Path, required=True)
    parser.add_argument("--prefix", default="")
    asked = parser.parse_args()
    ours, theirs = scored(*asked.scores), read(asked.other, asked.prefix)
    print("| proxy | networks | Spearman |\n|---|---|---|")
    for proxy in sorted(ours.keys() & theirs.keys()):
        both = sorted(ours[proxy].keys() & theirs[proxy].keys())
        try:
            found = spearman([ours[proxy][arch] for arch in both], [theirs[proxy][arch] for arch in both])
        except DegenerateError as reason:
            print(f"| {proxy} | {len(both)} | none: {reason} |")
        else:
            print(f"| {proxy} | {found.n} | {found.value:.4f} [{found.low:.4f}, {found.high:.4f}] |")


if __name__ == "__main__":
    main()
