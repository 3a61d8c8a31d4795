"""Recommenders: from a table of clicks to a trained network that predicts.

    from epochzero import recommend

    result = recommend.search("criteo.tsv", schema="criteo", out="clicks")
    recommend.train("clicks", out="run")
    recommend.export("run", "product")
    recommend.predict("product", "new.csv", "predictions.csv")
    recommend.baselines("clicks", out="baselines")

`epochzero recommend search`, `train`, `export`, `predict` and `baselines` call these functions, and so do `rank` and
`score`, which compare networks on the same clicks without a training.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from epochzero.recommend.pipeline import baselines, export, predict, search, train
    from epochzero.recommend.ranking import rank, score
    from epochzero.recommend.training.quality import Measures

__all__ = ["Measures", "baselines", "export", "predict", "rank", "score", "search", "train"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        module = "ranking" if name in ("rank", "score") else "pipeline"
        return getattr(import_module(f"epochzero.recommend.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
