"""Options, networks, data and files of the commands of `epochzero analyze`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from torch import Tensor

from epochzero import data as data_
from epochzero.api import as_network
from epochzero.cli.console import as_json, err, out, print_json
from epochzero.cli.module import batch_of, load_module
from epochzero.cli.options import (
    AsJson,
    Classes,
    DataSource,
    Device,
    From,
    Init,
    InputShape,
    Plugins,
    Seed,
    Strict,
    Threads,
    Top,
)
from epochzero.cli.plugin import load_plugins, space_name
from epochzero.data import Batch
from epochzero.engine import Network, PlanNetwork
from epochzero.engine.device import usable
from epochzero.engine.failure import REASONS
from epochzero.engine.space_networks import batch_for, network_of
from epochzero.errors import UserError
from epochzero.files import made_folder
from epochzero.pictures import save
from epochzero.quantities import shape
from epochzero.registry import spaces
from epochzero.spaces.base import GivesPlans
from epochzero.study.winners import Winner, one_space, winners_of
from epochzero.train.checkpoint import Checkpoints
from epochzero.types import Origin

Out = Annotated[Path | None, typer.Option("--out", help="Folder for JSON, PNG and SVG.")]
Across = Annotated[int, typer.Option("--across", help="Points to a side of the plane, an odd number.")]

Report = Mapping[str, Any]
LONGEST = 96
"""letters of a network's name: a whole cell of nb201"""


@dataclass(frozen=True)
class Asked:
    """The options for networks, data and output."""

    space: Annotated[
        str | None, typer.Option(callback=space_name, help="Space of the architecture; default: nb201.")
    ] = None
    arch: Annotated[
        list[str] | None, typer.Option(help="Architecture, as the space writes it. May be repeated, to compare.")
    ] = None
    module: Annotated[str | None, typer.Option(help="Your network instead: file.py:factory.")] = None
    source: From = None
    top: Top = 1
    output: Annotated[str | None, typer.Option(help="Which part of the module's output: a name or index.")] = None
    weights: Annotated[Path | None, typer.Option(help="Trained ones: the folder that `epochzero train` wrote.")] = None
    data: DataSource = "pink"
    input_shape: InputShape = None
    classes: Classes = None
    seed: Seed = 0
    init: Init = "default"
    device: Device = "cpu"
    threads: Threads = None
    strict: Strict = False
    out_dir: Out = None
    plugin: Plugins = None
    json: AsJson = False

    @property
    def archs(self) -> Sequence[str]:
        return self.arch or ()

    def show(
        self, what: str, report: Report, lines: Mapping[str, Sequence[str]], figures: Callable[[], Mapping[str, Any]]
    ) -> None:
        """Writes the report to the folder, if any, and prints it as JSON, or the lines of each network."""
        report = {**report, "seed": self.seed}
        files = write(self.out_dir, what, report, {} if self.out_dir is None else figures())
        if self.json:
            print_json(report | {"files": files})
            return
        for name, own in lines.items():
            out.print(name, style="bold")
            for line in own:
                out.print(line)
        out.print(f"data    {report['data']}")
        say_written(files)


class Analyzed(NamedTuple):
    """Networks by name, and data for them."""

    networks: Mapping[str, Network]
    batch: Batch
    trained: bool
    """true if their batch norms have running statistics"""

    @property
    def samples(self) -> tuple[Tensor, Tensor]:
        """Inputs and labels on the networks' device."""
        x, y = self.batch.part(0)
        if y is None:
            raise UserError(f"A loss needs labels, and these data have none ({self.batch.about}): give --data with y.")
        weights = next(iter(next(iter(self.networks.values())).weights.values()))
        return x.to(weights.device), y.to(weights.device)


def analyzed(asked: Asked, batch_size: int) -> Analyzed:
    """The networks and the data; UserError for options that exclude each other."""
    load_plugins(asked.plugin)
    if asked.source:
        asked = _from(asked, winners_of(asked.source, asked.top))
    if (asked.module is None) == (not asked.archs):
        raise UserError("Give either --arch (with --space) or --module file.py:factory.")
    if asked.module is not None and (asked.space or asked.weights or asked.init != "default"):
        raise UserError("A module has no space and keeps its own weights: leave --space, --init and --weights out.")
    if asked.weights is not None and len(asked.archs) > 1:
        raise UserError("--weights are those of one network: give one --arch with them.")
    if len(set(asked.archs)) < len(asked.archs):
        raise UserError("The same --arch is given twice: give different ones.")
    usable(asked.device)
    if asked.module is not None:
        return _module(asked, asked.module, batch_size)
    space = spaces[asked.space or "nb201"]
    batch = _loaded(asked, batch_size, partial(batch_for, space))
    networks: dict[str, Network] = {}
    for name, text in zip(_names(asked.archs), asked.archs, strict=True):
        arch = space.parse(text)
        network = network_of(space, arch, batch, Origin(asked.init, asked.seed), asked.device)
        if asked.weights is not None:
            if not isinstance(space, GivesPlans):
                raise UserError(f"The space '{asked.space}' gives modules: load their weights in a --module of yours.")
            plan = space.plan(arch, batch.num_classes, batch.input_shape)
            network = PlanNetwork(plan, _trained_weights(asked.weights, plan.weights), asked.device)
        networks[name] = network
    return Analyzed(networks, batch, asked.weights is not None)


def _from(asked: Asked, found: Sequence[Winner]) -> Asked:
    """The options with the networks of --from."""
    if asked.arch or asked.module or asked.space:
        raise UserError("--from names the networks: leave --arch, --module and --space out.")
    if not (space := one_space(found)):
        if len(found) > 1:
            raise UserError("Modules are analysed one at a time: give one --from.")
        return replace(asked, module=found[0].arch)
    return replace(asked, space=space, arch=[one.arch for one in found])


def _names(texts: Sequence[str]) -> list[str]:
    """Names short enough for titles, numbered if they differ only in the part that is cut off."""
    short = [text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..." for text in texts]
    return short if len(set(short)) == len(short) else [f"{n}: {name}" for n, name in enumerate(short, start=1)]


def _module(asked: Asked, reference: str, batch_size: int) -> Analyzed:
    load = cache(lambda: _loaded(asked, batch_size, data_.load))
    own, inputs, y = load_module(reference, asked.seed, load)
    if inputs is None:
        batch = load()
    elif asked.data != "pink" or asked.input_shape is not None:
        raise UserError(f"'{reference}' brings its own inputs: leave --data and --input-shape out.")
    else:
        batch = batch_of(inputs, y, batch_size, asked.classes)
    network = as_network(own, batch, asked.seed, asked.output, asked.device)
    return Analyzed({reference: network}, batch, True)


def _loaded(asked: Asked, batch_size: int, load: Callable[..., Batch]) -> Batch:
    sizes = {"input_shape": shape(asked.input_shape), "num_classes": asked.classes, "size": batch_size}
    return load(asked.data, seed=asked.seed, **sizes)


def _trained_weights(folder: Path, wanted: Mapping[str, object]) -> dict[str, Tensor]:
    """The weights of the last epoch in a folder of `epochzero train`."""
    state = Checkpoints(folder).last()
    if state is None:
        raise UserError(f"The folder '{folder}' holds no training: give the --out of `epochzero train`.")
    kept = state.get("weights", {})
    if not wanted.keys() <= kept.keys():
        raise UserError(f"The weights in '{folder}' are those of another network, or of data with other classes.")
    return {name: kept[name] for name in wanted}


@contextmanager
def explained() -> Iterator[None]:
    """Reports errors of networks that cannot be run to the user."""
    try:
        yield
    except REASONS as reason:
        raise UserError(f"The network cannot be analysed: {str(reason).rstrip('.')}.") from reason


def write(folder: Path | None, name: str, report: Mapping[str, Any], figures: Mapping[str, Any]) -> list[str]:
    """Writes `name.json` and each figure as PNG and SVG into a new or existing folder; returns the paths."""
    if folder is None:
        return []
    made_folder(folder)
    (folder / f"{name}.json").write_text(as_json(report, indent=1) + "\n", encoding="utf-8")
    files = [f"{name}.json"]
    for figure, drawn in figures.items():
        files += save(drawn, folder, figure)
    return [str(folder / file) for file in files]


def say_written(files: list[str]) -> None:
    for file in files:
        err.print(f"wrote  {file}", soft_wrap=True)
