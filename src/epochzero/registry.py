"""Names to things: the folder is the list, a plug-in adds an entry point, a near miss gets a hint.

    from epochzero.registry import spaces
    spaces["nb201"]            # loads spaces/nb201.py
    spaces["nb210"]            # UnknownNameError: ... Did you mean 'nb201'?

A registry knows the packages of its members. Asked for a name, it imports the file of that name, and every file when
there is none; asked for a list, it imports them all.
Third parties add members with an entry point in its group, such as `epochzero.proxies`.
"""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import inspect
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields
from importlib.metadata import entry_points
from typing import Any, Generic, TypeVar

from epochzero.errors import UnknownNameError, UserError

T = TypeVar("T")


def near_miss(name: str, known: list[str]) -> str:
    """` Did you mean 'naswot'?` where something known is close, else nothing."""
    close = difflib.get_close_matches(name[:100], known, n=1, cutoff=0.5)
    return f" Did you mean '{close[0]}'?" if close else ""


def options_of(maker: Callable[..., Any]) -> dict[str, Any]:
    """The options of a search with their defaults: the fields of its `Options`, or else its keyword-only arguments."""
    if (group := getattr(maker, "Options", None)) is not None:
        return {field.name: field.default for field in fields(group)}
    arguments = inspect.signature(maker).parameters.values()
    return {argument.name: argument.default for argument in arguments if argument.kind is argument.KEYWORD_ONLY}


def made_with(options: Mapping[str, Any], maker: Callable[..., T], *given: Any) -> T:
    """Returns what the maker of a search makes of the other arguments and these options."""
    group = getattr(maker, "Options", None)
    return maker(*given, **options) if group is None else maker(*given, group(**options))


def check_known(name: str, known: Iterable[str], missing: str, has: str = "Known:") -> None:
    """Raises UnknownNameError for a name that is not known; the message says what is `missing` and lists the names."""
    names = list(known)
    if name not in names:
        raise UnknownNameError(f"{missing}.{near_miss(name, names)} {has} {', '.join(names)}.")


class Registry(Mapping[str, T], Generic[T]):
    """A dictionary of named members that fills itself from a package and from plug-ins."""

    def __init__(self, kind: str, *packages: str, group: str) -> None:
        self.kind = kind
        self.packages = packages
        self.group = group
        self.origins: dict[str, str] = {}
        self._members: dict[str, T] = {}
        self._loaded = False

    def register(self, name: str, member: T, origin: str = "epochzero") -> None:
        """Add a member. A second member of the same name is an error, never a silent replacement."""
        if name in self._members:
            raise ValueError(f"A {self.kind} called '{name}' is registered already (by {self.origins[name]}).")
        self._members[name] = member
        self.origins[name] = origin

    def registers(self, name: str) -> Callable[[T], T]:
        """`register` as a decorator."""

        def decorate(member: T) -> T:
            self.register(name, member, origin=getattr(member, "__module__", "epochzero"))
            return member

        return decorate

    def _load(self) -> None:
        if self._loaded:
            return
        self._loaded = True
        for name in self.packages:
            for module in pkgutil.iter_modules(importlib.import_module(name).__path__):
                importlib.import_module(f"{name}.{module.name}")
        for plugin in entry_points(group=self.group):
            try:
                plugin.load()
            except Exception as error:
                raise UserError(f"The plug-in {plugin.value} cannot be loaded ({error}): mend or remove it.") from error

    def __contains__(self, name: object) -> bool:
        """Loads the module of that name if there is one, and everything else only where that is not enough."""
        if name not in self._members and not self._loaded:
            self._load_module(str(name))
            if name not in self._members:
                self._load()
        return name in self._members

    def __getitem__(self, name: str) -> T:
        if name not in self:
            check_known(name, sorted(self._members), f"No {self.kind} is called '{name}'")
        return self._members[name]

    def _load_module(self, name: str) -> None:
        for package in self.packages if name.isidentifier() else ():
            if importlib.util.find_spec(f"{package}.{name}") is not None:
                importlib.import_module(f"{package}.{name}")
                return

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(sorted(self._members))

    def __len__(self) -> int:
        self._load()
        return len(self._members)


proxies: Registry[Any] = Registry("proxy", "epochzero.proxies", group="epochzero.proxies")
spaces: Registry[Any] = Registry("space", "epochzero.spaces", "epochzero.recommend.spaces", group="epochzero.spaces")
searches: Registry[Any] = Registry("search", "epochzero.study.methods", group="epochzero.searches")
experiments: Registry[Any] = Registry("experiment", group="epochzero.experiments")
"""those of the papers come with the distribution `epochzero-papers`"""
