"""`epochzero export` of a recommender."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from epochzero.cli.console import err, millions, out, print_json
from epochzero.cli.options import made_folder
from epochzero.data.ctr import Encoding, encoder_of
from epochzero.errors import DataError, UserError
from epochzero.export.recommender import Kept, export_recommender

REAL = 64
"""rows of the data that the check runs on"""


def export_clicks(
    trained: Path, data: str | None, out_dir: Path, *, unused: Mapping[str, object], onnx: bool, json: bool
) -> None:
    """Write a trained recommender as a product; `unused` options are refused."""
    for option, value in unused.items():
        if value is not None:
            raise UserError(f"The recommender '{trained}' says what it is: leave {option} out.")
    kept = Kept.read(trained)
    real = None if data is None else _rows(kept.encoding, data)
    folder = made_folder(out_dir)
    if folder.resolve() == trained.resolve():
        raise UserError(f"The product would be mixed with the training in '{folder}': choose another --out.")
    with err.status("export") as status:
        made = export_recommender(kept, folder, real=real, onnx=onnx, say=lambda what: status.update(f"export  {what}"))
    report = {
        "space": kept.space,
        "arch": kept.arch,
        "params": kept.plan.params,
        "flops": kept.plan.flops,
        "files": [str(file) for file in made.files],
        "errors": {"model.py": made.code_error, "model.onnx": made.onnx_error},
        "latency_ms": None if made.latency is None else made.latency._asdict(),
    }
    if json:
        print_json(report)
        return
    out.print(f"{kept.arch}\n", style="bold")
    out.print(f"params   {millions(kept.plan.params)}, embeddings included")
    if made.onnx_error is not None:
        out.print(f"onnx     differs by {made.onnx_error:.2g} at most; {made.latency} for one sample")
    err.print(f"product  {folder}/{', '.join(file.name for file in made.files)}", soft_wrap=True)


def _rows(encoding: Encoding, data: str) -> tuple[Tensor, Tensor]:
    """The first rows of a table as the network reads them."""
    for block in encoder_of(encoding, data):
        if len(block.dense):
            ids = encoding.folded(block.ids[:REAL])
            return torch.from_numpy(block.dense[:REAL]), torch.from_numpy(ids).long()
    raise DataError(f"The table {data} has no rows: give a table with rows.")
