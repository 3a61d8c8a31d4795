"""A proxy: a pure function of traces, with its facts declared in its decorator."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from epochzero.engine.passes import Need
from epochzero.engine.reads import FACTS, KERNELS, NEED_LABELS
from epochzero.errors import UnknownNameError, UserError
from epochzero.registry import near_miss, proxies

if TYPE_CHECKING:
    from torch import Tensor

Value = bool | int | float | str
Needs = Sequence[Need] | Callable[..., Sequence[Need]]

MOST = 10**6
"""the largest integer that a setting may be: it may be a number of passes"""
WRITTEN = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\((.*)\))?\s*", re.DOTALL)


@dataclass(frozen=True)
class Proxy:
    """A named score with its settings."""

    name: str
    compute: Callable[..., Tensor | float]
    needs_of: Needs
    higher_is_better: bool
    defaults: dict[str, Value]
    settings: dict[str, Value] = field(default_factory=dict)
    """the settings that differ from the defaults"""
    recipe: int = 1
    """goes up whenever the same settings would give other scores"""
    runs: tuple[int, str] = (0, "")
    """passes that it runs itself on each network: forward, and backward (L: between each two blocks)"""
    valid: str = ""
    """the layers that it is made for, if its reads do not imply them"""
    tf32: tuple[str, ...] = ()
    """spaces on which its ranking by default settings survives TF32, as measured in `evaluate/cards/precision.csv`"""

    @property
    def text(self) -> str:
        """`zico` or `zico(batches=4)`, as `parse` accepts it."""
        written = ",".join(f"{key}={_written(self.settings[key])}" for key in sorted(self.settings))
        return f"{self.name}({written})" if written else self.name

    @property
    def key(self) -> str:
        """The key of its scores in the store: scores of an older recipe have another one."""
        return self.text if self.recipe == 1 else f"{self.text}#{self.recipe}"

    @property
    def resolved(self) -> dict[str, Value]:
        return {**self.defaults, **self.settings}

    @property
    def needs(self) -> tuple[Need, ...]:
        return tuple(self.needs_of(**self.resolved) if callable(self.needs_of) else self.needs_of)

    @property
    def needs_labels(self) -> bool:
        return any(NEED_LABELS & set(need.reads) for need in self.needs)

    @property
    def quick(self) -> bool:
        """True if it needs only a few ordinary passes: no tangent kernel, and none that it runs itself."""
        slow = KERNELS | {"network"}
        return len(self.needs) <= 4 and not any(slow & set(need.reads) for need in self.needs)

    @property
    def free(self) -> bool:
        """True if it only counts, and runs nothing."""
        return all(set(need.reads) <= FACTS - {"seed"} for need in self.needs)

    @property
    def summary(self) -> str:
        """The first line of its description."""
        return (inspect.getdoc(self.compute) or self.explanation).split("\n", 1)[0]

    @property
    def explanation(self) -> str:
        """The docstring of its file: summary, formula, options, weaknesses, paper; see `epochzero.evaluate.cards`."""
        return inspect.getdoc(inspect.getmodule(self.compute)) or ""

    def survives_tf32(self, space: str) -> bool:
        """Returns True if its ranking of the space's networks is known to be the same with TF32."""
        return self.free or (space in self.tf32 and not self.settings)

    def merit(self, value: float) -> float:
        """Returns the value with its sign such that higher is better."""
        return value if self.higher_is_better else -value

    def with_settings(self, **given: Value) -> Proxy:
        """Returns the proxy with other settings; UserError for an unknown one or a value of the wrong type."""
        settings = dict(self.settings)
        for key, value in given.items():
            if key not in self.defaults:
                has = f"It has {', '.join(self.defaults)}." if self.defaults else "It has none."
                hint = near_miss(key, list(self.defaults))
                raise UnknownNameError(f"The proxy {self.name} has no setting '{key}'.{hint} {has}")
            settings[key] = _converted(self.name, key, value, self.defaults[key])
        changed = {key: value for key, value in settings.items() if value != self.defaults[key]}
        return replace(self, settings=changed)


def proxy(
    *,
    needs: Needs,
    higher_is_better: bool,
    runs: tuple[int, str] = (0, ""),
    valid: str = "",
    recipe: int = 1,
    tf32: tuple[str, ...] = (),
) -> Callable[[Callable[..., Any]], Proxy]:
    """Registers a function of traces as a proxy of that name; its keyword-only arguments are its settings."""

    def decorate(compute: Callable[..., Tensor | float]) -> Proxy:
        signature = inspect.signature(compute).parameters.values()
        for p in signature:
            if p.default is not p.empty and p.kind is not p.KEYWORD_ONLY:
                raise ValueError(
                    f"'{p.name}' of {compute.__name__} has to be keyword-only to be a setting: write *, before it."
                )
        defaults = {p.name: p.default for p in signature if p.kind is p.KEYWORD_ONLY}
        made = Proxy(
            compute.__name__,
            compute,
            needs,
            higher_is_better,
            defaults,
            runs=runs,
            valid=valid,
            recipe=recipe,
            tf32=tf32,
        )
        proxies.register(made.name, made, origin=compute.__module__)
        return made

    return decorate


def parse(text: str) -> Proxy:
    """Returns the proxy of a text such as `zico(batches=4)`; UserError if it is malformed or a name is unknown."""
    match = WRITTEN.fullmatch(text)
    if match is None:
        raise UserError(f"{text!r} is not a proxy: write a name, or a name with settings such as zico(batches=4).")
    named: Proxy = proxies[match[1]]
    given = {}
    for pair in filter(None, (part.strip() for part in (match[2] or "").split(","))):
        key, equals, value = (piece.strip() for piece in pair.partition("="))
        if not equals:
            raise UserError(f"{pair!r} in {text!r} is not a setting: write key=value.")
        given[key] = value
    return named.with_settings(**given)


def parse_list(text: str) -> list[Proxy]:
    """Returns the proxies of a list separated by commas outside parentheses, without repetitions."""
    named = [parse(piece) for piece in split_list(text)]
    if not named:
        raise UserError("No proxy is named: give one or more, separated by commas; `epochzero list proxies`.")
    return list({one.text: one for one in named}.values())


def split_list(text: str) -> list[str]:
    """Splits a text at commas outside parentheses."""
    pieces, depth = [""], 0
    for character in text:
        depth += (character == "(") - (character == ")")
        if character == "," and depth <= 0:
            pieces.append("")
        else:
            pieces[-1] += character
    return [piece.strip() for piece in pieces if piece.strip()]


def _written(value: Value) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _converted(name: str, key: str, value: Value, default: Value) -> Value:
    """Converts a value to the type of the default."""
    kind = type(default)
    try:
        converted = {"true": True, "false": False}[str(value).lower()] if kind is bool else kind(value)
    except (KeyError, ValueError):
        raise UserError(
            f"{name} takes {kind.__name__} for '{key}' (default {_written(default)}), not {value!r}."
        ) from None
    if isinstance(converted, int) and abs(converted) > MOST:
        raise UserError(f"{name} takes at most {MOST:,} for '{key}' (default {_written(default)}), not {value}.")
    return converted
