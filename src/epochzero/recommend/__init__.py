"""Recommenders: from a table of clicks to a trained network that predicts.

    from epochzero import recommend

    result = recommend.search("criteo.tsv", schema="criteo", out="clicks")
    recommend.train("clicks", out="run")
    recommend.export("run", "product")
    recommend.predict("product", "new.csv", "predictions.csv")
    recommend.baselines("clicks", out="baselines")

`epochzero recommend search`, `train`, `export`, `predict` and `baselines` call these functions.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from epochzero.recommend.pipeline import baselines, export, predict, search, train
    from epochzero.recommend.training.quality import Measures

__all__ = ["Measures", "baselines", "export", "predict", "search", "train"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        return getattr(import_module("epochzero.recommend.pipeline"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
