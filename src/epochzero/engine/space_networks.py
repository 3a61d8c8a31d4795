"""Networks of architectures: only this file distinguishes plans from modules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from random import Random
from typing import Any, Unpack

import torch
from torch import Tensor, nn

from epochzero import data as data_
from epochzero.data import Batch
from epochzero.data.batch import USUAL_SIZE, shape_text
from epochzero.data.noise import ids
from epochzero.data.seeding import seeded
from epochzero.engine import Network, PlanNetwork
from epochzero.engine.failure import BuildError, PassFailedError, out_of_memory
from epochzero.engine.loss import with_loss
from epochzero.engine.memory import footprint_of
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.engine.modules.outputs import Output
from epochzero.errors import UserError
from epochzero.plan.init import generator
from epochzero.spaces.base import AnySpace, GivesPlans, Measured, ModuleSpace, fitting_arguments, native_of
from epochzero.spaces.budget import Budget, BudgetedSpace, Size, Sizing
from epochzero.types import Footprint, Origin

TRIED, SIDES = 4, (8, 16, 32, 64, 128, 256, 512)
"""networks and sizes of images that are tried where the first network does not take the images"""


def batch_for(space: AnySpace, source: str | Path = "pink", **asked: Unpack[data_.Sampling]) -> Batch:
    """Loads data for the networks of a space, as `data.load` does.

    Noise has the shape and number of classes that the space was made for, and image files have its size. For language
    models it is rows of ids.
    """
    shape, noise = asked.get("input_shape"), source in data_.NOISE
    if noise and (native := native_of(space)) is not None:
        asked |= {"input_shape": shape or native[0], "num_classes": asked.get("num_classes") or native[1]}
    elif not noise and asked.get("image_size") is None and data_.is_image_folder(Path(source)):
        native = native_of(space)
        asked["image_size"] = shape[-1] if shape else native[0][-1] if native else None
    if noise and takes_ids(space) and (row := asked.get("input_shape")) and (words := asked.get("num_classes")):
        if len(row) > 1:
            raise UserError(f"{space.name} takes rows of ids, such as 128, not {shape_text(row)}.")
        counts = {"size": asked.get("size") or USUAL_SIZE, "parts": asked.get("parts", 4), "seed": asked.get("seed", 0)}
        return suited(space, ids(str(source), row[0], words, **counts))
    return data_.load(source, **asked)


class Unbuilt:
    """The network of an architecture that could not be built: all its scores fail with the reason."""

    weights: Mapping[str, Tensor] = {}
    layer_weights = trainable = ()
    hides = ""
    device = torch.device("cpu")

    def __init__(self, why: str) -> None:
        self.broken = why

    def __getattr__(self, name: str) -> Any:
        raise PassFailedError(self.broken)


def takes_ids(space: object) -> bool:
    """True for a space of language models, whose input is a row of ids of words."""
    return bool(getattr(space, "tokens", False))


def suited(space: AnySpace, batch: Batch) -> Batch:
    """Returns the data as the networks of the space take them; UserError for data that they do not take.

    Language models take as many words as the ids say, and predict the next token if no other loss is named.
    """
    if takes_ids(space):
        check_one_row(space.name, batch)
        most = max(int(batch.part(i)[0].max()) for i in range(batch.parts))
        batch = replace(batch, num_classes=max(batch.num_classes, most + 1))
        return batch if batch.loss else with_loss(batch, "next_token")
    if isinstance(space, GivesPlans):
        check_one_real(batch)
    return batch


def check_one_row(name: str, batch: Batch) -> None:
    """UserError for data other than rows of ids."""
    if batch.layout is None or len(batch.layout.slots) != 1 or not batch.layout.slots[0].tokens:
        given = batch.layout or f"{shape_text(batch.input_shape)} real"
        raise UserError(f"{name} takes rows of ids, whole numbers [samples, places], not {given}.")


def check_one_real(batch: Batch) -> None:
    """Plans take one tensor of real numbers."""
    if batch.layout is not None:
        raise UserError(
            f"A network of a space takes one input of real numbers, not {batch.layout}: give floats or bytes."
        )


def network_of(
    space: AnySpace, arch: Any, batch: Batch, origin: Origin = Origin(), device: str | torch.device = "cpu"
) -> Network:
    """Returns the network of an architecture for this data. Its weights depend on space, architecture and origin only.

    A plan's weights are drawn by the origin. Under the scheme `default` a built module keeps the
    initialisation of its own layers, drawn by the seed and the architecture's text; another scheme draws
    new weights of conv and linear layers.
    """
    if isinstance(space, GivesPlans):
        return PlanNetwork(partial(space.plan, arch, batch.num_classes, batch.input_shape), origin, device)
    try:
        module, output = built(space, arch, batch, origin.seed), getattr(space, "output", None)
        if origin.scheme == "default":
            return ModuleNetwork(module, batch, origin.seed, output, device)
        return _Redrawn(module, batch, origin, output, device)
    except BuildError as error:
        return Unbuilt(str(error))


def check_input_size(space: AnySpace, batch: Batch) -> None:
    """UserError if no network of a space of modules runs on such images, with the smallest size on which one does.

    A few networks are tried, for their shapes alone.
    """
    if isinstance(space, GivesPlans) or len(batch.input_shape) != 3 or batch.layout is not None:
        return
    archs = [space.smallest()]
    why = _why_not(space, archs[0], batch)
    if not why:
        return
    rng = Random(0)
    archs += [space.sample(rng) for _ in range(TRIED - 1)]
    channels, *sides = batch.input_shape

    def works(side: int) -> bool:
        images = data_.white((channels, side, side), batch.num_classes, 1, 1, 0)
        return any(not _why_not(space, arch, images) for arch in archs)

    if any(not _why_not(space, arch, batch) for arch in archs[1:]):
        return
    fails, fits = max(sides), next((side for side in SIDES if side > max(sides) and works(side)), None)
    if fits is None:  # for another reason, which the scores say
        return
    while fits - fails > 1:
        middle = (fits + fails) // 2
        fails, fits = (fails, middle) if works(middle) else (middle, fits)
    raise UserError(
        f"No network of {space.name} that was tried runs on images of {shape_text(batch.input_shape)} ({why}). The "
        f"smallest that work are {channels}x{fits}x{fits}."
    )


def _why_not(space: ModuleSpace, arch: Any, batch: Batch) -> str:
    """The reason why a network cannot be built or run; empty if it can."""
    try:
        _ = ModuleNetwork(built(space, arch, batch, 0), batch, 0, getattr(space, "output", None)).flops
    except (BuildError, PassFailedError) as error:
        return str(error)
    return ""


def size_of(space: AnySpace, arch: Any, batch: Batch) -> Measured:
    """Returns parameters and multiply-accumulates; those of a plan without building it."""
    if isinstance(space, GivesPlans):
        return space.plan(arch, batch.num_classes, batch.input_shape)
    return _BuiltSize(ModuleNetwork(built(space, arch, batch, 0), batch), space.text(arch))


def budgeted(space: AnySpace, budget: Budget, batch: Batch) -> BudgetedSpace:
    """Returns the part of the space within the budget; modules are built for their size, unless the space knows it."""
    _size_if_built(space, batch, space.smallest())  # refuses data that the space does not support
    knows = isinstance(space, (GivesPlans, Sizing))
    size = None if knows else partial(_size_if_built, space, batch)
    memory = None if isinstance(space, GivesPlans) else partial(_memory_if_built, space, batch)
    return BudgetedSpace(space, budget, batch.num_classes, batch.input_shape, size, memory)


def _memory_if_built(space: ModuleSpace, batch: Batch, arch: Any) -> Footprint:
    """The memory of a module; none for one that cannot be built, so that its score says why it failed."""
    try:
        module = built(space, arch, batch, 0)
        return footprint_of(ModuleNetwork(module, batch, 0, getattr(space, "output", None)), batch)
    except BuildError:
        return Footprint(0, 0)
    except PassFailedError as reason:
        raise UserError(
            f"The memory of {space.text(arch)!r} cannot be followed ({reason}): limit parameters instead."
        ) from reason


def _size_if_built(space: AnySpace, batch: Batch, arch: Any) -> Measured:
    """As `size_of`, but a network that cannot be built is within any budget, so that its score says why it failed."""
    try:
        return size_of(space, arch, batch)
    except BuildError:
        return Size(0, 0)


def module_of(space: AnySpace, arch: Any, batch: Batch, origin: Origin = Origin()) -> nn.Module:
    """Returns the network of an architecture as an ordinary module, with the weights that it is scored with."""
    if isinstance(space, GivesPlans):
        return space.plan(arch, batch.num_classes, batch.input_shape).module(origin)
    module = built(space, arch, batch, origin.seed)
    if origin.scheme != "default":
        module.load_state_dict(_Redrawn(module, batch, origin).weights, strict=False)
    return module


def built(space: ModuleSpace, arch: Any, batch: Batch, seed: int) -> nn.Module:
    """Builds a module of the space, with all randomness seeded by the architecture's text."""
    text = space.text(arch)
    fits = {"num_classes": batch.num_classes, "input_shape": batch.input_shape}
    try:
        with seeded(generator(seed, "build", text).initial_seed()):
            module = space.build(arch, **fitting_arguments(space.build, fits))
    except Exception as error:
        if isinstance(error, UserError) or out_of_memory(error):
            raise
        said = (str(error).strip() or "no message").splitlines()[0]
        raise BuildError(f"{text!r} cannot be built: {type(error).__name__}: {said}") from error
    if not isinstance(module, nn.Module):
        raise UserError(f"The space '{space.name}' builds {type(module).__name__} for {text!r}, not an nn.Module.")
    return module


class _Redrawn(ModuleNetwork):
    """A module with new weights, drawn on first use.

    The uses of weights are known only after a run. A module that cannot run fails in its scores, not here.
    """

    def __init__(
        self,
        module: nn.Module,
        batch: Batch,
        origin: Origin,
        output: Output | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        super().__init__(module, batch, origin.seed, output, device)
        self._own = ModuleNetwork(module, batch, origin.seed, output, device)
        self._origin = origin
        del self.weights

    @cached_property
    def weights(self) -> dict[str, Tensor]:  # type: ignore[override]
        return dict(self._own.redrawn(self._origin))

    def redrawn(self, origin: Origin) -> dict[str, Tensor]:
        return dict(self._own.redrawn(origin))


class _BuiltSize:
    """The size of a module; UserError if torch cannot count its multiply-accumulates."""

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
