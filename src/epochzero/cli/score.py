"""`epochzero score`: one network."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from typer import Option

from epochzero import data as data_
from epochzero.api import as_network
from epochzero.cli.console import counts, millions, out, print_json, score_json, score_table
from epochzero.cli.module import batch_of, load_module
from epochzero.cli.options import (
    AsJson,
    BatchSize,
    Classes,
    DataSource,
    Device,
    Init,
    InputShape,
    Plugins,
    ProxyNames,
    Seed,
)
from epochzero.cli.plugin import load_plugins
from epochzero.engine import score_network
from epochzero.engine.device import usable
from epochzero.engine.space_networks import batch_for
from epochzero.errors import UserError
from epochzero.objectives.objective import parse_objectives, single
from epochzero.quantities import shape
from epochzero.registry import spaces
from epochzero.spaces.published import is_published
from epochzero.study.task import Task
from epochzero.types import Origin


def score(
    space: Annotated[str | None, Option(help="Space of the architecture.")] = None,
    arch: Annotated[str | None, Option(help="Architecture, in the space's own text.")] = None,
    module: Annotated[str | None, Option(help="Your network instead: file.py:factory, or timm:NAME, hf:NAME.")] = None,
    output: Annotated[str | None, Option(help="Which part of its output: a name or index, or a path heads.0.")] = None,
    proxy: ProxyNames = "dextr",
    data: DataSource = "pink",
    input_shape: InputShape = None,
    batch_size: BatchSize = 64,
    classes: Classes = None,
    seed: Seed = 0,
    init: Init = "default",
    device: Device = "cpu",
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Score one network: an architecture of a space, or any nn.Module of yours.

    epochzero score --space nb201 --arch '|nor_conv_3x3~0|+|...' --proxy dextr,zico

    epochzero score --module net.py:make --input-shape 3,224,224 --proxy naswot

    The factory returns a module, or brings its own data, whole numbers and several inputs too: (module, inputs) or
    (module, inputs, labels), with inputs a tensor, a tuple of tensors, or a dictionary of tensors by argument name.
    """
    load_plugins(plugin)
    proxies = single(parse_objectives(proxy))
    if is_published(module) and arch is None and space is None and output is None:
        space, arch, module = "published", module, None
    if (module is None) == (arch is None):
        raise UserError("Give either --arch (with --space) or --module file.py:factory.")
    if module is not None and (space is not None or init != "default"):
        raise UserError("A module has no space and keeps its own weights: leave --space and --init out.")
    own, inputs, y = (None, None, None) if module is None else load_module(module, seed)
    if inputs is None:
        load = data_.load if arch is None else partial(batch_for, spaces[space or "nb201"])
        batch = load(data, input_shape=shape(input_shape), num_classes=classes, size=batch_size, seed=seed)
    elif data != "pink" or input_shape is not None:
        raise UserError(f"'{module}' brings its own inputs: leave --data and --input-shape out.")
    else:
        batch = batch_of(inputs, y, batch_size, classes)
    if own is not None and module is not None:
        usable(device)
        network = as_network(own, batch, seed, output, device)
        scores, name = score_network(network, proxies, batch, seed).scores, module
        facts: dict[str, int | None] = {}
    else:
        assert arch is not None
        task = Task(spaces[space or "nb201"], proxies, batch, Origin(init, seed), device)
        value = task.space.parse(arch)
        scores, name = task.score([value])[0][0], task.space.text(value)
        facts = counts(task.size(value))
    if json:
        by_name = {p.text: score_json(p, scores[p.text]) for p in proxies}
        print_json({"arch": name, "scores": by_name, **facts, "batch": batch.id, "seed": seed})
        return
    out.print(name, style="bold")
    for what, count in facts.items():
        out.print(f"{what:7} {millions(count)}")
    out.print(f"data    {batch.about}")
    out.print()
    out.print(score_table(proxies, scores))
