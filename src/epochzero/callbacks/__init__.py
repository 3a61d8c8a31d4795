"""Callbacks that are told of a search, a ranking or a training as it goes, for dashboards and logs of any kind.

    class Printed:
        def begin(self, kind, settings): print(kind, settings)
        def log(self, step, values): print(step, values)
        def end(self, summary): print(summary)

    ez.search("nb201", budget=50, callbacks=[Printed(), "tensorboard:logs"])

| text | logs to |
|---|---|
| tensorboard:FOLDER | TensorBoard |
| mlflow:EXPERIMENT | MLflow, where its own settings say |
| wandb:PROJECT | Weights & Biases, where its own settings say |

A step is a network of a search or ranking, or an epoch of a training; a resumed run tells of its earlier steps again.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Protocol

from epochzero.errors import UserError
from epochzero.registry import check_known

LOGGERS = {"tensorboard": "TensorBoard", "mlflow": "MLflow", "wandb": "WandB"}
"""the class in the file of each name"""


class Callback(Protocol):
    """Told of a search, a ranking or a training."""

    def begin(self, kind: str, settings: Mapping[str, Any]) -> None:
        """`kind` is search, rank or train; the settings are plain values."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Finite numbers by name."""

    def end(self, summary: Mapping[str, Any]) -> None:
        """The outcome in plain values; `failed` is why it ended early, if it did by an error."""


def made(callbacks: Sequence[Callback | str]) -> list[Callback]:
    """The callbacks, those of texts made; UserError for one that is unknown or not installed."""
    return [_named(one) if isinstance(one, str) else one for one in callbacks]


def _named(text: str) -> Callback:
    name, _, place = text.partition(":")
    check_known(name, LOGGERS, f"There is no callback '{name}'")
    if not place:
        raise UserError(
            f"'{text}' does not say where to log: write {name}:{'FOLDER' if name == 'tensorboard' else 'NAME'}."
        )
    callback: Callback = getattr(import_module(f"epochzero.callbacks.{name}"), LOGGERS[name])(place)
    return callback


class Told:
    """Several callbacks as one; what one of them raises becomes a sentence that names it."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = callbacks
        self.summary: dict[str, Any] = {}
        """facts that `end` receives"""

    def __bool__(self) -> bool:
        return bool(self._callbacks)

    def log(self, step: int, values: Mapping[str, Any]) -> None:
        """Tells the finite numbers among the values."""
        numbers = {
            name: float(value)
            for name, value in values.items()
            if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
        }
        if numbers:
            self.call("log", step, numbers)

    def call(self, method: str, *given: Any) -> None:
        for callback in self._callbacks:
            try:
                getattr(callback, method)(*given)
            except UserError:
                raise
            except Exception as error:
                said = (str(error).strip() or "no message").splitlines()[0]
                raise UserError(
                    f"The callback {type(callback).__name__} raised {type(error).__name__} in `{method}`: {said}. What "
                    "was computed is kept; the same call without it, or with it mended, resumes."
                ) from error


@contextmanager
def telling(callbacks: Sequence[Callback | str], kind: str, settings: Mapping[str, Any]) -> Iterator[Told]:
    """Tells of the begin, and at the end of the summary, or why it failed."""
    told = Told(made(callbacks))
    told.call("begin", kind, plain(settings))
    try:
        yield told
    except BaseException as error:
        told.call("end", {"failed": str(error) or type(error).__name__})
        raise
    told.call("end", plain(told.summary))


def plain(value: Any) -> Any:
    """The same as texts, numbers, lists and dictionaries."""
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    name = getattr(value, "name", None) or getattr(value, "__name__", None)
    return name if isinstance(name, str) else f"a {type(value).__name__}"
