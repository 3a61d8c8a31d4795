"""A module as a product: its program, weights, checked ONNX and a model card.

There is no code to print: `model.pt2` is the program that `torch.export` makes of it, and `model.py` loads that with
torch alone.
"""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import torch
from torch import Tensor, nn

from epochzero.data import white
from epochzero.data.batch import shape_text
from epochzero.engine.failure import PassFailedError
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.engine.modules.outputs import pick
from epochzero.errors import UserError
from epochzero.export.card import MADE_BY, checked, latency, table, training_of, use
from epochzero.export.formats import FORMATS, bytes_of, program
from epochzero.export.preprocessing import Preprocessing
from epochzero.export.product import Exported, Wanted, write_product
from epochzero.export.weights import Weights
from epochzero.types import Shape

PROGRAM = FORMATS["pt2"].file
SOURCE = f'''# The network as a program of PyTorch, which needs torch alone.
import pathlib

import torch
from torch import Tensor, nn


def load(path: str | pathlib.Path = pathlib.Path(__file__).with_name("{PROGRAM}")) -> torch.nn.Module:
    """The network with its weights, ready to predict: x [batch, ...] to y [batch, classes]."""
    return torch.export.load(str(path)).module()
'''


class Logits(nn.Module):
    """A module that returns only the logits of another."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, x: Tensor) -> Tensor:
        return pick(self.module(x), None)


def export_module(
    module: nn.Module,
    name: str,
    folder: Path,
    *,
    input_shape: Shape,
    weights: Weights | None = None,
    real: Tensor | None = None,
    wanted: Wanted = Wanted(),
) -> Exported:
    """Writes program, weights, ONNX and card to an existing folder, after all agree on random and `real` inputs."""
    module = deepcopy(module)
    if weights is not None:
        try:
            module.load_state_dict(dict(weights.tensors))
        except RuntimeError as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"The weights '{weights.name}' are of another network than '{name}': {reason}") from None
    network = Logits(module).eval()
    rng = torch.Generator().manual_seed(0)
    batches = [(torch.randn(count, *input_shape, generator=rng),) for count in (1, 2, 3)]
    batches += [] if real is None else [(real,)]
    wanted.say(PROGRAM)
    written, shape = _program(network, batches[1][0], name)
    preprocessing = Preprocessing.of_training((weights and weights.identity) or None)
    measured = ModuleNetwork(module, white(input_shape, 2, 2, 1, 0))
    try:
        flops = f"{measured.flops:,} for one sample"
    except PassFailedError:
        flops = "cannot be counted"

    def card(made: Exported) -> str:
        rows = {
            "parameters": f"{measured.params:,}",
            "multiply-accumulates": flops,
            "input": f"`x` [batch, {', '.join(map(str, input_shape))}], single precision",
            "output": f"`y` [batch, {', '.join(map(str, shape))}]",
            "weights": "the module's own" if weights is None else f"from {weights.name}",
            "latency": latency(made),
        }
        used = use(preprocessing, f"y = network(x)    # x [batch, {shape_text(input_shape)}]")
        training = training_of(None if weights is None else weights.training)
        parts = [f"# {name}\n", table(rows), used, training, checked(made, real is not None), MADE_BY]
        return "\n".join(parts)

    tensors = {key: tensor.detach().float().contiguous() for key, tensor in module.state_dict().items()}
    return write_product(
        network,
        SOURCE + (preprocessing.source if preprocessing else ""),
        tensors,
        folder,
        card,
        batches=batches,
        wanted=wanted,
        preprocessing=preprocessing,
        binary={PROGRAM: written},
    )


def _program(network: nn.Module, x: Tensor, name: str) -> tuple[bytes, Shape]:
    """The exported program for any number of samples, and the shape of one output."""
    try:
        with torch.no_grad():
            shape = tuple(network(x).shape[1:])
        return bytes_of(program(network, x, strict=False)), shape
    except Exception as error:
        said = (str(error).strip() or "no message").splitlines()[0]
        raise UserError(f"'{name}' cannot be exported by torch.export: {type(error).__name__}: {said}") from error
