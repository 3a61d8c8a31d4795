"""Shared weights of NASRec's spaces: sub-networks inside and as copies are one function and score alike."""

from __future__ import annotations

from random import Random

import pytest
import torch
from torch import Tensor

from epochzero.data import Batch, from_tensors
from epochzero.engine import parse_list
from epochzero.errors import UserError
from epochzero.plan import execute
from epochzero.plan.ops.sliced import regions
from epochzero.recommend.spaces.nasrec import Nasrec
from epochzero.recommend.supernet.warm_up import sampled_path
from epochzero.recommend.supernet.weights import OF_GRADIENTS, RecommenderSupernet, full_path
from epochzero.registry import spaces
from epochzero.types import Origin
from tests.recommend.sub_networks import inside, scores_inside
from tests.recommend.test_nasrec import clicks

SPACES = [spaces[name].on(5, (7, 30, 4, 50, 11)).reduced(64, 32) for name in ("nasrec_small", "nasrec_full")]
each = pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
ALIKE = (
    "sigeo,sigeo(weights=warm_recommender),zico(batches=4),snip,grad_norm,plain,grasp,naswot,synflow,nasi_trace,flops"
)
"""proxies that read gradients or activations"""


def scrambled(space: Nasrec) -> RecommenderSupernet:
    """A supernet in which no two weights are alike: norms and biases are random too."""
    supernet = RecommenderSupernet(space)
    rng = torch.Generator().manual_seed(1)
    for name, weight in supernet.weights.items():
        if "norm" in name or "bias" in name:
            weight.add_(torch.randn(weight.shape, generator=rng), alpha=0.3)
    return supernet


def four_parts(space: Nasrec) -> Batch:
    dense, ids = clicks(space, 64)
    labels = torch.randint(0, 2, (64,), generator=torch.Generator().manual_seed(2))
    return from_tensors((dense, ids), labels, parts=4, num_classes=2)


@each
def test_inside_and_alone_are_one_function(space: Nasrec) -> None:
    supernet = scrambled(space)
    dense, ids = clicks(space, 9)
    for seed in range(15):
        arch = space.sample(Random(seed))
        made = space.network(arch)
        alone = made.plan.module()
        alone.load_state_dict(supernet.inherited(made.places), strict=True)
        shared = inside(supernet, arch)
        with torch.no_grad():
            found = execute(shared, supernet.weights, (dense, ids))
            assert torch.allclose(found, alone(dense, ids), rtol=1e-5, atol=1e-6)
        assert shared.flops == made.plan.flops and set(shared.weights) == set(made.plan.weights)


@each
def test_any_path_runs_inside_and_alone(space: Nasrec) -> None:
    supernet = scrambled(space)
    dense, ids = clicks(space, 9)
    for seed, full in enumerate((0.0, 0.3, 0.6, 1.0)):
        path = sampled_path(space, Random(seed), full)
        made = space.network(path)
        alone = execute(made.plan, supernet.inherited(made.places), (dense, ids))
        assert torch.equal(execute(inside(supernet, path), supernet.weights, (dense, ids)), alone)
        assert alone.std() > 0


@each
def test_the_full_path_uses_whole_weights(space: Nasrec) -> None:
    supernet = RecommenderSupernet(space)
    made = space.network(full_path(space))
    assert supernet.params.items() >= made.plan.weights.items()
    for name, where in made.places.items():
        (whole, part), *others = regions(where)
        assert ((whole == part) and not others) or "embedding" not in name
        assert tuple(sum(b - a for a, b in axis) for axis in where) == supernet.params[name].shape


@each
def test_changing_what_a_sub_network_does_not_use_changes_nothing(space: Nasrec) -> None:
    supernet = scrambled(space)
    dense, ids = clicks(space, 9)
    arch = space.sample(Random(7))
    made = space.network(arch)
    before = execute(inside(supernet, arch), supernet.weights, (dense, ids))
    for name, weight in supernet.weights.items():
        kept = weight.clone()
        weight.add_(1.0)
        for whole, _ in regions(made.places[name]) if name in made.places else ():
            weight[whole] = kept[whole]
    assert torch.equal(execute(inside(supernet, arch), supernet.weights, (dense, ids)), before)


@each
def test_scores_inside_and_alone_are_the_same(space: Nasrec) -> None:
    supernet, batch = scrambled(space), four_parts(space)
    archs = [space.sample(Random(seed)) for seed in range(2)]
    proxies = parse_list(ALIKE)
    copies, within = supernet.scores(archs, proxies, batch), scores_inside(supernet, archs, proxies, batch)
    for one, other in zip(copies, within, strict=True):
        for proxy, score in one.items():
            assert score.ok, (proxy, score.why)
            rel = 1e-6 if proxy.startswith("sigeo") else 1e-5
            assert other[proxy].value == pytest.approx(score.value, rel=rel, abs=1e-7), proxy
    assert copies[0] != copies[1]


@each
def test_rows_that_no_sample_names_add_nothing_to_proxies_of_gradients(space: Nasrec) -> None:
    """Of tables of which the samples name a few rows; the whole ones are scored where a proxy of another kind is."""
    space = space.on(5, (700, 30, 4, 5000, 110))
    supernet, batch = scrambled(space), four_parts(space)
    few, renumbered = supernet.of_named_rows(batch)
    assert few.space.embedding_rows < 64 * 5 and few.weights["embedding.table2"].shape[0] == 4
    arch, alike = space.sample(Random(4)), ",".join(sorted(OF_GRADIENTS))
    (whole,) = supernet.scores([arch], parse_list(f"{alike},params"), batch)
    (named,) = supernet.scores([arch], parse_list(alike), batch)
    (within,) = scores_inside(supernet, [arch], parse_list(alike), batch)
    (again,) = few.scores([arch], parse_list(alike), renumbered)
    assert whole["params"].value == space.plan(arch).params and again == named
    for proxy, score in named.items():
        assert score.ok and score.value == pytest.approx(whole[proxy].value, rel=1e-5), proxy
        assert score.value == pytest.approx(within[proxy].value, rel=1e-5), proxy


def test_the_loss_of_one_logit_is_the_log_loss_of_clicks() -> None:
    """sigeo's loss term alone, lambda = (0, 0, 1), against the formula."""
    space = SPACES[0]
    supernet, batch = scrambled(space), four_parts(space)
    arch = space.sample(Random(3))
    (scores,) = supernet.scores([arch], parse_list("sigeo(weights=0/0/1)"), batch)
    (score,) = scores.values()
    network = supernet.network(arch, batch)
    x, y = batch.part(3)
    assert y is not None
    clicked = torch.sigmoid(network.forward(x, network.weights, "train")[:, 0].double())
    expected = -(torch.where(y == 1, clicked, 1 - clicked).log().mean())
    assert score.value == pytest.approx(-float(expected), rel=1e-5)


def test_scores_depend_on_the_weights_and_not_on_neighbours() -> None:
    space = SPACES[0]
    batch, proxies = four_parts(space), parse_list("sigeo")
    archs = [space.sample(Random(seed)) for seed in range(3)]
    one, other = RecommenderSupernet(space), RecommenderSupernet(space, Origin("xavier", 1))
    together = one.scores(archs, proxies, batch)
    assert [one.scores([arch], proxies, batch)[0] for arch in archs] == together
    assert other.scores(archs[:1], proxies, batch)[0] != together[0]
    assert one.id != other.id and one.id == RecommenderSupernet(space).id


def test_weights_of_another_supernet_are_refused() -> None:
    small, full = (RecommenderSupernet(space) for space in SPACES)
    with pytest.raises(UserError, match="does not belong"):
        RecommenderSupernet(SPACES[0], full.weights)
    wrong: dict[str, Tensor] = small.weights | {"head.linear.bias": torch.zeros(2)}
    with pytest.raises(UserError, match=r"'head.linear.bias' should be of shape \[1\] and is \[2\]"):
        RecommenderSupernet(SPACES[0], wrong)
