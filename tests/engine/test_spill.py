"""Graphs whose maps lie in a file: the same scores to the last bit, each map written once, and nothing left over."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from io import FileIO
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from epochzero import data
from epochzero.engine import Layer, PlanNetwork, Proxy, parse, score_network
from epochzero.engine.passes import Need
from epochzero.engine.reads import NEED_GRAPH
from epochzero.engine.single import spill
from epochzero.engine.single.spill import Spill
from epochzero.errors import MachineError
from epochzero.registry import proxies, spaces
from epochzero.types import Score

SHAPE = (3, 8, 8)
CELL = "|nor_conv_3x3~0|+|skip_connect~0|nor_conv_1x1~1|+|avg_pool_3x3~0|none~1|nor_conv_3x3~2|"
OF_GRAPHS = [name for name in proxies if any(NEED_GRAPH & set(need.reads) for need in parse(name).needs)]


def precise(name: str) -> Proxy:
    """The proxy with its passes in double precision."""
    found = parse(name)
    return replace(found, needs_of=[Need(replace(run, dtype="float64"), reads) for run, reads in found.needs])


def scores(*names: str) -> dict[str, Score]:
    space = spaces["nb201"]
    network = PlanNetwork(space.plan(space.parse(CELL), 3, SHAPE))
    batch = data.load("pink", num_classes=3, input_shape=SHAPE, size=16)
    return score_network(network, [precise(name) for name in names], batch, 0).scores


@pytest.fixture
def files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Any]:
    """Everything goes to files; these are they."""
    made: list[Any] = []
    really = tempfile.TemporaryFile

    def make(**options: Any) -> Any:
        made.append(really(dir=tmp_path, **options))
        return made[-1]

    monkeypatch.setattr(tempfile, "TemporaryFile", make)
    monkeypatch.setattr(spill, "IN_MEMORY", 0)
    monkeypatch.setattr(spill, "SMALL", 0)
    return made


@pytest.fixture
def own(files: list[Any]) -> Iterator[Spill]:
    found = Spill([])
    yield found
    found.close()


@pytest.mark.parametrize("name", OF_GRAPHS)
def test_every_proxy_that_needs_a_graph_scores_the_same(name: str, request: pytest.FixtureRequest) -> None:
    expected = scores(name)
    files = request.getfixturevalue("files")
    assert scores(name) == expected
    assert files
    assert expected[name].ok or "attention" in expected[name].why


def test_all_in_one_call_score_the_same_and_no_file_is_left(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    expected = scores(*OF_GRAPHS)
    files = request.getfixturevalue("files")
    assert scores(*OF_GRAPHS) == expected
    assert files
    assert all(file.closed for file in files)
    assert not list(tmp_path.iterdir())


def test_a_network_that_fits_makes_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(weights: Any) -> Spill:
        raise AssertionError(f"nothing of {weights} should be written")

    monkeypatch.setattr(spill, "Spill", refuse)
    assert scores("grasp")["grasp"].ok


def test_passes_without_a_graph_make_no_file(files: list[Any]) -> None:
    assert scores("naswot")["naswot"].ok
    assert not files


def test_a_storage_is_written_once_however_it_is_kept(own: Spill, files: list[Any]) -> None:
    x = torch.arange(12.0).view(3, 4)
    kept = [own.keep(view) for view in (x, x, x.mT, x[1:, ::2], x.detach().view(-1))]
    assert len(own_bytes(files)) == 12 * 4
    expected = [view.clone() for view in (x, x, x.mT, x[1:, ::2], x.view(-1))]
    strides = [view.stride() for view in (x, x, x.mT, x[1:, ::2], x.view(-1))]
    x.zero_()
    found = [own.give_back(one) for one in kept]
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
    assert [one.stride() for one in found] == strides
    assert len({one.untyped_storage().data_ptr() for one in found}) == 1


def test_what_was_read_back_is_not_written_again(own: Spill, files: list[Any]) -> None:
    x = torch.rand(4, 4).requires_grad_()
    with saved_tensors_hooks(own.keep, own.give_back):
        y = x.exp()  # keeps y
        (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)  # reads y, and keeps it once more
        (second,) = torch.autograd.grad(first.sum(), x)
    assert torch.allclose(first, 2 * (2 * x).exp())
    assert torch.allclose(second, 4 * (2 * x).exp())
    assert own_bytes(files).count(y.detach().numpy().tobytes()) == 1


def test_what_is_changed_in_place_is_written_anew(own: Spill) -> None:
    x = torch.ones(3)
    before = own.keep(x)
    x.add_(1)
    after = own.keep(x)
    del x
    assert own.give_back(before).tolist() == [1, 1, 1]
    assert own.give_back(after).tolist() == [2, 2, 2]


def test_memory_is_let_go_of_also_by_layers_that_wait_for_a_gradient(own: Spill) -> None:
    layer = Layer("conv", "conv", "a", (torch.arange(3.0),), torch.arange(6.0).view(2, 3).mT, "w", (1, 2))
    there = [StorageWeakRef(one.untyped_storage()) for one in (*layer.inputs, layer.output)]  # type: ignore[no-untyped-call]
    again = own.remember(layer)
    del layer
    assert all(one.expired() for one in there)  # type: ignore[no-untyped-call]
    seen = again()
    assert seen.inputs[0].tolist() == [0, 1, 2]
    assert seen.output.tolist() == [[0, 3], [1, 4], [2, 5]]
    assert (seen.kind, seen.name, seen.weight, seen.weight_shape) == ("conv", "a", "w", (1, 2))


def test_weights_stay_in_memory(files: list[Any]) -> None:
    weight = torch.rand(4, 4)
    own = Spill([weight])
    for view in (weight, weight.mT, weight[1:]):
        kept = own.keep(view)
        assert isinstance(kept, Tensor)
        assert kept.data_ptr() == view.data_ptr()
    assert not files


class SmallWrites(FileIO):
    """A file that takes and gives a few bytes at a time, as it may."""

    def write(self, some: Any) -> int:
        return super().write(some[:1000])

    def readinto(self, some: Any) -> int:
        return super().readinto(some[:700])


def test_a_file_that_takes_a_part_at_a_time(
    monkeypatch: pytest.MonkeyPatch, own: Spill, files: list[Any], tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: SmallWrites(tmp_path / "parts", "w+"))
    x = torch.rand(50, 50)
    kept, expected = own.keep(x), x.clone()
    del x
    assert torch.equal(own.give_back(kept), expected)
    assert not files


@pytest.mark.parametrize("writes", [0, 30, 150])
def test_a_full_disk_stops_with_one_sentence_wherever_it_happens(
    monkeypatch: pytest.MonkeyPatch, files: list[Any], tmp_path: Path, writes: int
) -> None:
    class Full(FileIO):
        left = writes

        def write(self, some: Any) -> int:
            if not self.left:
                raise OSError(errno.ENOSPC, "No space left on device")
            self.left -= 1
            return super().write(some)

    monkeypatch.setattr(tempfile, "TemporaryFile", lambda **_: Full(tmp_path / "full", "w+"))
    with pytest.raises(MachineError, match=r"No space left on device\): make room there") as caught:
        scores("grasp", "fisher", "snip")
    assert len(str(caught.value).splitlines()) == 1
    assert not files


def own_bytes(files: list[Any]) -> bytes:
    (file,) = files
    file.seek(0)
    return bytes(file.read())


def test_freed_memory_is_handed_back_every_so_many_bytes(own: Spill, monkeypatch: pytest.MonkeyPatch) -> None:
    handed_back: list[None] = []
    monkeypatch.setattr(spill, "_trim", lambda: handed_back.append(None))
    monkeypatch.setattr(spill, "TRIM_AFTER", 1000)
    maps = [torch.rand(100) for _ in range(10)]
    kept = [own.keep(one) for one in maps]  # 4,000 bytes, of which each third map makes 1,000
    assert len(handed_back) == 3
    for one in kept:
        own.give_back(one)
    assert len(handed_back) == 6
