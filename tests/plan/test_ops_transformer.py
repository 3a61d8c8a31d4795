"""Attention against plain loops, a vision transformer against a published parameter count, and its printed code."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from epochzero.engine import PlanNetwork
from epochzero.plan import SCHEMES, Builder, Plan
from epochzero.plan.init import draw
from epochzero.plan.ops.activation import GELU
from epochzero.plan.ops.attention import Attention, RelativeAttention
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import LayerNorm
from epochzero.plan.ops.pool import TokenMean
from epochzero.plan.ops.token import ClassToken, PositionEmbedding, ToTokens
from epochzero.plan.ops.wiring import Add
from epochzero.types import Origin
from tests.plan.test_codegen import assert_formatted, assert_same


def transformer(width: int, heads: tuple[int, ...], hidden: tuple[int, ...], image: int, patch: int) -> Plan:
    """The layout of AutoFormer: a class token, positions, blocks with the norm first, the mean over patches."""
    net = Builder()
    x = net.input((3, image, image))
    x = net.add(Conv(width, patch, stride=patch, bias=True), x, name="patches.conv")
    x = net.add(ToTokens(), x, name="patches.tokens")
    x = net.add(ClassToken(), x, name="class_token")
    x = net.add(PositionEmbedding(), x, name="positions")
    for i, (count, inner) in enumerate(zip(heads, hidden, strict=True)):
        y = net.add(LayerNorm(), x, name=f"layer{i}.attention.norm")
        y = net.add(Linear(3 * 64 * count), y, name=f"layer{i}.attention.qkv")
        y = net.add(RelativeAttention(count), y, name=f"layer{i}.attention.core")
        y = net.add(Linear(width), y, name=f"layer{i}.attention.out")
        x = net.add(Add(), x, y, name=f"layer{i}.add1")
        y = net.add(LayerNorm(), x, name=f"layer{i}.mlp.norm")
        y = net.add(GELU(), net.add(Linear(inner), y, name=f"layer{i}.mlp.grow"), name=f"layer{i}.mlp.gelu")
        x = net.add(Add(), x, net.add(Linear(width), y, name=f"layer{i}.mlp.shrink"), name=f"layer{i}.add2")
    x = net.add(TokenMean(1), net.add(LayerNorm(), x, name="norm"), name="mean")
    net.add(Linear(1000), x, name="head")
    return net.plan()


def test_the_smallest_and_largest_autoformer_tiny() -> None:
    smallest = transformer(192, (3,) * 12, (672,) * 12, 224, 16)
    largest = transformer(240, (4,) * 14, (960,) * 14, 224, 16)
    assert smallest.params == 5_366_056
    assert largest.params == 10_517_272
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        smallest.module().eval().to("meta")(torch.empty(1, 3, 224, 224, device="meta"))
    assert counter.get_total_flops() == 2 * smallest.flops


def test_a_transformer_is_printed_with_what_it_needs() -> None:
    plan = transformer(8, (1, 2, 1), (12, 16, 12), 12, 4)
    source = assert_same(plan)
    assert_formatted(source)
    assert source.count("class RelativeSelfAttention(nn.Module):") == 1
    assert source.count("def split_heads(") == 1
    assert "SelfAttention(2, 64, 14)" in source


def test_a_block_with_the_name_of_a_printed_class_gets_another() -> None:
    net = Builder()
    x = net.add(ClassToken(), net.input((4, 6)), name="first_token.token")
    net.add(Add(), x, net.add(Attention(1), net.add(Linear(18), x, name="qkv"), name="attend"), name="first_token.sum")
    source = assert_same(net.plan())
    assert source.count("class FirstToken(nn.Module):") == 1


def test_the_engine_runs_it_and_sees_attention_as_a_layer() -> None:
    plan = transformer(8, (1, 2), (12, 16), 12, 4)
    network = PlanNetwork(plan)
    x = torch.randn(9, 3, 12, 12)
    kinds: list[str] = []
    y = network.forward(x, network.weights, "train", lambda layer: kinds.append(layer.kind))
    assert torch.allclose(y, plan.module()(x), atol=1e-5)
    assert kinds.count("attention") == 2 and kinds.count("norm") == 5 and kinds.count("linear") == 9
    assert "layer0.attention.qkv.weight" in network.layer_weights
    assert not any("core" in name or "token" in name for name in network.layer_weights)


def by_loops(qkv: Tensor, heads: int, tables: dict[str, Tensor], farthest: int) -> Tensor:
    """Attention as its formula says, one pair of tokens after the other; without tables, the plain one."""
    n, width = qkv.shape[0], qkv.shape[1] // 3
    d, side = width // heads, math.isqrt(n - 1)
    out = torch.zeros(n, width, dtype=qkv.dtype)

    def relative(which: str, i: int, j: int) -> Tensor:
        if not tables:
            return torch.zeros(d, dtype=qkv.dtype)
        rows = [0, 0]
        if i and j:
            here, there = divmod(i - 1, side), divmod(j - 1, side)
            rows = [max(-farthest, min(farthest, b - a)) + farthest + 1 for a, b in zip(here, there, strict=True)]
        return tables[f"{which}_vertical"][rows[0]] + tables[f"{which}_horizontal"][rows[1]]

    for head in range(heads):
        q, k, v = (qkv[:, part * width + head * d : part * width + (head + 1) * d] for part in range(3))
        for i in range(n):
            scores = torch.stack([q[i] @ (k[j] + relative("key", i, j)) for j in range(n)]) / math.sqrt(d)
            weights = scores.exp() / scores.exp().sum()
            said = [weights[j] * (v[j] + relative("value", i, j)) for j in range(n)]
            out[i, head * d : (head + 1) * d] = torch.stack(said).sum(0)
    return out


@pytest.mark.parametrize("farthest", [14, 1])
def test_relative_attention_follows_its_formula(farthest: int) -> None:
    op, rng = RelativeAttention(2, farthest), torch.Generator().manual_seed(0)
    qkv = torch.randn(2, 10, 18, generator=rng, dtype=torch.float64)
    tables = {name: torch.randn(p.shape, generator=rng, dtype=torch.float64) for name, p in op.params((10, 18)).items()}
    found = op.run((qkv,), tuple(tables.values()))
    for sample, expected in zip(found, qkv, strict=True):
        assert torch.allclose(sample, by_loops(expected, 2, tables, farthest), rtol=1e-12)


def test_plain_attention_follows_its_formula() -> None:
    qkv = torch.randn(1, 5, 12, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    assert torch.allclose(Attention(2).run((qkv,), ())[0], by_loops(qkv[0], 2, {}, 0), rtol=1e-12)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_tables_start_as_small_noise_under_every_scheme(scheme: str) -> None:
    plan = transformer(64, (1,), (64,), 224, 16)
    weights = draw(plan.weights, Origin(scheme, 3))
    tables = ["positions.table", "class_token.token", "layer0.attention.core.key_vertical"]
    for name in tables:
        assert 0.7 * 0.02 < weights[name].std() < 1.3 * 0.02
    assert abs(weights["positions.table"].std() - 0.02) < 0.001
