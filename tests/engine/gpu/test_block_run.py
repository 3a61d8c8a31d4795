"""Populations that run by routines, as on a GPU, with plain operations in place of its kernels."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from epochzero import data
from epochzero.engine.gpu.block_run import BlockRun, routine_of
from epochzero.engine.gpu.routine import NoRoutineError, blocks_with_routines, routine
from epochzero.engine.gpu.routine_steps import Convolution
from epochzero.engine.population import joint_run as lockstep
from epochzero.engine.population import population
from epochzero.engine.population.grouped_ops import GatherSum
from epochzero.engine.population.merge import merge
from epochzero.engine.population.merged import Merged
from epochzero.plan.ops.activation import ReLU
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.norm import BatchNorm
from epochzero.registry import proxies, spaces
from epochzero.spaces import nb201
from tests.engine.population.test_lockstep import SHAPE, assert_equal, in_blocks, precise, scored, some_plans

NB201 = spaces["nb201"]
EVERY = [name for name in proxies if name not in ("tf_tas", "wpca")]
RELAYED = (
    "grad_norm",
    "fisher",
    "jacov",
    "naswot",
    "synflow",
    "zico",
    "ntk_trace",
    "grasp",
    "zen",
    "swap",
    "az_trainability",
)


@pytest.fixture(autouse=True)
def few_cells(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Two cells in a stage: one that follows on a reduction, and one that follows on another."""
    monkeypatch.setattr(nb201, "CELLS", 2)
    nb201.cell.cache_clear()
    yield
    nb201.cell.cache_clear()


@pytest.fixture
def runs_by_blocks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """As if kernels ran here; what ran by routines is noted."""
    noted: list[str] = []

    class Noted(BlockRun):
        def __init__(self, *given: Any, **named: Any) -> None:
            noted.append("run")
            super().__init__(*given, **named)

        def curvature(self, *given: Any) -> dict[str, torch.Tensor]:
            noted.append("curvature")
            return super().curvature(*given)

    monkeypatch.setattr(population, "runs_here", lambda _: True)
    for module in (population, lockstep):
        monkeypatch.setattr(module, "BlockRun", Noted)
    return noted


@pytest.mark.parametrize("size", [2, 12])
def test_every_proxy_scores_a_network_as_it_does_alone(size: int, runs_by_blocks: list[str]) -> None:
    cut = NB201.plan(NB201.smallest(), 3, SHAPE)
    plans = [*some_plans("nb201", size - 1, seed=1), cut]
    batch = data.load("pink", input_shape=SHAPE, num_classes=3, size=4)
    asked = [precise(name) for name in EVERY]
    together = scored(plans, asked, batch, "always")
    assert runs_by_blocks.count("run") >= 8 and "curvature" in runs_by_blocks
    for i in range(0, size, 1 if size < 4 else 5):
        assert_equal(together[i], scored([plans[i]], asked, batch, "never")[0])


@pytest.mark.parametrize("name", RELAYED)
def test_what_runs_by_routines(name: str, runs_by_blocks: list[str]) -> None:
    batch = data.load("pink", input_shape=SHAPE, num_classes=3, size=4)
    found = scored(some_plans("nb201", 3, seed=4), [precise(name)], batch, "always")
    assert runs_by_blocks and any(score.ok for own in found for score in own.values())


def test_networks_without_routines_run_as_before(runs_by_blocks: list[str]) -> None:
    """NAS-Bench-101's cells join and pool; their gradients come out the same through a tape."""
    plans = some_plans("nb101", 2)
    assert not any(map(blocks_with_routines, plans)) and all(map(blocks_with_routines, some_plans("nb201", 3)))
    batch = data.load("pink", input_shape=SHAPE, num_classes=3, size=2)
    asked = [precise("snip"), precise("naswot")]
    for one, other in zip(*(scored(plans, asked, batch, how) for how in ("always", "never")), strict=True):
        assert_equal(one, other)


@pytest.mark.parametrize("groups", [2, 8])
def test_convolutions_in_groups_go_through_a_tape(groups: int, runs_by_blocks: list[str]) -> None:
    """Depthwise ones, too: kernels take each output channel of a network from all of its inputs."""
    grouped = Conv(8, 3, padding=1, groups=groups)
    plan = in_blocks([Conv(8, 3, padding=1), BatchNorm()], [ReLU(), grouped, Conv(8, 1), BatchNorm()])
    body = {size: dict(merge([plan] * size).parts)["block1"] for size in (1, 3, groups)}
    assert blocks_with_routines(plan) == {"block0"}
    assert all(routine_of(part, "train", ()) is None for part in body.values())
    batch = data.load("pink", input_shape=SHAPE, num_classes=3, size=4)
    asked = [precise(name) for name in ("grad_norm", "grasp", "naswot")]
    together, alone = (scored([plan] * 3, asked, batch, how) for how in ("always", "never"))
    assert runs_by_blocks and alone[0]["grasp"].ok
    assert_equal(together[0], alone[0])


@pytest.mark.parametrize("space", ["nb201", "transnas_macro"])
def test_one_sample_of_a_few_pixels(space: str, runs_by_blocks: list[str]) -> None:
    """Where an axis of length one makes a view of what is a copy elsewhere."""
    shape = {"nb201": (3, 4, 4)}.get(space, SHAPE)
    plans = some_plans(space, 1, shape) * 2
    batch = data.load("pink", input_shape=shape, num_classes=3, size=1)
    asked = [precise(name) for name in ("synflow", "grad_norm")]
    together, alone = (scored(plans, asked, batch, how) for how in ("always", "never"))
    assert runs_by_blocks
    for one, other in zip(together, alone, strict=True):
        assert_equal(one, other)


@pytest.mark.parametrize("space", ["nb201", "nb101", "transnas_micro", "darts_search", "mobilenet"])
def test_which_blocks_have_routines_is_guessed_by_their_ops(space: str) -> None:
    """A block has one if it would in each of the networks; none is of use where blocks read two others."""
    plans = some_plans(space, 6, (3, 32, 32))
    if space == "mobilenet":
        plans = plans[:1] * 2  # its networks have skeletons of their own
    merged = merge(plans)
    known = {name for name, part in merged.parts if routine_of(part, "train", ()) is not None}
    assert set.intersection(*(set(blocks_with_routines(plan)) for plan in plans)) == (
        set() if space == "darts_search" else known
    )


def cell_of(merged: Merged) -> Merged:
    return dict(merged.parts)["cell0"]


def test_maps_that_nobody_needs_are_not_computed() -> None:
    """The convolutions of a node that leads nowhere; with ReLUs watched, what these are given is needed."""
    dead = NB201.parse("|skip_connect~0|+|nor_conv_3x3~0|nor_conv_3x3~1|+|nor_conv_1x1~0|none~1|none~2|")
    merged = merge([NB201.plan(dead, 3, SHAPE)] * 2)
    convolved = [step for step in routine(cell_of(merged), True).steps if isinstance(step, Convolution)]
    assert [len(step.which) for step in convolved if len(step.which)] == [2]
    watched = routine(cell_of(merged), True, ["relus"])
    assert sum(len(slots) for _, slots in watched.relus.values()) > 0


def test_a_cell_that_comes_again_with_more_channels_is_merged_once() -> None:
    merged = merge(some_plans("nb201", 6, seed=2))
    parts = dict(merged.parts)
    first, later = parts["cell0"], parts["cell3"]
    assert first.routines is later.routines and first.packs is later.packs
    tables = [[node.op for node in part.plan.nodes if isinstance(node.op, GatherSum)] for part in (first, later)]
    assert tables[0] == tables[1]
    channels = {node.shape[0] // later.maps[node.name] for node in later.plan.nodes}
    assert channels == {2 * (node.shape[0] // first.maps[node.name]) for node in first.plan.nodes}


def test_merging_anew_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = some_plans("nb201", 6, seed=2)
    quick = merge(plans)
    monkeypatch.setattr("epochzero.engine.population.merge.resized", lambda *_: None)
    slow = merge(plans)
    assert [(type(node.op), *node[1:]) for node in quick.plan.nodes] == [
        (type(node.op), *node[1:]) for node in slow.plan.nodes
    ]
    assert quick.packs == slow.packs and quick.plan.weights == slow.plan.weights
    assert quick.members.keys() == slow.members.keys()
    for name, members in quick.members.items():
        assert all(np.array_equal(a, b) for a, b in zip(members, slow.members[name], strict=True))


def test_a_block_that_reads_what_is_rectified_has_no_routine() -> None:
    merged = merge([NB201.plan(NB201.smallest(), 3, SHAPE)] * 2)
    head = dict(merged.parts)["head"]
    with pytest.raises(NoRoutineError):
        routine(head, True)
    assert routine_of(head, "train", ()) is None and routine_of(cell_of(merged), "train", ()) is not None
