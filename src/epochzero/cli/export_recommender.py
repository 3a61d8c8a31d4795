"""`epochzero export` of a recommender."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from epochzero.cli.console import millions
from epochzero.cli.options import made_folder
from epochzero.cli.product import made_with, refuse, tell
from epochzero.errors import DataError, UserError
from epochzero.recommend.data.ingest import Encoding, encoder_of
from epochzero.recommend.recommender import Recommender, export_recommender

REAL = 64
"""rows of the data that the check runs on"""


def export_clicks(
    trained: Path, data: str | None, out_dir: Path, *, unused: Mapping[str, object], onnx: bool, json: bool
) -> None:
    """Write a trained recommender as a product; `unused` options are refused."""
    refuse(unused, f"The recommender '{trained}'")
    kept = Recommender.read(trained)
    real = None if data is None else _rows(kept.encoding, data)
    folder = made_folder(out_dir)
    if folder.resolve() == trained.resolve():
        raise UserError(f"The product would be mixed with the training in '{folder}': choose another --out.")
    made = made_with(lambda say: export_recommender(kept, folder, real=real, onnx=onnx, say=say))
    facts = {"space": kept.space, "arch": kept.arch, "params": kept.plan.params, "flops": kept.plan.flops}
    lines = [f"params   {millions(kept.plan.params)}, embeddings included"]
    tell(made, facts, [kept.arch], lines, folder, json=json)


def _rows(encoding: Encoding, data: str) -> tuple[Tensor, Tensor]:
    """The first rows of a table as the network reads them."""
    for block in encoder_of(encoding, data):
        if len(block.dense):
            ids = encoding.folded(block.ids[:REAL])
            return torch.from_numpy(block.dense[:REAL]), torch.from_numpy(ids).long()
    raise DataError(f"The table {data} has no rows: give a table with rows.")
