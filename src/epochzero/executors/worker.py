"""The work of a worker, wherever it runs: scoring a chunk of architectures by a recipe that was sent to it.

An architecture travels as its text, space and proxies by their names. So a worker has to know the same names: what is
not EpochZero's own or an installed plug-in is registered by the recipe's `prepare`.
"""

from __future__ import annotations

import gc
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import torch

from epochzero.data import Batch
from epochzero.engine import parse
from epochzero.engine.failure import out_of_memory
from epochzero.engine.precision import allow_tf32, tf32_allowed
from epochzero.errors import MachineError, UnknownNameError, UserError
from epochzero.executors.base import Prepare, ScoredBatch
from epochzero.executors.compile_ahead import compile_share
from epochzero.registry import proxies, spaces
from epochzero.strict import is_strict, set_strict
from epochzero.study.task import Task
from epochzero.types import Origin

Key = tuple[str, ...]
"""identifies a recipe"""
WORKERS_ROOM = 0.95
"""of a GPU's memory, what workers share; each one's context takes some of the rest"""


class Share(NamedTuple):
    """A worker's share of a GPU that others use too."""

    memory: float = 1.0
    """of all that it has"""
    folder: str | None = None
    """where workers tell each other which kernels they compile"""


def freeze_garbage() -> None:
    """Keeps the garbage collector from searching the imported modules again and again: they stay until the end."""
    gc.collect()
    gc.freeze()


@dataclass(frozen=True, eq=False)
class Recipe:
    """Everything that scoring needs besides the architectures."""

    space: str
    proxies: tuple[str, ...]
    batch: Batch
    origin: Origin
    device: str
    threads: int
    prepare: Prepare | None = None
    share: Share = Share()
    tf32: bool = False
    strict: bool = False

    @classmethod
    def of(cls, task: Task, threads: int, prepare: Prepare | None, share: Share = Share()) -> Recipe:
        """The recipe of a task; UserError where its space or a proxy is not the one of that name."""
        if task.space.name not in spaces or spaces[task.space.name] is not task.space:
            raise UserError(f"The space '{task.space.name}' {_UNKNOWN}")
        for proxy in task.proxies:
            if proxy.name not in proxies or proxies[proxy.name].compute is not proxy.compute:
                raise UserError(f"The proxy '{proxy.name}' {_UNKNOWN}")
        texts = tuple(proxy.text for proxy in task.proxies)
        batch = replace(task.batch)  # without the parts that were made already: they are made again there
        return cls(
            task.space.name,
            texts,
            batch,
            task.origin,
            task.device,
            threads,
            prepare,
            share,
            tf32=tf32_allowed(),
            strict=is_strict(),
        )

    def task(self) -> Task:
        """The task of a worker, which is prepared for it: threads, precision, its share of a GPU, plug-ins."""
        torch.set_num_threads(self.threads)
        allow_tf32(self.tf32)
        freeze_garbage()
        if self.prepare is not None:
            self.prepare()
        try:
            space, its_proxies = spaces[self.space], [parse(text) for text in self.proxies]
        except UnknownNameError as error:
            raise UserError(f"A worker does not know what this process knows: {error} {_REMEDY}") from error
        task = Task(space, its_proxies, self.batch, self.origin, self.device)
        if self.share.memory < 1:
            torch.cuda.set_per_process_memory_fraction(self.share.memory, torch.device(self.device).index)
        return task


_REMEDY = "Put it into a file of its own and give that as a plug-in, or install it as a package."
_UNKNOWN = f"is not registered under that name, so that workers cannot find it. {_REMEDY}"


def key_of(task: Task) -> Key:
    """Equal for tasks that have the same recipe."""
    setting = task.setting
    return (setting.space, setting.batch, setting.origin, task.device, *(proxy.text for proxy in task.proxies))


@dataclass(frozen=True)
class Failure:
    """The answer of a worker without scores."""

    sentence: str
    mendable: bool
    """True for invalid input, False for a runtime failure"""
    trace: str

    def error(self) -> Exception:
        error: Exception = UserError(self.sentence) if self.mendable else MachineError(self.sentence)
        error.__cause__ = WorkerError(f"\n{self.trace}")
        return error


class WorkerError(Exception):
    """Where in a worker something went wrong, as text."""


Answer = ScoredBatch | Failure

_tasks: dict[Key, Task] = {}
_strict: set[Key] = set()
"""those of strict runs"""


def answer(key: Key, recipe: Callable[[], Recipe], texts: Sequence[str]) -> Answer:
    """Scores of the architectures of these texts, or a sentence; the recipe is asked for once."""
    try:
        if key not in _tasks:
            its_recipe = recipe()
            _tasks[key] = its_recipe.task()
            if its_recipe.strict:
                _strict.add(key)
            if its_recipe.share.folder is not None:
                compile_share(_tasks[key], Path(its_recipe.share.folder))
        task = _tasks[key]
        set_strict(key in _strict)
        return task.score([task.space.parse(text) for text in texts])
    except (UserError, MachineError) as error:
        return Failure(str(error), isinstance(error, UserError), traceback.format_exc())
    except Exception as error:
        said = (str(error).strip() or "no message").splitlines()[0]
        sentence = f"A worker failed on {_some(texts)}: {type(error).__name__}: {said}"
        if isinstance(error, (RuntimeError, MemoryError)) and out_of_memory(error):
            sentence = f"A worker has not enough memory for {_some(texts)}: use fewer workers or a smaller batch size."
        return Failure(sentence, False, traceback.format_exc())


def lost(texts: Sequence[str], times: int, how: str) -> MachineError:
    """The sentence for a chunk on which worker after worker dies."""
    return MachineError(
        f"{times} workers died one after the other on {_some(texts)} ({how}): if memory ran out, use fewer workers or "
        "a smaller batch size. What was stored before is safe; the same command with the same store resumes there."
    )


def _some(texts: Sequence[str]) -> str:
    if not texts:
        return "what comes before the first network"
    return repr(texts[0]) if len(texts) == 1 else f"one of {len(texts)} networks from {texts[0]!r} on"
