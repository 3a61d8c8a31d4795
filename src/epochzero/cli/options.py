"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import fields
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import typer

from epochzero.cli.plugin import load_plugins
from epochzero.errors import UserError
from epochzero.executors import Executor, executor_of

Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin", help="Your own file.py or module, run to register spaces, proxies, searches. May be repeated."
    ),
]
SpaceName = Annotated[str, typer.Option("--space", help="Search space; `epochzero list spaces`.")]
ProxyNames = Annotated[
    str,
    typer.Option("--proxy", help="Proxies, separated by commas, settings in parentheses: dextr,zico(batches=4)."),
]
DataSource = Annotated[
    str, typer.Option("--data", help="pink or white noise, an .npz file (x, y), or a CIFAR archive or folder.")
]
InputShape = Annotated[str | None, typer.Option("--input-shape", help="Of one sample of noise: 3,224,224.")]
BatchSize = Annotated[int, typer.Option("--batch-size", min=1, max=10**6, help="Samples in one batch.")]
Classes = Annotated[int | None, typer.Option("--classes", min=1, max=10**6, help="Default: what the data says, or 10.")]
Seed = Annotated[int, typer.Option("--seed", min=0, max=2**62, help="Draws weights, samples and candidates.")]
Init = Annotated[
    str, typer.Option("--init", help="Initialisation: default (PyTorch's), lecun, xavier, kaiming, normal.")
]
Device = Annotated[str, typer.Option("--device", help="cpu, cuda, cuda:1, ...")]
StorePath = Annotated[
    Path | None,
    typer.Option("--store", help="Result store (SQLite). The same command with the same store resumes."),
]
ExecutorName = Annotated[
    str, typer.Option("--executor", help="Who scores: local (this process), processes (all cores), ray (a cluster).")
]
Workers = Annotated[
    int | None, typer.Option("--workers", help="Networks scored at a time; default: all cores, or the whole cluster.")
]
Threads = Annotated[
    int | None, typer.Option("--threads", help="Threads of each worker; default: all cores (local), or 1.")
]
Address = Annotated[
    str | None, typer.Option("--address", help="Head of a Ray cluster: host:port, or auto; default: start one here.")
]
Gpus = Annotated[
    float | None, typer.Option("--gpus", help="GPUs of each Ray worker, 0.25 for a quarter; default: 1 on cuda.")
]
BadLines = Annotated[
    str,
    typer.Option("--bad-lines", help="Of a table of clicks: strict stops at the first bad line, skip puts it aside."),
]
DataFolder = Annotated[
    str,
    typer.Option("--data-folder", envvar="EPOCHZERO_DATA", help="Where experiments find tables and images, by name."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on standard output.")]


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of its first argument, a dataclass, which it gets as one object."""
    first, *own = inspect.signature(command, eval_str=True).parameters.values()
    group = first.annotation
    kinds = get_type_hints(group, include_extras=True)
    keyword = inspect.Parameter.KEYWORD_ONLY
    shared = [inspect.Parameter(f.name, keyword, default=f.default, annotation=kinds[f.name]) for f in fields(group)]

    @wraps(command)
    def run(**given: Any) -> None:
        asked = group(**{option.name: given.pop(option.name) for option in shared})
        command(asked, **given)

    options = [*(option.replace(kind=keyword) for option in own), *shared]
    run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
    return run


def options(pairs: list[str]) -> dict[str, int | float | str]:
    """`["population=100"]` as a dictionary, numbers as numbers."""
    read: dict[str, int | float | str] = {}
    for pair in pairs:
        key, equals, value = (piece.strip() for piece in pair.partition("="))
        if not equals or not key or not value:
            raise UserError(f"--option takes key=value, not {pair!r}.")
        read[key.replace("-", "_")] = _number(value)
    return read


def _number(text: str) -> int | float | str:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def executor(
    name: str,
    workers: int | None,
    threads: int | None,
    address: str | None,
    gpus: float | None,
    device: str,
    plugins: list[str] | None,
) -> Executor:
    """Who scores; its workers load the same plug-ins."""
    found = [str(Path(plugin).resolve()) if Path(plugin).exists() else plugin for plugin in plugins or ()]
    prepare = partial(load_plugins, found) if found else None
    return executor_of(
        name, workers=workers, threads=threads, address=address, gpus=gpus, device=device, prepare=prepare
    )
