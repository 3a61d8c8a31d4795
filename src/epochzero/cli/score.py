"""`epochzero score`: one network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from typing import Annotated, Any, NamedTuple

import typer
from torch import nn
from typer import Option

from epochzero import data as data_
from epochzero.api import as_network
from epochzero.cli.console import counts, millions, out, print_json, score_json, score_table
from epochzero.cli.module import batch_of, load_module
from epochzero.cli.options import (
    AsJson,
    Device,
    Init,
    Plugins,
    ProxyNames,
    SampleOptions,
    Seed,
    Strict,
    Threads,
    panel,
    spread,
)
from epochzero.cli.plugin import load_plugins, space_name
from epochzero.data import Batch
from epochzero.engine import Proxy, score_network
from epochzero.engine.device import usable
from epochzero.engine.loss import with_loss
from epochzero.engine.space_networks import batch_for
from epochzero.errors import UserError
from epochzero.objectives.auto import DEFAULT
from epochzero.objectives.objective import looked_up, parse_objectives, percentiles, single
from epochzero.quantities import shape, skips
from epochzero.registry import spaces
from epochzero.spaces.published import is_published
from epochzero.study.task import Task
from epochzero.types import Origin, Score


@panel("Network")
class NetworkOptions:
    """An architecture of a space, or a module."""

    space: Annotated[str | None, Option(callback=space_name, help="Space of the architecture.")] = None
    arch: Annotated[str | None, Option(help="Architecture, in the space's own text.")] = None
    module: Annotated[
        list[str] | None,
        Option(help="Your network instead: file.py:factory, or timm:NAME, hf:NAME. May be repeated."),
    ] = None
    output: Annotated[str | None, Option(help="Which part of its output: a name or index, or a path heads.0.")] = None
    init: Init = "default"


@spread
def score(
    network: NetworkOptions,
    samples: SampleOptions,
    proxy: ProxyNames = DEFAULT,
    seed: Seed = 0,
    device: Device = "cpu",
    threads: Threads = None,
    strict: Strict = False,
    plugin: Plugins = None,
    json: AsJson = False,
) -> None:
    """Score one network: an architecture of a space, or any nn.Module of yours.

    The score auto is a percentile, from 0 to 100, among random networks of the space, or among networks of its size;
    the scores that it is made of follow.

    epochzero score --space nb201 --arch '|nor_conv_3x3~0|+|...' --proxy auto,dextr,zico

    epochzero score --module net.py:make --input-shape 3,224,224 --proxy naswot

    The factory may take num_classes and input_shape. It returns a module, or brings its own data, whole numbers and
    several inputs too: (module, inputs) or (module, inputs, labels), with inputs a tensor, a tuple of tensors, or a
    dictionary of tensors by argument name.
    `epochzero rank` compares several. The exit code is 1 if no score could be computed.
    """
    load_plugins(plugin)
    references: Sequence[str | None] = network.module or (None,)
    scored = [_scored(network, one, samples, proxy, seed, device) for one in references]
    if json:
        documents = [_document(*one) | {"seed": seed} for one in scored]
        print_json(documents[0] if len(documents) == 1 else {"networks": documents})
    else:
        for place, one in enumerate(scored):
            if place:
                out.print()
            _show(*one)
    statuses = {score.status for one in scored for score in one.scores.values()}
    if "ok" not in statuses and "failed" in statuses:
        raise typer.Exit(1)


class _Scored(NamedTuple):
    """A network with its scores."""

    name: str
    facts: dict[str, int | None]
    batch: Batch
    proxies: list[Proxy]
    scores: dict[str, Score]


def _scored(
    network: NetworkOptions, reference: str | None, samples: SampleOptions, proxy: str, seed: int, device: str
) -> _Scored:
    """Scores the module that the reference names, or the architecture."""
    proxies = single(parse_objectives(proxy))
    if is_published(reference) and (network.arch, network.space, network.output) == (None, None, None):
        network, reference = replace(network, space="published", arch=reference), None
    if (reference is None) == (network.arch is None):
        raise UserError("Give either --arch (with --space) or --module file.py:factory.")
    if reference is not None and (network.space is not None or network.init != "default"):
        raise UserError("A module has no space and keeps its own weights: leave --space and --init out.")
    facts: dict[str, int | None] = {}
    if reference is not None:
        module, batch = _module(reference, samples, seed)
        usable(device)
        name, made_for = reference, ""
        scores = score_network(as_network(module, batch, seed, network.output, device), proxies, batch, seed).scores
    else:
        space = spaces[network.space or "nb201"]
        batch = _batch(samples, seed, partial(batch_for, space))
        task = Task(space, proxies, batch, Origin(network.init, seed), device)
        arch = space.parse(str(network.arch))
        made_for = space.name
        name, scores, facts = space.text(arch), task.score([arch])[0][0], counts(task.size(arch))
    scores = percentiles(proxy, scores, made_for, batch.input_shape)
    known = {one.text: one for one in proxies}
    return _Scored(name, facts, batch, [known.get(text) or looked_up(text) for text in scores], scores)


def _document(
    name: str, facts: dict[str, int | None], batch: Batch, proxies: list[Proxy], scores: dict[str, Score]
) -> dict[str, Any]:
    by_name = {p.text: score_json(p, scores[p.text]) for p in proxies}
    return {"arch": name, "scores": by_name, **facts, "batch": batch.id}


def _show(
    name: str, facts: dict[str, int | None], batch: Batch, proxies: list[Proxy], scores: dict[str, Score]
) -> None:
    out.print(name, style="bold")
    for what, count in facts.items():
        out.print(f"{what:7} {millions(count)}")
    out.print(f"data    {batch.about}")
    out.print()
    out.print(score_table(proxies, scores))


def _module(reference: str, samples: SampleOptions, seed: int) -> tuple[nn.Module, Batch]:
    """A module of the user with its batch: its own inputs, or those of the options."""
    load = cache(lambda: _batch(samples, seed, data_.load))
    module, inputs, y = load_module(reference, seed, load)
    if inputs is None:
        return module, load()
    if samples.data != "pink" or samples.input_shape is not None:
        raise UserError(f"'{reference}' brings its own inputs: leave --data and --input-shape out.")
    return module, batch_of(inputs, y, samples.batch_size, samples.classes, samples.loss)


def _batch(samples: SampleOptions, seed: int, load: Callable[..., Batch]) -> Batch:
    batch = load(
        samples.data,
        input_shape=shape(samples.input_shape),
        num_classes=samples.classes,
        size=samples.batch_size,
        seed=seed,
        image_size=samples.image_size,
        skip_unreadable=skips(samples.unreadable),
    )
    return with_loss(batch, samples.loss)
