"""Export of an ensemble."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from epochzero.cli.console import millions
from epochzero.cli.product import refuse, show_product, with_status
from epochzero.ensemble.model import Ensemble
from epochzero.export.ensemble import export_ensemble
from epochzero.export.resolve import real_inputs
from epochzero.files import made_folder


def export_members(
    saved: Path, data: str | None, out_dir: Path, *, unused: Mapping[str, object], onnx: bool, json: bool
) -> None:
    """Writes a saved ensemble as a product; `unused` options are refused."""
    refuse(unused, f"The ensemble '{saved}'")
    ensemble = Ensemble.load(saved)
    real = None if data is None else real_inputs(data, ensemble.input_shape)[0]
    folder = made_folder(out_dir)
    made = with_status(lambda say: export_ensemble(ensemble, folder, real=real, onnx=onnx, say=say))
    facts = {"space": ensemble.space.name, "archs": ensemble.texts, "params": ensemble.params}
    show_product(made, facts, ensemble.texts, [f"params   {millions(ensemble.params)}"], folder, json=json)
