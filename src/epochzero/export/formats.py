"""Further files of a product, on request, each compared with the network, timed, and tested on the images of the
training.

    pixels        pixels.onnx       images as bytes of any size in, probabilities out: preprocessing in the graph
    pt2           model.pt2         a program of torch.export, for torch.export.load and AOTInductor
    int8          model.int8.onnx   weights and activations in 8 bits, calibrated on training images
    executorch    model.pte         a program of ExecuTorch for XNNPACK on phones
"""

from __future__ import annotations

import io
import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from epochzero.errors import UserError, needed
from epochzero.export import onnx_model
from epochzero.export.preprocessing import Preprocessing
from epochzero.hardware.timing import RUNS, WARM_UP, Timing, summed_up
from epochzero.registry import check_known
from epochzero.train.image_data import Images

CALIBRATED, TESTED = 128, 2000
"""training images that ranges of 8 bits are found on, and test images that accuracies are measured on, at most"""
LARGEST_BATCH = 64
SIZES = ((40, 50), (7, 3), (1, 1))
"""height and width of random images that `pixels.onnx` is checked on"""
Run = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Given:
    """The sources of a file."""

    network: nn.Module
    example: Tensor
    """inputs [2, ...]"""
    onnx: bytes | None
    preprocessing: Preprocessing | None
    images: Images | None


@dataclass(frozen=True)
class Format:
    file: str
    make: Callable[[Given], bytes]
    load: Callable[[Path], Run]
    exact: bool = True
    """true if it has to agree with the network as closely as ONNX"""


@dataclass(frozen=True)
class Measured:
    """A further file: its difference from the network, its time, and its accuracy."""

    file: str
    error: float
    latency: Timing
    accuracy: tuple[int, int] | None = None
    """right answers, of how many test images; None without images"""


def check_formats(names: Sequence[str], onnx: bool, preprocessing: Preprocessing | None, images: Images | None) -> None:
    """UserError for a file that cannot be made here."""
    for name in names:
        check_known(name, FORMATS, f"No further file is called '{name}'")
        if name in ("pixels", "int8") and not onnx:
            raise UserError(f"'{name}' is made of model.onnx: leave --no-onnx out.")
        if name == "pixels" and (preprocessing is None or not preprocessing.of_bytes):
            raise UserError("'pixels' needs a network that was trained on images of bytes: give such --weights.")
        if name == "int8" and images is None:
            raise UserError("'int8' needs the images of the training to calibrate on: give --weights and --data.")
        if name == "executorch":
            with quiet():
                needed("executorch.exir", "'executorch'", "executorch")


def written(name: str, given: Given, folder: Path, tests: tuple[Tensor, Tensor] | None) -> Measured:
    """Makes one file, and measures it; `tests` are standardised images and labels."""
    form = FORMATS[name]
    path = folder / form.file
    if not path.exists():  # the program of a module does
        path.write_bytes(form.make(given))
    run = form.load(path)
    x, network = given.example, given.network
    if name == "pixels":
        return _pixels_measured(path, run, given)
    outputs = run(x)
    with torch.inference_mode():
        expected = network(x)
    error = float((outputs - expected).abs().max())
    if form.exact:
        onnx_model.check_error(error, form.file)
    right = None if tests is None else accuracy(run, *tests)
    return Measured(form.file, error, timed(run, x[:1]), right)


def timed(run: Run, x: Tensor) -> Timing:
    """Milliseconds of one call."""
    times = []
    for _ in range(WARM_UP + RUNS):
        start = time.perf_counter()
        run(x)
        times.append(1e3 * (time.perf_counter() - start))
    return summed_up(times[WARM_UP:])


def accuracy(run: Run, x: Tensor, y: Tensor) -> tuple[int, int]:
    """Right answers, of how many."""
    right = 0
    for some, labels in zip(torch.split(x, LARGEST_BATCH), torch.split(y, LARGEST_BATCH), strict=True):
        right += int((run(some).argmax(1) == labels).sum())
    return right, len(y)


def program(network: nn.Module, x: Tensor, most: int | None = None, strict: bool = True) -> Any:
    """The network as torch.export has it, for any number of samples, or for `most` at most."""
    with quiet(), torch.no_grad():
        batch = torch.export.Dim("batch") if most is None else torch.export.Dim("batch", max=most)
        return torch.export.export(network, (x,), dynamic_shapes=({0: batch},), strict=strict)


def bytes_of(made: Any) -> bytes:
    """A program of torch.export as a file."""
    file = io.BytesIO()
    torch.export.save(made, file)
    return file.getvalue()


@contextmanager
def quiet() -> Iterator[None]:
    """Silences the remarks of exporters on their own working."""
    loggers = [logging.getLogger(name) for name in ("torch.export", "torchao", "root")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def _load_pt2(path: Path) -> Run:
    module = torch.export.load(str(path)).module()

    def run(x: Tensor) -> Tensor:
        with torch.inference_mode():
            return module(x)  # type: ignore[no-any-return]

    return run


def _load_onnx(path: Path) -> Run:
    session = onnx_model.session_of(path.read_bytes())
    (first,) = session.get_inputs()
    return lambda x: torch.from_numpy(session.run(None, {first.name: x.numpy()})[0])


# ---- preprocessing in the graph


def _with_pixels(given: Given) -> bytes:
    """The ONNX model behind a graph of the preprocessing, and before a softmax."""
    import onnx

    assert given.onnx is not None and given.preprocessing is not None
    how = given.preprocessing
    example = torch.zeros(2, 40, 50, how.shape[0], dtype=torch.uint8)
    before = onnx_model.to_onnx(how.module(), example, names=["pixels"], free=("batch", "height", "width"))
    first, second = onnx.load_from_string(before), onnx.load_from_string(given.onnx)
    first.ir_version = second.ir_version
    del first.metadata_props[:], second.metadata_props[:]
    joined = onnx.compose.merge_models(
        onnx.compose.add_prefix(first, "images/", rename_inputs=False, rename_outputs=True),
        second,
        io_map=[("images/y", second.graph.input[0].name)],
    )
    out = joined.graph.output[0]
    last, settings = ("Softmax", {"axis": 1}) if how.logits else ("Identity", {})
    joined.graph.node.add(name="last", op_type=last, input=[out.name], output=["probabilities"]).attribute.extend(
        onnx.helper.make_attribute(key, value) for key, value in settings.items()
    )
    out.name = "probabilities"
    onnx_model.describe(joined, how.metadata)
    return bytes(joined.SerializeToString())


def _pixels_measured(path: Path, run: Run, given: Given) -> Measured:
    """Compares on random images of odd sizes; its accuracy is that of model.onnx."""
    assert given.preprocessing is not None
    rng, before, error = torch.Generator().manual_seed(0), given.preprocessing.module(), 0.0
    for height, width in SIZES:
        x = torch.randint(256, (2, height, width, given.preprocessing.shape[0]), generator=rng, dtype=torch.uint8)
        with torch.inference_mode():
            outputs = given.network(before(x))
            expected = outputs.softmax(1) if given.preprocessing.logits else outputs
        error = max(error, float((run(x) - expected).abs().max()))
    onnx_model.check_error(error, path.name)
    height, width = given.preprocessing.shape[1:]
    return Measured(path.name, error, timed(run, x.new_zeros(1, height, width, x.shape[3])))


# ---- 8 bits


class _Calibration:
    """Batches of training images for ONNX Runtime's quantiser."""

    def __init__(self, images: Images, name: str) -> None:
        chosen = torch.randperm(len(images.x), generator=torch.Generator().manual_seed(0))[:CALIBRATED]
        self._batches = iter(torch.split(images.standardised(images.x[chosen]), 16))
        self._name = name

    def get_next(self) -> dict[str, Any] | None:
        batch = next(self._batches, None)
        return None if batch is None else {self._name: batch.numpy()}


def _quantised(given: Given) -> bytes:
    from onnxruntime import quantization
    from onnxruntime.quantization import shape_inference

    assert given.onnx is not None and given.images is not None
    with tempfile.TemporaryDirectory() as place, quiet():
        plain, folded, small = (Path(place, name) for name in ("plain.onnx", "folded.onnx", "small.onnx"))
        plain.write_bytes(given.onnx)
        shape_inference.quant_pre_process(plain, folded, skip_symbolic_shape=True)
        images = _Calibration(given.images, "x")
        quantization.quantize_static(folded, small, images, per_channel=True)
        return small.read_bytes()


# ---- ExecuTorch


def _lowered(given: Given) -> bytes:
    with quiet():
        exir = needed("executorch.exir", "'executorch'", "executorch")
        partition = needed("executorch.backends.xnnpack.partition.xnnpack_partitioner", "'executorch'", "executorch")
        made = program(given.network, given.example, LARGEST_BATCH)
        edge = exir.to_edge_transform_and_lower(made, partitioner=[partition.XnnpackPartitioner()])
        return bytes(edge.to_executorch().buffer)


def _load_executorch(path: Path) -> Run:
    with quiet():
        runtime = needed("executorch.runtime", "'executorch'", "executorch").Runtime.get()
    method = runtime.load_program(path).load_method("forward")
    return lambda x: method.execute([x.contiguous()])[0].clone()


FORMATS = {
    "pixels": Format("pixels.onnx", _with_pixels, _load_onnx),
    "pt2": Format("model.pt2", lambda given: bytes_of(program(given.network, given.example)), _load_pt2),
    "int8": Format("model.int8.onnx", _quantised, _load_onnx, exact=False),
    "executorch": Format("model.pte", _lowered, _load_executorch),
}
