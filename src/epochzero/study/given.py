"""A space of the networks that a user gave, modules and factories, for which `parse` and `sample` mean nothing."""

from __future__ import annotations

import hashlib
import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import TYPE_CHECKING, Any

from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.spaces.base import AnySpace, fitting_arguments
from epochzero.user_code import is_reference, named_in

if TYPE_CHECKING:
    from torch import nn

    from epochzero.data import Batch

PLAIN = (bool, int, float, complex, str, bytes, tuple, list, dict, type(None))
Entry = tuple[str, AnySpace, Any]
"""a name, its space and the architecture"""


@dataclass(eq=False)
class Given:
    """A module, which keeps its weights, or a factory, whose modules draw their own."""

    name: str
    made: nn.Module | Callable[..., nn.Module]
    identity: str = ""
    """tells it from another network of the same name in a store"""

    @cached_property
    def is_module(self) -> bool:
        from torch import nn

        return isinstance(self.made, nn.Module)


class GivenNetworks:
    """Networks by name."""

    name = "given"

    def _refuse(self, *_: Any) -> Any:
        raise UserError("Networks that are given are compared with each other, and not searched.")

    parse = sample = mutate = neighbours = smallest = _refuse

    def __init__(self, output: Any = None) -> None:
        self.output = output

    def text(self, arch: Given) -> str:
        return f"{arch.name} {arch.identity}".strip()

    def build(self, arch: Given, num_classes: int = 10, input_shape: tuple[int, ...] = ()) -> nn.Module:
        """Returns a copy of the module, or what the factory makes for these classes and inputs."""
        if arch.is_module:
            return deepcopy(arch.made)  # type: ignore[return-value]
        fits = {"num_classes": num_classes, "input_shape": input_shape}
        return arch.made(**fitting_arguments(arch.made, fits))


class GivenSpace(GivenNetworks):
    """A search among given networks and no others; feedback is called with one of them, which has `name` and `made`."""

    def __init__(self, networks: Mapping[str, Any] | Sequence[Any]) -> None:
        super().__init__()
        named = [(name, arch) for name, space, arch in entries_of(networks) if isinstance(space, GivenNetworks)]
        if not named or len(named) < len(networks):
            raise UserError("A search takes a space, or modules and functions that make them: at least one.")
        self.archs: list[Given] = [replace(arch, name=name) for name, arch in named]

    def identify(self, batch: Batch, seed: int) -> None:
        """Tells the networks from others of the same names; one that cannot be built has its name alone."""
        from epochzero.engine.space_networks import built

        for arch in self.archs:
            with suppress(UserError):
                arch.identity = identity_of(built(self, arch, batch, seed), weights=arch.is_module)

    def __iter__(self) -> Iterator[Given]:
        return iter(self.archs)

    def sample(self, rng: Random) -> Given:
        return rng.choice(self.archs)

    def mutate(self, arch: Given, rng: Random) -> Given:
        return self.sample(rng)

    def neighbours(self, arch: Given) -> list[Given]:
        return []

    def smallest(self) -> Given:
        return self.archs[0]


def identity_of(module: nn.Module, weights: bool) -> str:
    """Returns a hash of a module's layers, settings and code, and of its weights."""
    content: list[object] = [repr(module)]
    for kind in sorted({type(part) for part in module.modules()}, key=lambda kind: kind.__qualname__):
        if not kind.__module__.startswith("torch."):
            with suppress(OSError, TypeError):
                content.append(inspect.getsource(kind))
    for part in module.modules():
        content += [(key, value) for key, value in vars(part).items() if key[0] != "_" and isinstance(value, PLAIN)]
    sha = hashlib.sha256(repr(content).encode())
    for name, tensor in module.state_dict().items():
        sha.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
        if weights:
            sha.update(tensor.detach().cpu().double().numpy().tobytes())
    return sha.hexdigest()[:12]


def entries_of(networks: Any, space: AnySpace | None = None, output: Any = None) -> Iterable[Entry]:
    """Returns every network with a name and its space: a list, or an iterator that is read as it goes.

    `networks` are a mapping, a sequence or an iterator of what `rank` takes, or one of it.
    """
    given = GivenNetworks(output)
    if isinstance(networks, Mapping):
        named: Iterable[tuple[str, Any]] = [(str(name), made) for name, made in networks.items()]
    elif isinstance(networks, str) or not isinstance(networks, Iterable) or isinstance(networks, Callable):  # type: ignore[arg-type]
        named = [_named(networks)]
    else:
        named = map(_named, networks)
    entries = _distinct(entry for name, made in named for entry in _expanded(name, made, space, given))
    return entries if isinstance(networks, Iterator) else list(entries)


def _named(made: Any) -> tuple[str, Any]:
    """A network with a name; an iterator may yield pairs of both."""
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], str):
        return made
    if isinstance(made, str):
        return made, made
    return getattr(made, "__name__", type(made).__name__), made


def _distinct(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Numbers the second and later networks of one name."""
    seen: Counter[str] = Counter()
    for name, *rest in entries:
        seen[name] += 1
        yield (name if seen[name] == 1 else f"{name} {seen[name]}", *rest)


def _expanded(name: str, made: Any, space: AnySpace | None, given: GivenNetworks) -> Iterator[Entry]:
    """The networks that one value stands for: a file may name several."""
    from epochzero.spaces.published import is_published

    if is_published(made) and space is None:
        published = spaces["published"]
        yield name, published, published.parse(made)
    elif is_reference(made):
        found = named_in(made)
        several = found() if inspect.isgeneratorfunction(found) else found
        if isinstance(several, (Mapping, list, tuple)) or inspect.isgenerator(several):
            pairs = several.items() if isinstance(several, Mapping) else map(_named, several)
            yield from ((f"{name} {own}", given, given_network(f"{name} {own}", one)) for own, one in pairs)
        else:
            yield name, given, given_network(name, found)
    elif space is not None and not callable(made):
        yield name, space, space.parse(made) if isinstance(made, str) else made
    else:
        yield name, given, given_network(name, made)


def given_network(name: str, made: Any) -> Given:
    """A module or factory; UserError for anything else."""
    if not callable(made):
        kind = type(made).__name__
        subject = f"'{name}' is {kind}" if name != kind else f"A network cannot be {kind}"
        raise UserError(
            f"{subject}: give a module, a function that makes one, timm:NAME, hf:NAME, "
            "file.py:factory, or an architecture with its space."
        )
    return Given(name, made)
