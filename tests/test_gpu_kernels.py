"""Our own GPU kernels against torch's operations in double precision; skipped where there is no GPU.

Written for `unittest`, so that a bare GPU image can run it too:

    PYTHONPATH=src python -m unittest tests.test_gpu_kernels
"""

from __future__ import annotations

import unittest
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from random import Random

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from epochzero import data
from epochzero.engine import parse, score_population
from epochzero.engine.gpu import arena, fused
from epochzero.engine.gpu.arena import Source, Terms
from epochzero.engine.gpu.fused import GatherTable
from epochzero.engine.gpu.routine_run import ScatteredMaps
from epochzero.engine.passes import Need
from epochzero.engine.population.grouped_ops import GatherSum
from epochzero.engine.population.merge import merge
from epochzero.engine.population.reductions import agreements, mark, products, variances
from epochzero.engine.population.tape import INPUT, Tape
from epochzero.engine.space_networks import network_of
from epochzero.engine.spectrum import eigenvalues, extreme_eigenvalues
from epochzero.plan import execute
from epochzero.plan.init import draw
from epochzero.registry import spaces
from epochzero.types import Origin
from tests.engine.gpu.plain_kernels import PLAIN

HERE = torch.cuda.is_available() and find_spec("triton") is not None
CONVS = (
    # images, maps, channels in and out, height, width, kernel, stride, padding, dilation
    (2, 3, 16, 16, 6, 6, 3, 1, 1, 1),
    (3, 3, 4, 20, 7, 5, 3, 2, 1, 1),
    (2, 2, 16, 32, 8, 8, 1, 2, 0, 1),
    (4, 5, 64, 64, 8, 8, 3, 1, 1, 1),
    (1, 2, 8, 8, 9, 9, 3, 2, 2, 2),
    (2, 1, 40, 16, 4, 4, 1, 1, 0, 1),
    (16, 2, 16, 16, 8, 8, 3, 1, 1, 1),
    (4, 2, 32, 32, 8, 8, 3, 1, 1, 1),
    (2, 2, 16, 32, 8, 8, 3, 2, 1, 1),
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


def numbers(*values: int) -> Tensor:
    return torch.tensor(values, dtype=torch.int32).cuda()


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
            columns = np.array([(out, *pair) for out, own in enumerate(terms) for pair in own]).T
            op = GatherSum(GatherTable(len(terms), tuple(sizes), *columns))
            right = torch.zeros(2, len(terms), channels, side, side, dtype=torch.float64, device="cuda")
            for out, own in enumerate(terms):
                for s, slot in own:
                    right[:, out] += sources[s].double().view(2, sizes[s], channels, side, side)[:, slot]
            self.near([op.run(tuple(sources), ())], [right.flatten(1, 2)], 1e-6, (count, channels, side))

    def test_sums_that_proxies_take(self) -> None:
        for images, maps, channels, side in ((64, 3, 16, 32), (5, 2, 3, 7), (130, 1, 4, 9)):
            a, b = noise(images, maps, channels, side, side), noise(images, maps, channels, side, side, seed=1)
            self.near([products(a, b)], [(a.double() * b.double()).sum((3, 4))], 1e-5, images)
            signs = torch.where(a > 0, 1.0, -1.0).double().flatten(2).movedim(1, 0)
            agreed = (signs @ signs.mT + signs.shape[2]) / 2
            self.assertTrue(torch.equal(agreements(a).double(), agreed))
            lying = ScatteredMaps(Source(a.permute(1, 0, 3, 4, 2).contiguous()), numbers(*range(maps)))
            self.assertTrue(torch.equal(agreements(lying).double(), agreed))
            other = ScatteredMaps(Source(b.permute(1, 0, 3, 4, 2).contiguous()), numbers(*range(maps)))
            self.near([products(lying, other)], [(a.double() * b.double()).sum((3, 4))], 1e-5, images)
            self.near([variances(lying)], [a.double().var((0, 3, 4))], 1e-5, images)

    def test_patterns_are_marked(self) -> None:
        arena = noise(4, 6, 9, 9, 5)
        owners, slots = numbers(1, 0, 1), numbers(3, 0, 2)
        found, right = (torch.zeros(2, 2**6, dtype=torch.uint8, device="cuda") for _ in range(2))
        mark(found, owners, ScatteredMaps(Source(arena), slots))
        mark(right, owners, arena[slots].permute(1, 0, 4, 2, 3))
        self.assertTrue(torch.equal(found, right))

    def test_eigenvalues(self) -> None:
        for size in (2, 16, 32, 33, 64):
            x = noise(5, 200, size).double() * torch.logspace(0, -6, size, dtype=torch.float64, device="cuda")
            matrices = torch.cat([x.mT @ x, torch.zeros(1, size, size, dtype=torch.float64, device="cuda")])
            expected = torch.linalg.eigvalsh(matrices)
            self.near([eigenvalues(matrices)], [expected], 1e-12, size)
            ends = torch.func.vmap(extreme_eigenvalues)(matrices)
            self.near([torch.stack(ends)], [expected[:, [0, -1]].T], 1e-12, size)
            matrices[0, 0, 0], matrices[1, 0, 0] = torch.inf, torch.nan
            self.assertTrue(bool(eigenvalues(matrices[:2]).isnan().all()), "a number for a matrix without any")

    def test_operations_on_maps_of_an_arena_with_odd_sides(self) -> None:
        self.compare_operations(CONVS[1])

    def test_operations_on_maps_of_an_arena_with_64_channels(self) -> None:
        self.compare_operations(CONVS[3])

    def test_operations_on_maps_of_an_arena_with_16_images(self) -> None:
        self.compare_operations(CONVS[6])

    def test_operations_on_maps_of_an_arena_with_32_channels(self) -> None:
        self.compare_operations(CONVS[7])

    def test_operations_on_maps_of_an_arena_with_a_stride(self) -> None:
        self.compare_operations(CONVS[8])

    def compare_operations(self, *sizes: tuple[int, ...]) -> None:
        """In both precisions, against plain ones in double precision; maps lie anywhere, weights too."""
        kernels, plain, maps, outside = arena.kernels(), PLAIN, 4, 2
        slots, which, own = numbers(2, -1, 0, -2), numbers(1, 0, 3, 2), numbers(3, 1, 0, 2)
        for images, _, inputs, outputs, height, width, kernel, *rest in sizes:
            window = (kernel, *rest)
            size = F.conv2d(noise(1, 1, height, width), noise(1, 1, kernel, kernel), None, *rest).shape[2:]
            given = [noise(n, images, height, width, inputs, seed=n) for n in (3, outside)]
            moving = [noise(n, images, height, width, inputs, seed=9 + n) for n in (3, outside)]
            weights = [noise(maps * outputs, inputs, kernel, kernel, seed=s) for s in (1, 2)]
            gradients = [noise(maps, images, *size, outputs, seed=s) for s in (3, 4)]
            affine = [noise(maps * outputs, seed=s) for s in (5, 6)]
            for relu in (False, True):
                runs = []
                for kind, ops in ((torch.float32, kernels), (torch.float64, kernels), (torch.float64, plain)):
                    x, v = (Source(*(one.to(kind) for one in two)) for two in (given, moving))
                    w, g = [one.to(kind) for one in weights], [one.to(kind) for one in gradients]
                    scale, shift = (one.to(kind) for one in affine)
                    out, along, back, back_along = (torch.empty_like(g[0]) for _ in range(4))
                    sent, sent_along = (x.arena.new_empty(maps, *x.arena.shape[1:]) for _ in range(2))
                    moments = ops.convolve(out, x, slots, w[0], which, window, relu, True)
                    coefficients, statistics = (out.new_empty(maps, 2, outputs) for _ in range(2))
                    pixels = out[0].numel() // outputs
                    ops.settle(coefficients, statistics, moments, pixels, scale, shift, which, 1e-5)
                    ops.convolve_jvp(along, (x, v), slots, w, which, window, relu)
                    ops.convolve_back(sent, g[0], w[0], which, window, x if relu else None, slots)
                    ops.convolve_back_jvp(sent_along, g, w, which, window, x if relu else None, slots)
                    arrived = Source(g[0]), Source(g[1])
                    of = ops.norm_back(back, out, own, arrived[0], which, statistics, own, scale, which)
                    ops.norm_back_jvp(
                        (back, back_along), out, own, along, arrived, which, statistics, own, scale, which
                    )
                    of += (
                        ops.correlate(x, slots, relu, g[0], window),
                        ops.correlate_jvp((x, v), slots, relu, g, window),
                    )
                    runs.append([out, coefficients, statistics, along, sent, sent_along, back, back_along, *of])
                self.near(runs[0], runs[2], 1e-4, (window, inputs, outputs, relu))
                self.near(runs[1], runs[2], 1e-11, (window, inputs, outputs, relu, "double"))

    def test_sums_and_means_of_maps_of_an_arena(self) -> None:
        kernels, plain = arena.kernels(), PLAIN
        x = Source(noise(4, 2, 6, 6, 5), noise(2, 2, 6, 6, 5, seed=1))
        terms = Terms(numbers(0, 2, 2, 5), numbers(0, -1, 3, 2, -2), numbers(-1, 0, 1, -1, 1))
        for coefficients in (None, noise(2, 2, 5, seed=2)):
            ours, right = torch.empty(3, 2, 6, 6, 5, device="cuda"), torch.empty(3, 2, 6, 6, 5, device="cuda")
            kernels.combine(ours, x, terms, coefficients)
            plain.combine(right, x, terms, coefficients)
            self.near([ours], [right], 1e-6, coefficients is None)
        rows = Source(noise(3, 5, 8, 8, 16), noise(2, 5, 8, 8, 16, seed=1))
        for transposed in (False, True):
            ours, right = (torch.empty(3, 5, 8, 8, 16, device="cuda") for _ in range(2))
            kernels.pool(ours, rows, numbers(1, -2, 0), (3, 1, 1, 1), transposed)
            plain.pool(right, rows, numbers(1, -2, 0), (3, 1, 1, 1), transposed)
            self.near([ours], [right], 1e-6, ("row by row", transposed))
        for window in ((3, 1, 1, 1), (2, 2, 0, 1), (3, 2, 1, 1)):
            small = F.avg_pool2d(noise(1, 1, 6, 6), *window[:3]).shape[2:]
            for transposed, given, size in ((False, x, small), (True, Source(noise(3, 2, *small, 5)), (6, 6))):
                ours, right = (torch.empty(3, 2, *size, 5, device="cuda") for _ in range(2))
                slots = numbers(2, 0, 1)
                kernels.pool(ours, given, slots, window, transposed)
                plain.pool(right, given, slots, window, transposed)
                self.near([ours], [right], 1e-6, (window, transposed))

    def test_populations_score_as_their_members_do_alone_with_gradients(self) -> None:
        self.compare_populations("snip", "fisher", "synflow", "az_trainability")

    def test_populations_score_as_their_members_do_alone_with_second_derivatives(self) -> None:
        self.compare_populations("grasp")

    def test_populations_score_as_their_members_do_alone_with_kernels(self) -> None:
        self.compare_populations("ntk_cond", "jacov")

    def test_populations_score_as_their_members_do_alone_without_gradients(self) -> None:
        self.compare_populations("naswot", "zen", "dextr")

    def compare_populations(self, *texts: str) -> None:
        """In double precision, by routines and by tapes."""
        space, rng = spaces["nb201"], Random(5)
        batch = data.load("pink", input_shape=(3, 8, 8), num_classes=10, size=16)
        networks = [network_of(space, space.sample(rng), batch, device="cuda") for _ in range(5)]
        for text in texts:
            exact = replace(
                parse(text), needs_of=[Need(replace(n.run, dtype="float64"), n.reads) for n in parse(text).needs]
            )
            together, alone = (score_population(networks, [exact], batch, 0, how) for how in ("always", "never"))
            for one, other in zip(together, alone, strict=True):
                ours, right = one.scores[text], other.scores[text]
                self.assertEqual((ours.status, ours.why), (right.status, right.why), text)
                if right.ok:
                    self.assertLess(abs(ours.value - right.value), 1e-6 * max(1.0, abs(right.value)), text)

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
