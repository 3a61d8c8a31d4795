"""A trained recommender in a folder: the network, its weights, and the encoding that reads tables for it.

    trained = Recommender.read(Path("run"))          # of `epochzero recommend train`, or of its export
    predict_file(trained.module(), "new.csv", trained.encoding, "predictions.csv")
    trained.export(Path("product"))

`recommender.json` names the network and its training, `encoding.json` says how a table becomes numbers, and the
weights, embeddings included, are a checkpoint or a safetensors file. Reading them runs no code of theirs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from epochzero.data.sealed import read
from epochzero.errors import DataError, UserError
from epochzero.export import standalone
from epochzero.export.product import Exported, export
from epochzero.export.subject import Subject
from epochzero.export.weights import Weights, fitting, read_weights
from epochzero.files import as_json, replacing
from epochzero.plan import Plan
from epochzero.plan.module import PlanModule
from epochzero.progress import Progress, silent
from epochzero.recommend import product_encoder
from epochzero.recommend.data.census import Census, check_known_values, surprises
from epochzero.recommend.data.encoding import Encoding
from epochzero.recommend.data.ingest import encoder_of
from epochzero.recommend.spaces.nasrec import Nasrec
from epochzero.recommend.spaces.nasrec_network import Form, pruned
from epochzero.recommend.training.quality import in_words
from epochzero.recommend.training.row_tables import device_of
from epochzero.recommend.training.trainer import logits_of
from epochzero.registry import spaces
from epochzero.types import Origin

FILE, ENCODING, CHECKPOINT = "recommender.json", "encoding.json", "training.pt"
ENCODER, SOURCE = "encoder.py", Path(product_encoder.__file__).read_text(encoding="utf-8")
"""the file of a product that turns text into numbers, and its text"""
FORMAT = 1
ONNX_BYTES = 2 * 10**9
"""the most that one ONNX file holds"""
CHECKED_ROWS = 64
"""rows of the user's data on which an export is checked"""
CHUNK = 8192
"""rows that the model predicts together"""


def holds_recommender(folder: Path) -> bool:
    return (folder / FILE).is_file()


def described(space: str, arch: str, training: Mapping[str, Any], form: Form = Form()) -> str:
    told = {"format": FORMAT, "space": space, "arch": arch, "form": form._asdict(), "training": training}
    return as_json(told, indent=1)


@dataclass(frozen=True)
class Recommender:
    """A recommender with its weights."""

    space: str
    arch: str
    encoding: Encoding
    tensors: Mapping[str, Tensor]
    training: Mapping[str, Any]
    """settings, data and metrics of the training"""
    name: str
    """of the folder"""
    form: Form = Form()
    """of the network"""

    @classmethod
    def read(cls, folder: Path) -> Recommender:
        """Reads a folder; UserError or DataError for one that is damaged, hostile or something else."""
        try:
            content = json.loads((folder / FILE).read_text(encoding="utf-8"))
            version, space, arch, training = (content[key] for key in ("format", "space", "arch", "training"))
            form = Form(**content.get("form", {}))  # missing in old folders
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"'{folder}' holds no recommender ({type(error).__name__} in {FILE}): give the folder of `epochzero "
                "recommend train`, or of its export."
            ) from None
        if version != FORMAT or not isinstance(spaces[space], Nasrec):
            raise DataError(f"The recommender '{folder}' is of another version, or damaged: train it again.")
        checkpoint = folder / CHECKPOINT
        tensors = (
            read(checkpoint).get("model") if checkpoint.exists() else read_weights(folder / standalone.WEIGHTS).tensors
        )
        if not isinstance(tensors, dict):
            raise DataError(f"The checkpoint '{checkpoint}' holds no weights by name: train again.")
        return cls(space, arch, Encoding.read(folder / ENCODING), tensors, training, folder.name, form)

    @cached_property
    def plan(self) -> Plan:
        """The plan of two inputs, dense features and ids, without dead ends."""
        columns = self.encoding.num_dense, self.encoding.rows
        space = spaces[self.space].on(*columns, width=self.form.width).formed(self.form)
        return pruned(space.plan(space.parse(self.arch)))

    @property
    def temperature(self) -> float:
        """The number by which logits are divided before they become probabilities."""
        return float(self.training.get("temperature", 1.0))

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        return fitting(self.plan, Weights(self.name, self.tensors), num_classes=1)

    def module(self) -> PlanModule:
        module = self.plan.module(Origin()).eval()
        module.load_state_dict(self.weights)
        return module

    def first_rows(self, data: str | Path) -> tuple[Tensor, Tensor]:
        """The first rows of a table as the network reads them, dense [B, D] and ids [B, F].

        DataError if the product's own encoder reads them differently.
        """
        reader = encoder_of(self.encoding, data)
        for block in reader:
            if len(block.dense):
                dense, ids = block.dense[:CHECKED_ROWS], self.encoding.folded(block.ids[:CHECKED_ROWS])
                self._check_encoder(reader.texts(block.line[:CHECKED_ROWS].tolist()), dense, ids)
                return torch.from_numpy(dense), torch.from_numpy(ids).long()
        raise DataError(f"The table {data} has no rows: give a table with rows.")

    def _check_encoder(self, texts: list[dict[str, str]], dense: NDArray[np.float32], ids: NDArray[np.int32]) -> None:
        with TemporaryDirectory() as place:
            written = Path(place) / ENCODING
            written.write_text(self.encoding.text(), encoding="utf-8")
            numbers, places = product_encoder.Encoder(written).rows(texts)
        wrong = (places != ids).any(1) | ~np.isclose(numbers, dense, rtol=1e-6, atol=1e-6).all(1)
        if wrong.any():
            raise DataError(
                f"{ENCODER} would read row {int(np.flatnonzero(wrong)[0]) + 1} of the table in another way than the "
                "training did, so nothing was written: this is a fault of the export; report it, please."
            )

    def export(
        self,
        folder: Path,
        *,
        real: tuple[Tensor, ...] | None = None,
        onnx: bool = True,
        say: Callable[[str], None] = lambda step: None,
    ) -> Exported:
        """Writes code, weights, ONNX, card, and the files of `predict`, if all agree on random and `real` rows."""
        size = 4 * self.plan.params
        if onnx and size > ONNX_BYTES:
            raise UserError(
                f"The weights take {size / 1e9:.1f} GB and one ONNX file holds {ONNX_BYTES / 1e9:g}: export with "
                "--no-onnx, or limit the embeddings in the search with --option max_embedding_rows=10000000."
            )
        more = {
            FILE: described(self.space, self.arch, self.training, self.form),
            ENCODING: self.encoding.text(),
            ENCODER: SOURCE,
        }
        card = _card(self.encoding, self.training)
        subject = Subject(self.space, self.arch, self.plan, self.weights, f"from {self.name}", training_section=card)
        return export(subject, folder, real=real, onnx=onnx, say=say, more=more)


@dataclass(frozen=True)
class Predicted:
    """The outcome of predicting a file."""

    rows: int
    bad_lines: int
    columns: Mapping[str, Census]
    remarks: tuple[str, ...]
    """sentences on columns that differ from those of the training"""


@torch.no_grad()
def predict_file(
    model: nn.Module,
    source: str | Path,
    encoding: Encoding,
    out: str | Path,
    *,
    bad_lines: str = "strict",
    temperature: float = 1.0,
    progress: Progress = silent,
) -> Predicted:
    """Writes `line,probability,why` for every row of `source`.

    The source is read block by block as the model's own table was, and needs no label and no split. A bad line is an
    error, which leaves an older file as it was, or (`skip`) gets a reason and no probability.
    """
    encoder = encoder_of(encoding, source, bad_lines=bad_lines)
    out, count, bad_count = Path(out), 0, 0
    training, device = model.training, device_of(model)
    model.eval()
    try:
        with replacing(out) as file:
            file.write(b"line,probability,why\n")
            for block in encoder:
                dense = torch.from_numpy(block.dense).to(device)
                ids = torch.from_numpy(encoding.folded(block.ids)).long().to(device)
                pieces = zip(torch.split(dense, CHUNK), torch.split(ids, CHUNK), strict=True)
                outputs = [logits_of(model(*one)).double() / temperature for one in pieces if len(one[0])]
                clicks = [output.sigmoid().cpu().numpy() for output in outputs]
                rows = zip(block.line.tolist(), np.concatenate(clicks).tolist() if clicks else [], strict=True)
                lines = [(number, f"{number},{click:.9g},") for number, click in rows]
                lines += [(bad.number, f'{bad.number},,"{bad.why.replace(chr(34), chr(39))}"') for bad in block.bad]
                file.writelines(f"{text}\n".encode() for _, text in sorted(lines))
                count, bad_count = count + len(block.line), bad_count + len(block.bad)
                progress(count, None, "rows")
            check_known_values(encoder.census, [c.name for c in encoding.schema.categorical], count, source)
    except OSError as error:
        raise UserError(
            f"The predictions cannot be written to {out} ({error.strerror}): choose another place."
        ) from error
    finally:
        model.train(training)
    said = surprises(encoder.census, count, encoding.usual)
    return Predicted(count, bad_count, encoder.census, tuple(said))


def _scaled(training: Mapping[str, Any]) -> str:
    heat = training.get("temperature", 1.0)
    return "y" if heat == 1 else f"y / {heat:.6g}"


def _card(encoding: Encoding, training: Mapping[str, Any]) -> str:
    """The section of the model card on training and data."""
    schema, rows = encoding.schema, training["rows"]
    named = [", ".join(column.name for column in columns) or "none" for columns in (schema.dense, schema.categorical)]
    lines = [
        "## Training\n",
        "| | |",
        "|---|---|",
        f"| data | {training['source']}: {rows['train']:,} rows to train on, {rows['val']:,} to validate and "
        f"{rows['test']:,} to test |",
        f"| settings | {', '.join(f'{name} {value}' for name, value in training['settings'].items())} |",
        f"| share of the training rows, seed | {training['share']:g}, {training['seed']} |",
    ]
    if search := training.get("search"):
        limits = [f"{name} {limit:,}" for name, limit in search.get("limits", {}).items() if limit is not None]
        lines += [
            f"| search | {search['method']} by {search['proxy']}, {search['evaluated']:,} networks, seed "
            f"{search['seed']} |",
            f"| score, of weights inherited from the supernet | {search['score']:.6g} |",
            f"| limits of the search | {', '.join(limits) or 'none'} |",
        ]
    for part, measured in training["metrics"].items():
        area = measured["why"] if measured["auc"] is None else f"AUC {measured['auc']:.4f}"
        lines.append(f"| {part} rows | log loss {measured['log_loss']:.4f}, {area} |")
    for part, quality in training.get("quality", {}).items():
        lines.append(f"| {part} rows, at temperature {training['temperature']:.4g} | {in_words(quality)} |")
    return "\n".join(
        [
            *lines,
            "\n## Inputs\n",
            f"`dense` [batch, {encoding.num_dense}] single precision: {named[0]}. `ids` [batch, {len(encoding.rows)}] "
            f"whole numbers, each below its table's rows: {named[1]}. `{ENCODING}` says how text becomes these "
            f"numbers: `{ENCODER}`, which needs numpy alone, does it for rows (`encoder.Encoder().rows(rows)`), and "
            "`epochzero recommend predict --model FOLDER --data new.csv --out new-clicks.csv` for a file. A "
            f"click has the probability sigmoid({_scaled(training)}).\n",
        ]
    )
