"""Executors: where the networks of a search or a benchmark are scored, in this process, in others, or on a cluster."""

from __future__ import annotations

from epochzero.errors import UserError
from epochzero.executors.base import Executor, Prepare
from epochzero.executors.local import Local
from epochzero.quantities import MOST_WORKERS
from epochzero.registry import check_known
from epochzero.strict import its_threads

__all__ = ["Executor", "Prepare", "executor_of"]

NAMES = ("auto", "local", "processes", "ray")


def executor_of(
    name: str = "auto",
    *,
    workers: int | None = None,
    threads: int | None = None,
    address: str | None = None,
    gpus: float | None = None,
    device: str = "cpu",
    prepare: Prepare | None = None,
) -> Executor:
    """The executor of that name. Each takes the settings that mean something for it and refuses the others.

    "auto" with a number of workers is "processes", or "local" for one.
    """
    threads = its_threads(threads)
    given = {"workers": workers, "address": address, "gpus": gpus}
    takes: dict[str, set[str]] = {
        "auto": {"workers"},
        "local": set(),
        "processes": {"workers"},
        "ray": {"workers", "address", "gpus"},
    }
    check_known(name, NAMES, f"No executor is called '{name}'")
    for setting, value in given.items():
        if value is not None and setting not in takes[name]:
            fit = " or ".join(other for other in NAMES if setting in takes[other])
            raise UserError(f"The executor '{name}' takes no {setting}: use it with the executor {fit}.")
    for setting, number in {"workers": workers, "threads": threads}.items():
        if number is not None and not 1 <= number <= MOST_WORKERS:
            raise UserError(
                f"The number of {setting} is {number}; it has to be at least 1, and at most {MOST_WORKERS:,}."
            )
    if name == "auto" and workers is not None:
        name, workers = ("processes", workers) if workers > 1 else ("local", None)
    if gpus is not None and gpus <= 0:
        raise UserError(f"A worker cannot have {gpus} GPUs: give 1, or a part such as 0.25 for four workers on one.")
    if name == "processes":
        from epochzero.executors.processes import Processes

        return Processes(workers, threads=threads or 1, prepare=prepare)
    if name == "ray":
        from epochzero.executors.ray import Ray

        gpus = gpus or float(device != "cpu")
        return Ray(workers, address=address, gpus=gpus, threads=threads or 1, prepare=prepare)
    if name == "local":
        return Local(threads)
    from epochzero.executors.auto import Auto

    return Auto(threads, device=device, prepare=prepare)
