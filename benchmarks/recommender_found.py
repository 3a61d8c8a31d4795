"""Measurement recommenders against random ones and against four made by hand, on clicks with planted interactions.

    python benchmarks/recommender_found.py --folder runs/found [--rows 500000] [--share 0.2] [--batch-size 256]
                                           [--highest 0.12] [--networks 40] [--seeds 3] [--only one_shot-1 dlrm]

Clicks, sizes and training default to those of `epochzero reproduce sigeo-recommender`. Each warm-up
level and proxy is one chain: a supernet, 64 networks evaluated, 3 trained, the best by validation rows. Random networks
are drawn with the seed of the study. Stopped and run again, it resumes with the networks; its store is `chain.db`.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace
from pathlib import Path
from random import Random

import torch

from epochzero.recommend.data.synthetic import synthetic
from epochzero.recommend.presets import PRESETS
from epochzero.recommend.spaces.nasrec import Choices
from epochzero.recommend.sub_one_shot import STORE, SubOneShotSearch
from epochzero.recommend.training.baselines import BASELINES, baseline
from epochzero.recommend.training.settings import Settings
from epochzero.recommend.training.source import TEST_AUC, TEST_LOSS, TrainingSource
from epochzero.recommend.training.trainer import evaluate
from epochzero.store import JSON, Store, manifest
from epochzero.study.task import Task
from epochzero_papers.sigeo.clicks import LAW
from epochzero_papers.sigeo.recommender import Clicks

CHAINS = (("sigeo", 0.01), ("zico", 0.01), ("sigeo", 0.0), ("sigeo", 1.0), ("one_shot", 1.0))


def line(name: str, found: list[tuple[float, float]]) -> str:
    """Means over seeds, with the deviation where there are several."""
    figures = [
        f"{statistics.mean(values):.4f}" + (f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else "")
        for values in zip(*found, strict=True)
    ]
    return f"{name:32} log loss {figures[0]:18} AUC {figures[1]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    sizes = Clicks()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=sizes.rows)
    parser.add_argument("--share", type=float, default=sizes.share)
    parser.add_argument("--batch-size", type=int, default=sizes.batch_size)
    parser.add_argument("--highest", type=float, default=Settings.highest, help="learning rate of training")
    parser.add_argument("--networks", type=int, default=sizes.networks)
    parser.add_argument("--seeds", type=int, default=3)
    rows = ("random", *(f"{proxy}-{level:g}" for proxy, level in CHAINS), *BASELINES)
    parser.add_argument("--only", nargs="+", choices=rows, default=rows, help="rows of the table; all by default")
    given = parser.parse_args()
    torch.set_num_threads(1)
    folder: Path = given.folder
    table = synthetic(folder / "table", given.rows, LAW)
    preset = replace(PRESETS["reduced"], batch_size=given.batch_size)
    print(f"{table.count:,} rows, {given.share:g} of the training rows; floor {table.about['floor']:.4f}", flush=True)

    how = {"share": given.share, "highest": given.highest}
    chains = [SubOneShotSearch(table, proxy=p, warmup=level, preset=preset, **how) for p, level in CHAINS]
    batch, space, training = chains[0].batch, chains[0].fitted, chains[0].training

    def trained(seed: int) -> TrainingSource:
        return TrainingSource(space, table, training, seed=seed, share=given.share)

    def measured(arch: Choices, seed: int) -> tuple[float, float]:
        task = Task(space, [TEST_LOSS, TEST_AUC], batch, sources=(trained(seed),))
        with Store.open(folder / STORE) as store:
            settings: dict[str, JSON] = {"arch": space.text(arch), "seed": seed, "training": trained(seed).id}
            run = store.begin_run("training", settings, manifest(settings))
            (scores,), _ = task.evaluate([arch], store, run, 0)
        return scores[TEST_LOSS.text].value, scores[TEST_AUC.text].value

    def by_hand(name: str, seed: int) -> tuple[float, float]:
        torch.manual_seed(seed)
        model = baseline(name, table.num_dense, table.rows)
        trained(seed).fit(model, name)
        metrics = evaluate(model, table, "test")
        return metrics.log_loss, metrics.auc

    if "random" in given.only:
        rng = Random(0)
        others = [measured(space.sample(rng), 0) for _ in range(given.networks)]
        losses, areas = (sorted(values) for values in zip(*others, strict=True))
        middle = statistics.median(losses), statistics.median(areas)
        print(line(f"median of {len(others)} random networks", [middle]), flush=True)
        print(line("lowest and highest of them", [(losses[0], areas[-1])]), flush=True)
    for chain in (chain for chain in chains if f"{chain.proxy}-{chain.warmup:g}" in given.only):
        start = time.perf_counter()
        best = chain.run(folder)
        spent = ", ".join(f"{stage} {seconds:.0f} s" for stage, seconds in best.seconds.items())
        again = [measured(space.parse(best.best.arch), seed) for seed in range(given.seeds)]
        print(line(f"found by {chain.proxy}, warm-up {chain.warmup:g}", again), f"| {spent}", flush=True)
        print(f"    {time.perf_counter() - start:.0f} s; {best.best.arch}", flush=True)
    for name in (name for name in BASELINES if name in given.only):
        print(line(name, [by_hand(name, seed) for seed in range(given.seeds)]), flush=True)


if __name__ == "__main__":
    main()
