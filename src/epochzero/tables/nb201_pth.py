"""NAS-Bench-201's own files: `NAS-Bench-201-v1_1-096897.pth`, or the folder of its archive, without unpickling objects.

    {"meta_archs": [text, ...], "arch2infos": {index: {"less": runs, "full": runs}}, "evaluated_indexes": ...}
    NAS-Bench-201-v1_1-archive/000000-FULL.pth                     {"less": runs, "full": runs}

"less" are 12 epochs, "full" are 200; the runs are in `epochzero.tables.trials`. The one file holds every epoch of
every run, and needs the memory for all of that: people report 28 GB. The folder, or NATS-Bench's `-simple` folder, is
read one architecture at a time.

Dong, Yang. NAS-Bench-201: extending the scope of reproducible neural architecture search. ICLR 2020. arXiv:2001.00326
Layout: nas_201_api/api_201.py of github.com/D-X-Y/NAS-Bench-201. Memory: github.com/D-X-Y/NATS-Bench/issues/25.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from epochzero.tables import nats, pickles, trials
from epochzero.tables.rows import Gatherer, Rows

ENDING = "-FULL.pth"
KIND = "a file of NAS-Bench-201"


def read(path: Path, content: dict[str, Any]) -> Rows:
    """The rows of the one file, whose content is given."""
    gatherer = Gatherer()
    with pickles.refusing(str(path), KIND):
        nats.gather_all(gatherer, content)
    return gatherer.rows(str(path))


def read_folder(path: Path) -> Rows:
    """The rows of a folder with a file for each architecture."""
    gatherer = Gatherer()
    for file in sorted(file for file in path.iterdir() if file.name.endswith(ENDING)):
        content = pickles.load_pth(file)
        with pickles.refusing(str(file), KIND):
            results = [content["less"], content["full"]]
            trials.gather(gatherer, str(results[0]["arch_str"]), results)
    return gatherer.rows(str(path))
