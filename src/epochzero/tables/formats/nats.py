r"""NATS-Bench: a folder or `.tar` with a file for each architecture, or one file for all of them.

    NATS-tss-v1_0-3ffb9-simple/     meta.pickle.pbz2      {"meta_archs": [text, ...]}
                                    000000.pickle.pbz2    {"12": runs, "200": runs}, see `epochzero.tables.trials`
    NATS-tss-v1_0-3ffb9.pickle.pbz2                       {"meta_archs": ..., "arch2infos": {index: {"12": ...}}}

The topology space is `nb201` here, the size space (`NATS-sss-v1_0-50262`) is `nats_sss`. A `.tar` is not unpacked.

The package `nats_bench` is not used, because it unpickles anything. The files need three harmless names only, so
`epochzero.tables.pickles` reads them, one architecture at a time. The one file for all architectures is read at once
and needs the memory for all of them.

Dong, Liu, Musial, Gabrys. NATS-Bench: benchmarking NAS algorithms for architecture topology and size. TPAMI 2021.
arXiv:2009.00437. Layout: nats_bench/api_topology.py and api_size.py of github.com/D-X-Y/NATS-Bench.
"""

from __future__ import annotations

import bz2
import os
import tarfile
from collections.abc import Iterator
from typing import IO, Any

from epochzero.tables import pickles, trials
from epochzero.tables.formats import Format, Source, formats
from epochzero.tables.rows import Gatherer, Rows

ENDING = ".pickle.pbz2"
KIND = "a file of NATS-Bench"


def read(source: Source) -> Rows:
    """Returns the rows of a folder, a `.tar`, or one `.pickle.pbz2`."""
    gatherer, count, path = Gatherer(), None, source.path
    if source.ends(ENDING):
        with pickles.refusing(str(path), KIND), path.open("rb") as packed:
            trials.gather_all(gatherer, _unpacked(packed))
        return gatherer.rows(str(path))
    for name, file in _members(source):
        with pickles.refusing(name, KIND):
            content = _unpacked(file)
            if "meta_archs" in content:
                count = len(content["meta_archs"])
            else:
                results = list(content.values())
                trials.gather(gatherer, pickles.text(results[0]["arch_str"]), results)
    rows = gatherer.rows(str(path))
    if count is not None and len(rows.archs) != count:
        rows.notes.append(f"{path} holds {len(rows.archs):,} of the {count:,} architectures that it lists.")
    return rows


def _members(source: Source) -> Iterator[tuple[str, IO[bytes]]]:
    """Yields the name and the content of each file of a folder or archive, sorted by name."""
    for file in source.files(ENDING):
        with file.open("rb") as opened:
            yield str(file), opened
    path = source.path
    if path.is_dir():
        return
    with pickles.refusing(str(path), "a tar archive"), tarfile.open(path, "r:") as archive:
        members = [member for member in archive.getmembers() if member.isfile() and member.name.endswith(ENDING)]
        for member in sorted(members, key=lambda member: member.name):
            if (packed := archive.extractfile(member)) is not None:
                with packed:
                    yield f"{path}:{member.name}", packed


def _unpacked(file: IO[bytes]) -> dict[str, Any]:
    size = file.seek(0, os.SEEK_END)
    file.seek(0)
    with bz2.BZ2File(file) as packed:
        value = pickles.unpacked(packed, size)
    if not isinstance(value, dict) or not value:
        raise ValueError("its pickle holds no dictionary")
    return value


formats.register(
    "nats_bench",
    Format(
        f"a .tar, {ENDING} or folder of NATS-Bench",
        lambda source: source.ends(".tar", ENDING) or bool(source.files(ENDING)),
        read,
    ),
)
