"""A search that goes on until it is killed: `python -m tests.report.endless_search STORE` prints steps. No torch."""

from __future__ import annotations

import itertools
import sys

from epochzero.store import Evaluated, Store
from epochzero.types import Score, Setting

if __name__ == "__main__":
    with Store.open(sys.argv[1]) as store:
        run = store.begin_run("search", {"space": "elsewhere", "proxy": "dextr", "method": "random"}, {})
        for step in itertools.count():
            scores = {"dextr": (Score(float(step % 17)), 0.001)}
            run.record(Setting("elsewhere", "batch", "default:0"), [Evaluated(step, f"network {step}", scores)])
            print(step, flush=True)
