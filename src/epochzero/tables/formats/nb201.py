"""NAS-Bench-201's own files: `NAS-Bench-201-v1_1-096897.pth`, or the folder of its archive, without unpickling objects.

    {"meta_archs": [text, ...], "arch2infos": {index: {"less": runs, "full": runs}}, "evaluated_indexes": ...}
    NAS-Bench-201-v1_1-archive/000000-FULL.pth                     {"less": runs, "full": runs}

"less" is 12 epochs, "full" is 200; `epochzero.tables.trials` describes the runs. The one file holds every epoch of
every run and needs the memory for all of it: people report 28 GB. The folder, or NATS-Bench's `-simple` folder, is
read one architecture at a time.

Dong, Yang. NAS-Bench-201: extending the scope of reproducible neural architecture search. ICLR 2020. arXiv:2001.00326
Layout: nas_201_api/api_201.py of github.com/D-X-Y/NAS-Bench-201. Memory: github.com/D-X-Y/NATS-Bench/issues/25.
"""

from __future__ import annotations

from epochzero.tables import pickles, trials
from epochzero.tables.formats import Format, Source, formats
from epochzero.tables.rows import Gatherer, Rows

ENDING = "-FULL.pth"
KIND = "a file of NAS-Bench-201"


def read(source: Source) -> Rows:
    """Returns the rows of the one file, or of a folder with a file for each architecture."""
    gatherer = Gatherer()
    if not source.path.is_dir():
        with pickles.refusing(str(source.path), KIND):
            trials.gather_all(gatherer, source.pth)
    for file in source.files(ENDING):
        content = pickles.load_pth(file)
        with pickles.refusing(str(file), KIND):
            results = [content["less"], content["full"]]
            trials.gather(gatherer, pickles.text(results[0]["arch_str"]), results)
    return gatherer.rows(str(source.path))


formats.register(
    "nb201",
    Format(
        "a .pth or folder of NAS-Bench-201",
        lambda source: source.pth_has("arch2infos") or bool(source.files(ENDING)),
        read,
    ),
)
