"""Writes a network as a product: all of its files, or none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from epochzero.data import pink
from epochzero.errors import MachineError
from epochzero.export import onnx_model, standalone
from epochzero.export.card import card
from epochzero.export.subject import Subject
from epochzero.plan.module import PlanModule
from epochzero.run.meters import Timing
from epochzero.types import Shape

ONNX, CARD = "model.onnx", "MODEL_CARD.md"


@dataclass(frozen=True)
class Exported:
    """What was written, and how it was checked."""

    files: list[Path]
    code_error: float
    """the largest difference between `model.py` and the network that was searched and trained"""
    onnx_error: float | None = None
    """the same between ONNX Runtime and `model.py`; None without ONNX"""
    latency: Timing | None = None
    """of one sample by ONNX Runtime here"""


def export(
    subject: Subject,
    folder: Path,
    *,
    real: Tensor | None = None,
    onnx: bool = True,
    say: Callable[[str], None] = lambda what: None,
) -> Exported:
    """Write code, weights, ONNX and card to a folder that is there, once all agree on random and `real` inputs."""
    if onnx:
        onnx_model.check_packages()
    inputs = _inputs(subject.plan.input_shape, real)
    module = subject.plan.module().eval()
    module.load_state_dict(subject.weights)
    with TemporaryDirectory(dir=folder, prefix=".export-") as name:
        place = Path(name)
        say("model.py")
        standalone.write(place, subject.plan, subject.weights)
        onnx_error, timing = None, None
        with standalone.loaded(place) as network:
            code_error = _code_error(module, network, inputs)
            if onnx:
                say("ONNX")
                made = onnx_model.to_onnx(network, inputs[1])
                (place / ONNX).write_bytes(made)
                session = onnx_model.session_of(made)
                onnx_error = onnx_model.largest_error(session, network, inputs)
                say("latency")
                timing = onnx_model.latency(session, inputs[0])
        checked = Exported([], code_error, onnx_error, timing)
        (place / CARD).write_text(card(subject, checked, real is not None), encoding="utf-8")
        names = [standalone.MODEL, standalone.WEIGHTS, *([ONNX] if onnx else []), CARD]
        files = [(place / file).replace(folder / file) for file in names]
    return Exported(files, code_error, onnx_error, timing)


def _inputs(shape: Shape, real: Tensor | None) -> list[Tensor]:
    """Batches of different sizes: white noise, pink noise where it can be made, and what was given."""
    rng = torch.Generator().manual_seed(0)
    drawn = [torch.randn(count, *shape, generator=rng) for count in (1, 2, 3)]
    if len(shape) == 3:
        drawn.append(pink(shape, 2, 4, 1, 0).part(0)[0])
    return drawn if real is None else [*drawn, real]


def _code_error(module: PlanModule, network: torch.nn.Module, inputs: Sequence[Tensor]) -> float:
    with torch.inference_mode():
        error = max(float((module(x) - network(x)).abs().max()) for x in inputs)
    if not error < onnx_model.TOLERANCE:
        raise MachineError(f"The printed code differs from the network by {error:.2g}: this is a mistake of ours.")
    return error
