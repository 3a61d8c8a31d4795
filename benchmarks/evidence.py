"""Scores of networks of accuracy tables, computed by worker processes that share one device, for docs/data.

    python benchmarks/evidence.py list ../shared/data --scores docs/data --out jobs.csv
    python benchmarks/evidence.py score jobs.csv --device cuda --tf32 --workers 14 --seconds 220 --out scores.csv
    python benchmarks/evidence.py pack scores.csv --into docs/data/five_spaces_pink_tf32.csv.gz

`list` writes jobs in the order of their value: each is one network, one seed of weights and noise, and one list of
proxies (FIRST, then the expensive SECOND). Networks are drawn at random, those with stored scores first; what is stored
is no job. `score` hands the jobs to workers, which append the rows of each network as soon as they exist, and ends
after that many seconds: what was written before stays. The file has the format of `epochzero store --to`, and the same
command resumes it. `pack` adds its rows to a compressed file, with rows of older recipes left out.
`score` needs torch and numpy alone.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import gzip
import io
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from epochzero.registry import spaces
from epochzero.store.sqlite import ScoreRow

COUNTS = "params,flops,depth,layers,width,size,activations"
FIRST = (
    f"{COUNTS},near,az_trainability(samples=16),az_trainability,az_expressivity,az_progressivity,naswot,synflow,zen,"
    "grad_norm,snip,fisher,plain,l2_norm,jacov,epe_nas,zico,meco,dextr"
)
SECOND = "grasp,lswag,ntk_cond,vkdnw,swap(repeats=4),linear_regions,synflow(norm=train)"
TRANSFORMERS = ",tf_tas,wpca"
"""proxies of SECOND for tables with transformers"""
BATCH = 16
GRACE = 12.0
"""seconds that a job may take beyond the end"""


class Ground(NamedTuple):
    """A table, its space, how many of its networks are scored at most, and whether transformers are among them."""

    file: str
    space: str
    networks: int
    transformers: bool = False


GROUND = (
    Ground("autoformer_vitbench_100", "autoformer_tiny", 100, transformers=True),
    Ground("accelnb_mnasnet", "mnasnet", 202),
    Ground("transnas_micro_scene_half", "transnas_micro_scene", 142),
    Ground("darts_500", "darts", 142),
    Ground("timm_imagenet_165", "published", 114, transformers=True),
)


class Job(NamedTuple):
    """One network to score."""

    space: str
    seed: int
    proxies: str
    arch: str


def listed(folder: Path, scores: Sequence[Path]) -> Iterator[Job]:
    """The jobs, most valuable first: the tables in turn, but the first one before all others."""
    from epochzero.evaluate.leaderboard.stored import read_stored
    from epochzero.tables import AccuracyTable

    stored, chosen = read_stored(scores), {}
    for ground in GROUND:
        space = spaces[ground.space]
        archs = [space.text(space.parse(arch)) for arch in AccuracyTable.read(folder / f"{ground.file}.csv.gz").archs]
        by_repeat = stored.of(ground.space).get("near", {})
        known = {arch for repeat, own in by_repeat.items() if repeat[1].endswith(":0") for arch in own}
        new = sorted(set(archs) - known)
        Random(0).shuffle(new)
        old = sorted(known.intersection(archs))
        chosen[ground] = old, new[: max(0, ground.networks - len(old))]
    main, *others = GROUND
    for grounds in [main], others:
        yield from in_turn([[Job(g.space, 0, FIRST, arch) for arch in chosen[g][1]] for g in grounds])
        yield from in_turn([[Job(g.space, 1, FIRST, arch) for arch in [*chosen[g][0], *chosen[g][1]]] for g in grounds])
    for seed in 0, 1:
        for grounds in [main], others:
            yield from in_turn(
                [[Job(g.space, seed, second(g), arch) for arch in [*chosen[g][0], *chosen[g][1]]] for g in grounds]
            )


def second(ground: Ground) -> str:
    return SECOND + TRANSFORMERS * ground.transformers


def in_turn(lists: Sequence[Sequence[Job]]) -> Iterator[Job]:
    """All jobs, so that each list is as far as the others."""
    placed = [((i + 0.5) / len(jobs), k, job) for k, jobs in enumerate(lists) for i, job in enumerate(jobs)]
    return (job for *_, job in sorted(placed, key=lambda one: one[:2]))


def write_list(asked: argparse.Namespace) -> None:
    jobs = list(listed(asked.tables, asked.scores))
    with asked.out.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([Job._fields, *jobs])
    counted = Counter((job.space, job.seed, "first" if job.proxies == FIRST else "second") for job in jobs)
    print(*(f"{count:5} {' '.join(map(str, kind))}" for kind, count in counted.items()), sep="\n")


def read_list(path: Path) -> list[Job]:
    with path.open(encoding="utf-8", newline="") as file:
        return [Job(row["space"], int(row["seed"]), row["proxies"], row["arch"]) for row in csv.DictReader(file)]


@cache
def batch_of(space: str, seed: int) -> Any:
    from epochzero.engine.space_networks import batch_for

    return batch_for(spaces[space], "pink", size=BATCH, seed=seed)


def rows_of(job: Job, device: str, tf32: bool) -> list[ScoreRow]:
    """The scores of a job as rows of a store."""
    from epochzero.engine import parse_list
    from epochzero.engine.score import score_network
    from epochzero.engine.space_networks import network_of
    from epochzero.types import Origin

    space, batch, origin = spaces[job.space], batch_of(job.space, job.seed), Origin("default", job.seed)
    proxies = parse_list(job.proxies)
    since = time.perf_counter()
    network = network_of(space, space.parse(job.arch), batch, origin, device)
    scores = score_network(network, proxies, batch, job.seed).scores
    each = round((time.perf_counter() - since) / len(proxies), 5)
    name = batch.id + " TF32" * tf32
    return [
        ScoreRow(
            job.space, job.arch, proxy.key, name, str(origin), one.value if one.ok else None, one.status, one.why, each
        )
        for proxy in proxies
        for one in [scores[proxy.text]]
    ]


def work(jobs: Sequence[Job], following: Any, end: float, asked: argparse.Namespace) -> None:
    """Takes jobs until there are none or the time is over, and appends the rows of each in one write."""
    import torch

    from epochzero.engine.precision import set_precision

    torch.set_num_threads(1)
    set_precision(asked.tf32)
    out = os.open(asked.out, os.O_WRONLY | os.O_APPEND)
    parent = os.getppid()
    while time.time() < end and os.getppid() == parent:
        with following.get_lock():
            number = following.value
            following.value += 1
        if number >= len(jobs):
            return
        job = jobs[number]
        try:
            rows = rows_of(job, asked.device, asked.tf32)
        except Exception as error:  # of one network: the others go on
            print(
                f"{job.space} {job.arch[:90]} seed {job.seed}: {type(error).__name__}: {str(error)[:300]}", flush=True
            )
            if "CUDA" in str(error) or "GPU failed" in str(error):
                sys.exit(1)  # a fresh process goes on
            continue
        finally:
            if asked.device != "cpu" and job.space == "published":
                torch.cuda.empty_cache()
        text = io.StringIO()
        csv.writer(text, lineterminator="\n").writerows(rows)
        os.write(out, text.getvalue().encode())


def shared_service() -> dict[str, str]:
    """Starts NVIDIA's service by which processes run on a GPU at the same time; {} where that does not work."""
    own = {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps_pipe", "CUDA_MPS_LOG_DIRECTORY": "/tmp/mps_log"}
    try:
        for folder in own.values():
            Path(folder).mkdir(parents=True, exist_ok=True)
        subprocess.run(["nvidia-cuda-mps-control", "-d"], env=os.environ | own, timeout=10, check=True)
        trial = "import torch; torch.ones(8, device='cuda').sum().item()"
        subprocess.run([sys.executable, "-c", trial], env=os.environ | own, timeout=40, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"without MPS: {error}", flush=True)
        return {}
    print("with MPS", flush=True)
    return own


def score(asked: argparse.Namespace) -> None:
    import epochzero.engine.score  # noqa: F401  (before the processes are forked)
    from epochzero.engine import parse_list

    begun = time.time()
    end = begun + asked.seconds
    if asked.mps:
        os.environ.update(shared_service())
    whole = asked.out.read_bytes().rpartition(b"\n")[0] if asked.out.exists() else b""
    header = ",".join(ScoreRow._fields)
    asked.out.write_bytes((whole or header.encode()) + b"\n")
    with asked.out.open(encoding="utf-8", newline="") as file:
        done = {(row["space"], row["arch"], row["origin"], row["proxy"]) for row in csv.DictReader(file)}
    every = read_list(asked.jobs)[asked.skip :]
    last = {text: parse_list(text)[-1].key for text in {job.proxies for job in every}}
    jobs = [job for job in every if (job.space, job.arch, f"default:{job.seed}", last[job.proxies]) not in done]
    print(f"{len(jobs)} of {len(every)} jobs are left", flush=True)
    context = get_context("fork")
    following = context.Value("i", 0)

    def started() -> Any:
        process = context.Process(target=work, args=(jobs, following, end, asked), daemon=True)
        process.start()
        return process

    crew, spare, told = [started() for _ in range(asked.workers)], 3 * asked.workers, 0.0
    while (living := [one for one in crew if one.is_alive()]) and time.time() < end + GRACE:
        for i, one in enumerate(crew):
            if one.exitcode and spare and time.time() < end:
                crew[i], spare = started(), spare - 1
        if time.time() - told > 10:
            told = time.time()
            at = f"{following.value} of {len(jobs)} jobs begun, {len(living)} workers"
            print(f"{told - begun:.0f} s: {at}, {asked.out.stat().st_size:,} bytes", flush=True)
        time.sleep(0.2)
    for one in crew:
        one.kill()
    if asked.mps and "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            subprocess.run(["nvidia-cuda-mps-control"], input=b"quit\n", timeout=10, check=False)
    print(f"{time.time() - begun:.0f} s, {asked.out.stat().st_size:,} bytes", flush=True)


def pack(asked: argparse.Namespace) -> None:
    """Adds rows to a file; what both have is taken from the new one, and only the newest recipes stay."""
    rows: dict[tuple[str, ...], ScoreRow] = {}
    for path in [*([asked.into] if asked.into.exists() else []), asked.scores]:
        packed = path.read_bytes()
        written = (gzip.decompress(packed) if path.suffix == ".gz" else packed).decode()
        for cells in csv.reader(io.StringIO(written, newline="")):
            if len(cells) == len(ScoreRow._fields) and cells[0] != "space":
                row = ScoreRow(*cells)._replace(seconds="")  # type: ignore[arg-type]
                rows[row.space, row.arch, row.proxy, row.batch, row.origin] = row
    newest: dict[str, int] = {}
    for _, _, proxy, *_ in rows:
        name, _, recipe = proxy.partition("#")
        newest[name] = max(newest.get(name, 1), int(recipe or 1))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(ScoreRow._fields)
    kept = [rows[key] for key in sorted(rows) if int(key[2].partition("#")[2] or 1) == newest[key[2].partition("#")[0]]]
    writer.writerows(kept)
    with asked.into.open("wb") as file, gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed:
        packed.write(text.getvalue().encode())
    print(f"{len(kept)} rows in {asked.into}, {asked.into.stat().st_size:,} bytes")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(required=True)
    one = verbs.add_parser("list")
    one.set_defaults(run=write_list)
    one.add_argument("tables", type=Path)
    one.add_argument("--scores", type=Path, action="append", default=[])
    one.add_argument("--out", type=Path, required=True)
    one = verbs.add_parser("score")
    one.set_defaults(run=score)
    one.add_argument("jobs", type=Path)
    one.add_argument("--out", type=Path, required=True)
    one.add_argument("--device", default="cpu")
    one.add_argument("--tf32", action="store_true")
    one.add_argument(
        "--mps", action="store_true", help="let the workers' kernels run at the same time, by NVIDIA's MPS"
    )
    one.add_argument("--workers", type=int, default=1)
    one.add_argument("--skip", type=int, default=0, help="jobs at the beginning of the list that are left out")
    one.add_argument("--seconds", type=float, default=600)
    one = verbs.add_parser("pack")
    one.set_defaults(run=pack)
    one.add_argument("scores", type=Path)
    one.add_argument("--into", type=Path, required=True)
    asked = parser.parse_args()
    asked.run(asked)


if __name__ == "__main__":
    main()
