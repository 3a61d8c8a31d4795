"""Meters that measure latency on this machine: the median of 31 runs, after 5 warm-up runs, with a 95 % interval.

On a GPU each run is timed between two events, and the device is waited for. Networks are in evaluation mode, without
gradients, on one fixed input. `torch` runs the ordinary module operation by operation; `onnxruntime` runs what
`torch.onnx` exports of it, as people deploy it. PyTorch's older exporter comes first: on one busy core it took 1 s for
a network of NAS-Bench-201 and the newer one 15, which has its turn where the older fails. `command:./run {onnx}` gives
the exported network to a program of the user's, which runs it anywhere and prints the milliseconds of each run.
"""

from __future__ import annotations

import importlib
import io
import logging
import math
import shlex
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from epochzero.data.batch import shape_text
from epochzero.engine.device import usable
from epochzero.engine.failure import out_of_memory
from epochzero.engine.space_networks import takes_ids
from epochzero.engine.threads import torch_threads
from epochzero.errors import UserError
from epochzero.hardware.timing import RUNS, WARM_UP, Timing, UnmeasurableError, summed_up
from epochzero.store import manifest
from epochzero.study.task import Task

MODEL, PATIENCE = "{onnx}", 600
"""the place of the model's file in a command, and the most seconds that it may take"""


@dataclass
class TorchMeter:
    """Times the module that torch runs."""

    task: Task
    size: int = 1
    """samples in one batch"""
    threads: int | None = None
    instant: bool = field(default=False, init=False)
    runtime: str = field(default="torch", init=False)
    exports: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if self.size < 1:
            raise UserError(f"Latency is measured for batches of at least 1 sample, not {self.size}.")
        self.packed = self.task.batch.layout is not None and not takes_ids(self.task.space)
        if self.packed and self.exports:
            raise UserError("ONNX is made of networks with one input of real numbers: use --latency torch, or a table.")
        usable(self.task.device)
        self.threads = self.threads or torch.get_num_threads()
        machine: Any = manifest({})["machine"]
        on_gpu = torch.device(self.task.device).type == "cuda"
        self.hardware = torch.cuda.get_device_name(self.task.device) if on_gpu else machine["cpu"] or "an unknown CPU"
        drawn = torch.Generator().manual_seed(0)
        x = torch.randn(self.size, *self.task.batch.input_shape, generator=drawn)  # [B, ...]
        if self.packed:  # ids have to be those of words
            x = self.task.batch.part(0)[0][:1].repeat(self.size, 1)
        self.x = x.to(self.task.device)

    @property
    def name(self) -> str:
        shape = f"batch {self.size} of {shape_text(self.task.batch.input_shape)}, {self.task.batch.num_classes} classes"
        noun = "thread" if self.threads == 1 else "threads"
        return f"{self.runtime} on {self.hardware}, {self.task.device}, {self.threads} {noun}, {shape}"

    @property
    def facts(self) -> Mapping[str, Any]:
        return {
            "runtime": self.runtime,
            "hardware": self.hardware,
            "device": self.task.device,
            "threads": self.threads,
            "batch": self.size,
            "input_shape": list(self.task.batch.input_shape),
            "runs": RUNS,
        }

    def __call__(self, arch: Any) -> Timing:
        module = self.task.module(arch).eval()
        try:
            with torch.inference_mode(), torch_threads(self.threads):
                return self._timed(module)
        except Exception as error:
            if isinstance(error, (UserError, UnmeasurableError)) or out_of_memory(error):
                raise
            said = (str(error).strip() or "no message").splitlines()[0]
            raise UnmeasurableError(f"{self.runtime} cannot run it ({type(error).__name__}: {said})") from error

    def _timed(self, module: nn.Module) -> Timing:
        module, x, layout = module.to(self.task.device), self.x, self.task.batch.layout
        args, named = layout.unpack(x) if self.packed and layout is not None else ((x,), {})
        return _timing(lambda: module(*args, **named), _on_gpu if x.is_cuda else _on_cpu)


class OnnxMeter(TorchMeter):
    """Times what ONNX Runtime makes of the module."""

    exports = True

    def __post_init__(self) -> None:
        super().__post_init__()
        self.runtime = "onnxruntime"
        for package in ("onnxruntime", "onnx", "onnxscript"):
            try:
                importlib.import_module(package)
            except ImportError:
                raise UserError(
                    f"Latency by ONNX Runtime needs {package}: pip install 'epochzero[onnx]', or use --latency torch."
                ) from None
        self._session: Any = importlib.import_module("onnxruntime")
        self.provider = "CUDAExecutionProvider" if self.x.is_cuda else "CPUExecutionProvider"
        if self.provider not in self._session.get_available_providers():
            raise UserError(
                f"ONNX Runtime does not run on {self.task.device} here: install onnxruntime-gpu or use --latency torch."
            )

    def _timed(self, module: nn.Module) -> Timing:
        options = self._session.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = self.threads, 1
        options.log_severity_level = 3
        session = self._session.InferenceSession(exported(module, self.x.cpu()), options, providers=[self.provider])
        bound = session.io_binding()
        device = torch.device(self.task.device)
        for given in session.get_inputs():  # none where the network is a constant
            x = self._session.OrtValue.ortvalue_from_numpy(self.x.cpu().numpy(), device.type, device.index or 0)
            bound.bind_ortvalue_input(given.name, x)
        bound.bind_output(session.get_outputs()[0].name, device.type, device.index or 0)

        def run() -> None:
            session.run_with_iobinding(bound)
            bound.synchronize_outputs()

        return _timing(run, _on_cpu)


@dataclass
class CommandMeter(TorchMeter):
    """Has a program run the exported network, on another device for example."""

    exports = True
    command: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.runtime = "command"
        try:
            self.words = shlex.split(self.command)
        except ValueError as error:
            raise UserError(f"The command {self.command!r} cannot be split into words: {error}.") from None
        if not any(MODEL in word for word in self.words[1:]):
            raise UserError(f"A latency command names the model file: write 'command:./run-on-board {MODEL}'.")
        if shutil.which(self.words[0]) is None:
            raise UserError(f"There is no program '{self.words[0]}' to run: give its path, and make it executable.")

    @property
    def name(self) -> str:
        shape = f"batch {self.size} of {shape_text(self.task.batch.input_shape)}, {self.task.batch.num_classes} classes"
        return f"command {self.command}, {shape}"

    @property
    def facts(self) -> Mapping[str, Any]:
        shape = list(self.task.batch.input_shape)
        return {"runtime": self.runtime, "command": self.command, "batch": self.size, "input_shape": shape}

    def _timed(self, module: nn.Module) -> Timing:
        with tempfile.TemporaryDirectory() as place:
            model = Path(place, "model.onnx")
            model.write_bytes(exported(module, self.x.cpu()))
            words = [word.replace(MODEL, str(model)) for word in self.words]
            try:
                done = subprocess.run(words, capture_output=True, text=True, timeout=PATIENCE, check=False)
            except subprocess.TimeoutExpired:
                raise UnmeasurableError(f"the command took more than {PATIENCE} s") from None
        if done.returncode:
            said = (done.stderr.strip() or "no message").splitlines()[-1][:200]
            raise UnmeasurableError(f"the command ended with {done.returncode}: {said}")
        try:
            times = [float(word) for word in done.stdout.split()]
        except ValueError:
            times = []
        if not times or not all(0 < milliseconds < math.inf for milliseconds in times):
            raise UnmeasurableError(
                f"the command has to print milliseconds, one number a run, and printed {done.stdout.strip()[:80]!r}"
            )
        return summed_up(times)


def exported(module: nn.Module, x: Tensor) -> bytes:
    """The module as an ONNX model."""
    with quietly(), torch.inference_mode(False), torch.no_grad():
        try:
            file = io.BytesIO()
            torch.onnx.export(module, (x.clone(),), file, dynamo=False)  # type: ignore[arg-type]
            return file.getvalue()
        except Exception:
            program = torch.onnx.export(module, (x.clone(),), dynamo=True, verbose=False)
            assert program is not None
            return bytes(program.model_proto.SerializeToString())


@contextmanager
def quietly() -> Iterator[None]:
    """Silences PyTorch's exporters; the older one prints the graph that it fails on from C++, by a private function."""
    logger, prints = logging.getLogger("torch.onnx"), vars(torch._C)
    level, printed = logger.level, prints.get("_jit_onnx_log")
    logger.setLevel(logging.ERROR)
    if printed is not None:
        prints["_jit_onnx_log"] = lambda *said: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)
        if printed is not None:
            prints["_jit_onnx_log"] = printed


def _timing(run: Callable[[], object], milliseconds: Callable[[Callable[[], object]], float]) -> Timing:
    for _ in range(WARM_UP):
        run()
    return summed_up([milliseconds(run) for _ in range(RUNS)])


def _on_cpu(run: Callable[[], object]) -> float:
    """Milliseconds by the clock; `run` returns when it is done."""
    start = time.perf_counter()
    run()
    return 1e3 * (time.perf_counter() - start)


def _on_gpu(run: Callable[[], object]) -> float:
    """Milliseconds between two events on the device."""
    torch.cuda.synchronize()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end))
