r"""Networks written as strings of blocks, as in ZenNAS, ZiCo and AZ-NAS: the base of `mobilenet` and `resnet`.

    SuperConvK3BNRELU(3,8,2,1)SuperResIDWE6K3(8,32,2,8,1)...SuperConvK1BNRELU(128,2048,1,1)

    convolution (in,out,stride,1)        body block (in,out,stride,bottleneck,sub-layers)

A network is a first convolution, body blocks, and a last 1x1 convolution. Widths are multiples of 8 up to 2,048. ZenNAS
starts from one structure and changes one block per step: any kind of block; widths times 2.5, 2, 1.5, 1.25 or their
inverses, rounded to 8; up to two sub-layers more or fewer. A block that reaches 6 sub-layers splits into two, of 3 and
the rest, the second of stride 1. The space is everything that such moves reach: at most `max_layers` sub-layers in all,
including the two convolutions; 1 to 5 in each body block; the strides of the first structure in order, with blocks of
stride 1 after any of them. (A block splits while every other has a sub-layer, so the body has at most max_layers - 6
blocks.)

ZenNAS has no sampler. Call the strides and sub-layers of all blocks a *skeleton*; `sample` draws independently
    a skeleton, uniformly over all skeletons;
    for each block its kind uniformly, its width and bottleneck uniformly on a log scale, P(8 k) ~ 1 / k, up to 512,
    the widest of the networks that ZenNAS and ZiCo report.
(With uniform widths nearly every network would be huge, and uniform over all structures nearly every network would have
the most blocks.) ZenNAS's own method, a walk from the first structure, is `walk`. Unlike its code, `mutate` does not
favour the kinds that are listed early.

Lin, Wang, Sun, Chen, Sun, Qian, Li, Jin. Zen-NAS: a zero-shot NAS for high-performance image recognition. ICCV 2021.
arXiv:2102.01063. Code: idstcv/ZenNAS, SearchSpace/ and PlainNet/.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import accumulate, product
from random import Random

from epochzero.errors import UserError
from epochzero.plan import Plan
from epochzero.registry import check_known
from epochzero.spaces.base import check_images, quoted
from epochzero.spaces.block_networks import Arch, Block, SubLayer, network, size, zennas_flops, zennas_params
from epochzero.spaces.budget import Size
from epochzero.types import Shape

FIRST, LAST = "SuperConvK3BNRELU", "SuperConvK1BNRELU"
STEP = 8
"""common divisor of all widths"""
WIDEST = 2048
WIDTHS = range(STEP, 512 + 1, STEP)
"""widths that `sample` draws"""
LOG_SCALE = list(accumulate(1 / width for width in WIDTHS))
FACTORS = (2.5, 2, 1.5, 1.25, 1, 1 / 1.25, 1 / 1.5, 1 / 2, 1 / 2.5)
SPLIT = 6
"""number of sub-layers at which a block splits into two"""
WRITTEN = re.compile(r"([A-Za-z]\w*)\(([^()]*)\)", re.ASCII)
NUMBER = re.compile(r"[1-9][0-9]{0,5}")


@dataclass(frozen=True, eq=False)
class BlockStrings:
    """A space of block strings."""

    name: str
    kinds: tuple[str, ...]
    """kinds of body blocks, the smallest first"""
    sub_layer: SubLayer
    start: str
    """structure that ZenNAS starts from"""
    max_layers: int
    free_last: bool
    """True if the width of the last convolution is searched"""
    classes: int
    """number of classes in its papers, the default of `plan`"""
    side: int
    """side of the images in its papers, the default of `plan`"""

    about: str = "a space of block strings"
    """one line for lists"""

    cell_block = ""
    """empty for the whole network, since blocks differ"""

    # Text

    def parse(self, text: str) -> Arch:
        """Returns the architecture that a string of blocks describes."""
        arch = self._read(text)
        (first, *body, last), (begin, *between, end) = arch, self.initial
        ends = (first.stride, first.layers, last.stride, last.layers)
        if ends != (begin.stride, 1, end.stride, 1):
            raise UserError(
                f"The ends of {self.name} have strides {begin.stride} and {end.stride}, and 1 sub-layer each."
            )
        if not self.free_last and last.width != end.width:
            raise UserError(f"The last convolution of {self.name} has {end.width:,} channels, not {last.width:,}.")
        for block in arch if self.free_last else arch[:-1]:
            self._check(block)
        strides, begins = [block.stride for block in body], between[0].stride
        if strides[0] != begins or strides.count(2) != self._halvings or not {1, 2}.issuperset(strides):
            raise UserError(
                f"Body strides of {self.name} begin with {begins}, and {self._halvings} of them are 2 and the rest "
                f"1, not {quoted(str(strides))}."
            )
        if layers_of(arch) > self.max_layers or len(body) > self.max_blocks:
            raise UserError(
                f"A {self.name} network has at most {self.max_layers} sub-layers, the two ends included, and "
                f"{self.max_blocks} body blocks; this one has {layers_of(arch)} and {len(body)}."
            )
        return arch

    def _read(self, text: str) -> Arch:
        """Returns the blocks of a text, checked one by one and against the channels of the block before."""
        arch: list[Block] = []
        known = [FIRST, LAST, *self.kinds]
        text, at, channels = text.strip(), 0, 3
        while at < len(text) or not arch:
            match = WRITTEN.match(text, at)
            if match is None:
                raise UserError(
                    f"A {self.name} string is a row of blocks such as {FIRST}(3,8,2,1); not {quoted(text[at:])}."
                )
            kind, written = match[1], match[2].split(",")
            check_known(kind, known, f"{self.name} has no block {quoted(kind)}", "It has")
            body = kind in self.kinds
            if len(written) != (5 if body else 4) or not all(NUMBER.fullmatch(number) for number in written):
                wanted = "(in,out,stride,bottleneck,sub-layers)" if body else "(in,out,stride,1)"
                raise UserError(f"{quoted(match[0])} should be written as {kind}{wanted} with whole numbers.")
            taken, width, stride, *bottleneck, layers = map(int, written)
            if taken != channels:
                raise UserError(f"{match[0]} should take the {channels} channels of the block before, not {taken}.")
            arch.append(Block(kind, width, stride, bottleneck[0] if body else 0, layers))
            channels, at = width, match.end()
        kinds = [block.kind in self.kinds for block in arch]
        if len(arch) < 3 or (arch[0].kind, arch[-1].kind) != (FIRST, LAST) or not all(kinds[1:-1]):
            raise UserError(f"A {self.name} string is {FIRST}, then body blocks, then {LAST}, not {quoted(text)}.")
        return tuple(arch)

    def _check(self, block: Block) -> None:
        for width in (block.width, block.bottleneck):
            if width % STEP or width > WIDEST:
                raise UserError(
                    f"Widths of {self.name} are multiples of {STEP} up to {WIDEST:,}; a {block.kind} has {width:,}."
                )
        if block.layers >= SPLIT:
            raise UserError(
                f"A {block.kind} has {block.layers} sub-layers; {self.name} writes a block of {SPLIT} or more as two."
            )

    def text(self, arch: Arch) -> str:
        taken = (3, *(block.width for block in arch))
        return "".join(
            f"{kind}({c},{width},{stride},{f'{bottleneck},' if bottleneck else ''}{layers})"
            for c, (kind, width, stride, bottleneck, layers) in zip(taken, arch, strict=False)
        )

    @cached_property
    def initial(self) -> Arch:
        return self._read(self.start)

    @property
    def max_blocks(self) -> int:
        return self.max_layers - SPLIT

    @cached_property
    def _halvings(self) -> int:
        return sum(block.stride == 2 for block in self.initial[1:-1])

    def count(self) -> int:
        """Returns the number of architectures, with widths and bottlenecks at all multiples of 8 up to 2,048."""
        widths = WIDEST // STEP
        block, ends = len(self.kinds) * widths**2, widths**2 if self.free_last else widths
        return ends * sum(many * math.prod([block] * n) for n, many in self._skeletons.items())

    @cached_property
    def _skeletons(self) -> dict[int, int]:
        later = self._halvings - (self.initial[1].stride == 2)
        blocks = range(1, self.max_blocks + 1)
        return {n: math.comb(n - 1, later) * ways(n, self.max_layers - 2) for n in blocks}

    # Draws

    def sample(self, rng: Random) -> Arch:
        """Draws a skeleton uniformly, kinds uniformly, widths uniformly on a log scale."""
        begin, second, *_, end = self.initial
        later = self._halvings - (second.stride == 2)
        n = rng.choices(tuple(self._skeletons), tuple(self._skeletons.values()))[0]
        halving = set(rng.sample(range(1, n), later))
        left, body = self.max_layers - 2, []
        for i in range(n):
            options = range(1, SPLIT)
            layers = rng.choices(options, [ways(n - i - 1, left - here) for here in options])[0]
            left -= layers
            body.append(self._drawn(2 if i in halving else 1 if i else second.stride, layers, rng))
        last = end._replace(width=self._width(rng)) if self.free_last else end
        return (begin._replace(width=self._width(rng)), *body, last)

    def _drawn(self, stride: int, layers: int, rng: Random) -> Block:
        return Block(rng.choice(self.kinds), self._width(rng), stride, self._width(rng), layers)

    def _width(self, rng: Random) -> int:
        return rng.choices(WIDTHS, cum_weights=LOG_SCALE)[0]

    def redraw(self, arch: Arch, rng: Random) -> Arch:
        """Takes a step of a walk that keeps the distribution of `sample`; it may stay in place.

        A block gets a new width, bottleneck or kind, or another number of sub-layers; or a block of stride 1 and one
        sub-layer is added or removed. A step and its reverse are equally likely, except for the probability of the new
        values.
        """
        n, chance = len(arch) - 2, rng.random()
        if chance < 0.5:
            at = rng.randrange(n + 1 + self.free_last)
            return _put(arch, at, self._another(arch[at], rng))
        if chance < 0.75:
            at = rng.randrange(1, n + 1)
            changed = _put(arch, at, arch[at]._replace(layers=rng.randrange(1, SPLIT)))
            return changed if layers_of(changed) <= self.max_layers else arch
        at = rng.randrange(2, self.max_blocks + 1)
        before, after = arch[:at], arch[at:]
        if rng.random() < 0.5:
            room = at <= n + 1 and n < self.max_blocks and layers_of(arch) < self.max_layers
            return (*before, self._drawn(1, 1, rng), *after) if room else arch
        spare = at <= n and arch[at].stride == arch[at].layers == 1
        return (*before, *after[1:]) if spare else arch

    def _another(self, block: Block, rng: Random) -> Block:
        what = rng.randrange(3) if block.bottleneck else 0
        if what == 2:
            return block._replace(kind=rng.choice(self.kinds))
        return block._replace(bottleneck=self._width(rng)) if what else block._replace(width=self._width(rng))

    def walk(self, rng: Random, moves: int = 100, fits: Callable[[Arch], bool] = lambda arch: True) -> Arch:
        """Mutates ZenNAS's first structure `moves` times, as ZenNAS does; skips mutations that do not fit."""
        arch = self.initial
        for _ in range(moves):
            child = self.mutate(arch, rng)
            arch = child if fits(child) else arch
        return arch

    # Moves

    def mutate(self, arch: Arch, rng: Random) -> Arch:
        """Draws a block uniformly, then one of its moves uniformly."""
        at = rng.randrange(len(arch) if self.free_last else len(arch) - 1)
        while True:
            child = _put(arch, at, Block._make(map(rng.choice, self._options(arch[at]))))
            if child != arch and layers_of(child) <= self.max_layers:
                return child

    def neighbours(self, arch: Arch) -> list[Arch]:
        """Returns every architecture with one changed block: thousands."""
        spare = self.max_layers - layers_of(arch)
        others = dict.fromkeys(
            _put(arch, at, other)
            for at, block in enumerate(arch if self.free_last else arch[:-1])
            for other in self._moves(block)
            if other.layers - block.layers <= spare
        )
        others.pop(arch)
        return list(others)

    def _moves(self, block: Block) -> Iterator[Block]:
        return map(Block._make, product(*self._options(block)))

    def _options(self, block: Block) -> tuple[tuple[str, ...], tuple[int, ...], tuple[int], tuple[int, ...], range]:
        """Returns the values that each field of a block may change to."""
        kind, width, stride, bottleneck, layers = block
        widths = moved(width)
        if not bottleneck:
            return (kind,), widths, (stride,), (0,), range(1, 2)
        return self.kinds, widths, (stride,), moved(bottleneck), range(max(1, layers - 2), layers + 3)

    def smallest(self) -> Arch:
        """Returns the architecture with all widths 8, one sub-layer per block, all of the smallest kind."""
        first, *body, last = (block._replace(width=STEP) for block in self.initial)
        lightest = [block._replace(kind=self.kinds[0], bottleneck=STEP) for block in body]
        return (first, *lightest, last if self.free_last else self.initial[-1])

    # Networks

    def plan(
        self, arch: Arch, num_classes: int | None = None, input_shape: Shape | None = None, squeeze: bool = False
    ) -> Plan:
        """Returns the network for images of any size; `squeeze` adds the gates that ZenNAS trains with on ImageNet."""
        input_shape = (3, self.side, self.side) if input_shape is None else input_shape
        num_classes = self.classes if num_classes is None else num_classes
        check_images(self.name, num_classes, input_shape, f"3x{self.side}x{self.side}")
        return network(arch, self.sub_layer, num_classes, input_shape, squeeze)

    def size(self, arch: Arch, num_classes: int, input_shape: Shape) -> Size:
        check_images(self.name, num_classes, input_shape, f"3x{self.side}x{self.side}")
        return size(arch, self.sub_layer, num_classes, input_shape)

    def zennas_flops(self, arch: Arch, num_classes: int | None = None) -> int:
        """Returns ZenNAS's count for budgets of multiply-accumulates, at the papers' image size."""
        return zennas_flops(self.plan(arch, num_classes))

    def zennas_params(self, arch: Arch, num_classes: int | None = None) -> int:
        """Returns ZenNAS's count for budgets of parameters."""
        return zennas_params(self.plan(arch, num_classes))


def layers_of(arch: Arch) -> int:
    """Returns the number of sub-layers, including the ends."""
    return sum([block.layers for block in arch])


def _put(arch: Arch, at: int, block: Block) -> Arch:
    """Returns the architecture with another block at a place, split if it has too many sub-layers."""
    parts: Arch = (block,)
    if block.layers >= SPLIT:
        half = SPLIT // 2
        parts = (block._replace(layers=half), block._replace(stride=1, layers=block.layers - half))
    return (*arch[:at], *parts, *arch[at + 1 :])


@lru_cache(maxsize=4096)
def moved(width: int) -> tuple[int, ...]:
    """Returns the widths that one move can reach, including the present one."""
    scaled = (min(WIDEST, max(STEP, width * factor)) for factor in FACTORS)
    return tuple(sorted({round(width / STEP) * STEP for width in scaled}))


@lru_cache(maxsize=4096)
def ways(n: int, most: int) -> int:
    """Returns the number of ways to give n blocks 1 to 5 sub-layers each, at most `most` in all."""
    if most < n:
        return 0
    return sum(ways(n - 1, most - layers) for layers in range(1, SPLIT)) if n else 1
