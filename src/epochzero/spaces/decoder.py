r"""Decoders: small causal language models, in the form of Llama.

    w128-d4-h8-k2-r3-c64        width, depth, heads, heads of keys and values, MLP ratio, context

Token ids become vectors; each layer, with hidden = width * ratio, is

    x = x + project(attention(qkv(norm(x))))        causal, with rotary positions, over the last `context` tokens
    x = x + down(silu(gate(norm(x))) * up(norm(x)))

and an RMS norm and a linear layer give the logits of the next token at every place: no biases, and a head of its own.
For a row of T tokens a cache holds 2 * depth * (width / heads) * keys * min(context, T) keys and values, which
`--max-kv-bytes` limits, with `--byte-width 2` in half precision.

    width                          depth                  heads    heads per key    ratio      context
    64, 96, 128, 192, 256, 384     2, 3, 4, 6, 8, 12      4, 8     1, 2, 4          2, 3, 4    32, 64, 128

1,944 architectures. The number of classes is that of words; ids are the input, 128 bytes by default, and the loss is
that of the next token. The space is ours, of the usual choices.

Touvron et al. Llama: open and efficient foundation language models. 2023. arXiv:2302.13971
Jiang et al. Mistral 7B. 2023. arXiv:2310.06825 (attention to a window of tokens)
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator
from functools import lru_cache
from random import Random
from typing import NamedTuple

from epochzero.data.batch import shape_text
from epochzero.errors import UserError
from epochzero.plan import Builder, Plan, chain
from epochzero.plan.ops.activation import SiLU
from epochzero.plan.ops.causal import CausalAttention, Words
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import RMSNorm
from epochzero.plan.ops.wiring import Add, Multiply
from epochzero.registry import spaces
from epochzero.spaces.base import Architectures, check_classes, quoted
from epochzero.spaces.product import Choices
from epochzero.types import Shape

NORM, SUM = RMSNorm(), Add()
TEXT = re.compile(r"w([0-9]{1,6})-d([0-9]{1,6})-h([0-9]{1,6})-k([0-9]{1,6})-r([0-9]{1,6})-c([0-9]{1,6})")


class Arch(NamedTuple):
    """One decoder."""

    width: int
    depth: int
    heads: int
    group: int
    """heads that share keys and values"""
    ratio: int
    """hidden units of the MLP for each feature"""
    context: int
    """tokens that each token attends to, itself among them"""

    @property
    def keys(self) -> int:
        return self.heads // self.group


class Decoder(Choices[int], Architectures):
    """Small causal language models: width, depth, heads, grouped keys, MLP ratio and context."""

    name = "decoder"
    about = "Decoders: width 64 to 384, 2 to 12 layers, 4 or 8 heads with grouped keys, MLP ratio, context"
    tokens = True
    cell_block = "layer0"
    options = ((64, 96, 128, 192, 256, 384), (2, 3, 4, 6, 8, 12), (4, 8), (4, 2, 1), (2, 3, 4), (32, 64, 128))

    def parse(self, text: str) -> Arch:
        match = TEXT.fullmatch(text.strip())
        if match is None:
            raise UserError(f"{quoted(text)} is no decoder: write {self.text(self.smallest())}.")
        width, depth, heads, keys, ratio, context = map(int, match.groups())
        words = ("width", "depth", "number of heads", "", "MLP ratio", "context")
        group = heads // keys if keys and not heads % keys else 0
        for word, own, options in zip(words, (width, depth, heads, group, ratio, context), self.options, strict=True):
            if own not in options and word:
                raise UserError(f"The {word} of a decoder is {_listed(options)}, not {own}.")
        if group not in self.options[3]:
            keyed = sorted(heads // one for one in self.options[3])
            raise UserError(f"{heads} heads have {_listed(keyed)} heads of keys, not {keys}.")
        return Arch(width, depth, heads, group, ratio, context)

    def text(self, arch: tuple[int, ...]) -> str:
        one = Arch(*arch)
        return f"w{one.width}-d{one.depth}-h{one.heads}-k{one.keys}-r{one.ratio}-c{one.context}"

    def __iter__(self) -> Iterator[Arch]:
        return itertools.starmap(Arch, itertools.product(*self.options))

    def sample(self, rng: Random) -> Arch:
        return Arch(*map(rng.choice, self.options))

    def crossover(self, one: tuple[int, ...], other: tuple[int, ...], rng: Random) -> Arch:
        return Arch(*super().crossover(one, other, rng))

    def neighbours(self, arch: tuple[int, ...]) -> list[tuple[int, ...]]:
        return [Arch(*one) for one in super().neighbours(arch)]

    def smallest(self) -> Arch:
        return Arch(*super().smallest())

    def kv_values(self, arch: tuple[int, ...], input_shape: Shape = (128,)) -> int:
        """Returns the number of keys and values in the cache for a row of tokens."""
        one = Arch(*arch)
        return 2 * one.depth * one.width // one.heads * one.keys * min(one.context, input_shape[0])

    def plan(self, arch: tuple[int, ...], num_classes: int = 256, input_shape: Shape = (128,)) -> Plan:
        check_classes(self.name, num_classes)
        if len(input_shape) != 1 or input_shape[0] < 1:
            raise UserError(f"decoder takes rows of token ids, such as 128, not {shape_text(input_shape)}.")
        one, (places,) = Arch(*arch), input_shape
        net = Builder()
        x = net.add(Words(places, num_classes, one.width), net.input(input_shape), name="words")
        layer = _layer(one._replace(depth=0), net.shape(x))
        for i in range(one.depth):
            x = net.inline(layer, x, name=f"layer{i}")
        head = chain(net.shape(x), norm=NORM, linear=Linear(num_classes, bias=False))
        net.inline(head, x, name="head")
        return net.plan()


def _listed(options: tuple[int, ...] | list[int]) -> str:
    *first, last = map(str, sorted(options))
    return f"{', '.join(first)} or {last}"


@lru_cache(maxsize=1024)
def _layer(arch: Arch, shape: Shape) -> Plan:
    """One layer, whatever the depth."""
    each = arch.width // arch.heads
    qkv = Linear((arch.heads + 2 * arch.keys) * each, bias=False)
    attend = CausalAttention(arch.heads, arch.keys, arch.context)
    attention = chain(shape, norm=NORM, qkv=qkv, heads=attend, project=Linear(arch.width, bias=False))
    net = Builder()
    x = net.input(shape)
    x = net.add(SUM, x, net.inline(attention, x, name="attention"), name="attended")
    net.add(SUM, x, net.inline(_mlp(arch.ratio * arch.width, shape), x, name="mlp"), name="sum")
    return net.plan()


@lru_cache(maxsize=1024)
def _mlp(hidden: int, shape: Shape) -> Plan:
    net = Builder()
    x = net.add(NORM, net.input(shape), name="norm")
    gate = net.add(SiLU(), net.add(Linear(hidden, bias=False), x, name="gate"), name="silu")
    wide = net.add(Multiply(), gate, net.add(Linear(hidden, bias=False), x, name="up"), name="gated")
    net.add(Linear(shape[1], bias=False), wide, name="down")
    return net.plan()


spaces.register("decoder", Decoder())
