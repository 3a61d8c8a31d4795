"""Our own GPU kernels against torch's operations in double precision; skipped where there is no GPU.

Written for `unittest`, so that a bare GPU image can run it too:

    PYTHONPATH=src python -m unittest tests.test_gpu_kernels
"""

from __future__ import annotations

import unittest
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from random import Random

import torch
import torch.nn.functional as F
from torch import Tensor

from epochzero.engine.reductions import on_together, products
from epochzero.plan import execute
from epochzero.plan.init import draw
from epochzero.plan.merge import merge
from epochzero.plan.ops import fused
from epochzero.plan.ops.lockstep import GatherSum
from epochzero.plan.tape import INPUT, Tape
from epochzero.registry import spaces
from epochzero.types import Origin

HERE = torch.cuda.is_available() and find_spec("triton") is not None
CONVS = (
    # images, maps, channels in and out, height, width, kernel, stride, padding, dilation
    (2, 3, 16, 16, 6, 6, 3, 1, 1, 1),
    (3, 3, 4, 20, 7, 5, 3, 2, 1, 1),
    (2, 2, 16, 32, 8, 8, 1, 2, 0, 1),
    (4, 5, 64, 64, 8, 8, 3, 1, 1, 1),
    (1, 2, 8, 8, 9, 9, 3, 2, 2, 2),
    (2, 1, 40, 16, 4, 4, 1, 1, 0, 1),
)


def second_derivatives(function: Callable[..., Tensor], *given: Tensor) -> list[Tensor]:
    """A function's value, gradients and Hessian's product, along fixed directions."""
    leaves = [x.detach().requires_grad_() for x in given]
    y = function(*leaves)
    along = directions(y, 1)
    first = torch.autograd.grad((y * y * along).sum(), leaves, create_graph=True)
    total = torch.stack([(g * directions(g, 2)).sum() for g in first]).sum()
    return [y, *first, *torch.autograd.grad(total, leaves)]


def directions(like: Tensor, seed: int) -> Tensor:
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(seed)).to(like)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).cuda()


@unittest.skipUnless(HERE, "there is no GPU with Triton here")
class KernelsOnAGPU(unittest.TestCase):
    """Values and derivatives."""

    def setUp(self) -> None:
        self.before = torch.backends.cudnn.allow_tf32
        torch.backends.cudnn.allow_tf32 = False

    def tearDown(self) -> None:
        torch.backends.cudnn.allow_tf32 = self.before

    def near(self, found: Sequence[Tensor], expected: Sequence[Tensor], error: float, what: object) -> None:
        for one, other in zip(found, expected, strict=True):
            right = other.detach().double()
            scale = float(right.abs().max()) or 1.0
            self.assertLess(float((one.detach().double() - right).abs().max()) / scale, error, what)

    def test_convolutions_and_their_derivatives(self) -> None:
        for images, maps, inputs, outputs, height, width, kernel, *rest in CONVS:
            x, w = noise(images, maps * inputs, height, width), noise(maps * outputs, inputs, kernel, kernel, seed=1)
            ours = second_derivatives(lambda x, w, g=(*rest, maps): fused.grouped_conv(x, w, *g), x, w)
            right = second_derivatives(lambda x, w, g=(*rest, maps): F.conv2d(x, w, None, *g), x.double(), w.double())
            self.near(ours, right, 1e-5, (maps, inputs, outputs, kernel, rest))

    def test_a_gradient_goes_through_the_relu_before_a_convolution(self) -> None:
        for images, maps, inputs, outputs, height, width, kernel, *rest in CONVS:
            before = noise(images, maps * inputs, height, width)
            w = noise(maps * outputs, inputs, kernel, kernel, seed=1)
            stride, padding, dilation = rest
            y, back = fused.recorded_conv(before.relu(), w, (stride, padding, dilation, maps))
            gradient = directions(y, 3)
            (of_x,), (of_w,) = back(gradient, [True], [True], True)
            leaves = [before.double().requires_grad_(), w.double().requires_grad_()]
            right = F.conv2d(leaves[0].relu(), leaves[1], None, stride, padding, dilation, maps)
            expected = torch.autograd.grad(right, leaves, gradient.double())
            assert of_x is not None and of_w is not None
            self.near([y, of_x, of_w], [right.detach(), *expected], 1e-5, (maps, inputs, outputs, kernel, rest))

    def test_average_pooling(self) -> None:
        for images, channels, height, width, kernel, stride, padding in (
            (2, 3, 5, 7, 3, 1, 1), (1, 2, 6, 6, 3, 2, 1), (2, 3, 8, 8, 2, 2, 0), (3, 5, 32, 32, 3, 1, 1),
        ):  # fmt: skip
            x, window = noise(images, channels, height, width), (kernel, stride, padding)
            ours = second_derivatives(lambda x, w=window: fused.box_mean(x, *w), x)
            right = second_derivatives(
                lambda x, k=kernel, s=stride, p=padding: F.avg_pool2d(x, k, s, p, count_include_pad=False), x.double()
            )
            self.near(ours, right, 1e-5, window)

    def test_gathered_sums_of_few_and_many_sources(self) -> None:
        rng = Random(0)
        for count, channels, side in ((1, 3, 5), (3, 4, 16), (11, 3, 5), (9, 16, 8)):
            sizes = [1 + i % 3 for i in range(count)]
            terms = [[(s := rng.randrange(count), rng.randrange(sizes[s])) for _ in range(n)] for n in (2, 0, 1, 9, 3)]
            sources = [noise(2, n * channels, side, side, seed=i) for i, n in enumerate(sizes)]
            op = GatherSum.of(terms, sizes)
            right = torch.zeros(2, len(terms), channels, side, side, dtype=torch.float64, device="cuda")
            for out, own in enumerate(terms):
                for s, slot in own:
                    right[:, out] += sources[s].double().view(2, sizes[s], channels, side, side)[:, slot]
            self.near([op.run(tuple(sources), ())], [right.flatten(1, 2)], 1e-6, (count, channels, side))

    def test_sums_that_proxies_take(self) -> None:
        for images, maps, channels, side in ((64, 3, 16, 32), (5, 2, 3, 7), (130, 1, 4, 9)):
            a, b = noise(images, maps, channels, side, side), noise(images, maps, channels, side, side, seed=1)
            self.near([products(a, b)], [(a.double() * b.double()).sum((3, 4))], 1e-5, images)
            on = (a > 0).double().flatten(2).movedim(1, 0)
            self.assertTrue(torch.equal(on_together(a).double(), on @ on.mT))

    def test_the_tape_gives_autograds_gradients(self) -> None:
        space, rng = spaces["nb201"], Random(3)
        plans = [space.plan(space.sample(rng), 10, (3, 16, 16)) for _ in range(5)]
        together = merge(plans)
        plan = together.plan.with_statistics("batch")
        own = [draw(one.weights, Origin()) for one in plans]
        packed = {name: torch.cat([own[p][part] for p, part in parts]).cuda() for name, parts in together.packs.items()}
        x = noise(8, 3 * len(plans), 16, 16)
        names = [name for name, param in plan.weights.items() if param.trainable]
        tape = Tape(plan, packed, (x,), names, follow_inputs=True)
        along = directions(tape.output, 4)
        found = tape.gradients(along, [*names, INPUT])
        leaves = {name: w.clone().requires_grad_(name in names) for name, w in packed.items()}
        given = x.clone().requires_grad_()
        wanted = [*(leaves[name] for name in names), given]
        output = execute(plan, leaves, (given,))
        expected = torch.autograd.grad(output, wanted, along, allow_unused=True)
        for name, right in zip([*names, INPUT], expected, strict=True):
            if right is not None and right.any():
                self.near([found[name]], [right], 1e-4, name)


if __name__ == "__main__":
    unittest.main()
