"""Runs for MLflow: parameters, metrics by step, the outcome as tags. Needs the extra `mlflow`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from epochzero.errors import needed

LONGEST = 500
"""characters of a parameter or tag"""


class MLflow:
    """A run of an experiment, at the tracking server or in the folder that MLflow's own settings name."""

    def __init__(self, experiment: str) -> None:
        self.mlflow = needed("mlflow", "Logging for MLflow", "mlflow")
        self.experiment = experiment

    def begin(self, kind: str, settings: Mapping[str, Any]) -> None:
        self.mlflow.set_experiment(self.experiment)
        self.mlflow.start_run(run_name=f"epochzero {kind}")
        self.mlflow.log_params({name: str(value)[:LONGEST] for name, value in settings.items()})

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.mlflow.log_metrics({_allowed(name): value for name, value in values.items()}, step=step)

    def end(self, summary: Mapping[str, Any]) -> None:
        self.mlflow.set_tags({name: str(value)[:LONGEST] for name, value in summary.items()})
        self.mlflow.end_run("FAILED" if "failed" in summary else "FINISHED")


def _allowed(name: str) -> str:
    """A name of the characters that MLflow takes."""
    return re.sub(r"[^\w\-. /]", "_", name)
