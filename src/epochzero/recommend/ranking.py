"""Scores of NASRec networks on one's own clicks, with fresh weights: which of them to train?

    rank("criteo.tsv", [arch, other], schema="criteo", proxy="rank(sigeo,zico)")
    score("criteo.tsv", arch, schema="criteo", proxies="sigeo,zico")          # {"sigeo(...)": Score(...), ...}

Each draw has its own weights, and its own four neighbouring batches of training rows, of which most proxies read the
first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from epochzero.data.batch import Batch
from epochzero.engine.device import usable
from epochzero.engine.proxy import split_list
from epochzero.errors import DataError, UserError
from epochzero.objectives.objective import Objective, parse_objectives, single
from epochzero.progress import Progress, silent
from epochzero.recommend.data.table import CtrTable
from epochzero.recommend.jobs import Clicks, Job, job_of
from epochzero.recommend.spaces.nasrec_network import Form
from epochzero.recommend.sub_one_shot import PARTS, objective_of
from epochzero.recommend.supernet.fitness import in_parts
from epochzero.recommend.supernet.weights import NASRECS
from epochzero.store import Store
from epochzero.study.ranking import Ranking, ranked
from epochzero.study.task import Task
from epochzero.types import Origin, Score

ROWS = 512
"""the most rows of a batch"""


def rank(
    data: str | Path,
    archs: Sequence[str] = (),
    *,
    random: int = 0,
    proxy: str = "sigeo",
    seeds: int = 3,
    space: str = "nasrec_small",
    schema: str | Path | None = None,
    bad_lines: str = "strict",
    options: Mapping[str, Any] = {},
    device: str = "cpu",
    progress: Progress = silent,
) -> Ranking:
    """Ranks architectures, and `random` ones, by a score over several draws of weights and rows.

    `data` is a table of clicks, or the folder of a search, whose space is taken. `options` are share,
    max_embedding_rows and max_embedding_bytes.
    """
    usable(device)
    if seeds < 1 or random < 0 or not (archs or random):
        raise UserError("Ranking takes at least one network, or a number of random ones, and at least one seed.")
    objective = _objective(proxy)
    with _job(data, schema, bad_lines, options, space, progress) as job:
        rng = Random(0)
        chosen = [job.space.parse(arch) for arch in archs] + [job.space.sample(rng) for _ in range(random)]
        entries = [(job.space.text(arch), job.space, arch) for arch in chosen]
        tasks = [_task(job, objective, seed, device) for seed in range(seeds)]
        with Store.open(":memory:") as store:
            return ranked(entries, tasks, objective, store, progress=progress, kind=Ranking)


def score(
    data: str | Path,
    arch: str,
    *,
    proxies: str = "sigeo",
    seed: int = 0,
    space: str = "nasrec_small",
    schema: str | Path | None = None,
    bad_lines: str = "strict",
    options: Mapping[str, Any] = {},
    device: str = "cpu",
    progress: Progress = silent,
) -> dict[str, Score]:
    """The scores of one architecture by several proxies, separated by commas."""
    usable(device)
    named = [_objective(one).text for one in split_list(proxies)]
    members = single(parse_objectives(",".join(named)))
    with _job(data, schema, bad_lines, options, space, progress) as job:
        task = _task(job, Objective(tuple(members)), seed, device)
        return task.score([job.space.parse(arch)])[0][0]


@contextmanager
def _job(
    data: str | Path,
    schema: str | Path | None,
    bad_lines: str,
    options: Mapping[str, Any],
    space: str,
    progress: Progress,
) -> Iterator[Job]:
    """The table and the space, in a temporary folder if the table has to be read first."""
    with TemporaryDirectory(prefix="epochzero-clicks-") as folder:
        job = job_of(Clicks(str(data), schema, bad_lines, Path(folder)), options, progress, space)
        yield replace(job, space=job.space.formed(Form()))  # as a search scores them


def _task(job: Job, objective: Objective, seed: int, device: str) -> Task:
    return Task(job.space, objective.proxies, _batch(job.table, seed), Origin(NASRECS.scheme, seed), device)


def _batch(table: CtrTable, seed: int) -> Batch:
    """Four neighbouring batches of training rows."""
    rows = table.size("train")
    size = min(ROWS, rows // PARTS)
    if size < 1:
        raise DataError(f"The table {table.folder} has {rows} training rows, and a score needs {PARTS}: give more.")
    start = Random(seed).randrange(rows // size - PARTS + 1)
    return in_parts(list(islice(table.batches("train", size=size, start=start), PARTS)))


def _objective(proxy: str) -> Objective:
    """The score, with the settings that are usual for clicks."""
    if (objective := objective_of(proxy, warmup=0.0)) is None:
        raise UserError("one_shot needs the supernet of a search: name a proxy.")
    return objective
