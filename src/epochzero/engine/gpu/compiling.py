"""Several processes that will need the same GPU kernels compile them together, each some of them.

A kernel is compiled when it is first launched, which takes up to seconds, and stays in Triton's cache on disk. Where
ten processes start with the same work, each would compile all of it. Instead they go through it once without running
it: who comes first to a kernel leaves a file with its name in a folder and compiles it, the others pass on, and all
wait for the last.
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
"""seconds that a process waits for others, which may have died"""


class Claims:
    """What this process has compiled, in a folder that all of them see."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: set[str] = set()
        self._taken: Path | None = None

    def take(self, what: object) -> bool:
        """Whether nobody has taken it before; what was taken last is done by now."""
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
        """Until what others have taken is done, too."""
        end = time.monotonic() + LONGEST
        while time.monotonic() < end and any(not (self._folder / f"{name}.done").exists() for name in self._seen):
            time.sleep(0.05)


claims: Claims | None = None
"""where kernels are not run now, but compiled"""


@contextmanager
def together(folder: Path) -> Iterator[None]:
    """What is launched in here is compiled by one of the processes that share the folder, and not run.

    A process that fails waits for nobody, and nobody for it.
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
    """Whether this launch is only to be compiled, which is done then, here or in another process.

    Where Triton's internals are not what they were, kernels are launched as ever.
    """
    if claims is None:
        return False
    try:
        if claims.take((kernel.__name__, *map(_specialisation, kernel.params, given), *options.items())):
            kernel.warmup(*given, grid=grid, **options)._init_handles()  # builds what launches it, too
    except AttributeError:
        return False
    return True


def _specialisation(param: Any, given: Any) -> object:
    """What the compiler distinguishes an argument's values by."""
    if param.is_constexpr:
        return given
    if isinstance(given, Tensor):
        return given.dtype, given.data_ptr() % 16 == 0
    return None if param.do_not_specialize else (type(given), given == 1, given % 16 == 0)
