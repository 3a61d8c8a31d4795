"""A trained ensemble as a run in a store of its folder, so that `epochzero report` shows it like any other run.

Each member is a step with its test accuracy in percent; the result holds the members and what was measured of all
together. The same architecture again, as in a deep ensemble, is a repeat.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from epochzero.ensemble.model import Ensemble
from epochzero.objectives.objective import FEEDBACK
from epochzero.store import JSON, Evaluated, Store, manifest
from epochzero.types import Score, Setting

STORE = "ensemble.db"
ACCURACY = f"{FEEDBACK}test_accuracy"


def record_ensemble(
    ensemble: Ensemble,
    errors: Sequence[float],
    figures: Mapping[str, float],
    settings: Mapping[str, JSON],
    folder: Path,
) -> Path:
    """Write the run that the settings and the members define, unless it is there; `errors` are those of the members."""
    path = folder / STORE
    members = list(ensemble.texts)
    whole: dict[str, JSON] = {"space": ensemble.space.name, **settings, "members": list(members)}
    shape = "x".join(map(str, ensemble.input_shape))
    data = f"images of shape {shape}, {ensemble.num_classes} classes"
    with Store.open(path) as store:
        run = store.begin_run("ensemble", whole, manifest(whole | {"data": data}))
        if run.state != "finished":
            for place, (text, error) in enumerate(zip(members, errors, strict=True)):
                again = members[:place].count(text)
                setting = Setting(ensemble.space.name, "test images", f"{run.id}-{again}")
                accuracy = Score(100 * (1 - error))
                run.record(setting, [Evaluated(place, text, {ACCURACY: (accuracy, 0.0)})])
            run.finish({"members": list(members), **figures})
    return path
