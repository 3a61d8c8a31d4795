"""TransNAS-Bench-101: `transnas-bench_v10141024.pth`, without unpickling objects.

    {"task_list": [task, ...], "metrics_dict": {task: [metric, ...]}, "info_names": [info, ...],
     "data": {"macro" or "micro": {text: {task: {"total_epochs": E,
                                                 "metrics": {metric: [one for each epoch]},
                                                 "model_info": {info: number}}}}}}

One file holds both spaces; `transnas_micro` and `transnas_macro` say which to take. Of each task the metrics on
validation and test data after the last epoch are kept, as `class_object_test_top1`, and what is known of the model, as
`class_object_model_params`, in the file's own units. Losses that are to be small, training metrics and times are left
out.

Duan et al. TransNAS-Bench-101: improving transferability and generalizability of cross-task neural architecture search.
CVPR 2021. arXiv:2105.11871. Layout: api/api.py and README.md of github.com/yawen-d/TransNASBench.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from epochzero.errors import UserError
from epochzero.tables import pickles
from epochzero.tables.columns import ACCURACY, Column, Quantity
from epochzero.tables.rows import Gatherer, Rows

SPACE = re.compile(r"transnas_(micro|macro)")
METRIC = re.compile(r"(valid|test)_(\w+)")
COSTS: dict[str, Quantity] = {"model_params": "params", "model_FLOPs": "flops", "inference_time": "latency"}


def read(path: Path, content: dict[str, Any], space: str) -> Rows:
    """The rows of one of the two spaces of a file whose content is given."""
    wanted = SPACE.match(space)
    if wanted is None:
        raise UserError(f"{path} is TransNAS-Bench: give --space transnas_micro or transnas_macro, not {space}.")
    gatherer = Gatherer()
    with pickles.refusing(str(path), "a file of TransNAS-Bench"):
        for arch, tasks in content["data"][wanted[1]].items():
            row = gatherer.row(str(arch))
            for task in content["task_list"]:
                known = tasks[task]
                for metric in content["metrics_dict"][task]:
                    column = _metric(task, metric, int(known["total_epochs"]))
                    if column is not None:
                        gatherer.put(row, column, float(known["metrics"][metric][-1]))
                for info in content["info_names"]:
                    column = Column(f"{task}_{info}", COSTS.get(info, "other"), str(task))
                    gatherer.put(row, column, float(known["model_info"][info]))
    return gatherer.rows(str(path))


def _metric(task: str, metric: str, epochs: int) -> Column | None:
    found = METRIC.fullmatch(metric)
    if found is None or (metric.endswith("loss") and not metric.endswith("neg_loss")):
        return None
    split = "val" if found[1] == "valid" else "test"
    quantity: Quantity = "accuracy" if found[2] in ACCURACY else "other"
    return Column(f"{task}_{split}_{found[2]}", quantity, task, split, epochs)
