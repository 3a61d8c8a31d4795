r"""NATS-Bench: a folder or `.tar` with a file for each architecture, or all of them in one file.

    NATS-tss-v1_0-3ffb9-simple/     meta.pickle.pbz2      {"meta_archs": [text, ...]}
                                    000000.pickle.pbz2    {"12": runs, "200": runs}, see `epochzero.tables.trials`
    NATS-tss-v1_0-3ffb9.pickle.pbz2                       {"meta_archs": ..., "arch2infos": {index: {"12": ...}}}

The topology space is `nb201` here, the size space (`NATS-sss-v1_0-50262`) `nats_sss`. A `.tar` is read in place.

The package `nats_bench` is not used: it unpickles whatever a file holds. Its files need three harmless names, so they
are read by `epochzero.tables.pickles`, one architecture at a time; the file that holds all of them needs the memory
for all of them.

Dong, Liu, Musial, Gabrys. NATS-Bench: benchmarking NAS algorithms for architecture topology and size. TPAMI 2021.
arXiv:2009.00437. Layout: nats_bench/api_topology.py and api_size.py of github.com/D-X-Y/NATS-Bench.
"""

from __future__ import annotations

import bz2
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

from epochzero.tables import pickles, trials
from epochzero.tables.rows import Gatherer, Rows

ENDING = ".pickle.pbz2"
KIND = "a file of NATS-Bench"


def read(path: Path) -> Rows:
    """The rows of a folder, a `.tar`, or one `.pickle.pbz2`."""
    gatherer, count = Gatherer(), None
    if path.name.endswith(ENDING):
        with pickles.refusing(str(path), KIND), path.open("rb") as packed:
            gather_all(gatherer, _unpacked(packed))
        return gatherer.rows(str(path))
    for name, file in _members(path):
        with pickles.refusing(name, KIND):
            content = _unpacked(file)
            if "meta_archs" in content:
                count = len(content["meta_archs"])
            else:
                results = list(content.values())
                trials.gather(gatherer, str(results[0]["arch_str"]), results)
    rows = gatherer.rows(str(path))
    if count is not None and len(rows.archs) != count:
        rows.notes.append(f"{path} holds {len(rows.archs):,} of the {count:,} architectures that it lists.")
    return rows


def gather_all(into: Gatherer, everything: dict[str, Any]) -> None:
    """All architectures of the one file that NAS-Bench-201 and NATS-Bench also come as."""
    for index, results in sorted(everything["arch2infos"].items()):
        trials.gather(into, str(everything["meta_archs"][index]), results.values())


def _members(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    """The files of a folder or archive with their names, the architectures' in the order of their numbers."""
    if path.is_dir():
        for file in sorted(file for file in path.iterdir() if file.name.endswith(ENDING)):
            with file.open("rb") as opened:
                yield str(file), opened
        return
    with pickles.refusing(str(path), "a tar archive"), tarfile.open(path, "r:") as archive:
        members = [member for member in archive.getmembers() if member.isfile() and member.name.endswith(ENDING)]
        for member in sorted(members, key=lambda member: member.name):
            if (packed := archive.extractfile(member)) is not None:
                with packed:
                    yield f"{path}:{member.name}", packed


def _unpacked(file: IO[bytes]) -> dict[str, Any]:
    with bz2.BZ2File(file) as packed:
        value = pickles.load(packed)
    if not isinstance(value, dict) or not value:
        raise ValueError("its pickle holds no dictionary")
    return value
