"""Checkpoints: nothing half, nothing wrong, nothing that runs code."""

from __future__ import annotations

import os
import pickle
import resource
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epochzero.data.sealed import digest, read, write
from epochzero.ensemble.selection import CHOICE, Job, Settings, choose
from epochzero.errors import DataError, MachineError, UserError
from epochzero.registry import spaces
from epochzero.train.checkpoint import Checkpoints
from epochzero.train.image_data import load_images
from epochzero.train.images import METRICS, plan_for, train
from epochzero.train.recipes import Recipe
from tests.damage import flip
from tests.train.train_images import write as squares

STATE = {
    "weights": {"a": torch.arange(600.0).reshape(20, 30), "b": torch.ones(3, dtype=torch.int64)},
    "epoch": 3,
    "x": [1.5, "t"],
}


class Hostile:
    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.system, (f"touch {self.place}",)


def same(a: object, b: object) -> bool:
    return digest(a) == digest(b)


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write(tmp_path / "a.pt", STATE)
    assert same(read(tmp_path / "a.pt"), STATE)
    assert [file.name for file in tmp_path.iterdir()] == ["a.pt"]
    assert torch.equal(torch.load(tmp_path / "a.pt", weights_only=True)["weights"]["a"], STATE["weights"]["a"])  # type: ignore[index]


def test_a_file_holds_no_more_than_it_is_large(tmp_path: Path) -> None:
    file = tmp_path / "a.pt"
    torch.save({"a": torch.zeros(1).expand(10**12), "sha256": "0" * 64}, file)
    with pytest.raises(DataError, match=r"a\.pt' is damaged"):
        read(file)
    content = BytesIO()
    torch.save({"a": 1}, content)
    with zipfile.ZipFile(content) as whole, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in whole.namelist():
            packed.writestr(name, whole.read(name) + bytes(10**7))
    with pytest.raises(DataError, match=r"a\.pt' is damaged"):
        read(file)


@given(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_damage_is_noticed(tmp_path: Path, place: float, bit: int, cut: bool) -> None:
    """A bit that flips anywhere, or an end that is missing: refused, or harmless; never other numbers."""
    file = tmp_path / "a.pt"
    write(file, STATE)
    content = bytearray(file.read_bytes())
    at = int(place * len(content))
    if cut:
        del content[at:]
    else:
        content[at] ^= 1 << bit
    file.write_bytes(content)
    try:
        assert same(read(file), STATE)
    except DataError as error:
        assert str(file) in str(error)
        assert len(str(error).splitlines()) == 1


def test_a_flipped_weight_is_noticed_by_the_checksum(tmp_path: Path) -> None:
    write(tmp_path / "a.pt", STATE)
    flip(tmp_path / "a.pt", STATE["weights"]["a"])  # type: ignore[index]
    with pytest.raises(DataError, match="does not match its checksum"):
        read(tmp_path / "a.pt")


@pytest.mark.parametrize("zipped", [True, False])
def test_a_pickle_that_would_run_code_is_refused(tmp_path: Path, zipped: bool) -> None:
    place, file = tmp_path / "ran", tmp_path / "evil.pt"
    if zipped:
        torch.save({"weights": Hostile(place)}, file)
    else:
        file.write_bytes(pickle.dumps({"weights": Hostile(place)}))
    with pytest.raises(DataError, match="refused: it holds more than numbers" if zipped else "no PyTorch file at all"):
        read(file)
    assert not place.exists()


@pytest.mark.parametrize("content", [b"", b"no checkpoint", b"PK\x03\x04", bytes(1000)])
def test_other_files_are_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.pt").write_bytes(content)
    with pytest.raises(DataError, match="damaged, cut short or no PyTorch file at all"):
        read(tmp_path / "a.pt")


def test_a_full_disk_keeps_the_old_checkpoint(tmp_path: Path) -> None:
    """A write that really fails, beyond a limit on the size of files."""
    kept = Checkpoints(tmp_path)
    kept.write(1, STATE)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (2000, hard))
    try:
        with pytest.raises(MachineError, match=r"could not be written .*; those before it are safe"):
            kept.write(2, STATE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert [file.name for file in tmp_path.iterdir()] == ["epoch-000001.pt"]
    last = kept.last()
    assert last is not None and same(last, STATE)


def test_metrics_and_choices_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    """Folders stand where the files would be put."""
    file, space = squares(tmp_path / "squares.npz", 8, 4, 8), spaces["resnet"]
    data, recipe = load_images(file), Recipe(epochs=1)
    (tmp_path / METRICS / "taken").mkdir(parents=True)
    with pytest.raises(
        MachineError, match=rf"list of epochs '.*{METRICS}' could not be written .*checkpoints are safe"
    ):
        train(plan_for(space, space.smallest(), data, recipe), data, recipe, folder=tmp_path)
    folder = tmp_path / "ensemble"
    (folder / CHOICE / "taken").mkdir(parents=True)
    with pytest.raises(MachineError, match=rf"The choice '.*{CHOICE}' could not be written"):
        choose(Job(space, data, recipe, Settings("random"), folder=folder))
    assert [place.name for place in folder.iterdir()] == [CHOICE]


def test_the_last_two_are_kept(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    assert kept.last() is None
    for epoch in (1, 2, 9, 10):
        kept.write(epoch, {"epoch": epoch})
    assert [file.name for file in kept.files()] == ["epoch-000010.pt", "epoch-000009.pt"]
    assert kept.last() == {"epoch": 10}


def test_nothing_whole_is_left(tmp_path: Path) -> None:
    kept = Checkpoints(tmp_path)
    (tmp_path / "epoch-000001.pt").write_bytes(b"")
    with pytest.raises(UserError, match=r"Remove the folder .* to start again"):
        kept.last()
