"""Networks of ids: their embeddings are moved, and published language models are counted and scored."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import epochzero as ez
from epochzero import data
from epochzero.data.packed import embedded, only_ids
from epochzero.engine.inputs import like, pass_curve, pass_inputs
from epochzero.engine.memory import peak_bytes
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.engine.passes import Pass
from epochzero.registry import proxies
from tests.engine.modules.module_nets import seeded

WORDS, TIME, WIDTH, SIZE = 20, 6, 8, 16


class OfEmbeddings(nn.Module):
    """Mixes vectors along the row; its inputs are real."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.head = nn.Linear(TIME, TIME), nn.Linear(WIDTH, 5)
        self.deep = nn.Linear(WIDTH, WIDTH)

    def forward(self, vectors: Tensor) -> Tensor:
        x = F.gelu(self.mix(vectors.mT).mT)
        logits: Tensor = self.head(F.silu(self.deep(x)).mean(1))
        return logits


class OfIds(nn.Module):
    """The same of ids, beside an embedding of places that are no input."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(TIME, WIDTH)
        self.rest = OfEmbeddings()

    def forward(self, ids: Tensor) -> Tensor:
        places: Tensor = self.places(torch.arange(TIME))
        logits: Tensor = self.rest(self.words(ids) + 0 * places)
        return logits


def ids(count: int = 4 * SIZE) -> Tensor:
    return torch.randint(WORDS, (count, TIME), generator=torch.Generator().manual_seed(1))


def labels(count: int = 4 * SIZE) -> Tensor:
    return torch.arange(count) % 5


def test_moved_embeddings_are_those_of_a_network_whose_inputs_are_real() -> None:
    module: Any = seeded(OfIds)
    batch = data.from_tensors(ids(), labels(), parts=4)
    vectors = data.from_tensors(module.words(ids()).detach(), labels(), parts=4)
    found = ez.score(module, ["curvature", "jacov", "epe_nas", "snip"], data=batch)
    expected = ez.score(module.rest, ["curvature", "jacov", "epe_nas", "snip"], data=vectors)
    for name, score in expected.items():
        assert found[name].value == pytest.approx(score.value, rel=1e-5), name


def test_passes_that_draw_inputs_drop_what_was_looked_up() -> None:
    module: Any = seeded(OfIds)
    batch = data.from_tensors(ids(), labels(), parts=4)
    network = ModuleNetwork(module, batch)
    moved = network.embedded(batch)
    assert only_ids(batch) and moved.input_shape == (TIME + 1 + TIME * WIDTH,)
    weights = like(network.weights, Pass())
    kept = network.forward(pass_inputs(Pass(), moved, 0, weights)[0], network.weights, "train")
    torch.testing.assert_close(kept, module(ids()[:SIZE]).detach())
    ones = network.forward(pass_inputs(Pass(inputs="ones"), moved, 0, weights)[0], network.weights, "train")
    torch.testing.assert_close(ones, module.rest(torch.ones(1, TIME, WIDTH)).detach())
    curve = pass_curve(Pass(inputs="circle"), moved, 0, weights)[0]
    on_circle = curve[:, TIME + 1 :].reshape(-1, TIME, WIDTH)
    torch.testing.assert_close(network.forward(curve, network.weights, "train"), module.rest(on_circle).detach())
    torch.testing.assert_close(on_circle.flatten(1).norm(dim=1), torch.full((4,), math.sqrt(TIME * WIDTH)))


def test_ids_that_no_embedding_looks_up_are_said_so() -> None:
    class OneHot(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(WORDS, 5)

        def forward(self, ids: Tensor) -> Tensor:
            logits: Tensor = self.head(F.one_hot(ids, WORDS).float().mean(1))
            return logits

    scores = ez.score(OneHot(), ["snip", "jacov"], data=ids(), y=labels())
    assert scores["snip"].ok and "no embedding looks them up" in scores["jacov"].why


def test_a_batch_of_real_numbers_is_not_changed() -> None:
    vectors = data.from_tensors(torch.randn(SIZE, TIME, WIDTH), labels(SIZE))
    assert ModuleNetwork(OfEmbeddings(), vectors).embedded(vectors) is vectors
    both = data.from_tensors({"ids": ids(), "real": torch.randn(4 * SIZE, 2)})
    assert not only_ids(both) and embedded(both, [(2,)]).input_shape == (TIME + 2 + 1 + 2,)


# ---- published models, of transformers

NO_CLASSES = dict.fromkeys(["epe_nas", "hnas", "ntk_cond", "ntk_trace"], "needs class labels")
OWN_GELU = dict.fromkeys(["linear_regions", "lswag", "naswot", "swap", "swap_reg"], "no ReLU")
E, H, KV, HIDDEN, L, T, V = 32, 4, 2, 64, 2, 16, 100
"""width, heads, heads of keys, hidden units, layers, tokens, words"""
ENCODER = L * (T * (4 * E * E + 2 * E * HIDDEN) + 2 * T * T * E)
STATE, RANK, KERNEL, INNER = 8, 2, 4, 2 * E
SCAN = T * (E * 2 * INNER + INNER * (RANK + 2 * STATE) + RANK * INNER + INNER * E + INNER * STATE)
SIZES = {"hidden_size": E, "num_hidden_layers": L, "num_attention_heads": H, "intermediate_size": HIDDEN}
TEXT = {"vocab_size": V, "max_position_embeddings": 32}
GPT: dict[str, Any] = {"n_embd": E, "n_layer": L, "n_head": H, "n_inner": HIDDEN, "vocab_size": V, "n_positions": 32}
GPT |= {"resid_pdrop": 0, "embd_pdrop": 0, "attn_pdrop": 0, "bos_token_id": 0, "eos_token_id": 0}
MODELS: dict[str, tuple[Callable[[Any], nn.Module], int, dict[str, str]]] = {
    "BERT": (
        lambda t: t.BertForSequenceClassification(t.BertConfig(**SIZES, **TEXT, num_labels=3)),
        ENCODER + E * E + E * 3,
        {},
    ),
    "ViT": (
        lambda t: t.ViTForImageClassification(t.ViTConfig(**SIZES, image_size=32, patch_size=8, num_labels=3)),
        16 * 192 * E + L * ((T + 1) * (4 * E * E + 2 * E * HIDDEN) + 2 * (T + 1) ** 2 * E) + E * 3,
        {},
    ),
    "Llama": (
        lambda t: t.LlamaForCausalLM(t.LlamaConfig(**SIZES, **TEXT, num_key_value_heads=KV)),
        L * (T * (2 * E * E + 2 * E * E * KV // H + 3 * E * HIDDEN) + 2 * T * T * E) + T * E * V,
        NO_CLASSES,
    ),
    "GPT-2": (
        lambda t: t.GPT2LMHeadModel(t.GPT2Config(**GPT)),
        ENCODER + T * E * V,
        NO_CLASSES | OWN_GELU | {"vkdnw": "as with windows", "wpca": "no ReLU, GELU or the like works on tokens"},
    ),
    "Mamba": (
        lambda t: t.MambaForCausalLM(t.MambaConfig(vocab_size=V, hidden_size=E, num_hidden_layers=L, state_size=STATE)),
        L * (SCAN + INNER * KERNEL * (T + KERNEL - 1)) + T * E * V,
        NO_CLASSES | {"tf_tas": "is for transformers"},
    ),
}
"""each with its multiply-accumulates by hand, and the proxies that do not apply"""


@pytest.mark.parametrize("name", MODELS)
def test_published_models_are_counted_and_scored(name: str) -> None:
    transformers = pytest.importorskip("transformers")
    make, macs, reasons = MODELS[name]
    module = seeded(lambda: make(transformers))
    words = torch.randint(V, (4 * SIZE, T), generator=torch.Generator().manual_seed(2))
    inputs: Any = torch.randn(4 * SIZE, 3, 32, 32) if name == "ViT" else {"input_ids": words}
    of_classes = name in ("BERT", "ViT")
    batch = data.from_tensors(inputs, labels() % 3 if of_classes else words, parts=4, targets=not of_classes)
    scores = ez.score(module, sorted(proxies), data=batch, loss=None if of_classes else "next_token")
    assert scores["flops"].value == macs
    whys = {proxy: score.why for proxy, score in scores.items() if not score.ok}
    assert whys.keys() == reasons.keys(), whys
    assert all(why in whys[proxy] for proxy, why in reasons.items())


def test_a_mask_of_padding_changes_no_count() -> None:
    """Models of transformers look whether a mask holds any padding, which torch's meta device cannot say."""
    transformers = pytest.importorskip("transformers")
    make, macs, _ = MODELS["BERT"]
    words = torch.randint(V, (4, T))
    plain, masked = (data.from_tensors(x) for x in ({"ids": words}, {"ids": words, "mask": torch.ones_like(words)}))
    counted = [
        (network.flops, peak_bytes(network, batch))
        for batch in (plain, masked)
        for network in [ModuleNetwork(Masked(make(transformers)), batch)]
    ]
    assert counted[0][0] == counted[1][0] == macs
    assert counted[1][1] == pytest.approx(counted[0][1], rel=0.1)


class Masked(nn.Module):
    """A model of transformers, with its mask."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, mask: Tensor | None = None) -> Tensor:
        logits: Tensor = self.model(input_ids=ids, attention_mask=mask).logits
        return logits
