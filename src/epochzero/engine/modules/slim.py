"""Slimmer versions of a module as a space: fewer channels, heads and blocks, which keep the weights of those that stay.

    space = ez.slim(module, images)
    ez.search(space, "naswot", data=images, max_params="300k")

An architecture says how much of each part stays: `layers=9, layers.mlp.fc1=48, patches=32`.

    depth     blocks of a list or sequence whose outputs have the shape of their inputs: the last ones go, and leave
              their inputs as they are
    width     channels of a layer, with everything that depends on them, as Torch-Pruning finds it: those of the least
              norm go. Blocks of one list share their widths. Attention loses whole heads where its code allows that

A width is offered where the module still runs at its smallest, and where, without norms over channels, it gives what
the module gives with those channels silenced. Other layers, such as the classifier, stay as they are.

Fang, Ma, Song, Mi, Wang. DepGraph: towards any structural pruning. CVPR 2023. arXiv:2301.12900
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from epochzero.data import Batch
from epochzero.data.batch import digest
from epochzero.data.loaders import batch_of
from epochzero.data.seeding import seeded
from epochzero.engine.modules.outputs import Output, pick
from epochzero.errors import UserError, needed
from epochzero.spaces.budget import Cost
from epochzero.spaces.choices import Arch, FactorySpace
from epochzero.types import Shape

LAYERS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, nn.ConvTranspose2d, nn.Linear)
FRACTIONS = (0.25, 0.5, 0.75, 1.0)
MOST = 2000
"""dependencies that are followed from one layer"""
NEAR = 1e-3
"""largest difference from the module with silenced channels, relative to the largest output"""


def slim(
    module: nn.Module,
    data: Any,
    *,
    widths: Sequence[float] = FRACTIONS,
    depths: Sequence[float] = FRACTIONS,
    output: Output | None = None,
) -> SlimSpace:
    """Returns the space of slimmer versions of a module: fractions of its widths and of its removable blocks.

    `data` are anything that `score` takes but names and files; two samples are run. The module is not changed.
    """
    for what, fractions in (("widths", widths), ("depths", depths)):
        if not fractions or not all(0 < one <= 1 for one in fractions):
            raise UserError(f"{what} takes fractions above 0 and up to 1, such as [0.5, 1.0], not {list(fractions)}.")
    batch = data if isinstance(data, Batch) else batch_of(data)
    slimmer = Slimmer(module, batch.part(0)[0][:2], batch.layout, output)
    needed("torch_pruning", "Slimming", "slim")
    try:
        slimmer._run(deepcopy(module))
    except Exception as error:
        raise UserError(f"The module cannot run on these data: {type(error).__name__}: {error}") from error
    slimmer.find_blocks(depths)
    slimmer.find_widths(widths)
    if not slimmer.options:
        raise UserError(f"No part of {type(module).__name__} can be made slimmer: no width or block is free.")
    return SlimSpace(slimmer)


class SlimSpace(FactorySpace):
    """The slimmer versions of a module."""

    def __init__(self, slimmer: Slimmer) -> None:
        super().__init__(slimmer, slimmer.options)
        self.output = slimmer.output
        kind = type(slimmer.module).__name__
        state = slimmer.module.state_dict().items()
        weights = [part for name, w in state for part in (name, w.detach().cpu().float().numpy().tobytes())]
        self.name = f"slim_{kind}:{digest(repr(slimmer.module), slimmer.options, *weights)[:12]}"

    def __reduce__(self) -> tuple[Any, ...]:
        return SlimSpace, (self.factory,)

    def least(self, cost: Cost, num_classes: int, input_shape: Shape) -> Arch:
        return self.smallest()


@dataclass
class Slimmer:
    """Makes a slimmer version of a module from the number of blocks and channels that stay."""

    module: nn.Module
    x: Tensor
    layout: Any
    output: Output | None
    options: dict[str, list[int]] = field(default_factory=dict)
    blocks: dict[str, list[str]] = field(default_factory=dict)
    """the removable blocks of a choice, in the order of the network"""
    layers: dict[str, list[str]] = field(default_factory=dict)
    """the layers whose outputs a choice narrows"""
    sizes: dict[str, tuple[int, int]] = field(default_factory=dict)
    """all channels of such a layer, and how many go at a time"""

    def __call__(self, **kept: int) -> nn.Module:
        module = deepcopy(self.module)
        for name, blocks in self.blocks.items():
            for block in blocks[kept.get(name, len(blocks)) :]:
                module.set_submodule(block, Skip())
        narrowed = {name: count for name, count in kept.items() if name in self.layers and count < self.sizes[name][0]}
        if narrowed:
            with self._graph(module) as graph:
                there = dict(module.named_modules())
                for name, count in narrowed.items():
                    for layer in self.layers[name]:
                        if layer in there:
                            _narrow(graph, there[layer], count, self.sizes[name][1])
        return module

    # ---- what can go

    def find_blocks(self, depths: Sequence[float]) -> None:
        """Finds sequences and lists with blocks that can be left out."""
        alike = self._keeping_shapes()
        for path, part in self.module.named_modules():
            inside = any(f"{path}.".startswith(f"{block}.") for blocks in self.blocks.values() for block in blocks)
            if inside or not isinstance(part, (nn.Sequential, nn.ModuleList)):
                continue
            paths = [f"{path}.{name}" if path else name for name, _ in part.named_children()]
            blocks = [block for block in paths if block in alike]
            keep = 0 if len(blocks) < len(paths) else 1
            counts = sorted({max(1, math.ceil(one * len(blocks) - 1e-9)) for one in depths})
            if len(blocks) > keep and counts and (len(counts) > 1 or counts[0] < len(blocks)):
                name = path or "depth"
                self.blocks[name], self.options[name] = blocks, counts

    def _keeping_shapes(self) -> set[str]:
        """The parts with layers of their own whose output has the shape of their input."""
        found: dict[str, bool] = {}
        hooks = []

        def watching(name: str) -> Any:
            def ran(_: nn.Module, inputs: tuple[Any, ...], returned: Any) -> None:
                both = isinstance(returned, Tensor) and inputs and isinstance(inputs[0], Tensor)
                same = bool(both) and returned.shape == inputs[0].shape
                found[name] = same and found.get(name, True)

            return ran

        copied = deepcopy(self.module)
        for name, part in copied.named_modules():
            if name and any(isinstance(one, LAYERS) for one in part.modules() if one is not part):
                hooks.append(part.register_forward_hook(watching(name)))
        self._run(copied)
        return {name for name, same in found.items() if same}

    def find_widths(self, widths: Sequence[float]) -> None:
        """Finds layers whose channels can go, and tries each at its smallest."""
        copied = deepcopy(self.module)
        names = {part: name for name, part in copied.named_modules()}
        removable = [block for blocks in self.blocks.values() for block in blocks]
        with self._graph(copied) as graph:
            for group in _groups(graph, names):
                size = len(group[0].idxs)
                outs = [dep.target.module for dep, idxs in group if _is_out(graph, dep) and len(idxs) == size]
                layers = [names[one] for one in outs if isinstance(one, LAYERS) and one in names]
                fixed = [one for one in layers if not any(one.startswith(f"{block}.") for block in removable)]
                if layers:
                    layer = min(fixed or layers, key=list(names.values()).index)
                    self._offer(layer, size, widths)
        places = list(names.values())
        for name in sorted(self.layers, key=lambda name: places.index(self.layers[name][0])):
            own = self.options.pop(name)
            if self._still_right(name, min(own)):
                self.options[name] = own
            else:
                del self.layers[name], self.sizes[name]

    def _offer(self, layer: str, size: int, widths: Sequence[float]) -> None:
        """Offers widths of a layer, which those at its place in other blocks of the list share."""
        name = layer
        for choice, blocks in self.blocks.items():
            for block in blocks:
                if layer.startswith(f"{block}."):
                    name = f"{choice}{layer[len(block) :]}"
        if name in self.sizes and self.sizes[name][0] != size:
            name = layer
        step = self._heads(layer, size)
        counts = sorted({max(step, round(size * one / step) * step) for one in widths})
        if counts[0] < size:
            self.layers.setdefault(name, []).append(layer)
            self.sizes[name], self.options[name] = (size, step), counts

    def _heads(self, layer: str, size: int) -> int:
        """The channels that go together: those of a head, for a projection of an attention with several heads."""
        within = self.module.get_submodule(layer.rpartition(".")[0])
        for key in ("head_dim", "attention_head_size", "head_size"):
            each = getattr(within, key, None)
            if isinstance(each, int) and 0 < each < size and size % each == 0:
                return each
        shared = [part.num_heads for part in self.module.modules() if isinstance(part, nn.MultiheadAttention)]
        step = math.lcm(*shared) if shared else 1
        return step if size % step == 0 else 1

    def _still_right(self, name: str, least: int) -> bool:
        """True if the module runs at the smallest width and, without norms over channels, as with silenced channels."""
        step = self.sizes[name][1]
        silenced = deepcopy(self.module).eval()
        whole = self._run(silenced)
        try:
            narrow = self(**{name: least})
            with self._graph(silenced) as graph:
                over_channels = False
                there = dict(silenced.named_modules())
                for layer in self.layers[name]:
                    dropped = _least(graph, there[layer], least, step)
                    over_channels |= _silence(graph, there[layer], dropped)
            out, expected = self._run(narrow), self._run(silenced)
        except Exception:  # whatever a library or the module's own code does with fewer channels
            return False
        if out.shape != whole.shape or not out.isfinite().all():
            return False
        return over_channels or float((out - expected).abs().max()) <= NEAR * float(expected.abs().max())

    # ---- running

    def _run(self, module: nn.Module) -> Tensor:
        """The module's output for the samples, in evaluation."""
        with seeded(0), torch.no_grad():
            return self._forward(module.eval())

    def _forward(self, module: nn.Module) -> Tensor:
        args, named = ((self.x,), {}) if self.layout is None else self.layout.unpack(self.x)
        return pick(module(*args, **named), self.output)

    @contextmanager
    def _graph(self, module: nn.Module) -> Iterator[Any]:
        """The dependencies between the channels of a module, whose flags are put back."""
        pruning = needed("torch_pruning", "Slimming", "slim")
        training = {name: part.training for name, part in module.named_modules()}
        fixed = {name for name, weight in module.named_parameters() if not weight.requires_grad}
        for weight in module.parameters():
            weight.requires_grad_(True)
        inside = pruning.dependency.graph
        plain = inside.Group

        class Group(plain):  # type: ignore[misc, valid-type]
            """One with an end: the library follows rotated channels for ever."""

            def add_dep(self, dep: Any, idxs: Any) -> None:
                if len(self) > MOST:
                    raise RecursionError("channels depend on each other without end")
                super().add_dep(dep, idxs)

        with seeded(0), torch.enable_grad():
            graph = pruning.DependencyGraph()
            graph.build_dependency(
                module.eval(), example_inputs=self.x, forward_fn=lambda model, _: self._forward(model), verbose=False
            )
        inside.Group = Group
        try:
            yield graph
        finally:
            inside.Group = plain
            for name, weight in module.named_parameters():
                weight.requires_grad_(name not in fixed)
            for name, part in module.named_modules():
                part.training = training.get(name, part.training)


class Skip(nn.Module):
    """In place of a block that is left out."""

    def forward(self, x: Tensor, *_: Any, **__: Any) -> Tensor:
        return x


def _groups(graph: Any, names: Mapping[nn.Module, str]) -> Iterator[Any]:
    """Layers whose channels depend on each other; those of an attention that rotates its channels have no end."""
    seen: set[nn.Module] = set()
    endless: set[str] = set()
    for layer in [one for one in graph.module2node if isinstance(one, LAYERS) and one in names]:
        parent = names[layer].rpartition(".")[0]
        if layer in seen or parent in endless or getattr(layer, "groups", 1) > 1:
            continue
        try:
            group = graph.get_pruning_group(layer, _pruner(graph, layer), list(range(graph.get_out_channels(layer))))
        except RecursionError:
            endless.add(parent)
            continue
        seen |= {dep.target.module for dep, _ in group if _is_out(graph, dep)}
        yield group


def _is_out(graph: Any, dep: Any) -> bool:
    return bool(graph.is_out_channel_pruning_fn(dep.handler))


def _pruner(graph: Any, layer: nn.Module) -> Any:
    return graph.get_pruner_of_module(layer).prune_out_channels


def _least(graph: Any, layer: nn.Module, count: int, step: int) -> list[int]:
    """The channels that go, by their norm over all weights that depend on them; as many at a time as a step."""
    pruning = needed("torch_pruning", "Slimming", "slim")
    size = graph.get_out_channels(layer)
    group = graph.get_pruning_group(layer, _pruner(graph, layer), list(range(size)))
    norms = pruning.importance.GroupMagnitudeImportance(p=2)(group)
    order = norms.detach().view(-1, step).sum(1).argsort(stable=True)[: (size - count) // step]
    return sorted(int(one) * step + i for one in order for i in range(step))


def _narrow(graph: Any, layer: nn.Module, count: int, step: int) -> None:
    dropped = _least(graph, layer, count, step)
    group = graph.get_pruning_group(layer, _pruner(graph, layer), dropped)
    if len(group[0].idxs) != len(dropped):
        raise ValueError("other channels of the same layer depend on these")
    group.prune()


def _silence(graph: Any, layer: nn.Module, dropped: list[int]) -> bool:
    """Sets weights that read these channels to zero; returns True if a norm takes statistics over them."""
    normed = False
    for dep, idxs in graph.get_pruning_group(layer, _pruner(graph, layer), dropped):
        reader = dep.target.module
        kind = type(reader).__name__.lower()
        normed |= ("norm" in kind and "batch" not in kind) or isinstance(reader, nn.MultiheadAttention)
        if not _is_out(graph, dep) and isinstance(reader, LAYERS):
            with torch.no_grad(), suppress(IndexError):
                dim = 0 if getattr(reader, "transposed", False) else 1
                reader.weight.index_fill_(dim, torch.tensor(list(idxs)), 0)
    return normed
