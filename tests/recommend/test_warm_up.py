"""Warm-up: its schedule by hand, its steps against torch's Adagrad on whole weights, and checkpoints."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest
import torch
from torch import Tensor

from epochzero.errors import DataError, MachineError, UserError
from epochzero.plan import execute
from epochzero.recommend.spaces.nasrec import Nasrec
from epochzero.recommend.supernet.warm_up import ClickBatch, Schedule, WarmUp, sampled_path
from epochzero.recommend.supernet.weights import RecommenderSupernet, full_path
from epochzero.registry import spaces
from tests.damage import flip
from tests.recommend.sub_networks import inside
from tests.recommend.test_nasrec import clicks

SMALL: Nasrec = spaces["nasrec_small"].on(5, (7, 30, 4, 50, 11)).reduced(64, 32)
FULL: Nasrec = spaces["nasrec_full"].on(5, (7, 30, 4, 50, 11)).reduced(64, 32)


def click_batches(space: Nasrec, count: int, size: int = 32) -> list[ClickBatch]:
    """Clicks that depend on a feature and on the pair of two categories."""
    found = []
    for i in range(count):
        dense, ids = clicks(space, size, seed=i)
        labels = ((dense[:, 0] > 0) ^ ((ids[:, 0] + ids[:, 2]) % 2 == 0)).float()
        found.append((dense, ids, labels))
    return found


# Schedule


def test_the_rate_rises_and_falls() -> None:
    schedule = Schedule(epoch=1000, level=1.0)
    assert schedule.steps == 1000
    assert schedule.rate(0) == pytest.approx(1e-8)
    assert schedule.rate(50) == pytest.approx(0.06, rel=1e-6)
    assert schedule.rate(100) == pytest.approx(0.12)
    assert schedule.rate(550) == pytest.approx(0.06, rel=1e-6)
    assert schedule.rate(999) == pytest.approx(1e-8 + 0.06 * (1 + math.cos(math.pi * 899 / 900)), rel=1e-6)


def test_a_hundredth_of_an_epoch_scaled_and_not() -> None:
    """Unscaled on Criteo the rate is still at most .012 after 1 %, and nearly every step trains the whole."""
    unscaled = Schedule(epoch=71_625, level=0.01, scaled=False)
    assert unscaled.steps == 716
    assert max(unscaled.rate(step) for step in range(716)) == pytest.approx(0.012, rel=1e-2)
    assert unscaled.full(716) == pytest.approx(1 - 716 / 15_000)
    scaled = replace(unscaled, scaled=True)
    assert max(scaled.rate(step) for step in range(716)) == pytest.approx(0.12)
    assert scaled.full(0) == 1 and scaled.full(75) == pytest.approx(0.5, abs=1e-2) and scaled.full(160) == 0


@pytest.mark.parametrize(("epoch", "level"), [(0, 0.5), (10, -0.1), (10, 1.1)])
def test_what_is_no_share_of_an_epoch_is_refused(epoch: int, level: float) -> None:
    with pytest.raises(UserError, match=r"a share from 0 to 1 of an epoch, not .* has at least 1 step"):
        Schedule(epoch, level)


# Paths


def test_paths_are_drawn_as_nasrec_draws_them() -> None:
    rng, count = Random(0), 2000
    paths = [sampled_path(FULL, rng, 0.0) for _ in range(count)]
    reads = Counter(len(path[6].dense) for path in paths)
    for size, share in enumerate((1 / 8, 3 / 8, 3 / 8, 1 / 8), start=1):
        assert abs(reads[size] / count - share) < 4 * (share * (1 - share) / count) ** 0.5
    assert all(
        len(block.dense_ops) == len(block.sparse_ops) == len(block.left) == 1 for path in paths for block in path
    )
    assert all(FULL.parse(FULL.text(path)) == path for path in paths[:20])


def test_the_whole_comes_with_its_probability_for_each_block() -> None:
    rng, count, whole = Random(0), 1000, full_path(FULL)
    paths = [sampled_path(FULL, rng, 0.3) for _ in range(count)]
    reads_all = sum(all(block.left == every.left for block, every in zip(path, whole, strict=True)) for path in paths)
    assert reads_all / count == pytest.approx(0.3, abs=0.06)
    for number in range(7):
        ops = sum(len(path[number].dense_ops) == 4 and path[number].fm and path[number].merge for path in paths)
        assert ops / count == pytest.approx(0.3, abs=0.06)
    assert sampled_path(FULL, rng, 1.0) == whole


# Steps


@pytest.mark.parametrize("space", [SMALL, FULL], ids=lambda space: space.name)
def test_steps_are_those_of_torchs_adagrad_on_whole_weights(space: Nasrec) -> None:
    warm = WarmUp(RecommenderSupernet(space), Schedule(epoch=12, level=1.0, rise=0.2), seed=3)
    whole = {name: weight.clone().requires_grad_() for name, weight in warm.supernet.weights.items()}
    optimiser = torch.optim.Adagrad(list(whole.values()), lr=0.1, eps=1e-2)
    for step, (dense, ids, labels) in enumerate(click_batches(space, 12)):
        path = sampled_path(space, Random(f"3/{step}"), warm.schedule.full(step))
        optimiser.zero_grad()
        logits = execute(inside(warm.supernet, path), whole, (dense, ids))[:, 0]
        loss = torch.nn.functional.binary_cross_entropy_with_logits(logits, labels)
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(list(whole.values()), 5.0)
        optimiser.param_groups[0]["lr"] = warm.schedule.rate(step)
        optimiser.step()
        assert warm.train_on(dense, ids, labels) == pytest.approx(loss.item(), rel=1e-4)
    for name, weight in warm.supernet.weights.items():
        assert torch.allclose(weight, whole[name], rtol=1e-3, atol=2e-4), name


def test_large_gradients_are_clipped() -> None:
    space = SMALL
    moved = []
    for scale in (1.0, 1e4):
        warm = WarmUp(RecommenderSupernet(space), Schedule(epoch=2, level=1.0, rise=0.0))
        dense, ids, labels = click_batches(space, 1)[0]
        warm.supernet.weights["head.linear.weight"] *= scale
        before = warm.supernet.weights["head.linear.weight"].clone()
        warm.train_on(dense, ids, labels)
        moved.append(float(sum(total.sum() for total in warm.sums.values())) ** 0.5)
        assert not torch.equal(before, warm.supernet.weights["head.linear.weight"])
    assert moved[1] == pytest.approx(5.0, rel=1e-4)


def test_warm_up_learns() -> None:
    warm = WarmUp(RecommenderSupernet(SMALL), Schedule(epoch=40, level=1.0))
    told: list[int] = []
    losses = warm.run(click_batches(SMALL, 40, 64), progress=lambda step, loss: told.append(step))
    assert sum(losses[-10:]) / 10 < 0.9 * sum(losses[:10]) / 10
    assert told == list(range(1, 41))


def test_no_warm_up_changes_nothing() -> None:
    warm = WarmUp(RecommenderSupernet(SMALL), Schedule(epoch=60, level=0.0))
    assert warm.run([]) == [] and warm.supernet.id == RecommenderSupernet(SMALL).id


def test_embeddings_that_no_batch_names_stay() -> None:
    warm = WarmUp(RecommenderSupernet(SMALL), Schedule(epoch=3, level=1.0, rise=0.0))
    before = warm.supernet.weights["embedding.table3"].clone()
    dense, ids, labels = click_batches(SMALL, 1)[0]
    ids[:, 3] = torch.where(ids[:, 3] % 2 == 0, 8, 15)
    warm.train_on(dense, ids, labels)
    moved = (warm.supernet.weights["embedding.table3"] != before).any(1).nonzero().flatten().tolist()
    assert set(moved) == {8, 15}


# Bad data


def bad(batch: ClickBatch, **changes: Tensor) -> ClickBatch:
    named = dict(zip(("dense", "ids", "labels"), batch, strict=True)) | changes
    return named["dense"], named["ids"], named["labels"]


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"dense": torch.zeros(32, 4)}, r"dense features \[B, 5\]"),
        ({"labels": torch.zeros(31)}, r"labels \[B\]"),
        ({"ids": torch.full((32, 5), 50)}, "An id is outside its embedding table"),
        ({"ids": torch.full((32, 5), -1)}, "An id is outside its embedding table"),
        ({"labels": torch.full((32,), 2.0)}, "A label is neither 0 nor 1"),
        ({"labels": torch.full((32,), math.nan)}, "A label is neither 0 nor 1"),
        ({"dense": torch.full((32, 5), math.nan)}, "The loss is nan at step 0"),
    ],
)
def test_bad_batches_are_refused_and_leave_the_weights_alone(changes: dict[str, Tensor], why: str) -> None:
    warm = WarmUp(RecommenderSupernet(SMALL), Schedule(epoch=3, level=1.0))
    with pytest.raises(UserError, match=why):
        warm.train_on(*bad(click_batches(SMALL, 1)[0], **changes))
    assert warm.step == 0 and warm.supernet.id == RecommenderSupernet(SMALL).id


def test_too_little_data_is_an_error() -> None:
    warm = WarmUp(RecommenderSupernet(SMALL), Schedule(epoch=5, level=1.0))
    with pytest.raises(DataError, match="ended after 2 batches, and this warm-up takes 5"):
        warm.run(click_batches(SMALL, 2))


# Checkpoints


def test_a_resumed_warm_up_ends_as_one_that_never_stopped(tmp_path: Path) -> None:
    batches, schedule = click_batches(SMALL, 10), Schedule(epoch=10, level=1.0)
    whole = WarmUp(RecommenderSupernet(SMALL), schedule, seed=5)
    losses = whole.run(batches)
    first = WarmUp(RecommenderSupernet(SMALL), schedule, seed=5)
    head = first.run(batches, steps=4)
    first.save(tmp_path / "warm.pt")
    second = WarmUp.load(tmp_path / "warm.pt", SMALL)
    assert second.step == 4
    assert head + second.run(batches) == losses
    assert second.supernet.id == whole.supernet.id
    assert all(torch.equal(second.sums[name], total) for name, total in whole.sums.items())
    assert [file.name for file in tmp_path.iterdir()] == ["warm.pt"]
    assert second.run(batches) == []


def test_files_that_are_no_checkpoints_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "warm.pt"
    with pytest.raises(UserError, match="does not exist"):
        WarmUp.load(file, SMALL)
    for content in (b"", b"nonsense", b"\x80\x04cos\nsystem\n(S'true'\ntR."):
        file.write_bytes(content)
        with pytest.raises(UserError, match=r"warm.pt' is .* Remove it: the same command"):
            WarmUp.load(file, SMALL)
    torch.save({"weights": {}}, file)
    with pytest.raises(UserError, match="is not a checkpoint of a warm-up"):
        WarmUp.load(file, SMALL)
    torch.save(RecommenderSupernet(SMALL), file)
    with pytest.raises(UserError, match=r"warm.pt' is .* Remove it: the same command"):
        WarmUp.load(file, SMALL)
    warm = WarmUp(RecommenderSupernet(SMALL), Schedule(epoch=3))
    warm.save(file)
    flip(file, warm.supernet.weights["embedding.table0"])
    with pytest.raises(UserError, match=r"warm.pt' is damaged: its content does not match its checksum. Remove it"):
        WarmUp.load(file, SMALL)
    file.write_bytes(file.read_bytes()[:-1000])
    with pytest.raises(UserError, match=r"warm.pt' is .* Remove it: the same command"):
        WarmUp.load(file, SMALL)


def test_a_checkpoint_of_another_space_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "warm.pt"
    WarmUp(RecommenderSupernet(SMALL), Schedule(epoch=3)).save(file)
    with pytest.raises(UserError, match="its space is nasrec_small, and not nasrec_full"):
        WarmUp.load(file, FULL)
    with pytest.raises(UserError, match="its widths is"):
        WarmUp.load(file, SMALL.reduced(32))


def test_a_file_that_cannot_be_written_is_a_failure_of_the_machine(tmp_path: Path) -> None:
    warm = WarmUp(RecommenderSupernet(SMALL), Schedule(epoch=3))
    with pytest.raises(MachineError, match="could not be written"):
        warm.save(tmp_path / "missing" / "warm.pt")
