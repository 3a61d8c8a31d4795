"""NASRec's spaces: published sizes, texts, moves, budgets, and networks against ones written out by hand."""

from __future__ import annotations

import json
from collections import Counter
from math import comb
from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from epochzero.data import from_tensors
from epochzero.engine.space_networks import budgeted
from epochzero.errors import UserError
from epochzero.recommend.data.encoding import Encoding
from epochzero.recommend.data.schema import BUILT_IN, CRITEO_ROWS
from epochzero.recommend.spaces.nasrec import Choices, Nasrec
from epochzero.recommend.spaces.nasrec_network import pruned
from epochzero.recommend.supernet.weights import full_path
from epochzero.registry import spaces
from epochzero.testing import check_space
from epochzero_papers.sigeo.nasrec_published import FEATURES, PUBLISHED
from tests.recommend.nasrec_by_hand import ByHand

SMALL: Nasrec = spaces["nasrec_small"]
FULL: Nasrec = spaces["nasrec_full"]
TABLES = (7, 30, 4, 50, 11)
both = pytest.mark.parametrize("space", [SMALL, FULL], ids=lambda space: space.name)


def clicks(space: Nasrec, count: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    ids = [torch.randint(0, rows, (count,), generator=rng) for rows in space.tables]
    return torch.randn(count, space.dense, generator=rng), torch.stack(ids, 1)


def own_params(space: Nasrec, arch: Choices) -> int:
    return space.plan(arch).params - space.embedding_params


# Sizes


@pytest.mark.parametrize(
    ("name", "data", "params"),
    [
        ("nasrec_small", "criteo", 1_784_165),
        ("nasrec_full", "criteo", 2_222_323),
        ("nasrec_small", "avazu", 2_844_977),
        ("nasrec_full", "avazu", 3_187_494),
        ("nasrec_small", "kdd", 2_612_267),
        ("nasrec_full", "kdd", 442_765),
    ],
)
def test_the_published_networks_have_the_published_parameters(name: str, data: str, params: int) -> None:
    dense, fields = FEATURES[data]
    space = spaces[name].on(dense, (10,) * fields)
    arch = space.parse(PUBLISHED[name, data])
    assert own_params(space, arch) == params
    assert space.text(arch) == PUBLISHED[name, data]


@pytest.mark.parametrize(("name", "millions"), [("nasrec_small", 2.20), ("nasrec_full", 1.45)])
def test_what_leads_somewhere_has_the_published_multiply_accumulates(name: str, millions: float) -> None:
    space = spaces[name].on(13, (10,) * 26)
    plan = space.plan(space.parse(PUBLISHED[name, "criteo"]))
    live = pruned(plan)
    assert live.flops / 1e6 == pytest.approx(millions, abs=0.01)
    assert live.flops < plan.flops and live.params < plan.params
    module, smaller = plan.module(), live.module()
    smaller.load_state_dict({key: value for key, value in module.state_dict().items() if key in live.weights})
    features, ids = clicks(space, 4)
    assert torch.equal(module(features, ids), smaller(features, ids))


@pytest.mark.parametrize(("space", "millions"), [(SMALL, 31.14), (FULL, 171.5)], ids=str)
def test_the_supernet_has_the_published_parameters(space: Nasrec, millions: float) -> None:
    plan = space.network(full_path(space), bare=False).plan
    assert (plan.params - space.embedding_params) / 1e6 == pytest.approx(millions, rel=3e-4)


def test_how_many_architectures_there_are() -> None:
    subsets = [sum(comb(n, k) for k in range(1, min(n, 4) + 1)) for n in range(1, 8)]
    expected = 1
    for n, count in enumerate(subsets, start=1):
        expected *= 2 * 8 * 4 * 2 * 2 * count**2 * n**2
    assert SMALL.count() == expected
    assert FULL.count() == expected * 4**7


@both
def test_nothing_is_smaller_than_the_smallest(space: Nasrec) -> None:
    for table in ((13, (10,) * 26), (100, (10,) * 3), (16, (10,) * 16)):
        own = space.on(*table)
        least = own.plan(own.smallest())
        others = [own.sample(Random(seed)) for seed in range(20)] + own.neighbours(own.smallest())[::7]
        for other in map(own.plan, others):
            assert least.params <= other.params and least.flops <= other.flops


# Text


@both
def test_texts_and_choices_are_read_back(space: Nasrec) -> None:
    for seed in range(20):
        arch = space.sample(Random(seed))
        assert space.parse(space.text(arch)) == arch
        assert space.parse(space.choice(arch)) == arch
        assert space.parse(json.dumps(json.loads(space.choice(arch)), indent=1)) == arch


def test_a_choice_as_published() -> None:
    micro = {"dense_in_dims": 512, "sparse_in_dims": 64, "dense_sparse_interact": 1, "deep_fm": 0}
    macro = {"dense_left_idx": [0], "dense_right_idx": [0]}
    last: dict[str, Any] = macro | {"dense_idx": [5, 2, 0, 1], "sparse_idx": [6, 2]}
    given = {
        "micro": [{"active_nodes": [1, 2]} | micro] * 7,
        "macro": [macro | {"dense_idx": [0], "sparse_idx": [0]}] * 6 + [last],
        "num_blocks": 7,
        "use_layernorm": 1,
        "config": "autoctr",
        "test_loss": 0.45,
    }
    arch = SMALL.parse(json.dumps(given))
    assert SMALL.text(arch[:1]) == "dot-product:512@0/linear-3d:64@0/0,0/merge"
    assert (arch[6].dense, arch[6].sparse) == ((0, 1, 2, 5), (2, 6))
    written = json.loads(SMALL.choice(arch))
    assert written["micro"] == given["micro"]
    assert written["macro"][6] == last | {"dense_idx": [0, 1, 2, 5], "sparse_idx": [2, 6]}
    with pytest.raises(UserError, match="reads choices of the config 'xlarge'"):
        FULL.parse(json.dumps(given))


def changed(old: str, new: str) -> str:
    """The text of the smallest network with something else in its second block."""
    blocks = SMALL.text(SMALL.smallest()).split("|")
    assert old in blocks[1]
    return "|".join([blocks[0], blocks[1].replace(old, new), *blocks[2:]])


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("linear-2d", "sum", "The ops of block 2 cannot be"),
        (":16@0/", ":17@0/", "The width of block 2 cannot be 17"),
        ("@1/", "@2/", "sparse_idx of block 2 should be 1 to 4 different earlier outputs, 0 to 1"),
        ("@1/", "@1,1/", "different earlier outputs"),
        ("@1/", "@,/", "different earlier outputs"),
        ("plain", "fm,merge", "block 2 is"),
        ("plain", "", "writes blocks as linear-2d:16@0/linear-3d:16@0/0,0/plain"),
    ],
)
def test_what_is_no_block_is_refused(old: str, new: str, why: str) -> None:
    with pytest.raises(UserError, match=why):
        SMALL.parse(changed(old, new))


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "{}",
        '{"micro": 3, "macro": 4}',
        '{"micro": [], "macro": []}',
        '{"micro": [1, 2, 3, 4, 5, 6, 7], "macro": [1, 2, 3, 4, 5, 6, 7]}',
        '{"micro": [[]], "macro": [[], []]}',
        '{"a":' * 5000,
        "|" * 6,
    ],
)
def test_what_is_no_architecture_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(UserError) as refused:
        SMALL.parse(text)
    assert len(str(refused.value).splitlines()) == 1 and len(str(refused.value)) < 400


def test_a_choice_with_wrong_values_is_refused() -> None:
    good = json.loads(SMALL.choice(SMALL.smallest()))
    for level, key, value in (
        ("micro", "active_nodes", [0, 7]),
        ("micro", "active_nodes", [0]),
        ("micro", "dense_in_dims", "16"),
        ("micro", "deep_fm", 2),
        ("macro", "dense_idx", [0, 3]),
        ("macro", "dense_left_idx", [0, 1]),
        ("macro", "sparse_idx", 0),
        ("macro", "sparse_idx", [True]),
    ):
        bad = json.loads(json.dumps(good))
        bad[level][2][key] = value
        with pytest.raises(UserError, match="block 3"):
            SMALL.parse(json.dumps(bad))


# Moves


def test_samples_are_uniform_or_as_nasrec_draws() -> None:
    rng, count = Random(0), 1500
    uniform = Counter(len(SMALL.sample(rng)[6].dense) for _ in range(count))
    nasrec = Counter(len(SMALL._block(7, rng, counts_first=True).dense) for _ in range(count))
    for size in range(1, 5):
        share = comb(7, size) / 98
        assert abs(uniform[size] / count - share) < 4 * (share * (1 - share) / count) ** 0.5
        assert abs(nasrec[size] / count - 0.25) < 4 * (0.25 * 0.75 / count) ** 0.5


def test_mutations_change_what_a_block_is_or_reads_as_often() -> None:
    rng, arch, changes = Random(0), FULL.sample(Random(5)), Counter[str]()
    for _ in range(2000):
        child = FULL.mutate(arch, rng)
        (number,) = [i for i in range(7) if child[i] != arch[i]]
        fields = {
            field for field in child[number]._fields if getattr(child[number], field) != getattr(arch[number], field)
        }
        assert len(fields) == 1 or fields == {"dense_ops", "sparse_ops"}
        changes["reads" if fields & {"dense", "sparse", "left", "right"} else "is"] += 1
    # a resampled choice is the same again with another probability for each, so only roughly as often
    assert 0.6 < changes["reads"] / changes["is"] < 1.4


@both
def test_neighbours_are_all_that_differ_in_one_choice(space: Nasrec) -> None:
    arch = space.sample(Random(1))
    subsets = [sum(comb(n, k) for k in range(1, min(n, 4) + 1)) for n in range(1, 8)]
    ops = len(space.dense_ops) * len(space.sparse_ops) - 1
    expected = 7 * (ops + 7 + 3 + 1 + 1) + sum(2 * (count - 1) + 2 * (n - 1) for n, count in enumerate(subsets, 1))
    found = space.neighbours(arch)
    assert len(found) == len(set(found)) == expected


# Tables and budgets


def test_tables_are_cut_to_a_budget_of_rows_or_bytes() -> None:
    tables = (100, 5, 1000, 40)
    assert SMALL.on(2, tables).tables == tables
    assert SMALL.on(2, tables, max_rows=200).tables == (77, 5, 77, 40)
    assert SMALL.on(2, tables, max_rows=200, max_bytes=64 * 16).tables == (4, 4, 4, 4)
    limited = SMALL.on(2, CRITEO_ROWS, max_bytes=10**8)
    assert 4 * limited.embedding_params <= 10**8 < 4 * limited.embedding_params + 64 * 26
    assert limited.embedding_params == 16 * limited.embedding_rows
    with pytest.raises(UserError, match="need at least 4 rows, or 256 bytes, and 3 rows are allowed"):
        SMALL.on(2, tables, max_bytes=255)


@pytest.mark.parametrize("table", [(0, (3,)), (1, ()), (1, (3, 0))])
def test_a_table_needs_both_kinds_of_features(table: tuple[int, tuple[int, ...]]) -> None:
    with pytest.raises(UserError, match="needs at least 1 dense feature"):
        SMALL.on(*table)


def test_ids_are_folded_into_tables_and_missing_ones_stay() -> None:
    encoding = Encoding(BUILT_IN["criteo"], (10, 10, 10)).capped((4, 1, 2))
    ids = np.array([[0, 0, 0], [3, 5, 9], [4, 1, 1], [7, 0, 2], [8, 2, 0]], np.int32)
    assert encoding.folded(ids).tolist() == [[0, 0, 0], [3, 0, 1], [1, 0, 1], [1, 0, 1], [2, 0, 0]]


def test_a_budget_leaves_embeddings_out() -> None:
    space = SMALL.on(5, TABLES)
    dense, ids = clicks(space, 8)
    batch = from_tensors((dense, ids), torch.zeros(8, dtype=torch.long), num_classes=2)
    fitting = budgeted(space, space.budget(max_params=300_000), batch)
    rng = Random(0)
    for _ in range(5):
        assert own_params(space, fitting.mutate(fitting.sample(rng), rng)) <= 300_000
    assert space.budget(max_flops=7).max_params is None


def test_a_reduced_space_is_part_of_the_whole() -> None:
    space = FULL.reduced(64, 32)
    for seed in range(5):
        arch = space.sample(Random(seed))
        assert FULL.parse(space.text(arch)) == arch
        assert max(block.width for block in arch) <= 64 and max(block.rows for block in arch) <= 32
        assert space.plan(arch).weights == FULL.plan(arch).weights
    with pytest.raises(UserError, match="width of block 1 cannot be 128: nasrec_full has 16, 32, 64"):
        space.parse(PUBLISHED["nasrec_full", "criteo"])
    with pytest.raises(UserError, match="no width up to 8"):
        SMALL.reduced(8)


# Networks


@both
def test_the_contract(space: Nasrec) -> None:
    check_space(space.on(5, TABLES), samples=2, input_shape=(10,))


@both
@pytest.mark.parametrize("dense", [5, 16])
def test_networks_are_those_written_out_by_hand(space: Nasrec, dense: int) -> None:
    own = space.on(dense, TABLES if dense == 5 else (9,) * 16)
    features, ids = clicks(own, 3)
    for seed in range(12):
        arch = own.sample(Random(seed))
        module = own.plan(arch).module().double()
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.3)
        expected = ByHand(module.state_dict())(arch, features.double(), ids)
        assert expected.shape == (3, 1)
        assert torch.allclose(module(features.double(), ids), expected, rtol=1e-8)


def test_every_shortcut_is_taken_by_some_network_that_was_tried() -> None:
    """Widths that fit already: of what dot products read, of pairs of rows, of gates and sums, of merging and FM."""
    block = "linear-2d:16@0/linear-3d:16@0/0,0/plain"
    texts = {
        "dot.vector": f"{block}|dot-product:128@1/linear-3d:16@1/0,0/plain",
        "sigmoid.weigh": f"{block}|sigmoid-gating:16@0/linear-3d:16@0/1,0/plain",
        "sum.weigh": f"{block}|sum:16@0/transformer:16@0/0,1/plain",
        "merge.weigh": f"{block}|linear-2d:128@0/linear-3d:16@0/0,1/merge",
        "fm.weigh": f"{block}|linear-2d:16@0/linear-3d:16@0/0,1/fm",
    }
    space = FULL.on(5, TABLES)
    features, ids = clicks(space, 3)
    for skipped, start in texts.items():
        arch = space.parse("|".join([start, *[block] * 5]))
        module = space.plan(arch).module().double()
        assert not any(name.startswith(f"block2.{skipped}") for name, _ in module.named_parameters())
        expected = ByHand(module.state_dict())(arch, features.double(), ids)
        assert torch.allclose(module(features.double(), ids), expected, rtol=1e-8)
        assert "block2.dot.rows.weigh.weight" not in module.state_dict()


@both
def test_two_inputs_or_one_table_are_the_same_network(space: Nasrec) -> None:
    own = space.on(5, TABLES)
    arch = own.sample(Random(3))
    features, ids = clicks(own, 6)
    plan, packed = own.plan(arch), own.plan(arch, 2, (10,))
    assert plan.weights == packed.weights and plan.flops == packed.flops
    assert torch.equal(plan.module()(features, ids), packed.module()(torch.cat([features, ids], 1)))
    assert own.plan(arch, 7).output_shape == (7,)
    with pytest.raises(UserError, match=r"reads a table of 10 columns here \(5 dense features and 5 ids\)"):
        own.plan(arch, 2, (3, 32, 32))
    with pytest.raises(UserError, match="at least 1 class"):
        own.plan(arch, 0)


@both
def test_printed_code_stands_alone(space: Nasrec) -> None:
    own = space.on(5, TABLES)
    arch = own.sample(Random(4))
    plan = own.plan(arch)
    names: dict[str, Any] = {}
    exec(compile(plan.code(), "printed", "exec", dont_inherit=True), names)
    printed, module = names["Network"](), plan.module()
    printed.load_state_dict(module.state_dict(), strict=True)
    features, ids = clicks(own, 6)
    assert torch.equal(printed(features, ids), module(features, ids))


@both
def test_the_drawing_shows_all_blocks(space: Nasrec) -> None:
    plan = space.plan(space.sample(Random(0)))
    drawn = plan.drawn()
    assert all(f"block{number}" in drawn for number in range(1, 8)) and "embedding" in drawn
    assert "<svg" in plan.svg() and "dot products" in SMALL.plan(
        SMALL.parse(PUBLISHED["nasrec_small", "criteo"])
    ).drawn("block2.dot")
