"""NAS-Bench-301: a surrogate that predicts the validation accuracy of any DARTS cell on CIFAR-10, through its package.

    benchmark = NB301.load("nb_models_1.0/xgb_v1.0", trusted=True)
    benchmark.accuracy("Genotype(normal=...)", split="val")         # percent, after 100 epochs, without noise

The package `nasbench301` unpickles the models that it loads, so a folder can run any code: it is loaded only with
`--trust`. A surrogate has no rows; `sampled` predicts random networks, which makes a table.

Zela, Siems, Zimmer, Lukasik, Keuper, Hutter. Surrogate NAS benchmarks: going beyond the limited search spaces of
tabular NAS benchmarks. ICLR 2022. arXiv:2008.09777. Calls: nasbench301/api.py of github.com/automl/nasbench301.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from epochzero.errors import DataError, UserError
from epochzero.tables.benchmark import Benchmark
from epochzero.tables.columns import Column
from epochzero.tables.formats import Format, Source, formats
from epochzero.tables.rows import Rows

MODEL = "*surrogate_model.model"
DATASET, SPLIT, EPOCHS = "cifar10", "val", 100
ACCURACY = Column("cifar10_val", "accuracy", DATASET, SPLIT, EPOCHS, unit="percent")


class NB301(Benchmark):
    """Predicted accuracies; a space gives the genotypes."""

    def __init__(self, model: Any, space: Any, source: str) -> None:
        self.model = model
        self.space = space
        self.source = source

    @classmethod
    def load(cls, folder: str | Path, space: Any, *, trusted: bool = False) -> NB301:
        """The ensemble in a folder, such as `xgb_v1.0`."""
        folder = Path(folder)
        if not trusted:
            raise UserError(
                f"The package nasbench301 unpickles the models in {folder}, which can run any code. If you trust them, "
                f"give --trust."
            )
        try:
            package = import_module("nasbench301")
        except ImportError as error:
            raise UserError(
                "NAS-Bench-301 needs its own package: pip install nasbench301, and the packages it asks for."
            ) from error
        return cls(package.load_ensemble(str(folder)), space, str(folder))

    def accuracy(
        self,
        arch: str,
        dataset: str | None = None,
        split: str = SPLIT,
        epochs: int | None = None,
        seed: int | None = None,
    ) -> float:
        asked = (dataset or DATASET, split, epochs or EPOCHS, seed)
        if asked != (DATASET, SPLIT, EPOCHS, None):
            raise DataError(
                f"{self.source} predicts only the mean accuracy on {SPLIT} of {DATASET} after {EPOCHS} epochs."
            )
        return self._predicted(self.space.parse(arch))

    def _predicted(self, genotype: Any) -> float:
        return float(self.model.predict(config=genotype, representation="genotype", with_noise=False))

    def cost(self, arch: str, dataset: str | None = None) -> dict[str, float]:
        self.space.parse(arch)
        return {}

    def sampled(self, count: int, seed: int) -> Rows:
        """Returns the predictions for `count` different random networks."""
        rng = Random(seed)
        chosen: dict[str, float] = {}
        while len(chosen) < count:
            genotype = self.space.sample(rng)
            text = self.space.text(genotype)
            if text not in chosen:
                chosen[text] = self._predicted(genotype)
        numbers = np.array(list(chosen.values()))
        notes = [f"These are predictions of a surrogate for {count} random networks (seed {seed})."]
        return Rows(list(chosen), {ACCURACY: numbers}, self.source, notes=notes)


def is_model(source: Source) -> bool:
    """Returns True for a folder that holds a surrogate."""
    return source.path.is_dir() and next(source.path.rglob(MODEL), None) is not None


def read(source: Source) -> Rows:
    """Returns the predictions for `--sample` random networks."""
    if source.sample is None:
        raise UserError(f"{source.path} is a surrogate and has no rows. Give --sample, the number of random networks.")
    surrogate = NB301.load(source.path, source.space, trusted=source.trusted)
    return surrogate.sampled(source.sample, source.seed)


formats.register("nb301", Format("a folder of NAS-Bench-301", is_model, read, surrogate=True))
