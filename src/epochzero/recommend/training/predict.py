"""Predicted clicks for a table of text, line by line, in as little memory as reading it takes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from torch import nn

from epochzero.errors import UserError
from epochzero.recommend.data.ingest import BadLines, Encoding, encoder_of
from epochzero.recommend.training.embedding_tables import device_of
from epochzero.recommend.training.trainer import logits_of

CHUNK = 8192
"""rows that the model sees together"""


@torch.no_grad()
def predict(
    model: nn.Module,
    source: str | Path,
    encoding: Encoding,
    out: str | Path,
    *,
    bad_lines: BadLines = "strict",
    tell: Callable[[int], None] | None = None,
) -> tuple[int, int]:
    """Write `line,probability` for every row of `source`, read as the model's own table was.

    Gives the number of rows and that of bad lines.

    The source needs no label and no split. A bad line is an error, or (`skip`) has no probability and says why.
    """
    encoder = encoder_of(encoding, source, bad_lines=bad_lines)
    out, count, bad_count = Path(out), 0, 0
    beside = out.with_name(f"{out.name}.part")
    training, device = model.training, device_of(model)
    model.eval()
    try:
        with beside.open("w", encoding="utf-8") as file:
            file.write("line,probability,why\n")
            for block in encoder:
                dense, ids = (
                    torch.from_numpy(block.dense).to(device),
                    torch.from_numpy(encoding.folded(block.ids)).long().to(device),
                )
                pieces = zip(torch.split(dense, CHUNK), torch.split(ids, CHUNK), strict=True)
                clicks = [
                    logits_of(model(*piece)).double().sigmoid().cpu().numpy() for piece in pieces if len(piece[0])
                ]
                found = zip(block.line.tolist(), np.concatenate(clicks).tolist() if clicks else [], strict=True)
                lines = [(number, f"{number},{click:.9g},") for number, click in found]
                lines += [(bad.number, f'{bad.number},,"{bad.why.replace(chr(34), chr(39))}"') for bad in block.bad]
                file.writelines(f"{text}\n" for _, text in sorted(lines))
                count, bad_count = count + len(block.line), bad_count + len(block.bad)
                if tell is not None:
                    tell(count)
        beside.replace(out)
    except OSError as error:
        raise UserError(
            f"The predictions cannot be written to {out} ({error.strerror}): choose another place."
        ) from error
    finally:
        beside.unlink(missing_ok=True)
        model.train(training)
    return count, bad_count
