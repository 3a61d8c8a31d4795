"""The two-layer ReLU perceptrons of SiGeo's first experiment: one hidden layer of 2, 4, ..., 48 units.

    logits = W2 relu(W1 x + b1) + b2         x: all numbers of an image, 784 of MNIST

An architecture is the number of hidden units, and its text is that number: 24 architectures. We read "two-layer" as two
layers of weights; the paper publishes no code for them.

Zheng, Liu, Fedorov, Zhang, Chen, Wen. SiGeo: sub-one-shot NAS via information theory and geometry of loss landscape.
2023. arXiv:2311.13169. Section 4.1 and appendix F.1
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from random import Random

from epochzero.data.batch import shape_text
from epochzero.errors import UserError
from epochzero.plan import Plan, chain
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.wiring import Flatten
from epochzero.registry import spaces
from epochzero.spaces.base import Architectures, check_classes, quoted
from epochzero.types import Shape

STEP = 2
HIDDEN = range(STEP, 48 + STEP, STEP)


class MLP(Architectures):
    """Perceptrons that differ only in their hidden units."""

    name = "mlp"
    cell_block = ""

    def parse(self, text: str) -> int:
        for hidden in HIDDEN:
            if text.strip() == str(hidden):
                return hidden
        raise UserError(
            f"{quoted(text)} is not an mlp: write its hidden units, an even number from {HIDDEN[0]} to {HIDDEN[-1]}."
        )

    def text(self, arch: int) -> str:
        return str(arch)

    def count(self) -> int:
        return len(HIDDEN)

    def __iter__(self) -> Iterator[int]:
        return iter(HIDDEN)

    def sample(self, rng: Random) -> int:
        return rng.choice(HIDDEN)

    def neighbours(self, arch: int) -> list[int]:
        return [hidden for hidden in (arch - STEP, arch + STEP) if hidden in HIDDEN]

    def smallest(self) -> int:
        return HIDDEN[0]

    def plan(self, arch: int, num_classes: int = 10, input_shape: Shape = (1, 28, 28)) -> Plan:
        check_classes(self.name, num_classes)
        if not math.prod(input_shape):
            raise UserError(f"mlp takes inputs such as 1x28x28, not {shape_text(input_shape)}, which is empty.")
        hidden, classifier = Linear(arch), Linear(num_classes)
        return chain(input_shape, flatten=Flatten(), hidden=hidden, relu=ReLU(), classifier=classifier)


spaces.register("mlp", MLP())
