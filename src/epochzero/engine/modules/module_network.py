"""Any `nn.Module` as a network: observed by a function mode, and left exactly as it was.

Module hooks are used only for what calls no function: `nn.Identity`, and blocks. Weights and buffers are passed in,
never written; attributes, training flags and the global random states are put back, also after an error.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, jvp
from torch.nn.utils import parametrize
from torch.overrides import TorchFunctionMode
from torch.utils.flop_counter import FlopCounterMode, sdpa_flop

from epochzero.data import Batch
from epochzero.data.packed import embedded, only_ids
from epochzero.data.seeding import seeded
from epochzero.engine import foreach
from epochzero.engine.failure import BuildError, PassFailedError, blaming
from epochzero.engine.modules.calls import HIDING, Calls, Use
from epochzero.engine.modules.lineage import Lineage
from epochzero.engine.modules.outputs import Output, pick
from epochzero.engine.modules.redraw import redraw
from epochzero.engine.network import not_finite, runs_faster_channels_last
from epochzero.engine.passes import Layer, Norm, Watch
from epochzero.engine.structure import Structure
from epochzero.errors import UserError
from epochzero.plan.ops.base import Jet
from epochzero.plan.upload import moved
from epochzero.types import Origin, Shape

T = TypeVar("T")
ON_CPU = {torch.ops.aten._scaled_dot_product_flash_attention_for_cpu: sdpa_flop}
"""attention that torch's counter does not know"""
Lookups = Callable[[list[Tensor], int, Tensor, Tensor], Tensor]
"""gets the inputs, the number of an embedding, its ids and its output, and returns the output to go on with"""


class ModuleNetwork:
    """A user's module with its own weights."""

    def __init__(
        self,
        module: nn.Module,
        batch: Batch,
        seed: int = 0,
        output: Output | None = None,
        device: str | torch.device = "cpu",
    ) -> None:
        if isinstance(module, torch.jit.ScriptModule):
            raise UserError("A module compiled by torch.jit cannot be watched: give the one that it was made from.")
        self.module = module
        self.device = torch.device(device)
        self.seed = seed
        self.output = output
        self._layout = batch.layout
        self._sample = batch.part(0)[0][:2].to(device)
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        for name, tensor in tensors.items():
            if nn.parameter.is_lazy(tensor):
                raise BuildError(f"The module's '{name}' has no shape yet: run the module once on a batch of data.")
            if tensor.is_meta:
                raise BuildError(f"The module's '{name}' is on the device meta, without values: build it on the CPU.")
        self.weights = moved({name: tensor.detach() for name, tensor in tensors.items()}, self.device)
        self._places = _places(module, {id(tensor): name for name, tensor in tensors.items()})
        self.trainable = tuple(name for name, p in module.named_parameters() if p.requires_grad)

    @cached_property
    def _uses(self) -> list[Use]:
        """The uses of its weights, recorded by running the module once."""
        uses: list[Use] = []
        with torch.no_grad():
            self._forward(self._sample, self._single, "train", uses=uses.append)
        return uses

    @property
    def layer_weights(self) -> tuple[str, ...]:
        """The weights of conv and linear layers; a layer may have no weight of its own, see `hides`."""
        layers = (use.weight for use in self._uses if use.role in ("weight", "factor"))
        return tuple(dict.fromkeys(weight for weight in layers if weight is not None))

    @property
    def params(self) -> int:
        return sum(self.weights[name].numel() for name in self.trainable)

    @cached_property
    def flops(self) -> int:
        """Multiply-accumulates, counted by torch."""

        def count(x: Tensor, weights: Mapping[str, Tensor]) -> int:
            counter = FlopCounterMode(display=False, custom_mapping=ON_CPU)
            with counter, torch.no_grad():
                self.forward(x, weights, "eval")
            return counter.get_total_flops() // 2

        return self.one_sample(count)

    def one_sample(self, run: Callable[[Tensor, Mapping[str, Tensor]], T]) -> T:
        """Runs on one sample and the weights for their shapes alone, on torch's meta device.

        A network that looks at its values, such as the mask of a text, runs on the values of the sample.
        """
        x, weights = self._sample[:1], self._single
        try:
            return run(x.to("meta"), {name: w.to("meta") for name, w in weights.items()})
        except PassFailedError as failed:
            try:
                return run(x, weights)
            except PassFailedError:
                raise failed from None

    @cached_property
    def structure(self) -> Structure:
        """Its layers and the paths between them, followed through one run."""
        lineage = Lineage(self._sample)
        with lineage, torch.no_grad():
            output = self._forward(self._sample, self._single, "train", lineage.watch)
        return Structure(tuple(lineage.layers), lineage.of(output))

    def mixes_samples(self, norm: Norm) -> bool:
        """A module may do anything with its batch."""
        return True

    @cached_property
    def holds_blocks(self) -> str:
        """The outermost part of which two parts give feature maps, as the list of layers of a nested transformer."""
        holders: Counter[str] = Counter()

        def see(layer: Layer) -> None:
            if layer.kind == "block" and layer.name and layer.output.dim() > 2:
                holders[layer.name.rpartition(".")[0]] += 1

        with torch.no_grad():
            self._forward(self._sample, self._single, "train", see, blocks=True)
        several = [name for name, count in holders.items() if count > 1]
        return min(several, key=lambda name: (len(name.split(".")) if name else 0, -holders[name]), default="")

    @cached_property
    def broken(self) -> str:
        parameters = {name: self.weights[name] for name, _ in self.module.named_parameters()}
        return not_finite(parameters, {name: w for name, w in self.weights.items() if name not in parameters})

    @cached_property
    def hides(self) -> str:
        for use in self._uses:
            if use.role == "hidden":
                return f"{HIDING[use.op]} hides its layers' weights: write them as linear layers"
            if use.role == "weight" and use.weight is None:
                return f"the weight of a {use.op} layer is computed as the network runs{_computing(self.module)}"
        return ""

    @property
    def _single(self) -> dict[str, Tensor]:
        """The weights in single precision; integers, such as indices, stay as they are."""
        return {name: w.float() if w.is_floating_point() else w for name, w in self.weights.items()}

    @cached_property
    def _takes_channels_last(self) -> bool:
        """True if it accepts such inputs; `x.view(...)` in its forward refuses them."""
        x = self._sample.contiguous(memory_format=torch.channels_last)
        try:
            with torch.no_grad():
                self._forward(x, self._single, "train")
        except PassFailedError:
            return False
        return True

    def redrawn(self, origin: Origin) -> Mapping[str, Tensor]:
        """Returns new weights by their uses; hand-written norms are recognised by the names of their classes."""
        roles = {
            f"{prefix}.{leaf}" if prefix else leaf: "bias" if leaf.endswith("bias") else "scale"
            for prefix, part in self.module.named_modules()
            for leaf in part._parameters
            if leaf.endswith("bias") or (leaf == "weight" and "norm" in type(part).__name__.lower())
        }
        roles |= {use.weight: use.role for use in reversed(self._uses) if use.weight is not None}
        return redraw(self.weights, {name: role for name, role in roles.items() if name in self.trainable}, origin)

    def forward(
        self,
        x: Tensor,
        weights: Mapping[str, Tensor],
        norm: Norm,
        watch: Watch | None = None,
        blocks: bool = False,
    ) -> Tensor:
        if runs_faster_channels_last(x) and self._takes_channels_last:
            x = x.contiguous(memory_format=torch.channels_last)
        return self._forward(x, weights, norm, watch, blocks)

    def _forward(
        self,
        x: Tensor,
        weights: Mapping[str, Tensor],
        norm: Norm,
        watch: Watch | None = None,
        blocks: bool = False,
        uses: Callable[[Use], None] | None = None,
        twice: bool = False,
        mode: TorchFunctionMode | None = None,
        lookups: Lookups | None = None,
    ) -> Tensor:
        state = {**weights, **foreach.cloned({name: w for name, w in weights.items() if name not in self.trainable})}
        with (
            _borrowed(self.module, norm, self.seed),
            _hooked(self.module, watch, blocks),
            blaming("the module's forward"),
        ):
            args, named = ((x,), {}) if self._layout is None else self._layout.unpack(x)
            if self._layout is not None and x.shape[1] > self._layout.width:
                lookups = self._added(x)
            look = lookups and partial(lookups, [*args, *named.values()])
            placed = {place: state[name] for place, name in self._places.items()}
            with mode or Calls(state, norm, watch, uses, twice, look):
                returned = functional_call(self.module, placed, args, named, tie_weights=False)
        logits = pick(returned, self.output)
        flat = logits.shape == (len(x),) and logits.is_floating_point()
        return logits[:, None] if flat else logits  # one output may lack its dimension

    @cached_property
    def _looked_up(self) -> dict[int, Shape]:
        """The embeddings that look up ids of the input, by their number in a run, with their shapes for one sample."""
        found: dict[int, Shape] = {}

        def look(inputs: list[Tensor], number: int, ids: Tensor, output: Tensor) -> Tensor:
            if len(output) == len(self._sample) and any(_is_of(ids, x) for x in inputs):
                found[number] = tuple(output.shape[1:])
            return output

        with torch.no_grad():
            self._forward(self._sample, self._single, "train", lookups=look)
        return found

    def embedded(self, batch: Batch) -> Batch:
        return embedded(batch, list(self._looked_up.values())) if only_ids(batch) and self._looked_up else batch

    def _added(self, x: Tensor) -> Lookups:
        """Adds to embeddings what a table holds behind its ids."""
        assert self._layout is not None
        keep, added = replace(self._layout, added=tuple(self._looked_up.values())).additions(x)
        by_number = dict(zip(self._looked_up, added, strict=True))

        def look(inputs: list[Tensor], number: int, ids: Tensor, output: Tensor) -> Tensor:
            if number not in by_number:
                return output
            return output * keep.view(-1, *(1 for _ in output.shape[1:])) + by_number[number]

        return look

    def untouched(self, x: Tensor, weights: Mapping[str, Tensor], mode: TorchFunctionMode) -> Tensor:
        return self._forward(x, weights, "eval", mode=mode)

    def jet(self, x: Jet, weights: Mapping[str, Tensor], norm: Norm) -> Jet:
        """Returns the jet by nested forward-mode derivatives along the curve x + t v + t^2/2 a at t = 0."""
        value, velocity, acceleration = x

        def along(t: Tensor) -> Tensor:
            x = value + t * velocity + t * t / 2 * acceleration
            return self._forward(x, weights, norm, twice=True)

        def moving(t: Tensor) -> Any:
            return jvp(along, (t,), (torch.ones_like(t),))

        start = torch.zeros((), dtype=value.dtype, device=value.device)
        try:
            (out, first), (_, second) = jvp(moving, (start,), (torch.ones_like(start),))  # type: ignore[misc]
        except PassFailedError as failed:
            if not isinstance(failed.__cause__, NotImplementedError):
                raise
            reason = str(failed.__cause__).splitlines()[0]
            raise PassFailedError(f"the module has no second forward-mode derivative: {reason}") from failed
        return out, first, second


def _places(module: nn.Module, names: Mapping[int, str]) -> dict[str, str]:
    """Returns each attribute that holds a weight, with the weight's name; a shared weight has several attributes.

    `functional_call` finds them itself, but counts a part with two names as two parts, and then leaves our tensors in
    the user's module (torch 2.13).
    """
    return {
        f"{prefix}.{leaf}" if prefix else leaf: names[id(tensor)]
        for prefix, part in module.named_modules()
        for leaf, tensor in (*part._parameters.items(), *part._buffers.items())
        if tensor is not None
    }


def _is_of(ids: Tensor, x: Tensor) -> bool:
    """True for a view of an input, or for its values."""
    if ids.untyped_storage().data_ptr() == x.untyped_storage().data_ptr():
        return True
    return ids.numel() == x.numel() and bool((ids.flatten() == x.flatten()).all())


def _computing(module: nn.Module) -> str:
    """Describes what computes weights in the module."""
    for name, part in module.named_modules():
        kinds = [type(hook) for hook in part._forward_pre_hooks.values()]
        if parametrize.is_parametrized(part):
            kinds += [type(step) for steps in part.parametrizations.values() for step in steps]
        for kind in kinds:
            for known in ("weight_norm", "spectral_norm"):
                if known.replace("_", "") in kind.__name__.lower():
                    return f" ({known} of '{name}'): take it off before scoring"
        if parametrize.is_parametrized(part):
            return f" (a parametrization of '{name}'): take it off before scoring"
    return ", and is none of the module's own"


@contextmanager
def _borrowed(module: nn.Module, norm: Norm, seed: int) -> Iterator[None]:
    """Sets the module to the mode of the pass and seeds randomness; restores everything afterwards.

    Hooks too: models of transformers add some in their first run, and note in an attribute that they have them.
    """
    parts = list(module.modules())
    before = [dict(vars(part)) for part in parts]
    hooks = [(kept, kept.copy()) for own in before for name, kept in own.items() if name.startswith("_forward_")]
    with seeded(seed):
        try:
            for part in parts:
                part.training = norm != "eval"
            yield
        finally:
            for part, attributes in zip(parts, before, strict=True):
                vars(part).clear()
                vars(part).update(attributes)
            for kept, content in hooks:
                kept.clear()
                kept.update(content)


@contextmanager
def _hooked(module: nn.Module, watch: Watch | None, blocks: bool) -> Iterator[None]:
    """Reports identities, and blocks if asked, to `watch`; of several outputs, the first."""
    hooks: list[torch.utils.hooks.RemovableHandle] = []

    def report(part: nn.Module, kind: Any, name: str) -> None:
        def ran(_: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            first = output[0] if isinstance(output, tuple) and output else output
            if isinstance(first, Tensor) and watch is not None:
                watch(Layer(kind, kind, name, inputs, first))

        hooks.append(part.register_forward_hook(ran))

    try:
        for name, part in module.named_modules() if watch is not None else ():
            if isinstance(part, nn.Identity):
                report(part, "identity", name)
            elif blocks and (name == "" or next(part.children(), None) is not None):
                report(part, "block", name)
        yield
    finally:
        for hook in hooks:
            hook.remove()
