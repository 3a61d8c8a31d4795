"""The network as an ONNX model for batches of any size, compared with PyTorch by ONNX Runtime."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from epochzero.errors import MachineError, UserError
from epochzero.hardware.meters import quietly
from epochzero.hardware.timing import RUNS, WARM_UP, Timing, summed_up

TOLERANCE = 1e-4
"""largest difference of any output"""
PACKAGES = ("onnx", "onnxscript", "onnxruntime")


def check_packages() -> None:
    """UserError if a package is missing."""
    for package in PACKAGES:
        if importlib.util.find_spec(package) is None:
            raise UserError(f"ONNX needs {package}: pip install 'epochzero[onnx]', or export with --no-onnx.")


def to_onnx(
    network: nn.Module,
    *example: Tensor,
    names: Sequence[str] = ("x",),
    free: Sequence[str] = ("batch",),
    metadata: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """The model as bytes, inputs of these names [batch, ...] and output `y` [batch, ...]; `free` axes come first."""
    with quietly():
        axes = {place: torch.export.Dim(name) for place, name in enumerate(free)}
        # strict keeps len(x) of a tensor free
        program = torch.export.export(network, example, dynamic_shapes=(axes,) * len(example), strict=True)
        made = torch.onnx.export(program, dynamo=True, verbose=False, input_names=names, output_names=["y"])
    assert made is not None
    model = made.model_proto
    describe(model, metadata)
    return bytes(model.SerializeToString())


def describe(model: Any, metadata: Mapping[str, str]) -> None:
    """Gives a model these texts by name."""
    for key, text in metadata.items():
        model.metadata_props.add(key=key, value=text)


def session_of(model: bytes) -> Any:
    """ONNX Runtime on the CPU, with torch's number of threads."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = torch.get_num_threads(), 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def largest_error(
    session: Any, network: nn.Module, batches: Sequence[Sequence[Tensor]], names: Sequence[str] = ("x",)
) -> float:
    """The largest difference between ONNX Runtime and PyTorch; MachineError if it is too large."""
    worst = 0.0
    for inputs in batches:
        with torch.inference_mode():
            expected = network(*inputs).numpy()  # [B, ...]
        (predicted,) = session.run(["y"], _named(inputs, names))
        if predicted.shape != expected.shape:
            raise MachineError(
                f"The ONNX model gives {list(predicted.shape)} where PyTorch gives {list(expected.shape)}."
            )
        error = float(np.abs(predicted - expected).max())
        if not error < TOLERANCE:
            raise MachineError(
                f"The ONNX model is refused: it differs from PyTorch by {error:.2g}, more than {TOLERANCE:g}, on a "
                f"batch of {len(inputs[0])}, where outputs are up to {np.abs(expected).max():.2g}. Export with "
                "--no-onnx."
            )
        worst = max(worst, error)
    return worst


def check_error(error: float, file: str) -> None:
    """MachineError if a further file differs too much from the network."""
    if not error < TOLERANCE:
        raise MachineError(
            f"{file} is refused: it differs from the network by {error:.2g}, more than {TOLERANCE:g}. Leave it out of "
            "--also."
        )


def latency(session: Any, example: Sequence[Tensor], names: Sequence[str] = ("x",)) -> Timing:
    """The latency of one sample in milliseconds."""
    x = _named([part[:1] for part in example], names)
    times = []
    for _ in range(WARM_UP + RUNS):
        start = time.perf_counter()
        session.run(["y"], x)
        times.append(1e3 * (time.perf_counter() - start))
    return summed_up(times[WARM_UP:])


def _named(inputs: Sequence[Tensor], names: Sequence[str]) -> dict[str, Any]:
    return {name: part.numpy() for name, part in zip(names, inputs, strict=True)}
