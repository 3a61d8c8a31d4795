"""What the commands of `epochzero analyze` share: what they look at, architectures or a module with data; and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from torch import Tensor

from epochzero import data as data_
from epochzero.api import as_network
from epochzero.cli.console import as_json, err
from epochzero.cli.module import batch_of, load_module
from epochzero.cli.options import made_folder
from epochzero.data import Batch
from epochzero.engine import Network, PlanNetwork
from epochzero.engine.failure import REASONS
from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.run.network import batch_for, network_of
from epochzero.run.plots import save
from epochzero.run.task import usable
from epochzero.spaces.base import GivesPlans
from epochzero.train.checkpoint import Checkpoints
from epochzero.types import Origin, Shape

SpaceOf = Annotated[str | None, typer.Option("--space", help="Space of the architecture; default: nb201.")]
Archs = Annotated[
    list[str] | None, typer.Option("--arch", help="Architecture, as the space writes it. May be repeated, to compare.")
]
Module = Annotated[str | None, typer.Option("--module", help="Your network instead: file.py:factory.")]
Output = Annotated[str | None, typer.Option("--output", help="Which part of the module's output: a name or index.")]
Weights = Annotated[
    Path | None, typer.Option("--weights", help="Trained ones: the folder that `epochzero train` wrote.")
]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for JSON, PNG and SVG.")]
Across = Annotated[int, typer.Option("--across", help="Points to a side of the plane, an odd number.")]

LONGEST = 96
"""letters of a network's name: a whole cell of nb201"""


class Asked(NamedTuple):
    """What the command line says of networks and data."""

    space: str | None
    archs: Sequence[str]
    module: str | None
    output: str | None
    weights: Path | None
    data: str
    input_shape: Shape | None
    batch_size: int
    classes: int | None
    seed: int
    init: str
    device: str


class Analyzed(NamedTuple):
    """Networks by name, and data for them."""

    networks: Mapping[str, Network]
    batch: Batch
    trained: bool
    """whether their batch norms remember something"""

    @property
    def samples(self) -> tuple[Tensor, Tensor]:
        """Inputs and labels, where the networks are."""
        x, y = self.batch.part(0)
        if y is None:
            raise UserError(f"A loss needs labels, and there are none in this data ({self.batch.about})")
        weights = next(iter(next(iter(self.networks.values())).weights.values()))
        return x.to(weights.device), y.to(weights.device)


def analyzed(asked: Asked) -> Analyzed:
    """The networks and the data; UserError for what does not go together."""
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
        return _module(asked, asked.module)
    space = spaces[asked.space or "nb201"]
    batch = _loaded(asked, partial(batch_for, space))
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


def _names(texts: Sequence[str]) -> list[str]:
    """Short enough for titles; numbered where what is cut off would tell them apart."""
    short = [text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..." for text in texts]
    return short if len(set(short)) == len(short) else [f"{n}: {name}" for n, name in enumerate(short, start=1)]


def _module(asked: Asked, reference: str) -> Analyzed:
    own, inputs, y = load_module(reference, asked.seed)
    if inputs is None:
        batch = _loaded(asked, data_.load)
    elif asked.data != "pink" or asked.input_shape is not None:
        raise UserError(f"'{reference}' brings its own inputs: leave --data and --input-shape out.")
    else:
        batch = batch_of(inputs, y, asked.batch_size, asked.classes)
    network = as_network(own, batch, asked.seed, asked.output, asked.device)
    return Analyzed({reference: network}, batch, True)


def _loaded(asked: Asked, load: Any) -> Batch:
    found: Batch = load(
        asked.data, input_shape=asked.input_shape, num_classes=asked.classes, size=asked.batch_size, seed=asked.seed
    )
    return found


def _trained_weights(folder: Path, wanted: Mapping[str, object]) -> dict[str, Tensor]:
    """Of the last epoch that `epochzero train` kept there."""
    state = Checkpoints(folder).last()
    if state is None:
        raise UserError(f"The folder '{folder}' holds no training: give the --out of `epochzero train`.")
    kept = state.get("weights", {})
    if not wanted.keys() <= kept.keys():
        raise UserError(f"The weights in '{folder}' are those of another network, or of data with other classes.")
    return {name: kept[name] for name in wanted}


@contextmanager
def explained() -> Iterator[None]:
    """A reason why a network cannot be run is a sentence for the user."""
    try:
        yield
    except REASONS as reason:
        raise UserError(f"The network cannot be analysed: {str(reason).rstrip('.')}.") from reason


def write(out: Path | None, name: str, report: Mapping[str, Any], figures: Mapping[str, Any]) -> list[str]:
    """`name.json` and each figure as PNG and SVG, in a folder that is made; the paths."""
    if out is None:
        return []
    folder = made_folder(out)
    (folder / f"{name}.json").write_text(as_json(report, indent=1) + "\n", encoding="utf-8")
    files = [f"{name}.json"]
    for figure, drawn in figures.items():
        files += save(drawn, folder, figure)
    return [str(folder / file) for file in files]


def say_written(files: list[str]) -> None:
    for file in files:
        err.print(f"wrote  {file}", soft_wrap=True)
