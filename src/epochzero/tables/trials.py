"""The runs of one architecture, as NAS-Bench-201 and NATS-Bench both write them.

    {"arch_str": text, "all_results": {(dataset, seed): run}}
    run: "epochs": E, "eval_acc1es": {"x-valid@E-1": percent, "ori-test@E-1": ...}, "params" and "flop" in millions,
         "latency": [seconds], "train_times": {epoch: seconds}

The accuracies are those after the last epoch, on the sets that papers report: CIFAR-10's validation half after training
on the other half ("cifar10-valid"), its test set after training on both ("cifar10"), and the halves of the test sets of
CIFAR-100 and ImageNet16-120. Columns have the names that published tables use: `cifar10_test` is the longest training,
`cifar10_test_12ep` a shorter one. Times and latencies are means over runs. Where runs disagree on parameters or FLOPs,
seed 888 is right, as in the benchmark's own code.

Dong, Yang. NAS-Bench-201: extending the scope of reproducible neural architecture search. ICLR 2020. arXiv:2001.00326
Layout: `ArchResults` and `ResultsCount` in nats_bench/api_utils.py of github.com/D-X-Y/NATS-Bench, and in
nas_201_api/api_utils.py of github.com/D-X-Y/NAS-Bench-201.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from epochzero.tables import pickles
from epochzero.tables.columns import Column, Quantity
from epochzero.tables.rows import Gatherer

SETS = {
    ("cifar10-valid", "x-valid"): ("cifar10", "val"),
    ("cifar10", "ori-test"): ("cifar10", "test"),
    ("cifar100", "x-valid"): ("cifar100", "val"),
    ("cifar100", "x-test"): ("cifar100", "test"),
    ("ImageNet16-120", "x-valid"): ("imagenet16", "val"),
    ("ImageNet16-120", "x-test"): ("imagenet16", "test"),
}
DATASETS = {"cifar10": "cifar10", "cifar100": "cifar100", "ImageNet16-120": "imagenet16"}
TRAINED_ON = ("cifar10-valid", *DATASETS)
COUNTS: dict[str, tuple[Quantity, str]] = {"params": ("params", "params_M"), "flop": ("flops", "flops_M")}
RIGHT_SEED = 888


def gather_all(into: Gatherer, content: Mapping[str, Any]) -> None:
    """Put the runs of all architectures of a one-file benchmark into their rows."""
    for index, results in sorted(content["arch2infos"].items()):
        gather(into, pickles.text(content["meta_archs"][index]), results.values())


def gather(into: Gatherer, arch: str, results: Iterable[Mapping[str, Any]]) -> None:
    """Put the runs of one architecture into its row; `results` has one mapping for each length of training."""
    row = into.row(arch)
    runs = {
        (int(run["epochs"]), TRAINED_ON.index(dataset), int(seed)): run
        for result in results
        for (dataset, seed), run in result["all_results"].items()
        if dataset in TRAINED_ON
    }
    full = max(epochs for epochs, _, _ in runs)
    costs: dict[Column, list[float]] = {}
    for (epochs, number, seed), run in sorted(runs.items(), key=lambda item: (-item[0][0], item[0][1:])):
        trained_on, suffix = TRAINED_ON[number], "" if epochs == full else f"_{epochs}ep"
        for (on, measured), (dataset, split) in SETS.items():
            accuracy = run["eval_acc1es"].get(f"{measured}@{epochs - 1}") if on == trained_on else None
            if accuracy is not None:
                name = f"{dataset}_{split}{suffix}"
                into.put(row, Column(name, "accuracy", dataset, split, epochs, seed, "percent"), float(accuracy))
        if trained_on not in DATASETS:
            continue
        dataset = DATASETS[trained_on]
        if isinstance(run["train_times"], dict):
            column = Column(f"{dataset}_train_seconds{suffix}", "train_seconds", dataset, epochs=epochs)
            costs.setdefault(column, []).append(float(sum(run["train_times"].values())))
        if run["latency"] and epochs == full:
            column = Column(f"{dataset}_latency_s", "latency", dataset)
            costs.setdefault(column, []).append(float(sum(run["latency"]) / len(run["latency"])))
    for column, values in costs.items():
        into.put(row, column, sum(values) / len(values))
    for trained_on, dataset in DATASETS.items():
        for field, (quantity, name) in COUNTS.items():
            counts = {seed: run[field] for (_, on, seed), run in sorted(runs.items()) if TRAINED_ON[on] == trained_on}
            if counts:
                count = counts.get(RIGHT_SEED, next(iter(counts.values())))
                into.put(row, Column(f"{dataset}_{name}", quantity, dataset, unit="M"), float(count))
