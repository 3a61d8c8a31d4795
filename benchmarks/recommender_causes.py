"""Measurement of what each part of the tuned recipe is worth: networks and baselines without one part of it.

    python benchmarks/recommender_causes.py --folder runs/causes --data T.csv --schema S.json [--share 0.25]
                                            [--networks 1] [--seeds 3] [--only tuned published]

Each row is one training: variant, network or baseline, seed, log loss on validation and test rows, test AUC, steps,
best step, seconds. Rows are written to rows.csv as they come; run again, the same command trains the missing ones.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path
from random import Random

import torch

from epochzero.recommend.data.ingest import encode
from epochzero.recommend.presets import PRESETS, batch_size_for
from epochzero.recommend.spaces.nasrec import nasrec
from epochzero.recommend.training.recipes import RECIPES
from epochzero.recommend.training.source import MEASURED, TrainingSource
from epochzero.recommend.training.trainer import Trained, evaluate, rows_in

TUNED, PUBLISHED = RECIPES["tuned"], RECIPES["published"]
VARIANTS = {
    "tuned": TUNED,
    "one epoch": TUNED.changed({"epochs": 1}),
    "adagrad": TUNED.changed({"optimizer": "adagrad", "highest": 0.12}),
    "published embeddings": TUNED.changed({"embedding_scale": 0.0}),
    "layer norms": TUNED.changed({"use_layernorm": 1}),
    "no intervals": TUNED.changed({"intervals": 0}),
    "no linear model": TUNED.changed({"wide": 0}),
    "published": PUBLISHED,
    "published with layer norms": PUBLISHED.changed({"use_layernorm": 1}),
}
COLUMNS = "variant", "model", "seed", "val", "test", "auc", "steps", "best_step", "seconds"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--data", required=True)
    parser.add_argument("--schema", required=True)
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--networks", type=int, default=1, help="random networks of nasrec_small, reduced")
    parser.add_argument("--baselines", nargs="*", default=())
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    given = parser.parse_args()
    torch.set_num_threads(1)
    table = encode(given.data, given.schema, given.folder / "table", bad_lines="skip")
    rows = rows_in(given.share, table.size("train"))
    sizes, file = PRESETS["reduced"], given.folder / "rows.csv"
    space = nasrec("nasrec_small").on(table.num_dense, table.rows).reduced(sizes.widest, sizes.most_rows)
    archs = [space.sample(Random(number)) for number in range(given.networks)]
    done = set()
    if file.exists():
        with file.open() as read:
            done = {(row["variant"], row["model"], row["seed"]) for row in csv.DictReader(read)}
    else:
        file.write_text(",".join(COLUMNS) + "\n")
    models = [*(f"network {number}" for number in range(given.networks)), *given.baselines]
    for seed in range(given.seeds):
        for name in given.only:
            recipe = VARIANTS[name].changed({"batch_size": batch_size_for(rows, 256)})
            source = TrainingSource(space.formed(recipe.form), table, recipe.settings, seed, given.share)
            for number, model in enumerate(models):
                if (name, model, str(seed)) in done:
                    continue
                start = time.perf_counter()
                if number < len(archs):
                    network = source.model(archs[number])
                    ended: Trained | None = source.fit_network(network, space.text(archs[number]))
                    val, test = (evaluate(network, table, part) for part in MEASURED)
                else:
                    one = source.baseline(model)
                    ended, (val, test) = one.trained, (one.metrics[part] for part in MEASURED)
                steps = ("", "") if ended is None else (ended.steps, ended.best_step)
                figures = (f"{figure:.5f}" for figure in (val.log_loss, test.log_loss, test.auc))
                seconds = f"{time.perf_counter() - start:.0f}"
                with file.open("a", newline="") as out:
                    csv.writer(out).writerow((name, model, seed, *figures, *steps, seconds))


if __name__ == "__main__":
    main()
