"""From an architecture to a network that can be scored: the one place where plans and modules part."""

from __future__ import annotations

import inspect
import random
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epochzero import data as data_
from epochzero.data import Batch
from epochzero.engine import Network, PlanNetwork
from epochzero.engine.failure import PassFailedError, out_of_memory
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.errors import UserError
from epochzero.plan.init import generator
from epochzero.spaces.base import AnySpace, GivesPlans, Measured, ModuleSpace
from epochzero.spaces.budget import Budget, BudgetedSpace, Sizing
from epochzero.types import Origin, Shape


def batch_for(
    space: AnySpace,
    source: str | Path = "pink",
    *,
    input_shape: Shape | None = None,
    num_classes: int | None = None,
    size: int = 64,
    parts: int = 4,
    seed: int = 0,
) -> Batch:
    """Data for the networks of a space. Noise has the shape and the classes that the space was made for."""
    if source in data_.NOISE and isinstance(space, GivesPlans):
        native = space.plan(space.smallest())
        input_shape = input_shape or native.input_shape
        num_classes = num_classes or native.output_shape[0]
    return data_.load(source, input_shape=input_shape, num_classes=num_classes, size=size, parts=parts, seed=seed)


def network_of(
    space: AnySpace, arch: Any, batch: Batch, origin: Origin = Origin(), device: str | torch.device = "cpu"
) -> Network:
    """The network of an architecture for this data. Its weights depend on space, architecture and origin alone.

    A plan's weights are drawn by the origin. Under the scheme `default` a module that was built keeps the
    initialisation of its own layers, drawn by the seed and the architecture's text; another scheme draws conv and
    linear layers anew.
    """
    if isinstance(space, GivesPlans):
        return PlanNetwork(partial(space.plan, arch, batch.num_classes, batch.input_shape), origin, device)
    module = built(space, arch, batch, origin.seed)
    if origin.scheme == "default":
        return ModuleNetwork(module, batch, origin.seed, device=device)
    return _Redrawn(module, batch, origin, device)


def size_of(space: AnySpace, arch: Any, batch: Batch) -> Measured:
    """Parameters and multiply-accumulates, of a plan without building anything."""
    if isinstance(space, GivesPlans):
        return space.plan(arch, batch.num_classes, batch.input_shape)
    return _BuiltSize(ModuleNetwork(built(space, arch, batch, 0), batch), space.text(arch))


def budgeted(space: AnySpace, budget: Budget, batch: Batch) -> BudgetedSpace:
    """The part of the space that fits the budget; modules are built to be counted, unless the space knows better."""
    size_of(space, space.smallest(), batch)  # data that the space does not take are refused now
    knows = isinstance(space, (GivesPlans, Sizing))
    size = None if knows else partial(size_of, space, batch=batch)
    return BudgetedSpace(space, budget, batch.num_classes, batch.input_shape, size)


def module_of(space: AnySpace, arch: Any, batch: Batch, origin: Origin = Origin()) -> nn.Module:
    """The network of an architecture as an ordinary module, with the weights that it is scored with."""
    if isinstance(space, GivesPlans):
        return space.plan(arch, batch.num_classes, batch.input_shape).module(origin)
    module = built(space, arch, batch, origin.seed)
    if origin.scheme != "default":
        module.load_state_dict(_Redrawn(module, batch, origin, "cpu").weights, strict=False)
    return module


def built(space: ModuleSpace, arch: Any, batch: Batch, seed: int) -> nn.Module:
    """What the space builds, with everything that it draws at random seeded by the architecture's text."""
    text = space.text(arch)
    fits = {"num_classes": batch.num_classes, "input_shape": batch.input_shape}
    takes = inspect.signature(space.build).parameters
    try:
        with _seeded(generator(seed, "build", text).initial_seed()):
            module = space.build(arch, **{name: value for name, value in fits.items() if name in takes})
    except Exception as error:
        if isinstance(error, UserError) or out_of_memory(error):
            raise
        said = (str(error).strip() or "no message").splitlines()[0]
        raise UserError(f"The space '{space.name}' cannot build {text!r}: {type(error).__name__}: {said}") from error
    if not isinstance(module, nn.Module):
        raise UserError(f"The space '{space.name}' builds {type(module).__name__} for {text!r}, not an nn.Module.")
    return module


class _Redrawn(ModuleNetwork):
    """A module with other weights than its own, drawn when they are first needed.

    To know which weight is for what, the module has to run. One that cannot then fails in its scores, not here.
    """

    def __init__(self, module: nn.Module, batch: Batch, origin: Origin, device: str | torch.device) -> None:
        super().__init__(module, batch, origin.seed, device=device)
        self._own = ModuleNetwork(module, batch, origin.seed, device=device)
        self._origin = origin
        del self.weights

    @cached_property
    def weights(self) -> dict[str, Tensor]:  # type: ignore[override]
        return dict(self._own.redrawn(self._origin))

    def redrawn(self, origin: Origin) -> dict[str, Tensor]:
        return dict(self._own.redrawn(origin))


class _BuiltSize:
    """The size of a module; a count that torch cannot make is refused in words."""

    def __init__(self, network: ModuleNetwork, text: str) -> None:
        self._network = network
        self._text = text

    @property
    def params(self) -> int:
        return self._network.params

    @property
    def flops(self) -> int:
        try:
            return self._network.flops
        except PassFailedError as reason:
            raise UserError(
                f"The multiply-accumulates of {self._text!r} cannot be counted ({reason}): limit parameters instead."
            ) from reason


@contextmanager
def _seeded(seed: int) -> Iterator[None]:
    """Torch, numpy and Python draw from this seed, and go on afterwards as if nothing had been drawn."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)
