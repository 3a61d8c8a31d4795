"""A trained recommender in a folder: what it is, its weights, and how tables have to be read for it.

    trained = Recommender.read(Path("run"))                 # of `epochzero train`, or a product of `epochzero export`
    predict(trained.module(), "new.csv", trained.encoding, "predictions.csv")
    export_recommender(trained, Path("product"))

`recommender.json` says what the network is and how it was trained, `encoding.json` how a table becomes numbers, and
the weights, embeddings included, are a checkpoint or a safetensors file. None of them can run code here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from epochzero.data.sealed import read
from epochzero.errors import DataError, UserError
from epochzero.export import standalone
from epochzero.export.product import Exported, export
from epochzero.export.subject import Subject
from epochzero.export.weights import Weights, fitting, read_weights
from epochzero.plan import Plan
from epochzero.plan.module import PlanModule
from epochzero.recommend.data.encoding import Encoding
from epochzero.recommend.spaces.nasrec import Nasrec
from epochzero.recommend.spaces.nasrec_network import pruned
from epochzero.registry import spaces
from epochzero.types import Origin

FILE, ENCODING, CHECKPOINT = "recommender.json", "encoding.json", "training.pt"
FORMAT = 1
ONNX_BYTES = 2 * 10**9
"""what fits into one ONNX file"""


def holds_recommender(folder: Path) -> bool:
    return (folder / FILE).is_file()


def described(space: str, arch: str, training: Mapping[str, Any]) -> str:
    """The content of `recommender.json`."""
    return json.dumps({"format": FORMAT, "space": space, "arch": arch, "training": training}, indent=1)


@dataclass(frozen=True)
class Recommender:
    """A recommender with its weights."""

    space: str
    arch: str
    encoding: Encoding
    tensors: Mapping[str, Tensor]
    training: Mapping[str, Any]
    """how it was trained, and what it is worth"""
    name: str
    """of the folder"""

    @classmethod
    def read(cls, folder: Path) -> Recommender:
        """UserError or DataError for a folder that is damaged, hostile or something else."""
        try:
            told = json.loads((folder / FILE).read_text(encoding="utf-8"))
            known, space, arch, training = (told[key] for key in ("format", "space", "arch", "training"))
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise UserError(
                f"'{folder}' holds no recommender ({type(error).__name__} in {FILE}): give the folder of `epochzero "
                "train` on a table of clicks, or of its export."
            ) from None
        if known != FORMAT or not isinstance(spaces[space], Nasrec):
            raise DataError(f"The recommender '{folder}' is of another version, or damaged: train it again.")
        checkpoint = folder / CHECKPOINT
        tensors = (
            read(checkpoint).get("model") if checkpoint.exists() else read_weights(folder / standalone.WEIGHTS).tensors
        )
        if not isinstance(tensors, dict):
            raise DataError(f"The checkpoint '{checkpoint}' holds no weights by name: train again.")
        return cls(space, arch, Encoding.read(folder / ENCODING), tensors, training, folder.name)

    @cached_property
    def plan(self) -> Plan:
        """Of two inputs, dense features and ids; without what leads nowhere."""
        space = spaces[self.space].on(self.encoding.num_dense, self.encoding.rows)
        return pruned(space.plan(space.parse(self.arch)))

    @cached_property
    def weights(self) -> dict[str, Tensor]:
        return fitting(self.plan, Weights(self.name, self.tensors), num_classes=1)

    def module(self) -> PlanModule:
        """The network, ready to predict."""
        module = self.plan.module(Origin()).eval()
        module.load_state_dict(self.weights)
        return module

    @property
    def subject(self) -> Subject:
        return Subject(
            self.space,
            self.arch,
            self.plan,
            self.weights,
            f"from {self.name}",
            told=_card(self.encoding, self.training),
        )


def export_recommender(
    kept: Recommender,
    folder: Path,
    *,
    real: tuple[Tensor, ...] | None = None,
    onnx: bool = True,
    say: Callable[[str], None] = lambda what: None,
) -> Exported:
    """Code, weights, ONNX, card and what `epochzero predict` needs, once all agree on random and `real` rows."""
    size = 4 * kept.plan.params
    if onnx and size > ONNX_BYTES:
        raise UserError(
            f"The weights take {size / 1e9:.1f} GB and one ONNX file holds {ONNX_BYTES / 1e9:g}: export with "
            "--no-onnx, or limit the embeddings in the search with --option max_embedding_rows=10000000."
        )
    more = {
        FILE: described(kept.space, kept.arch, kept.training),
        ENCODING: kept.encoding.text(),
    }
    return export(kept.subject, folder, real=real, onnx=onnx, say=say, more=more)


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
    for part, found in training["metrics"].items():
        area = found["why"] if found["auc"] is None else f"AUC {found['auc']:.4f}"
        lines.append(f"| {part} rows | log loss {found['log_loss']:.4f}, {area} |")
    return "\n".join(
        [
            *lines,
            "\n## Inputs\n",
            f"`dense` [batch, {encoding.num_dense}] single precision: {named[0]}. `ids` [batch, {len(encoding.rows)}] "
            f"whole numbers, each below its table's rows: {named[1]}. `{ENCODING}` says how text becomes these "
            "numbers, and `epochzero predict --model FOLDER --data new.csv --out predictions.csv` does it. A click "
            "has the probability sigmoid(y).\n",
        ]
    )
