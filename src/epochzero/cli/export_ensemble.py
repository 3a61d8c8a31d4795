"""`epochzero export` of an ensemble."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from epochzero.cli.console import err, millions, out, print_json
from epochzero.cli.options import made_folder
from epochzero.cli.real_inputs import real_inputs
from epochzero.ensemble.model import Ensemble
from epochzero.errors import UserError
from epochzero.export.ensemble import export_ensemble


def export_members(
    saved: Path, data: str | None, out_dir: Path, *, unused: Mapping[str, object], onnx: bool, json: bool
) -> None:
    """Write a saved ensemble as a product; `unused` options are refused."""
    for option, value in unused.items():
        if value is not None:
            raise UserError(f"The ensemble '{saved}' says what it is: leave {option} out.")
    ensemble = Ensemble.load(saved)
    real = None if data is None else real_inputs(data, ensemble.input_shape).x
    folder = made_folder(out_dir)
    with err.status("export") as status:
        made = export_ensemble(
            ensemble, folder, real=real, onnx=onnx, say=lambda what: status.update(f"export  {what}")
        )
    report = {
        "space": ensemble.space.name,
        "archs": ensemble.texts,
        "params": ensemble.params,
        "files": [str(file) for file in made.files],
        "errors": {"model.py": made.code_error, "model.onnx": made.onnx_error},
        "latency_ms": None if made.latency is None else made.latency._asdict(),
    }
    if json:
        print_json(report)
        return
    for text in ensemble.texts:
        out.print(text, style="bold")
    out.print(f"\nparams   {millions(ensemble.params)}")
    if made.onnx_error is not None:
        out.print(f"onnx     differs by {made.onnx_error:.2g} at most; {made.latency} for one sample")
    err.print(f"product  {folder}/{', '.join(file.name for file in made.files)}", soft_wrap=True)
