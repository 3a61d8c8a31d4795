"""A reader of pickles that runs no code in them.

A pickle can name any function and call it. This reader knows a few names, replaces them by inert stand-ins, and refuses
every other name. It extends Python's reader written in Python, since in the one written in C a damaged index fills the
whole memory; it takes three times as long.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

TUPLE = 1000
"""most items of a tuple; those of tables are short keys and arguments"""


class InertReader(pickle._Unpickler):
    """Unpickles plain values and stand-ins, and refuses everything else."""

    known: ClassVar[Mapping[tuple[str, str], Callable[..., Any]]] = {}
    """the stand-in of each module and name"""

    def load(self) -> Any:
        """Returns the content of one pickle."""
        self.nested: dict[int, tuple[Any, ...]] = {}  # tuples that hold tuples; Python dies of the hash of deeper ones
        return super().load()

    def find_class(self, module: str, name: str) -> Any:
        """Returns the stand-in of a known name."""
        if (module, name) not in self.known:
            raise pickle.UnpicklingError(f"its pickle asks for {module[:100]}.{name[:100]}")
        return self.known[module, name]

    def _check(self, made: tuple[Any, ...]) -> None:
        if len(made) > TUPLE or any(id(item) in self.nested for item in made):
            raise ValueError("its pickle holds a tuple that is too deep or too long")
        if any(type(item) is tuple for item in made):
            self.nested[id(made)] = made


def _checked(load: Callable[[Any], None]) -> Callable[[Any], None]:
    def load_tuple(reader: Any) -> None:
        load(reader)
        reader._check(reader.stack[-1])

    return load_tuple


def _load_build(reader: Any) -> None:
    if callable(reader.stack[-2]):
        raise pickle.UnpicklingError("its pickle changes a class or function")
    _python[pickle.BUILD[0]](reader)


_python = pickle._Unpickler.dispatch
_tuples = {op[0]: _checked(_python[op[0]]) for op in (pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3)}
InertReader.dispatch = {**_python, **_tuples, pickle.BUILD[0]: _load_build}
del InertReader.dispatch[pickle.BYTEARRAY8[0]]  # takes the memory that it claims
