"""Export of an ensemble."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from epochzero.cli.console import millions
from epochzero.cli.product import refuse, show_product, with_status
from epochzero.ensemble.model import Ensemble
from epochzero.export.ensemble import export_ensemble
from epochzero.export.resolve import real_inputs, training_images
from epochzero.files import made_folder


def export_members(saved: Path, data: str | None, output: Any, *, unused: Mapping[str, object], json: bool) -> None:
    """Writes a saved ensemble as a product; `unused` options are refused, `output` has those of the product."""
    refuse(unused, f"The ensemble '{saved}'")
    ensemble = Ensemble.load(saved)
    real = None if data is None else real_inputs(data, ensemble.input_shape)[0]
    shape, about = {"num_classes": ensemble.num_classes, "input_shape": ensemble.input_shape}, ensemble.facts
    images = training_images(data, {**about, **shape} if {"data", "seed"} <= about.keys() else None)
    folder = made_folder(output.out_dir)
    made = with_status(lambda say: export_ensemble(ensemble, folder, real=real, wanted=output.wanted(images, say)))
    facts = {"space": ensemble.space.name, "archs": ensemble.texts, "params": ensemble.params}
    show_product(made, facts, ensemble.texts, [f"params   {millions(ensemble.params)}"], folder, json=json)
