"""The public face: `import epochzero as ez`, then `ez.score(...)` and `ez.search(...)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from epochzero import data as data_
from epochzero.combine.objective import parse_objective, parse_objectives, single
from epochzero.data import Batch
from epochzero.engine import Network, PlanNetwork, Proxy, score_network
from epochzero.engine.hooks import ModuleNetwork
from epochzero.errors import UserError
from epochzero.plan.module import PlanModule
from epochzero.registry import spaces
from epochzero.run.search import Outcome, Progress, run_search
from epochzero.run.task import Task, usable
from epochzero.spaces.base import Space
from epochzero.spaces.budget import Budget
from epochzero.store import Store
from epochzero.types import Origin, Score

Data = Batch | str | Path | Tensor | tuple[Tensor, Tensor]


def space(name: str | Space) -> Space:
    """The search space of that name."""
    if not isinstance(name, str):
        return name
    found: Space = spaces[name]
    return found


def score(
    network: Any,
    proxies: str | Sequence[str] = "dextr",
    *,
    space: str | Space | None = None,
    data: Data = "pink",
    seed: int = 0,
    init: str = "default",
    device: str = "cpu",
    output: Callable[[Any], Tensor] | None = None,
) -> dict[str, Score]:
    """Score one network: an architecture of a space, as a value or as text, or any `nn.Module`.

    An architecture's weights are drawn by `init` and `seed`; a module keeps its own, and is left exactly as it was.
    `output` picks the logits from what a module returns, where that is not a tensor.
    """
    usable(device)
    asked = _proxies(proxies)
    batch = _batch(data)
    if isinstance(network, nn.Module):
        return score_network(as_network(network, batch, seed, output, device), asked, batch, seed).scores
    if space is None:
        raise UserError("An architecture needs its space: score(arch, space='nb201'). A module needs none.")
    found = spaces[space] if isinstance(space, str) else space
    arch = found.parse(network) if isinstance(network, str) else network
    return Task(found, asked, batch, Origin(init, seed), device).score([arch])[0][0]


def search(
    space: str | Space = "nb201",
    proxy: str = "dextr",
    method: str = "evolution",
    budget: int = 100,
    *,
    max_params: float | None = None,
    max_flops: float | None = None,
    data: Data = "pink",
    seed: int = 0,
    init: str = "default",
    device: str = "cpu",
    store: str | Path = ":memory:",
    options: Mapping[str, Any] | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Find a network: `budget` candidates of the space are scored, each within the limits.

    With a store on disk, the same call resumes where it was stopped.
    """
    found = spaces[space] if isinstance(space, str) else space
    objective = parse_objective(proxy)
    task = Task(found, objective.proxies, _batch(data), Origin(init, seed), device)
    limits = Budget(*(None if limit is None else int(limit) for limit in (max_params, max_flops)))
    with Store.open(store) as opened:
        return run_search(
            task,
            method,
            budget,
            seed=seed,
            objective=objective,
            budget=limits,
            options=options,
            store=opened,
            progress=progress,
        )


def as_network(
    module: nn.Module,
    batch: Batch,
    seed: int = 0,
    output: Callable[[Any], Tensor] | None = None,
    device: str = "cpu",
) -> Network:
    """A module as the engine sees it; one that was made from a plan is run by its plan."""
    if isinstance(module, PlanModule):
        return PlanNetwork(module.plan, module.weights(), device)
    return ModuleNetwork(module, batch, seed, output, device)


def _proxies(asked: str | Sequence[str]) -> list[Proxy]:
    return single(parse_objectives(asked if isinstance(asked, str) else ",".join(asked)))


def _batch(data: Data) -> Batch:
    if isinstance(data, Batch):
        return data
    if isinstance(data, Tensor):
        return data_.from_tensors(data)
    if isinstance(data, tuple):
        return data_.from_tensors(*data)
    return data_.load(data)
