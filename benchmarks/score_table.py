"""Tables of `python -m epochzero.bare sweep` as one Parquet file that says how it was made, for docs/data.

    python benchmarks/score_table.py scores.csv --with kernels.csv --version 0.1.0 --out nb201_all_cifar10.parquet

A table comes with a JSON file. `--with` adds the columns that the first one lacks, of a CSV file or of a
Parquet file that was made so; settings and rows have to be the same. The facts go into the Parquet file under the key
`epochzero`, and into a JSON file of the same name.
"""

from __future__ import annotations

import argparse
import csv
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

TEXT = ("arch", "scored_as", "reasons")
NOT_ASKED = ("tf_tas",)
"""proxies that mean nothing for this space"""


@dataclass
class Scores:
    """A table and how it was made."""

    facts: dict[str, Any]
    rows: dict[str, dict[str, Any]]
    """by architecture"""

    @property
    def proxies(self) -> list[str]:
        return [name for name in self.facts["proxies"] if name not in NOT_ASKED]


def read(path: Path) -> Scores:
    facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    for run in facts["runs"]:
        run.setdefault("proxies", [name for name in facts["proxies"] if name not in NOT_ASKED])
    if path.suffix == ".parquet":
        return Scores(facts, {row["arch"]: row for row in pq.read_table(path).to_pylist()})
    with path.open(encoding="utf-8", newline="") as file:
        rows = {row["arch"]: dict(row) for row in csv.DictReader(file)}
    for row in rows.values():
        row |= {name: float(row[name]) if row[name] else None for name in facts["proxies"]}
    return Scores(facts, rows)


def joined(scores: Scores, more: Scores) -> Scores:
    """The first with what only the second has."""
    if scores.facts["settings"] != more.facts["settings"] or scores.rows.keys() != more.rows.keys():
        raise SystemExit("the tables differ in their settings or networks")
    new = [name for name in more.proxies if name not in scores.proxies]
    runs = [run | {"proxies": [p for p in run["proxies"] if p in new]} for run in more.facts["runs"]]
    facts = scores.facts | {
        "proxies": scores.proxies + new,
        "runs": scores.facts["runs"] + [run for run in runs if run["proxies"]],
    }
    rows = {}
    for arch, row in scores.rows.items():
        why = reasons(row, scores.proxies) | reasons(more.rows[arch], new)
        own = {name: more.rows[arch][name] for name in new}
        rows[arch] = row | own | {"reasons": json.dumps(why, ensure_ascii=False) if why else ""}
    return Scores(facts, rows)


def reasons(row: dict[str, Any], names: list[str]) -> dict[str, Any]:
    return {name: why for name, why in json.loads(row["reasons"] or "{}").items() if name in names}


def write(scores: Scores, out: Path) -> None:
    facts = scores.facts | {"proxies": scores.proxies}
    rows = list(scores.rows.values())
    text = {name: pa.array([row[name] for row in rows], pa.string()) for name in TEXT if name in rows[0]}
    values = {name: pa.array([row[name] for row in rows], pa.float64()) for name in scores.proxies}
    last = {"reasons": text.pop("reasons")}
    table = pa.table({**text, **values, **last}).replace_schema_metadata({"epochzero": json.dumps(facts)})
    pq.write_table(table, out, compression="zstd")
    out.with_suffix(".json").write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("scores", type=Path)
    parser.add_argument("--with", type=Path, action="append", default=[], dest="more")
    parser.add_argument("--version", help="of the package, where a sweep ran from its sources and could not tell")
    parser.add_argument("--out", type=Path, required=True)
    asked = parser.parse_args()
    found = read(asked.scores)
    if asked.version:
        for run in found.facts["runs"]:
            run["epochzero"] = asked.version
    for path in asked.more:
        found = joined(found, read(path))
    write(found, asked.out)
    size = asked.out.stat().st_size / 2**20
    print(f"{len(found.rows)} rows, {len(found.proxies)} proxies, {size:.2f} MiB in {asked.out}")


if __name__ == "__main__":
    main()
