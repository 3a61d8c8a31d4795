r"""Speed and memory of scoring: one network at a time, in populations and in worker processes.

    python -m epochzero.bare speed --device cuda --data cifar10.npz --out speed.json
    python -m epochzero.bare speed --only "one batch,dextr" --networks 512 --population 128

On a GPU that is lent for ten minutes at a time, repeat the same command until nothing is left out:

    python -m epochzero.bare speed --device cuda --data cifar10.npz --networks 512 --row-seconds 4 --budget 480 \
        --resume --out speed.json --markdown speed.md

`epochzero bench-speed` calls the same function and prints a table.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from epochzero.engine.device import default_device
from epochzero.engine.threads import give_threads
from epochzero.evaluate.speed.measure import ON_REQUEST, WAYS, Row, Settings, line, measure_speed
from epochzero.evaluate.speed.report import left_out
from epochzero.evaluate.speed.suite import as_markdown, run_suite
from epochzero.executors.auto import GPU_WORKERS
from epochzero.objectives.bundles import bundles


def add_options(parser: argparse.ArgumentParser) -> None:
    usual = Settings()
    parser.add_argument("--space", default=usual.space)
    parser.add_argument("--only", help=f"proxies and bundles, separated by commas; bundles: {', '.join(bundles())}")
    parser.add_argument("--ways", help=f"of {', '.join((*WAYS, *ON_REQUEST))}; default: the first four")
    parser.add_argument("--suite", help="all, or spaces separated by commas, on batches of a fixed size each")
    parser.add_argument("--networks", type=int, default=usual.networks)
    parser.add_argument("--alone-networks", type=int, default=usual.alone_networks, help="scored one at a time")
    parser.add_argument("--slow-networks", type=int, default=usual.slow_networks, help="limit for slow proxies")
    parser.add_argument("--population", type=int, help="networks in a population; default: what memory allows")
    parser.add_argument("--batch-size", type=int, default=usual.batch_size)
    parser.add_argument("--data", default=usual.data, help="pink, white, or a file")
    parser.add_argument("--input-shape", help="of one sample of noise: 3,32,32")
    parser.add_argument("--seed", type=int, default=usual.seed)
    parser.add_argument("--device", default=default_device())
    parser.add_argument("--workers", type=int, help=f"worker processes; default: all cores, {GPU_WORKERS} on a GPU")
    parser.add_argument("--threads", type=int, help="threads for each network on a CPU; default: what is faster")
    parser.add_argument("--tf32", action="store_true", help="let cuDNN and cuBLAS round factors to TF32")
    parser.add_argument("--row-seconds", type=float, default=usual.row_seconds, help="about, for one measurement")
    parser.add_argument("--budget", type=float, default=usual.budget, help="seconds after which no row is started")
    parser.add_argument("--row-limit", type=float, help="seconds after which a row of a suite on a GPU is ended")
    parser.add_argument("--profile", type=float, default=0.0, help="seconds of a suite on a GPU for profiles")
    parser.add_argument("--out", type=Path, help="a JSON file")
    parser.add_argument("--resume", action="store_true", help="continue the report at --out")
    parser.add_argument("--markdown", type=Path, help="a file for the table in Markdown")


def run(asked: argparse.Namespace) -> None:
    """Measures and prints."""
    options = vars(asked)
    if (threads := options.pop("threads")) is not None:
        give_threads(threads)
    files = {"out": options.pop("out"), "table": options.pop("markdown"), "resume": options.pop("resume")}
    profile = options.pop("profile")
    if (suite := options.pop("suite")) is not None:

        def show(row: Row | str) -> None:
            print(line(row), flush=True)

        print(as_markdown(run_suite(suite, Settings(**options), show, profile=profile, **files)))
        return
    report = measure_speed(Settings(**options), lambda row: print(row, flush=True), **files)
    print(json.dumps(report["machine"] | report["ceilings"]))
    for one in report["equality"]:
        print(json.dumps(one))
    for sentence in left_out(report):
        print(sentence)
