"""TransNAS-Bench-101: `transnas-bench_v10141024.pth`, without unpickling objects.

    {"task_list": [task, ...], "metrics_dict": {task: [metric, ...]}, "info_names": [info, ...],
     "data": {"macro" or "micro": {text: {task: {"total_epochs": E,
                                                 "metrics": {metric: [one for each epoch]},
                                                 "model_info": {info: number}}}}}}

One file holds both spaces; `transnas_micro` or `transnas_macro` selects one. For each task the import keeps the metrics
on validation and test data after the last epoch, such as `class_object_test_top1`, and the facts of the model, such as
`class_object_model_params`, in the file's own units. It leaves out losses (lower is better), training metrics, times.

Duan et al. TransNAS-Bench-101: improving transferability and generalizability of cross-task neural architecture search.
CVPR 2021. arXiv:2105.11871. Layout: api/api.py and README.md of github.com/yawen-d/TransNASBench.
"""

from __future__ import annotations

import re

from epochzero.errors import UserError
from epochzero.tables import pickles
from epochzero.tables.columns import ACCURACY, Column, Quantity
from epochzero.tables.formats import Format, Source, formats
from epochzero.tables.rows import Gatherer, Rows

SPACE = re.compile(r"transnas_(micro|macro)")
METRIC = re.compile(r"(valid|test)_(\w+)")
COSTS: dict[str, Quantity] = {"model_params": "params", "model_FLOPs": "flops", "inference_time": "latency"}


def read(source: Source) -> Rows:
    """Returns the rows of one of the two spaces of the file."""
    path, content, space = source.path, source.pth, source.space.name
    wanted = SPACE.match(space)
    if wanted is None:
        raise UserError(f"{path} is TransNAS-Bench: give --space transnas_micro or transnas_macro, not {space}.")
    gatherer = Gatherer()
    with pickles.refusing(str(path), "a file of TransNAS-Bench"):
        for arch, tasks in content["data"][wanted[1]].items():
            row = gatherer.row(pickles.text(arch))
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
    match = METRIC.fullmatch(metric)
    if match is None or (metric.endswith("loss") and not metric.endswith("neg_loss")):
        return None
    split = "val" if match[1] == "valid" else "test"
    quantity: Quantity = "accuracy" if match[2] in ACCURACY else "other"
    return Column(f"{task}_{split}_{match[2]}", quantity, task, split, epochs)


formats.register(
    "transnas", Format("a .pth of TransNAS-Bench-101", lambda source: source.pth_has("metrics_dict"), read)
)
