"""Shares the compilation of GPU kernels among processes that need the same ones.

A kernel is compiled on its first launch, which takes up to seconds, and stays in Triton's cache on disk. Ten processes
that start with the same work would each compile all of it. Instead they go through it once without running it: the
first to reach a kernel leaves a file with its name in a folder and compiles it, the others skip it, and all wait for
the last one.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

LONGEST = 120.0
"""the longest time in seconds that a process waits for others, which may have died"""


class Claims:
    """The kernels that this process has compiled, in a folder that all processes share."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[str] = set()
        self._taken: Path | None = None

    def take(self, what: object) -> bool:
        """Returns True where no process has taken it before; the one taken last counts as compiled now."""
        self.done()
        name = hashlib.blake2b(repr(what).encode(), digest_size=16).hexdigest()
        if name in self._seen:
            return False
        self._seen.add(name)
        try:
            (self._folder / name).touch(exist_ok=False)
        except FileExistsError:
            return False
        self._taken = self._folder / name
        return True

    def done(self) -> None:
        if self._taken is not None:
            self._taken.rename(self._taken.with_suffix(".done"))
            self._taken = None

    def wait(self) -> None:
        """Waits until the kernels that others have taken are compiled."""
        end = time.monotonic() + LONGEST
        while time.monotonic() < end and any(not (self._folder / f"{name}.done").exists() for name in self._seen):
            time.sleep(0.05)


claims: Claims | None = None
"""set while kernels are compiled and not run"""


@contextmanager
def together(folder: Path) -> Iterator[None]:
    """Kernels launched in this context are compiled by one of the processes that share the folder, and not run.

    A process that fails does not wait for others, nor they for it.
    """
    global claims  # noqa: PLW0603
    claims = own = Claims(folder)
    try:
        yield
        own.done()
        own.wait()
    finally:
        own.done()
        claims = None


def compiled_ahead(kernel: Any, grid: tuple[int, ...], given: Sequence[Any], options: Mapping[str, int]) -> bool:
    """Compiles a kernel without running it, where that was asked for; returns False where it has to be launched.

    That is so, too, where Triton's internals have changed.
    """
    if claims is None:
        return False
    try:
        if claims.take((kernel.__name__, *map(_specialisation, kernel.params, given), *options.items())):
            kernel.warmup(*given, grid=grid, **options)._init_handles()  # builds its launcher, too
    except AttributeError:
        return False
    return True


def _specialisation(param: Any, given: Any) -> object:
    """Returns the part of an argument that the compiler specialises a kernel for."""
    if param.is_constexpr:
        return given
    if isinstance(given, Tensor):
        return given.dtype, given.data_ptr() % 16 == 0
    return None if param.do_not_specialize else (type(given), given == 1, given % 16 == 0)
