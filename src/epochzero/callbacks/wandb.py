"""Runs for Weights & Biases: settings, values by step, the outcome as summary. Needs the extra `wandb`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from epochzero.errors import needed


class WandB:
    """A run of a project, online or offline as its own settings say (WANDB_MODE)."""

    def __init__(self, project: str) -> None:
        self.wandb = needed("wandb", "Logging for Weights & Biases", "wandb")
        self.project = project
        self.run: Any = None

    def begin(self, kind: str, settings: Mapping[str, Any]) -> None:
        self.run = self.wandb.init(project=self.project, job_type=kind, config=dict(settings))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step=step)

    def end(self, summary: Mapping[str, Any]) -> None:
        self.run.summary.update(dict(summary))
        self.run.finish(exit_code=int("failed" in summary))
