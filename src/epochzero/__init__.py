"""EpochZero: find the network before you train it.

    import epochzero as ez
    ez.score("|nor_conv_3x3~0|+...", space="nb201")
    ez.search(space="nb201", budget=300, max_params="1M", store="run.db")
    ez.rank({"small": make_small, "large": make_large}, data=loader)

Importing this loads nothing heavy: torch comes with the first name that needs it.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from epochzero import moved, registry  # noqa: F401 - `moved` serves old import paths
from epochzero.types import Origin, Score

if TYPE_CHECKING:
    from epochzero.api import rank, score, search, space
    from epochzero.data import Batch
    from epochzero.engine import Network
    from epochzero.engine.modules.slim import slim
    from epochzero.export.predict import predict
    from epochzero.next_steps import Ranking, Result, Study
    from epochzero.plan import Plan
    from epochzero.spaces.choices import choices
    from epochzero.store import Store
    from epochzero.study.sources import Feedback

try:
    __version__ = version("epochzero")
except PackageNotFoundError:
    __version__ = "0+source"

__all__ = [
    "Batch",
    "Feedback",
    "Network",
    "Origin",
    "Plan",
    "Ranking",
    "Result",
    "Score",
    "Store",
    "Study",
    "choices",
    "list_proxies",
    "list_searches",
    "list_spaces",
    "predict",
    "rank",
    "score",
    "search",
    "slim",
    "space",
]

_HOMES = {
    "choices": "epochzero.spaces.choices",
    "predict": "epochzero.export.predict",
    "rank": "epochzero.api",
    "score": "epochzero.api",
    "search": "epochzero.api",
    "space": "epochzero.api",
    "slim": "epochzero.engine.modules.slim",
    "Batch": "epochzero.data",
    "Feedback": "epochzero.study.sources",
    "Network": "epochzero.engine",
    "Ranking": "epochzero.next_steps",
    "Result": "epochzero.next_steps",
    "Study": "epochzero.next_steps",
    "Plan": "epochzero.plan",
    "Store": "epochzero.store",
}


def list_proxies() -> list[str]:
    return list(registry.proxies)


def list_spaces() -> list[str]:
    return list(registry.spaces)


def list_searches() -> list[str]:
    """The names of all search methods, those inside one network included."""
    from epochzero.supernet import methods

    return [*registry.searches, *methods]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'epochzero' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))})
