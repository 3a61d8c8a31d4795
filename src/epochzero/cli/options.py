"""Options that several commands share, and how their values are read."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from copy import copy
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import partial, wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar, dataclass_transform, get_type_hints

from typer import Option

from epochzero.cli.plugin import absolute, load_plugins, named, space_name
from epochzero.executors import Executor, executor_of
from epochzero.strict import its_threads, set_strict

T = TypeVar("T")

Plugins = Annotated[
    list[str] | None,
    Option(
        "--plugin",
        help="Your own file.py or module, run to register spaces, proxies, searches, or a space in it, file.py:NAME. "
        "May be repeated.",
    ),
]
SpaceName = Annotated[
    str,
    Option("--space", callback=space_name, help="Search space; `epochzero list spaces`, or your own, file.py:NAME."),
]
ProxyNames = Annotated[
    str, Option("--proxy", help="Proxies, separated by commas, settings in parentheses: dextr,zico(batches=4).")
]
DataSource = Annotated[
    str,
    Option(
        "--data",
        help="pink or white noise, an .npz file (x, y), a folder of images by class, or a CIFAR archive or folder.",
    ),
]
InputShape = Annotated[str | None, Option("--input-shape", help="Of one sample of noise: 3,224,224.")]
ImageSize = Annotated[
    int | None,
    Option("--image-size", min=8, max=2048, help="Side that image files are scaled to; default: the space's, or 32."),
]
Unreadable = Annotated[str, Option("--unreadable", help="Unreadable image files: stop, or skip them.")]
BatchSize = Annotated[int, Option("--batch-size", min=1, max=10**6, help="Samples in one batch.")]
LossName = Annotated[
    str | None,
    Option("--loss", help="In place of that of class labels: mse, binary, segmentation, next_token, or file.py:NAME."),
]
From = Annotated[
    list[str] | None,
    Option(
        "--from",
        help="Networks of a search or ranking: its store or winner.json; or your module, file.py:factory. May be "
        "repeated where several networks are meant.",
    ),
]
Top = Annotated[int, Option("--top", min=1, max=100, help="How many of the best of each --from.")]
Classes = Annotated[int | None, Option("--classes", min=1, max=10**6, help="Default: what the data says, or 10.")]


Seed = Annotated[int, Option("--seed", min=0, help="Draws weights, samples and candidates.")]
Init = Annotated[str, Option("--init", help="Initialisation: default (PyTorch's), lecun, xavier, kaiming, normal.")]
Device = Annotated[str, Option("--device", help="cpu, cuda, cuda:1, ...")]
StorePath = Annotated[
    Path | None, Option("--store", help="Result store (SQLite). The same command with the same store resumes.")
]
ExecutorName = Annotated[
    str,
    Option(
        "--executor",
        help="Who scores: local (this process), processes (all cores), ray (a cluster), or auto: this process for a "
        "few networks and all cores for many.",
    ),
]
Workers = Annotated[
    int | None, Option("--workers", help="Networks scored at a time; default: all cores, or the whole cluster.")
]


def _given(threads: int | None) -> int | None:
    """Sets the number of torch's threads in this process."""
    threads = its_threads(threads)
    if threads is not None:
        from epochzero.engine.threads import give_threads

        give_threads(threads)
    return threads


Threads = Annotated[
    int | None,
    Option(
        "--threads",
        callback=_given,
        help="Threads for each network on a CPU; default: 1 with several workers, else 1 or all, whichever is faster.",
    ),
]
Strict = Annotated[
    bool,
    Option(
        "--strict",
        callback=set_strict,
        is_eager=True,
        help="The same scores to the last bit on this machine: deterministic algorithms, one thread each, one by one.",
    ),
]
Address = Annotated[
    str | None, Option("--address", help="Head of a Ray cluster: host:port, or auto; default: start one here.")
]
Gpus = Annotated[
    float | None, Option("--gpus", help="GPUs of each Ray worker, 0.25 for a quarter; default: 1 on cuda.")
]
BadLines = Annotated[
    str, Option("--bad-lines", help="strict stops at the first bad line of a table of clicks, skip puts it aside.")
]
DataFolder = Annotated[
    str, Option("--data-folder", envvar="EPOCHZERO_DATA", help="Where experiments find tables and images, by name.")
]
Log = Annotated[
    list[str] | None,
    Option("--log", help="Also log to tensorboard:FOLDER, mlflow:EXPERIMENT or wandb:PROJECT. May be repeated."),
]
AsJson = Annotated[bool, Option("--json", help="Print one JSON object and nothing else on standard output.")]


@dataclass_transform(frozen_default=True)
def panel(name: str) -> Callable[[type[T]], type[T]]:
    """Makes a frozen dataclass of options, which the help lists under this heading."""

    def decorate(group: type[T]) -> type[T]:
        group.panel = name  # type: ignore[attr-defined]
        return dataclass(frozen=True)(group)

    return decorate


@panel("Data")
class BatchOptions:
    """The batch that networks are scored on."""

    data: DataSource = "pink"
    input_shape: InputShape = None
    image_size: ImageSize = None
    unreadable: Unreadable = "stop"
    batch_size: Annotated[
        int | None,
        Option(
            "--batch-size",
            min=1,
            max=10**6,
            help="Samples in one batch; default: 64, or all of a file or folder that holds fewer.",
        ),
    ] = None
    classes: Classes = None


@panel("Data")
class SampleOptions(BatchOptions):
    loss: LossName = None


@panel("Data")
class ClickOptions:
    """The format of a table of clicks."""

    schema: Annotated[
        str | None,
        Option(help="Columns of a table of clicks: criteo, avazu, kdd12, kdd12_clicks, or a .json or .toml file."),
    ] = None
    bad_lines: BadLines = "strict"


def spread(command: Callable[..., None]) -> Callable[..., None]:
    """The command with an option for each field of its arguments that are dataclasses, which it gets as objects."""
    groups: dict[str, Any] = {}
    shared: list[inspect.Parameter] = []
    own: list[inspect.Parameter] = []
    keyword = inspect.Parameter.KEYWORD_ONLY
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        group = parameter.annotation
        if not is_dataclass(group):
            own.append(parameter.replace(kind=keyword))
            continue
        groups[parameter.name] = group
        kinds = get_type_hints(group, include_extras=True)
        for one in fields(group):
            kind = kinds[one.name]
            if hasattr(group, "panel"):
                option = copy(kind.__metadata__[0])
                option.rich_help_panel = group.panel
                kind = Annotated[kind.__origin__, option]
            default = inspect.Parameter.empty if one.default is MISSING else one.default
            shared.append(inspect.Parameter(one.name, keyword, default=default, annotation=kind))

    @wraps(command)
    def run(**given: Any) -> None:
        made = {
            name: group(**{one.name: given.pop(one.name) for one in fields(group) if one.name in given})
            for name, group in groups.items()
        }
        command(**made, **given)

    run.__annotations__ = {}
    run.__signature__ = inspect.Signature([*own, *shared])  # type: ignore[attr-defined]
    return run


@panel("Running")
class RunningOptions:
    device: Device = "cpu"
    executor: ExecutorName = "auto"
    workers: Workers = None
    threads: Threads = None
    strict: Strict = False
    address: Address = None
    gpus: Gpus = None
    plugin: Plugins = None

    def made(self) -> Executor:
        """The executor; its workers load the same plug-ins."""
        paths = [absolute(plugin) for plugin in (*(self.plugin or ()), *named)]
        return executor_of(
            self.executor,
            workers=self.workers,
            threads=self.threads,
            address=self.address,
            gpus=self.gpus,
            device=self.device,
            prepare=partial(load_plugins, paths) if paths else None,
        )
