"""Lockstep: a population scores as its members do one by one, whatever its size and order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest
import torch
from scipy.stats import spearmanr
from torch import Tensor

from epochzero import data
from epochzero.data import Batch
from epochzero.engine import PlanNetwork, Proxy, parse, score_population
from epochzero.engine.failure import PassFailedError
from epochzero.engine.passes import Item, Need, Pass, Summed
from epochzero.engine.population import scoring
from epochzero.engine.population.joint_run import run_together
from epochzero.engine.population.merge import merge, mergeable
from epochzero.engine.population.population import Population
from epochzero.engine.score import score_together
from epochzero.engine.single import score as single
from epochzero.engine.single.run import run_pass
from epochzero.errors import MachineError
from epochzero.plan import Builder, Plan, execute
from epochzero.plan.init import draw
from epochzero.plan.ops.activation import GELU, ReLU
from epochzero.plan.ops.base import Op
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.pool import GlobalAvgPool, TokenMean
from epochzero.plan.ops.token import ClassToken, ToTokens
from epochzero.plan.ops.wiring import Add, Zero
from epochzero.plan.plan import Inlined
from epochzero.registry import proxies, spaces
from epochzero.spaces import nb201
from epochzero.types import Origin, Score
from tests.proxies.nets import conv_net, cut_net, dead_path_net, shared_net

FEW = {
    "lswag": "lswag(samples=4)",
    "near": "near(samples=4)",
    "swap": "swap(repeats=2,samples=4)",
    "swap_reg": "swap_reg(repeats=2,samples=4)",
}
SHAPE = (3, 8, 8)
pytestmark = pytest.mark.usefixtures("repeating_nb201")


def precise(name: str) -> Proxy:
    """A proxy whose passes run in double precision."""
    found = parse(FEW.get(name, name))
    needs = [Need(replace(need.run, dtype="float64"), need.reads) for need in found.needs]
    return replace(found, needs_of=needs)


def some_plans(space: str, count: int, shape: tuple[int, ...] = SHAPE, seed: int = 0) -> list[Plan]:
    found, rng = spaces[space], Random(seed)
    return [found.plan(found.sample(rng), 3, shape) for _ in range(count)]


def scored(plans: Sequence[Plan], asked: Sequence[Proxy], batch: Batch, lockstep: Any) -> list[dict[str, Score]]:
    networks = [PlanNetwork(plan) for plan in plans]
    return [one.scores for one in score_population(networks, asked, batch, 0, lockstep)]


def scored_as_merged(plans: Sequence[Plan], asked: Sequence[Proxy], batch: Batch) -> list[dict[str, Score]]:
    """As a population even where there is one network, which the engine would run alone."""
    return score_together([PlanNetwork(plan) for plan in plans], asked, batch, 0)


def assert_equal(ours: dict[str, Score], alone: dict[str, Score], rel: float = 1e-8) -> None:
    for name, expected in alone.items():
        found = ours[name]
        assert (found.status, found.why) == (expected.status, expected.why), name
        if expected.ok:
            assert found.value == pytest.approx(expected.value, rel=rel, abs=1e-12), name


@pytest.mark.parametrize("size", [1, 7, 64])
def test_every_proxy_scores_a_network_the_same_whatever_its_company(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Shuffled populations against one by one; among them a network that is cut off."""
    if size > 7:
        monkeypatch.setattr(nb201, "CELLS", 1)
    asked = [precise(name) for name in proxies if name not in ("tf_tas", "wpca")]
    cut = spaces["nb201"].plan(spaces["nb201"].smallest(), 3, SHAPE)
    plans = [*some_plans("nb201", max(1, size - 1), seed=1), cut][:size]
    batch = data.load("pink", input_shape=SHAPE, num_classes=3, size=4)
    order = Random(2).sample(range(size), size)
    together = dict(zip(order, scored_as_merged([plans[i] for i in order], asked, batch), strict=True))
    for i in range(0, size, 1 if size <= 7 else 21):
        alone = scored(plans[i : i + 1], asked, batch, "never")[0]
        assert_equal(together[i], alone)
        assert plans[i] is cut or sum(score.ok for score in alone.values()) > len(asked) - 3


def test_in_single_precision_a_population_ranks_as_its_members_do_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sums are cut in another way, so digits differ; some of the networks are equal but for rounding."""
    monkeypatch.setattr(nb201, "CELLS", 1)
    monkeypatch.setattr(nb201, "WIDTHS", (4, 8, 16))
    asked = [parse(FEW.get(name, name)) for name in proxies if name not in ("tf_tas", "wpca")]
    plans = some_plans("nb201", 48, seed=7)
    batch = data.load("pink", input_shape=SHAPE, num_classes=3, size=4)
    order = Random(2).sample(range(48), 48)
    together = dict(zip(order, scored([plans[i] for i in order], asked, batch, "always"), strict=True))
    alone = scored(plans, asked, batch, "never")
    for proxy in asked:
        pairs = [(alone[i][proxy.text], together[i][proxy.text]) for i in range(48)]
        assert all(one.status == other.status for one, other in pairs), proxy.text
        values = [(one.value, other.value) for one, other in pairs if one.ok]
        ranked = spearmanr([one for one, _ in values], [other for _, other in values])
        assert len(values) > 30 and ranked.statistic >= 0.999, proxy.text


def test_what_no_network_can_run_is_said_of_each() -> None:
    """At one place and one sample there is no variance for a batch norm; zen has several samples."""
    plans = some_plans("nb201", 2, (3, 4, 4))
    batch = data.load("pink", input_shape=(3, 4, 4), num_classes=3, size=3)
    asked = [precise("dextr"), precise("zen")]
    alone, together = (scored(plans, asked, batch, how) for how in ("never", "always"))
    for one, other in zip(together, alone, strict=True):
        assert_equal(one, other)
        assert "more than one value for each channel" in one["dextr"].why and one["zen"].ok


@pytest.mark.parametrize("space", ["nats_sss", "nb101", "darts_search", "transnas_macro", "autoformer_tiny"])
def test_last_maps_and_gradients_between_blocks_in_other_spaces(space: str) -> None:
    """Maps of several widths, networks of several depths, cells that read two others, tokens."""
    shape = {"autoformer_tiny": (3, 32, 32), "darts_search": (3, 16, 16)}.get(space, SHAPE)
    plans = some_plans(space, 2, shape, seed=3)
    asked = [precise(name) for name in ("zen", "az_trainability", "az_expressivity")]
    batch = data.load("pink", input_shape=shape, num_classes=3, size=2)
    alone, together = (scored(plans, asked, batch, how) for how in ("never", "always"))
    for one, other in zip(together, alone, strict=True):
        assert_equal(one, other)
    assert all(found.ok for found in alone[0].values())


def test_no_network_runs_alone_for_zen_trainability_or_swap(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("run alone")

    monkeypatch.setattr(scoring, "run_pass", refuse)
    monkeypatch.setattr(single, "run_pass", refuse)
    batch = data.load("pink", input_shape=SHAPE, num_classes=3, size=4)
    asked = [parse(FEW.get(name, name)) for name in ("zen", "az_trainability", "az_expressivity", "swap", "swap_reg")]
    assert all(score.ok for own in scored(some_plans("nb201", 3), asked, batch, "always") for score in own.values())


def in_blocks(*blocks: Sequence[Op]) -> Plan:
    """Ops one after the other and a head, each block put in as one."""
    net = Builder()
    shape: tuple[int, ...] = SHAPE
    x = net.input(shape)
    for name, ops in enumerate((*blocks, (GlobalAvgPool(), Linear(3)))):
        block = Builder()
        last = block.input(shape)
        for i, op in enumerate(ops):
            last = block.add(op, last, name=f"op{i}")
        x, shape = net.inline(block.plan(), x, name=f"block{name}"), block.shape(last)
    return net.plan()


def test_a_network_that_is_cut_at_its_stem_has_no_gradients_among_others_either() -> None:
    plans = [in_blocks([stem, Conv(3, 1)], [Conv(3, 3, padding=1)]) for stem in (Zero(), ReLU())]
    batch = data.load("pink", input_shape=SHAPE, num_classes=3, size=4)
    cut, whole = (own["az_trainability"] for own in scored(plans, [precise("az_trainability")], batch, "always"))
    assert whole.ok and "no gradient passes" in cut.why


def test_blocks_that_are_known_by_their_names_alone() -> None:
    """`conv_net` has its blocks side by side, and dotted names in place of blocks."""
    plans = [conv_net().plan, conv_net().plan]
    batch = data.load("pink", input_shape=plans[0].input_shapes[0], num_classes=3, size=4)
    asked = [precise(name) for name in ("az_trainability", "az_expressivity", "zen")]
    alone, together = (scored(plans, asked, batch, how) for how in ("never", "always"))
    assert_equal(together[0], alone[0])
    assert together[0]["az_expressivity"].ok


def test_values_that_are_added_up_in_passing() -> None:
    """The sum over layers where they have one shape, and a list to be added up where they do not."""
    plans = some_plans("nb201", 3)
    batch = data.load("pink", input_shape=SHAPE, num_classes=3, size=4)

    def total(output: Tensor) -> Tensor | None:
        return output.sum((0, *range(2, output.dim()))) if output.dim() > 2 else None

    networks = [PlanNetwork(plan) for plan in plans]
    for function in (torch.sum, total):
        items: list[Item] = [("layers", function), ("layers", Summed(function))]
        run = Pass(dtype="float64")
        columns = run_together(run, items, Population(networks), batch, 0)
        for p, network in enumerate(networks):
            each, summed = run_pass(run, items, network, batch, 0).values()
            found = columns.read(items[1], p)
            if function is torch.sum:
                assert len(summed) == len(found) == 1
                assert torch.allclose(summed[0], torch.stack(each).sum(0))
                assert torch.allclose(found[0], summed[0])
            else:
                assert isinstance(summed, PassFailedError) and "do not add up" in str(summed)
                assert sum(one.sum() for one in found if one is not None).item() == pytest.approx(
                    sum(one.sum() for one in each if one is not None).item()
                )


def test_last_maps_and_layers_are_added_up_beside_each_other() -> None:
    """A node may hold some networks' last maps beside layers of others."""
    conv = Conv(3, 3, padding=1)
    networks = [PlanNetwork(in_blocks(*[[conv]] * depth)) for depth in (2, 1, 3)]
    batch = data.load("pink", input_shape=SHAPE, num_classes=3, size=4)
    items: list[Item] = [(stream, Summed(torch.sum)) for stream in ("layers", "features")]
    run = Pass(dtype="float64")
    columns = run_together(run, items, Population(networks), batch, 0)
    for p, network in enumerate(networks):
        for item, expected in run_pass(run, items, network, batch, 0).items():
            torch.testing.assert_close(columns.read(item, p)[0], expected[0])


OF_WEIGHTS = {
    Pass(dtype="float64"): ("weights", "gradients", "hessian_gradients", "parameters", "parameter_gradients"),
    Pass(inputs="ones", weights="absolute", norm="off", dtype="float64"): ("weights", "log_gradients"),
}


def token_mixer(*widths: int) -> Plan:
    """Residual pairs of linear layers, each of which works on every token."""
    net = Builder()
    x = net.add(Conv(6, 4, stride=4), net.input(SHAPE), name="patches")
    x = net.add(ClassToken(), net.add(ToTokens(), x, name="tokens"), name="first")
    for i, width in enumerate(widths):
        inner = net.add(GELU(), net.add(Linear(width), x, name=f"widen{i}"), name=f"bend{i}")
        x = net.add(Add(), x, net.add(Linear(6), inner, name=f"narrow{i}"), name=f"sum{i}")
    net.add(Linear(3), net.add(TokenMean(), x, name="mean"), name="head")
    return net.plan()


@pytest.mark.parametrize(
    "space", ["tokens", "nb201", "nats_sss", "mlp", "transnas_macro", "nb101", "darts_search", "autoformer_tiny"]
)
def test_each_network_gets_every_one_of_its_weights_and_their_gradients(space: str) -> None:
    """In its order. Layers that work on tokens cannot run as one layer of several networks: they run one by one."""
    shape = {"autoformer_tiny": (3, 32, 32), "mlp": (1, 28, 28), "transnas_macro": (3, 16, 16)}.get(space, SHAPE)
    if space == "tokens":
        plans = [token_mixer(*widths) for widths in ((8,), (8, 5, 8), (5, 8), ())]
    else:
        plans = some_plans(space, 2, shape)
    batch = data.load("pink", input_shape=shape, num_classes=3, size=2)
    networks = [PlanNetwork(plan) for plan in plans]
    for run, reads in OF_WEIGHTS.items():
        items: list[Item] = [(read, None) for read in reads]
        columns = run_together(run, items, Population(networks), batch, 0)
        for p, network in enumerate(networks):
            for item, expected in run_pass(run, items, network, batch, 0).items():
                found = columns.read(item, p)
                assert [one.shape for one in found] == [one.shape for one in expected], item
                scale = max(float(one.abs().max()) for one in expected)
                for one, other in zip(found, expected, strict=True):
                    torch.testing.assert_close(one, other, rtol=0, atol=1e-9 * scale)


def test_what_needs_no_run_is_not_merged(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("merged")

    monkeypatch.setattr(Population, "prepare", refuse)
    plans, batch = some_plans("nb201", 3), data.load("pink", input_shape=SHAPE, size=2)
    found = scored(plans, [parse("params"), parse("flops")], batch, "always")
    assert [own["params"].value for own in found] == [plan.params for plan in plans]


FAMILIES = [
    *("nb201", "nb101", "nb1shot1_s2", "nats_sss", "transnas_micro", "transnas_macro"),
    *("darts_search", "nb301_naslib", "autoformer_tiny", "mobilenet", "mlp"),
]


@pytest.mark.parametrize("space", FAMILIES)
def test_merged_networks_of_every_space_give_their_own_outputs(space: str) -> None:
    shape = {"autoformer": (3, 32, 32), "mlp": (1, 28, 28), "darts": (3, 32, 32), "mobilen": (3, 32, 32)}
    size = next((shape[key] for key in shape if space.startswith(key)), (3, 16, 16))
    plans = some_plans(space, 3, size)
    assert all(map(mergeable, plans))
    merged = merge(plans)
    weights = [{name: w.double() for name, w in draw(plan.weights, Origin()).items()} for plan in plans]
    packed = {name: torch.cat([weights[p][own] for p, own in parts]) for name, parts in merged.packs.items()}
    x = torch.randn(2, *size, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    joint = execute(merged.plan, packed, [torch.cat([x] * 3, 1)])
    for plan, own, found in zip(plans, weights, joint.chunk(3, 1), strict=True):
        assert torch.allclose(found, execute(plan, own, [x]), rtol=1e-10, atol=1e-12)
    layers = sum(len(members.networks) for members in merged.members.values())
    assert layers == sum(bool(node.op.kind) for plan in plans for node in plan.nodes)
    assert sum(plan.flops for plan in plans) == merged.plan.flops


def test_a_cell_that_comes_again_is_merged_once_and_convolutions_are_few() -> None:
    merged = merge(some_plans("nb201", 16))
    assert merged.blocks is not None and merged.blocks[:2] == ("stem", "cell0")
    blocks = {piece.name: piece.block for piece in merged.plan.pieces if isinstance(piece, Inlined)}
    assert blocks["cell0"] is blocks["cell1"]
    alone = sum(node.op.kind == "conv" for plan in some_plans("nb201", 16) for node in plan.nodes)
    together = sum(node.op.kind == "conv" for node in merged.plan.nodes)
    assert together < alone / 5


def test_networks_that_share_parameters_run_alone() -> None:
    batch = data.load("pink", input_shape=(3, 6, 6), num_classes=3, size=3)
    assert not mergeable(shared_net().plan)
    networks = [shared_net(), conv_net(), dead_path_net(), cut_net()]
    assert not Population.fits(networks) and Population.fits(networks[1:])
    asked = [parse("snip"), parse("fmi")]
    together = score_population(networks, asked, batch, 0, "always")
    alone = score_population(networks, asked, batch, 0, "never")
    assert [one.scores for one in together] == [one.scores for one in alone]


def test_out_of_memory_the_population_halves_and_never_the_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    real = run_together

    def cramped(run: Any, items: Any, population: Population, batch: Batch, seed: int) -> Any:
        sizes.append(population.size)
        if population.size > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return real(run, items, population, batch, seed)

    plans, asked = some_plans("nb201", 8), [parse("synflow")]
    batch = data.load("pink", input_shape=SHAPE, num_classes=3, size=2)
    alone = scored(plans, asked, batch, "never")
    monkeypatch.setattr(scoring, "run_together", cramped)
    for one, other in zip(scored(plans, asked, batch, "always"), alone, strict=True):
        assert_equal(one, other, rel=1e-5)
    assert sizes == [8, 4, 2, 2, 4, 2, 2]


def test_a_device_too_small_for_one_network_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(scoring, "run_together", full)
    monkeypatch.setattr(scoring, "run_pass", full)
    monkeypatch.setattr(single, "run_pass", full)
    with pytest.raises(MachineError, match="Out of memory on one network with"):
        scored(some_plans("nb201", 3), [parse("synflow")], data.load("pink", input_shape=SHAPE, size=2), "always")
