"""Who scores the networks of a search or a benchmark: this process, others on this machine, or a Ray cluster."""

from epochzero.executors.base import Executor, Prepare, executor_of

__all__ = ["Executor", "Prepare", "executor_of"]
