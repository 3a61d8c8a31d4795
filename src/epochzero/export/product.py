"""Writes a network as a product: code, weights, checked ONNX and a model card."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

import torch
from torch import Tensor, nn

from epochzero.data import pink
from epochzero.errors import MachineError, UserError
from epochzero.export import formats, onnx_model, standalone
from epochzero.export.card import card
from epochzero.export.preprocessing import Preprocessing
from epochzero.export.subject import Subject, input_names
from epochzero.files import work_folder
from epochzero.hardware.timing import Timing
from epochzero.plan import Plan
from epochzero.plan.ops.embedding import Embedding
from epochzero.train.image_data import Images
from epochzero.train.tensor_file import as_bytes

ONNX, CARD = "model.onnx", "MODEL_CARD.md"


@dataclass(frozen=True)
class Exported:
    """The files of a product, and the errors of its checks."""

    files: list[Path]
    code_error: float
    """the largest difference between `model.py` and the network that was searched and trained"""
    onnx_error: float | None = None
    """the largest difference between ONNX Runtime and `model.py`; None without ONNX"""
    latency: Timing | None = None
    """of one sample in ONNX Runtime on this machine"""
    accuracy: tuple[int, int] | None = None
    """right answers of `model.py`, of how many test images; None without the images of the training"""
    further: list[formats.Measured] = field(default_factory=list)
    """the files of `also`"""


@dataclass(frozen=True)
class Wanted:
    """The parts of a product besides code, weights and card."""

    onnx: bool = True
    also: Sequence[str] = ()
    """further files by the names in `formats.py`"""
    images: Images | None = None
    """of the training, to measure accuracies on, and to calibrate"""
    say: Callable[[str], None] = lambda step: None


def export(
    subject: Subject,
    folder: Path,
    *,
    real: Tensor | tuple[Tensor, ...] | None = None,
    onnx: bool = True,
    also: Sequence[str] = (),
    images: Images | None = None,
    say: Callable[[str], None] = lambda step: None,
    more: Mapping[str, str] = MappingProxyType({}),
) -> Exported:
    """Writes code, weights, ONNX and card to an existing folder, after all agree on random and `real` inputs.

    `also` names further files (`formats.py`); `images` are those of the training. `more` are the texts of other files.
    """
    preprocessing = Preprocessing.of_training((subject.training or {}).get("identity"))
    module = subject.plan.module().eval()
    module.load_state_dict(subject.weights)
    return write_product(
        module,
        standalone.source(subject.plan, preprocessing),
        subject.weights,
        folder,
        lambda checked: card(subject, checked, real is not None),
        batches=_batches(subject.plan, real),
        wanted=Wanted(onnx, also, images, say),
        preprocessing=preprocessing,
        names=input_names(subject.plan),
        more=more,
    )


def write_product(
    module: nn.Module,
    source: str,
    weights: Mapping[str, Tensor],
    folder: Path,
    card_of: Callable[[Exported], str],
    *,
    batches: Sequence[tuple[Tensor, ...]],
    wanted: Wanted,
    preprocessing: Preprocessing | None = None,
    names: Sequence[str] = ("x",),
    more: Mapping[str, str] = MappingProxyType({}),
    binary: Mapping[str, bytes] = MappingProxyType({}),
) -> Exported:
    """Writes all files of a product, or none. Printed code and ONNX are checked against `module`.

    `binary` are files that the code reads: ONNX is then made of `module`, else of the network as the code loads it.
    """
    onnx, say, images = wanted.onnx, wanted.say, wanted.images
    if wanted.also and len(names) > 1:
        raise UserError("Further files are for networks with one input: leave --also out.")
    formats.check_formats(wanted.also, onnx, preprocessing, images)
    if onnx:
        onnx_model.check_packages()
    tests = None if images is None else _tests(images)
    with work_folder(folder) as place:
        say(standalone.MODEL)
        (place / standalone.MODEL).write_text(source, encoding="utf-8")
        (place / standalone.WEIGHTS).write_bytes(as_bytes(weights))
        for file, content in binary.items():
            (place / file).write_bytes(content)
        onnx_error, timing, model, further = None, None, None, []
        with standalone.loaded(place) as network:
            printed = module if binary else network
            code_error = _code_error(module, network, batches)
            if onnx:
                say("ONNX")
                described = preprocessing.metadata if preprocessing else {}
                model = onnx_model.to_onnx(printed, *batches[1], names=names, metadata=described)
                (place / ONNX).write_bytes(model)
                session = onnx_model.session_of(model)
                onnx_error = onnx_model.largest_error(session, network, batches, names)
                say("latency")
                timing = onnx_model.latency(session, batches[0], names)
            for name in wanted.also:
                say(name)
                given = formats.Given(printed, batches[1][0], model, preprocessing, images)
                further.append(formats.written(name, given, place, tests))
            with torch.inference_mode():
                right = None if tests is None else formats.accuracy(network, *tests)
        checked = Exported([], code_error, onnx_error, timing, right, further)
        for file, text in {**more, CARD: card_of(checked)}.items():
            (place / file).write_text(text, encoding="utf-8")
        written = [standalone.MODEL, standalone.WEIGHTS, *binary, *([ONNX] if onnx else []), *more, CARD]
        written[-1:-1] = [one.file for one in further if one.file not in written]
        files = [(place / file).replace(folder / file) for file in written]
    return replace(checked, files=files)


def _tests(images: Images) -> tuple[Tensor, Tensor]:
    """Standardised test images and their labels, the first of them."""
    most = formats.TESTED
    return images.standardised(images.test_x[:most]), images.test_y[:most]


def _batches(plan: Plan, real: Tensor | tuple[Tensor, ...] | None) -> list[tuple[Tensor, ...]]:
    """Batches of different sizes: white noise or random ids, pink noise for images, and the `real` inputs."""
    rng = torch.Generator().manual_seed(0)
    drawn = [tuple(_drawn(plan, i, count, rng) for i in plan.inputs) for count in (1, 2, 3)]
    if len(plan.input_shape) == 3:
        drawn.append((pink(plan.input_shape, 2, 4, 1, 0).part(0)[0],))
    if real is not None:
        drawn.append((real,) if isinstance(real, Tensor) else real)
    return drawn


def _drawn(plan: Plan, index: int, count: int, rng: torch.Generator) -> Tensor:
    """A batch of `count` random samples for one input."""
    tables = [node.op.rows for node in plan.nodes if index in node.inputs and isinstance(node.op, Embedding)]
    if tables:
        drawn = (torch.randint(rows, (count,), generator=rng) for rows in tables[0])
        return torch.stack(list(drawn), 1)
    return torch.randn(count, *plan.nodes[index].shape, generator=rng)


def _code_error(module: nn.Module, network: nn.Module, batches: Sequence[Sequence[Tensor]]) -> float:
    with torch.inference_mode():
        error = max(float((module(*inputs) - network(*inputs)).abs().max()) for inputs in batches)
    if not error < onnx_model.TOLERANCE:
        raise MachineError(f"The printed code differs from the network by {error:.2g}: this is a bug in EpochZero.")
    return error
