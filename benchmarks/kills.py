"""Commands and search methods that are killed by SIGKILL at random moments, again and again.

    python benchmarks/kills.py                           # 1,000 kills, an hour of one core
    python benchmarks/kills.py --kills 30 --only evolution,export

Each job first runs undisturbed. Then it is begun and killed until it ends by itself, and what it leaves has to be what
the undisturbed one left: the same scores, steps and results in its store, the same files, no temporary file and no
process. The table counts what differs; every difference is printed, and makes the exit code 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import NamedTuple
from unittest.mock import patch

import numpy as np
import torch

from epochzero.cli import main as command
from epochzero.registry import spaces
from epochzero.spaces import nb201
from epochzero.store import ScoreRow, Store
from epochzero.study import inside

METHODS = {
    "evolution": "population=8 tournament=3 batch=5",
    "evolution_az": "population=8 batch=5",
    "evolution_nasrec": "population=8 generations=4 tournament=3 children=5",
    "evolution_zen": "population=6 batch=5",
    "hnas": "metric=snip networks=12 probes=9",
    "local_search": "batch=5",
    "pareto": "population=8 batch=5",
    "random": "batch=5",
    "reinforce": "batch=5",
    "te_nas": "networks=5 batch=5",
    "top_k": "proxy=snip networks=20 batch=5",
    "tpe": "startup=5 batch=5",
    "nasi": "nu=adaptive channels=2 cells=1",
    "zero_cost_pt": "channels=2 cells=1",
}
SMALL = "--data pink --input-shape 3,8,8 --batch-size 4"
CHEAP = "|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|"
AT_MOST = 40
"""lives of one job until it has to be let alone"""
TIMED = {"seconds", "started", "resumed", "clock", "milliseconds", "elapsed"}


class Job(NamedTuple):
    """A command line, with FILES in place of the folder of its inputs; it writes to the folder it runs in."""

    arguments: list[str]
    same: tuple[str, ...] = ()
    """files that are the same to the last byte, besides the content of stores"""
    once: bool = False
    """refuses to write over what it made, so that it ends with an error if it was killed when all was done"""


def jobs() -> dict[str, Job]:
    """Every method of search, and every command that writes."""
    found = {}
    for method, options in METHODS.items():
        by = {"evolution_az": "--proxy rank(l2_norm,params)", "pareto": "--objectives l2_norm,-params"}
        budget = 6 if method in {"nasi", "zero_cost_pt"} else 40
        text = f"search --method {method} --budget {budget} {SMALL} --seed 1 --store run.db --winner-scores none "
        text += by.get(method, "--proxy l2_norm") + "".join(f" --option {option}" for option in options.split())
        found[method] = Job(text.split())
    found["two processes"] = Job(
        f"search --proxy l2_norm --budget 40 {SMALL} --executor processes --workers 2 --store run.db".split()
    )
    found["bench"] = Job(
        f"bench --table FILES/table.csv --target cifar10_test --proxy l2_norm,snip --sample 60 {SMALL} "
        "--store run.db".split()
    )
    found["rank"] = Job(f"rank FILES/nets.py:small FILES/nets.py:large --proxy snip --store run.db {SMALL}".split())
    found["CSV"] = Job(["store", "FILES/big.db", "--to", "scores.csv"], ("scores.csv",))
    found["CSV, compressed"] = Job(["store", "FILES/big.db", "--to", "scores.csv.gz"], ("scores.csv.gz",))
    found["Parquet"] = Job(["store", "FILES/big.db", "--to", "scores.parquet"], ("scores.parquet",))
    found["add"] = Job(["store", "run.db", "--add", "FILES/big.csv"])
    found["backup"] = Job(["store", "FILES/big.db", "--backup", "run.db"])
    found["salvage"] = Job(["store", "FILES/damaged.db", "--salvage", "run.db"], once=True)
    found["table"] = Job(
        ["data", "import", "FILES/table.csv", "--space", "nb201", "--out", "table.ezb"], ("table.ezb",)
    )
    found["report"] = Job(["report", "FILES/big.db"])
    train = f"--data FILES/images.npz --epochs 3 --batch-size 16 --arch {CHEAP}"
    found["train"] = Job(f"train {train} --out out".split())
    found["ensemble"] = Job(f"ensemble {train} --size 2 --out out".split())
    found["export"] = Job(f"export --arch {CHEAP} --input-shape 3,8,8 --out out".split(), ("out/model.py",))
    return found


def made_inputs(folder: Path) -> None:
    """Files that the jobs read."""
    rng = Random(0)
    space = spaces["nb201"]
    archs = sorted({space.text(space.sample(rng)) for _ in range(400)})
    rows = "".join(f"{arch},{rng.random()}\n" for arch in archs)
    (folder / "table.csv").write_text(f"arch,cifar10_test\n{rows}")
    with Store.open(folder / "big.db") as store:
        store.add_scores(
            ScoreRow("nb201", f"{i}", "dextr", "batch", f"default:{i % 3}", rng.random(), "ok", "", 0.5)
            for i in range(60_000)
        )
        store.begin_run("search", {"space": "nb201", "proxy": "dextr", "method": "random"}, {})
    run("store", folder / "big.db", "--to", folder / "big.csv")
    content = bytearray((folder / "big.db").read_bytes())
    at = len(content) // 2 // 4096 * 4096
    content[at : at + 4096] = b"\xff" * 4096
    (folder / "damaged.db").write_bytes(content)
    numbers = np.random.default_rng(0)
    x, y = numbers.integers(0, 256, (96, 8, 8, 3), np.uint8), np.arange(96) % 4
    np.savez(folder / "images.npz", x_train=x, y_train=y, x_test=x[:16], y_test=y[:16])
    (folder / "nets.py").write_text(
        "from torch import nn\n"
        "def net(width):\n"
        "    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 10)]\n"
        "    return nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), *head)\n"
        "def small(): return net(8)\n"
        "def large(): return net(16)\n"
    )


def run(*arguments: object) -> None:
    """The command line in this process, in silence; an exit code other than 0 is an error."""
    with (
        Path(os.devnull).open("w") as nowhere,
        patch.object(sys, "argv", ["epochzero", *map(str, arguments)]),
        redirect_stdout(nowhere),
        redirect_stderr(nowhere),
    ):
        try:
            command()
        except SystemExit as stop:
            if stop.code:
                raise


def begun(folder: Path, arguments: Sequence[str]) -> int:
    """The id of a fork, in a session of its own, that runs the command in this folder."""
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.chdir(folder)
            run(*arguments)
        except BaseException as error:
            print(repr(error), file=sys.__stderr__)
            os._exit(1)
        os._exit(0)
    return child


def ended(child: int, after: float | None = None) -> int | None:
    """Kills the child after these seconds unless it ends before: its exit status, None if it was killed."""
    give_up = time.monotonic() + (after if after is not None else 1e9)
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() >= give_up:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return None
        time.sleep(0.001)


def left_over(session: int) -> list[str]:
    """Processes of the killed one that are still there after some seconds."""
    give_up = time.monotonic() + 15
    while True:
        alive = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                state, _, _, its = stat.read_text().rpartition(")")[2].split()[:4]
            except (OSError, ValueError):
                continue
            if int(its) == session and state != "Z":
                alive.append(stat.parent.name)
        if not alive or time.monotonic() > give_up:
            return alive
        time.sleep(0.05)


def content(folder: Path, same: Sequence[str]) -> dict[str, object]:
    """The content of the folder: names, stores without times, and files that have to be the same."""
    found: dict[str, object] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        found[name] = path.read_bytes() if name in same else ""
        if path.suffix == ".db":
            with Store.open(path) as store:
                found[name] = Counter(row._replace(seconds=0.0) for row in store.all_scores())
                for one in store.runs():
                    found[f"{name} {one.id}"] = (one.state, untimed(one.result))
                    found[f"{name} {one.id} steps"] = [
                        (setting, step.step, step.arch, sorted(step.scores))
                        for setting, steps in one.history().items()
                        for step in steps
                    ]
        if path.suffix == ".pt":
            saved = torch.load(path, weights_only=True)
            found[name] = repr(saved.get("weights", saved) if isinstance(saved, dict) else saved)
    return found


def untimed(value: object) -> object:
    if isinstance(value, dict):
        return {key: untimed(one) for key, one in value.items() if key not in TIMED}
    return [untimed(one) for one in value] if isinstance(value, list) else value


class Counts(NamedTuple):
    kills: int
    lives: int
    differences: list[str]


def killed(job: Job, place: Path, files: Path, kills: int, rng: Random) -> Counts:
    """Kills a job until it was killed that often; whenever it ends, it begins anew."""
    arguments = [part.replace("FILES", str(files)) for part in job.arguments]
    calm = place / "calm"
    calm.mkdir()
    start = time.monotonic()
    if ended(begun(calm, arguments)):
        return Counts(0, 0, ["it fails undisturbed"])
    took = time.monotonic() - start
    expected, differences = content(calm, job.same), []
    done = lives = 0
    while done < kills:
        lives += 1
        folder = place / f"life{lives}"
        folder.mkdir()
        for time_left in range(AT_MOST, -1, -1):
            child = begun(folder, arguments)
            status = ended(child, rng.uniform(0, took) if time_left and done < kills else None)
            done += status is None
            if alive := left_over(child):
                differences.append(f"processes {alive} are left")
            if status is not None:
                break
        if status and not job.once:
            differences.append(f"it ends with {status} after a kill")
        found = content(folder, job.same)
        for name in {*expected, *found}:
            if expected.get(name) != found.get(name):
                how = "differs" if name in found and name in expected else "is lost" if name in expected else "is left"
                differences.append(f"{name} {how}")
        if not differences:
            shutil.rmtree(folder)
    return Counts(done, lives, differences)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=1000, help="over all jobs")
    parser.add_argument("--only", help="jobs, separated by commas")
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    torch.set_num_threads(1)
    nb201.CELLS = 1
    inside.EVERY = 0.0
    chosen = {name: job for name, job in jobs().items() if asked.only is None or name in asked.only.split(",")}
    print("| job | kills | times it ended | differences |\n|---|---|---|---|")
    whole = bad = 0
    with tempfile.TemporaryDirectory() as name:
        files = Path(name) / "files"
        files.mkdir()
        made_inputs(files)
        for number, (job, what) in enumerate(chosen.items()):
            place = Path(name) / f"job{number}"
            place.mkdir()
            kills = -(-(asked.kills - whole) // (len(chosen) - number))
            counts = killed(what, place, files, kills, Random(asked.seed + number))
            whole, bad = whole + counts.kills, bad + len(counts.differences)
            print(f"| {job} | {counts.kills} | {counts.lives} | {len(counts.differences)} |", flush=True)
            for one in counts.differences:
                print(f"{job}: {one}", file=sys.stderr, flush=True)
    print(f"| all | {whole} | | {bad} |")
    raise SystemExit(bool(bad))


if __name__ == "__main__":
    main()
