"""Size of a run's report, and the time to make and to open it.

    python benchmarks/reports.py                          # 100,000 networks of darts, scored by three proxies
    python benchmarks/reports.py --networks 10000 --space nb101

The networks are drawn from the space, the scores at random, parameters and FLOPs too (to count them is the space's
work, and a report stops counting after 20 s). Opening is measured in headless Chromium from the call to a page that
is painted as far as it is in sight. Needs playwright and a Chromium.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from random import Random

import numpy as np

from epochzero.registry import spaces
from epochzero.report import Subject, write
from epochzero.store import JSON, Evaluated, Store, manifest
from epochzero.types import Score, Setting

BATCH = 1000
OPENED = 5
"""times that the page is opened; the median is told"""
PAINTED = "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))"


def filled(path: Path, space: str, networks: int, proxies: list[str]) -> None:
    """A store with one search of this many networks."""
    found, rng, numbers = spaces[space], Random(0), np.random.default_rng(0)
    setting = Setting(space, "noise", "default:0")
    settings: dict[str, JSON] = {"space": space, "proxy": proxies[0], "method": "random", "budget": networks, "seed": 0}
    with Store.open(path) as store:
        run = store.begin_run("search", settings, manifest(settings))
        for first in range(0, networks, BATCH):
            values = numbers.normal(size=(BATCH, len(proxies)))
            counts = numbers.integers(10**5, 10**8, size=(BATCH, 2))
            batch = []
            for row in range(min(BATCH, networks - first)):
                scores = {name: (Score(float(value)), 0.01) for name, value in zip(proxies, values[row], strict=True)}
                scores["params"], scores["flops"] = ((Score(float(count)), 0.0) for count in counts[row])
                batch.append(Evaluated(first + row, found.text(found.sample(rng)), scores))
            run.record(setting, batch)
        run.finish({"evaluated": networks})


def opened(page: Path) -> dict[str, float]:
    """Seconds until the page is painted, and until the table is sorted and filtered."""
    from playwright.sync_api import sync_playwright

    times: dict[str, list[float]] = {"open": [], "sort": [], "filter": []}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for _ in range(OPENED):
            tab = browser.new_page()
            start = time.perf_counter()
            tab.goto(page.as_uri())
            tab.wait_for_selector("main[data-ready]")
            tab.evaluate(PAINTED)
            times["open"].append(time.perf_counter() - start)
            start = time.perf_counter()
            tab.click("#sort-2")
            tab.evaluate(PAINTED)
            times["sort"].append(time.perf_counter() - start)
            start = time.perf_counter()
            tab.fill("#filter", "params<1M")
            tab.evaluate(PAINTED)
            times["filter"].append(time.perf_counter() - start)
            tab.close()
        browser.close()
    return {what: statistics.median(each) for what, each in times.items()}


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    reader.add_argument("--networks", type=int, default=100_000)
    reader.add_argument("--space", default="darts")
    reader.add_argument("--proxies", default="dextr,naswot,zico")
    reader.add_argument("--keep", type=Path, help="keep the report here")
    asked = reader.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        store, page = Path(folder) / "run.db", asked.keep or Path(folder) / "report.html"
        filled(store, asked.space, asked.networks, asked.proxies.split(","))
        start = time.perf_counter()
        size = write(Subject(store), page)
        print(f"made    {time.perf_counter() - start:6.1f} s   {size / 1e6:.1f} MB", flush=True)
        for what, seconds in opened(page).items():
            print(f"{what:<7} {seconds:6.2f} s", flush=True)


if __name__ == "__main__":
    main()
