r"""The size space of NATS-Bench: the channels of five layers, with one fixed cell.

    c1:c2:c3:c4:c5      each of 8, 16, ..., 64

The network is that of NAS-Bench-201 with one cell for each stage: a stem of c1 channels, a cell of c1, a residual
block of stride 2 to c2, a cell from c2 to c3, a residual block of stride 2 to c4, a cell from c4 to c5; batch norm,
ReLU, global pooling, classifier. If a cell changes the width, the edges from its input do so: a skip becomes a 1x1
convolution with batch norm. There are 8^5 = 32,768 architectures.

Dong, Liu, Musial, Gabrys. NATS-Bench: benchmarking NAS algorithms for architecture topology and size. TPAMI 2021.
arXiv:2009.00437
"""

from __future__ import annotations

from epochzero.errors import UserError
from epochzero.plan import Builder, Plan
from epochzero.registry import near_miss, spaces
from epochzero.spaces.base import quoted
from epochzero.spaces.nb201 import cell, check_task, head, reduction, stem
from epochzero.spaces.product import Product
from epochzero.types import Shape

CELL = ("nor_conv_3x3", "nor_conv_3x3", "nor_conv_3x3", "skip_connect", "nor_conv_3x3", "nor_conv_3x3")
"""operations in the order of nb201's edges"""

Widths = tuple[int, ...]
"""The channels of the five layers."""


class NatsSSS(Product[int]):
    """The size space of NATS-Bench."""

    name = "nats_sss"
    cell_block = "cell0"
    choices = tuple(range(8, 65, 8))
    places = 5

    def parse(self, text: str) -> Widths:
        """Returns the architecture of a string such as `16:32:32:64:64`."""
        widths = text.strip().split(":")
        if len(widths) != self.places:
            raise UserError(f"A nats_sss string is 5 widths joined by ':', not {len(widths)}: {quoted(text)}.")
        known = {str(width): width for width in self.choices}
        for width in widths:
            if width not in known:
                hint = near_miss(width, list(known))
                raise UserError(
                    f"A layer of nats_sss cannot have {quoted(width)} channels.{hint} It has 8, 16, ..., 64."
                )
        return tuple(known[width] for width in widths)

    def text(self, arch: Widths) -> str:
        return ":".join(map(str, arch))

    def plan(self, arch: Widths, num_classes: int = 10, input_shape: Shape = (3, 32, 32)) -> Plan:
        check_task(self.name, num_classes, input_shape)
        net = Builder()
        x = net.inline(stem(arch[0], input_shape), net.input(input_shape), name="stem")
        for layer, width in enumerate(arch):
            block = reduction(width, net.shape(x)) if layer % 2 else cell(CELL, width, 1, net.shape(x))
            x = net.inline(block, x, name=f"reduce{layer // 2 + 1}" if layer % 2 else f"cell{layer // 2}")
        net.inline(head(num_classes, net.shape(x)), x, name="head")
        return net.plan()


spaces.register("nats_sss", NatsSSS())
