"""Spaces of factories: whatever a function can build from a few choices.

    space = ez.choices(build, width=[32, 64], depth=[2, 4], act=["relu", "gelu"])
    ez.search(space, "naswot", max_params="300k")

The text of an architecture is `width=32, depth=2, act=relu`. Options may depend on earlier choices, which a function in
their place names as its arguments; where it returns none, the choice does not exist, and `build` does not get it:

    ez.choices(build, kind=["conv", "vit"], heads=lambda kind: [2, 4] if kind == "vit" else [])

Networks are modules, with everything that a `ModuleSpace` has. Neighbours differ in one choice, and in those whose
options change with it. A network that `build` cannot build has the reason in place of its score.
"""

from __future__ import annotations

import hashlib
import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from random import Random
from typing import TYPE_CHECKING, Any

from epochzero.errors import UserError
from epochzero.registry import near_miss
from epochzero.spaces.base import fitting_arguments, quoted
from epochzero.spaces.budget import Cost
from epochzero.types import Shape

if TYPE_CHECKING:
    from torch import nn

Arch = tuple[str | None, ...]
"""the text of each value, None for a choice that does not exist"""
Option = Iterable[Any] | Callable[..., Iterable[Any]]


def choices(build: Callable[..., nn.Module], /, **options: Option) -> FactorySpace:
    """Returns the space of all networks that `build` makes from options, each a list or a function that gives one.

    A function's arguments are names of earlier choices. `build` may take `num_classes` and `input_shape` as well.

    >>> ez.choices(lambda width: nn.Conv2d(3, width, 3), width=[8, 16, 32]).count()
    3
    """
    return FactorySpace(build, options)


class FactorySpace:
    """The networks that a function builds from choices."""

    def __init__(self, build: Callable[..., nn.Module], options: Mapping[str, Option]) -> None:
        if not callable(build):
            raise UserError(f"choices takes a function that builds a module, not {type(build).__name__}.")
        if not options:
            raise UserError("choices needs at least one choice: choices(build, width=[32, 64]).")
        self.factory, self.names = build, tuple(options)
        self.given = [one if callable(one) else _menu_of(name, one) for name, one in options.items()]
        self.reads: list[list[int]] = []
        """the earlier choices that the options of each choice depend on"""
        for name, given in zip(self.names, self.given, strict=True):
            self.reads.append(self._read(name, given) if callable(given) else [])
        self.closure: list[list[int]] = []
        """the same, with what those depend on"""
        for reads in self.reads:
            self.closure.append(sorted({*reads, *(j for i in reads for j in self.closure[i])}))
        places = range(len(self.names) + 1)
        self.needed = [sorted({i for p in places[place:-1] for i in self.closure[p] if i < place}) for place in places]
        """for each place the choices before it that it or a later one depends on"""
        self._check_names()
        self._options, self._left = cache(self._find_options), cache(self._count_left)
        code = [build, *(list(one) if isinstance(one, dict) else one for one in self.given)]
        identity = repr([self.names, *map(_code, code)])
        called = getattr(build, "__name__", type(build).__name__).strip("<>")
        self.name = f"{called}:{hashlib.sha256(identity.encode()).hexdigest()[:8]}"

    def __reduce__(self) -> tuple[Any, ...]:
        options = (one if callable(one) else tuple(one.values()) for one in self.given)
        return FactorySpace, (self.factory, dict(zip(self.names, options, strict=True)))

    def __repr__(self) -> str:
        return f"<Space {self.name} of {self.count():,} networks: {self.text(self.smallest())}, ...>"

    def _read(self, name: str, given: Callable[..., Any]) -> list[int]:
        earlier = self.names[: self.names.index(name)]
        for argument in (arguments := list(inspect.signature(given).parameters)):
            if argument not in earlier:
                raise UserError(
                    f"The options of '{name}' depend on '{argument}', which is no earlier choice: they may depend on "
                    f"{', '.join(earlier) or 'none'}."
                )
        return [earlier.index(argument) for argument in arguments]

    def _check_names(self) -> None:
        """UserError for a choice that the factory does not take."""
        takes = inspect.signature(self.factory).parameters
        unknown = [name for name in self.names if name not in takes]
        if unknown and not any(one.kind is one.VAR_KEYWORD for one in takes.values()):
            raise UserError(f"{_code_name(self.factory)} takes no '{unknown[0]}'.{near_miss(unknown[0], list(takes))}")

    # ---- the options

    def options(self, place: int, before: Arch) -> dict[str, Any]:
        """The values of a choice by their texts, after the choices before it; empty if it does not exist."""
        return self._options(place, tuple(before[i] for i in self.closure[place]))

    def _find_options(self, place: int, read: Arch) -> dict[str, Any]:
        given = self.given[place]
        if not callable(given):
            return given
        texts = dict(zip(self.closure[place], read, strict=True))
        values: dict[str, Any] = {}
        for i in self.reads[place]:
            text = texts[i]
            known = self._options(i, tuple(texts[j] for j in self.closure[i]))
            values[self.names[i]] = None if text is None else known[text]
        return _menu_of(self.names[place], given(**values), empty=True)

    def values(self, arch: Arch) -> dict[str, Any]:
        """The value of each choice that exists, by its name."""
        there = ((i, text) for i, text in enumerate(arch) if text is not None)
        return {self.names[i]: self.options(i, arch)[text] for i, text in there}

    def _texts(self, before: Arch) -> list[str | None]:
        return [*self.options(len(before), before)] or [None]

    def left(self, before: Arch) -> int:
        """The number of architectures that begin so."""
        return self._left(len(before), tuple(before[i] for i in self.needed[len(before)]))

    def _count_left(self, place: int, read: Arch) -> int:
        if place == len(self.names):
            return 1
        texts = dict(zip(self.needed[place], read, strict=True))
        before = tuple(texts.get(i) for i in range(place))
        return sum(self.left((*before, text)) for text in self._texts(before))

    # ---- a space

    def count(self) -> int:
        return self.left(())

    def __iter__(self) -> Iterator[Arch]:
        return self._all(())

    def _all(self, before: Arch) -> Iterator[Arch]:
        if len(before) == len(self.names):
            yield before
            return
        for text in self._texts(before):
            yield from self._all((*before, text))

    def text(self, arch: Arch) -> str:
        return ", ".join(f"{name}={text}" for name, text in zip(self.names, arch, strict=True) if text is not None)

    def parse(self, text: str) -> Arch:
        rest, arch = re.sub(r"\s*,\s*", ", ", text.strip()), ()
        for name in self.names:
            starts = {option: f"{name}={option}" for option in self._texts(arch) if option is not None}
            fits = [one for one, start in starts.items() if f"{rest}, ".startswith(f"{start}, ")]
            if starts and not fits:
                known = ", ".join(f"{name}={option}" for option in starts)
                raise UserError(
                    f"{quoted(text)} is not a network of this space: {known} come after {self._said(arch)}."
                )
            arch = (*arch, max(fits, key=len, default=None))  # type: ignore[assignment]
            if fits:
                rest = rest[len(starts[max(fits, key=len)]) + 2 :]
        if rest:
            raise UserError(f"{quoted(text)} is not a network of this space: leave {quoted(rest)} out.")
        return arch

    def _said(self, arch: Arch) -> str:
        pairs = zip(self.names, arch, strict=False)
        return ", ".join(f"{name}={text}" for name, text in pairs if text is not None) or "nothing"

    def sample(self, rng: Random) -> Arch:
        """Draws uniformly from all architectures."""
        arch: Arch = ()
        for _ in self.names:
            texts = self._texts(arch)
            arch = (*arch, rng.choices(texts, [self.left((*arch, text)) for text in texts])[0])
        return arch

    def mutate(self, arch: Arch, rng: Random) -> Arch:
        return rng.choice(self.neighbours(arch))

    def neighbours(self, arch: Arch) -> list[Arch]:
        """Returns the architectures that differ in one choice, and in those whose options differ because of it."""
        found: list[Arch] = []
        for place in range(len(arch)):
            for text in self._texts(arch[:place]):
                if text != arch[place]:
                    found += self._followed((*arch[:place], text), arch)
        return found

    def _followed(self, start: Arch, arch: Arch) -> Iterator[Arch]:
        """The architectures with this start that keep the other choices, wherever their options are the same."""
        place = len(start)
        if place == len(arch):
            yield start
            return
        texts = self._texts(start)
        for text in [arch[place]] if texts == self._texts(arch[:place]) else texts:
            yield from self._followed((*start, text), arch)

    def crossover(self, one: Arch, other: Arch, rng: Random) -> Arch:
        """Takes each choice from one of the two, uniformly; draws where its options lack both values."""
        arch: Arch = ()
        for pair in zip(one, other, strict=True):
            texts = self._texts(arch)
            wanted = [text for text in rng.sample(pair, 2) if text in texts]
            arch = (*arch, wanted[0] if wanted else rng.choice(texts))
        return arch

    def smallest(self) -> Arch:
        """Returns the first option of every choice."""
        return next(iter(self))

    def least(self, cost: Cost, num_classes: int, input_shape: Shape) -> Arch:
        """Returns the smallest network to be found by changing one choice at a time."""
        size = cache(lambda arch: self._size(arch, cost, num_classes, input_shape))
        best = self.smallest()
        while (found := min([best, *self.neighbours(best)], key=size)) != best:
            best = found
        return best

    def _size(self, arch: Arch, cost: Cost, num_classes: int, input_shape: Shape) -> float:
        """Infinite for a network that cannot be built, or not run for its shapes alone."""
        import torch
        from torch.utils.flop_counter import FlopCounterMode

        try:
            module = self.build(arch, num_classes, input_shape)
            if cost == "params":
                return sum(p.numel() for p in module.parameters() if p.requires_grad)
            counter = FlopCounterMode(display=False)
            with counter, torch.no_grad():
                module.to("meta").eval()(torch.empty(1, *input_shape, device="meta"))
            return counter.get_total_flops()
        except Exception:
            return math.inf

    def build(self, arch: Arch, num_classes: int = 10, input_shape: Shape = (3, 32, 32)) -> nn.Module:
        fits = fitting_arguments(self.factory, {"num_classes": num_classes, "input_shape": input_shape})
        return self.factory(**{**fits, **self.values(arch)})


def _menu_of(name: str, options: Any, empty: bool = False) -> dict[str, Any]:
    """Values by their texts."""
    if isinstance(options, (str, bytes)) or not isinstance(options, Iterable):
        raise UserError(f"The options of '{name}' are {options!r}: give a list, such as [32, 64].")
    values = list(options)
    menu = {_text(value): value for value in values}
    if len(menu) < len(values):
        raise UserError(f"Two options of '{name}' have the same text: {', '.join(map(_text, values))}.")
    if not (menu or empty):
        raise UserError(f"'{name}' has no options: give at least one.")
    return menu


def _text(value: Any) -> str:
    """A value as text: words as they are, functions and classes by their names, anything else as Python writes it."""
    if isinstance(value, str) and re.fullmatch(r"[^\s,=]+", value):
        return value
    return " ".join(str(getattr(value, "__qualname__", None) or repr(value)).split())


def _code(thing: Any) -> str:
    """The source of a function or class where there is one; anything else as text."""
    if not callable(thing):
        return repr(thing)
    with suppress(OSError, TypeError):
        return inspect.getsource(thing)
    return _code_name(thing)


def _code_name(thing: Any) -> str:
    return getattr(thing, "__qualname__", type(thing).__qualname__)
