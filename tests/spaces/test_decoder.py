"""Decoders against the models of transformers, and everything that a space has, on rows of ids."""

from __future__ import annotations

from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

import epochzero as ez
from epochzero.engine.space_networks import batch_for
from epochzero.errors import UserError
from epochzero.plan.ops.causal import CausalAttention, Words
from epochzero.plan.ops.norm import RMSNorm
from epochzero.registry import proxies
from epochzero.spaces.decoder import Arch, Decoder
from epochzero.testing import check_op
from epochzero.testing.networks import printed
from tests.command import epochzero

SPACE = Decoder()
SMALL = "w64-d2-h4-k2-r2-c32"


def test_ops() -> None:
    check_op(RMSNorm(), (5, 8))
    check_op(CausalAttention(4, 2, 3), (6, 8 * 4))
    check_op(CausalAttention(2, 2, 6), (6, 6 * 4))
    check_op(Words(6, 9, 4), (6,))


def ids(count: int, places: int, words: int) -> Tensor:
    return torch.randint(words, (count, places), generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("text", [SMALL, "w96-d3-h8-k8-r3-c64", "w64-d2-h8-k2-r4-c128"])
def test_the_same_network_as_that_of_transformers(text: str) -> None:
    """Mistral is Llama with a window; its weights are ours by other names."""
    transformers = pytest.importorskip("transformers")
    arch, words, places = SPACE.parse(text), 50, 40
    config = transformers.MistralConfig(
        vocab_size=words,
        hidden_size=arch.width,
        num_hidden_layers=arch.depth,
        num_attention_heads=arch.heads,
        num_key_value_heads=arch.keys,
        intermediate_size=arch.ratio * arch.width,
        sliding_window=arch.context,
        attn_implementation="eager",
    )
    plan = SPACE.plan(arch, words, (places,))
    module = plan.module()
    own: dict[str, Tensor] = {
        name: w + torch.rand(w.shape, generator=torch.Generator().manual_seed(1)) / 9
        for name, w in module.state_dict().items()
    }
    module.load_state_dict(own)
    theirs: dict[str, Tensor] = {
        "model.embed_tokens.weight": own["words.table"],
        "model.norm.weight": own["head.norm.weight"],
        "lm_head.weight": own["head.linear.weight"],
    }
    each = arch.width // arch.heads
    for i in range(arch.depth):
        ours, layer = f"layer{i}", f"model.layers.{i}"
        sizes = [arch.heads * each, arch.keys * each, arch.keys * each]
        for name, weight in zip("qkv", torch.split(own[f"{ours}.attention.qkv.weight"], sizes), strict=True):
            theirs[f"{layer}.self_attn.{name}_proj.weight"] = weight
        theirs[f"{layer}.self_attn.o_proj.weight"] = own[f"{ours}.attention.project.weight"]
        theirs[f"{layer}.input_layernorm.weight"] = own[f"{ours}.attention.norm.weight"]
        theirs[f"{layer}.post_attention_layernorm.weight"] = own[f"{ours}.mlp.norm.weight"]
        for name in ("gate", "up", "down"):
            theirs[f"{layer}.mlp.{name}_proj.weight"] = own[f"{ours}.mlp.{name}.weight"]
    model: Any = transformers.MistralForCausalLM(config)
    model.load_state_dict(theirs)
    x = ids(3, places, words)
    with torch.no_grad():
        torch.testing.assert_close(module(x), model(x).logits, rtol=1e-4, atol=1e-4)
    counted = ez.score(model, ["params", "flops"], data={"input_ids": x})
    assert (plan.params, plan.flops) == (counted["params"].value, counted["flops"].value)


def cached(arch: Arch, places: int) -> int:
    """The keys and values, counted one by one."""
    total = 0
    for _layer in range(arch.depth):
        for _key in range(arch.heads // arch.group):
            for _token in range(min(places, arch.context)):
                total += 2 * (arch.width // arch.heads)
    return total


def test_the_cache_of_keys_and_values() -> None:
    rng = Random(0)
    for arch in [SPACE.smallest(), *(SPACE.sample(rng) for _ in range(20))]:
        assert [SPACE.kv_values(arch, (places,)) for places in (16, 500)] == [cached(arch, 16), cached(arch, 500)]
    assert SPACE.kv_values(SPACE.smallest()) == 2 * 2 * 16 * 1 * 32
    limit: dict[str, Any] = {"max_kv_bytes": "20k", "byte_width": 2, "max_params": "500k"}
    found = ez.search("decoder", "params", "random", 20, batch_size=2, **limit)
    kept = [2 * SPACE.kv_values(one.arch) for one in found.history]
    assert len(kept) == 20 and 10_000 < max(kept) <= 20_000
    with pytest.raises(
        UserError, match="No decoder network keeps at most 4,000 bytes of keys and values: the smallest"
    ):
        ez.search("decoder", max_kv_bytes=4000)
    with pytest.raises(UserError, match="Networks of nb201 keep no keys and values"):
        ez.search("nb201", max_kv_bytes=4000)


def test_text_mutation_crossover_and_drawing() -> None:
    rng = Random(0)
    one, other = (SPACE.sample(rng) for _ in range(2))
    child = SPACE.crossover(one, other, rng)
    assert all(own in pair for own, pair in zip(child, zip(one, other, strict=True), strict=True))
    assert SPACE.parse(SPACE.text(child)) == child and SPACE.count() == len(set(SPACE)) == 1944
    for text, says in (
        ("w65-d2-h4-k2-r2-c32", "The width of a decoder is 64, 96, 128, 192, 256 or 384, not 65"),
        ("w64-d2-h4-k3-r2-c32", "4 heads have 1, 2 or 4 heads of keys, not 3"),
        ("w64-d2-h4-k0-r2-c32", "4 heads have 1, 2 or 4 heads of keys, not 0"),
        ("64-2", "is no decoder: write w64-d2-h4-k1-r2-c32"),
    ):
        with pytest.raises(UserError, match=says):
            SPACE.parse(text)
    drawn = SPACE.plan(one).svg("layer0")
    assert "causal attention" in drawn and "RMS norm" in drawn


def test_every_proxy_has_a_value_or_needs_classes() -> None:
    scores = ez.score(SMALL, sorted(proxies), space="decoder", batch_size=16)
    whys = {name: score.why for name, score in scores.items() if not score.ok}
    assert set(whys) == {"epe_nas", "hnas", "ntk_cond", "ntk_trace"}
    assert all("needs class labels, which the targets of the loss next_token are not" in why for why in whys.values())


def test_a_plan_scores_as_the_same_module() -> None:
    """Passes that move embeddings, by the op that takes additions and by the function mode that adds them."""
    asked, data = ["jacov", "curvature", "synflow", "az_trainability", "snip"], ids(16, 12, 20)
    plan = SPACE.plan(SPACE.parse(SMALL), 20, (12,))
    module = printed(plan)
    assert module is not None
    module.load_state_dict(plan.module().state_dict())
    as_plan = ez.score(plan.module(), asked, data=data, loss="next_token")
    as_module = ez.score(module, asked, data=data, loss="next_token")
    for name in asked:
        assert as_module[name].value == pytest.approx(as_plan[name].value, rel=1e-4), name


def test_a_search_on_ids_of_ones_own_within_a_budget(tmp_path: Path) -> None:
    texts = ids(32, 24, 30)
    found = ez.search("decoder", "auto", budget=4, data=texts, batch_size=8, max_params="200k")
    assert found.task.batch.num_classes == 30 and found.task.batch.loss is not None
    assert all(found.task.size(one.arch).params <= 200_000 for one in found.history)
    found.export(tmp_path / "out", onnx=False)
    assert "CausalSelfAttention" in (tmp_path / "out" / "model.py").read_text()
    with pytest.raises(
        UserError, match=r"decoder takes rows of ids, whole numbers \[samples, places\], not 3x8x8 real"
    ):
        ez.search("decoder", budget=2, data=torch.randn(8, 3, 8, 8))
    with pytest.raises(UserError, match="decoder takes rows of ids, such as 128, not 3x32x32"):
        ez.search("decoder", budget=2, data=batch_for(SPACE, input_shape=(3, 32, 32)))


def test_noise_is_ids() -> None:
    zipf, even = (
        batch_for(SPACE, name, input_shape=(500,), num_classes=100, size=20).part(0)[0] for name in ("pink", "white")
    )
    share = [float((x == 0).float().mean()) for x in (zipf, even)]
    assert share == pytest.approx([1 / sum(1 / k for k in range(1, 101)), 0.01], rel=0.15)
    assert torch.equal(zipf, batch_for(SPACE, input_shape=(500,), num_classes=100, size=20).part(0)[0])


def test_the_command_line() -> None:
    ran = epochzero("score", "--space", "decoder", "--arch", SMALL, "--proxy", "snip,flops", "--batch-size", "4")
    assert "rows of 128 ids of 256 words, by Zipf's law" in " ".join(ran.out.split())
