"""Exports one member of every vision space and compares model.py and ONNX Runtime with the network.

    python benchmarks/exports.py --data ../shared/data/cifar10.npz
    python benchmarks/exports.py --spaces darts,autoformer_tiny --member smallest

Batch norms first see one batch, as a training would show them, so that outputs are of ordinary size. The check runs on
white and pink noise and, with --data, on its images, resized to what the space takes. Then every model.py is run in a
process that can import torch, what torch needs, and nothing else. One line of JSON for each space.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from epochzero import data
from epochzero.errors import MachineError
from epochzero.export import Subject, export
from epochzero.registry import spaces
from epochzero.types import Shape

CIFAR = ("nb201", "nats_sss", "nb101", "nb1shot1_s1", "nb1shot1_s2", "nb1shot1_s3", "resnet", "darts")
LARGE = ("mobilenet", "darts_imagenet", "autoformer_tiny")
TRANSNAS = tuple(f"transnas_{level}{task}" for level in ("micro", "macro") for task in ("", "_scene", "_jigsaw"))

ALONE = """
import json, sys
needs = {"torch", "torchgen", "functorch", "typing_extensions", "sympy", "mpmath", "networkx", "jinja2", "filelock"}
class TorchAlone:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in sys.stdlib_module_names | needs | {"model"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, TorchAlone())
sys.path.insert(0, sys.argv[1])
import torch
from model import load
x = torch.sin(torch.arange(torch.Size([2, *json.loads(sys.argv[2])]).numel())).reshape(2, *json.loads(sys.argv[2]))
with torch.no_grad():
    print(json.dumps(load()(x).tolist()))
"""


def resized(images: Tensor, shape: Shape) -> Tensor:
    """Images [N, 3, h, w] as inputs [B, ...]; a puzzle of several takes an image for each piece."""
    sized = F.interpolate(images, shape[-2:], mode="bilinear")  # [N, 3, H, W]
    return sized[:4] if len(shape) == 3 else sized[: 2 * shape[0]].reshape(2, *shape)


def measured(name: str, member: str, images: Tensor | None, folder: Path, onnx: bool) -> dict[str, Any]:
    """Export one member to a folder; what was found, or why not."""
    space = spaces[name]
    arch = space.smallest() if member == "smallest" else space.sample(Random(0))
    subject = Subject.of(space, arch)
    shape = subject.plan.input_shape
    real = None if images is None else resized(images, shape)
    module = subject.plan.module()
    with torch.no_grad():
        module(torch.randn(4, *shape, generator=torch.Generator().manual_seed(0)) if real is None else real)
    module.eval()
    seen = Subject(subject.space, subject.arch, subject.plan, dict(module.state_dict()), "drawn; norms saw one batch")
    found: dict[str, Any] = {"space": name, "params": subject.plan.params, "input": list(shape)}
    start = time.perf_counter()
    try:
        made = export(seen, folder, real=real, onnx=onnx)
    except MachineError as error:
        return found | {"refused": str(error)}
    seconds = time.perf_counter() - start
    x = torch.sin(torch.arange(torch.Size([2, *shape]).numel())).reshape(2, *shape)
    with torch.inference_mode():
        expected = module(x)
    program = [sys.executable, "-I", "-W", "ignore", "-c", ALONE, str(folder), json.dumps(shape)]
    alone = subprocess.run(program, capture_output=True, text=True, check=True).stdout
    return found | {
        "largest_output": float(expected.abs().max()),
        "code_error": made.code_error,
        "onnx_error": made.onnx_error,
        "alone_error": float((torch.tensor(json.loads(alone)) - expected).abs().max()),
        "latency_ms": None if made.latency is None else made.latency.median,
        "seconds": round(seconds, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--spaces", default=",".join((*CIFAR, *LARGE, *TRANSNAS)))
    parser.add_argument("--member", choices=("random", "smallest"), default="random")
    parser.add_argument("--data", help="images for the check, of any size")
    parser.add_argument("--no-onnx", action="store_true")
    asked = parser.parse_args()
    images = None if asked.data is None else data.load(asked.data, size=20, parts=1).part(0)[0]
    for name in asked.spaces.split(","):
        with TemporaryDirectory() as folder:
            print(json.dumps(measured(name, asked.member, images, Path(folder), not asked.no_onnx)), flush=True)


if __name__ == "__main__":
    main()
