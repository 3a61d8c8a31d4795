"""What one proxy gets to see of one pass of one network."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from epochzero.engine.network import Handle


class Trace:
    """The reads that a proxy asked for, by name; see `epochzero.engine.passes` for what each one is."""

    weights: list[Tensor]
    gradients: list[Tensor]
    parameters: list[Tensor]
    parameter_gradients: list[Tensor]
    labels: Tensor
    kernel_loss: Tensor
    kernel_label: Tensor
    kernel_sum: Tensor
    kernel_outputs: Tensor
    hessian_gradients: list[Tensor]
    log_gradients: list[Tensor]
    input_gradients: Tensor
    logits: Tensor
    loss: Tensor
    velocity: Tensor
    acceleration: Tensor
    params: int
    seed: int
    flops: int
    layers: list[Any]
    blocks: list[Any]
    relus: list[Any]
    layer_gradients: list[Any]
    network: Handle

    def __init__(self, reads: dict[str, Any]) -> None:
        self.__dict__.update(reads)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"this pass was not asked for '{name}': add it to the proxy's needs")
