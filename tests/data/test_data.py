from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from epochzero.data import load, pink, white
from epochzero.errors import DataError, UserError
from tests.data.data_files import Trap, labelled, pixels, save

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("make", [pink, white])
def test_noise_has_the_shape_and_types_asked_for(make: Any) -> None:
    batch = make((2, 5, 8), num_classes=3, size=7, parts=2, seed=1)
    x, y = labelled(batch, 1)
    assert (batch.input_shape, batch.num_classes, batch.size, batch.parts) == ((2, 5, 8), 3, 7, 2)
    assert x.shape == (7, 2, 5, 8)
    assert x.dtype == torch.float32
    assert y.shape == (7,)
    assert y.dtype == torch.int64
    assert x.isfinite().all()
    assert "random labels of 3 classes" in batch.about


def test_labels_are_uniform_over_the_classes() -> None:
    _, y = labelled(pink((1, 2, 2), num_classes=4, size=4000))
    assert y.bincount(minlength=4).sub(1000).abs().max() < 120  # more than four standard deviations of 27


@pytest.mark.parametrize("make", [pink, white])
def test_noise_is_standardised(make: Any) -> None:
    x = torch.cat([make(size=256, seed=seed).part(0)[0] for seed in range(4)])
    assert x.mean((0, 2, 3)).abs().max() < 0.03
    assert (x.std((0, 2, 3)) - 1).abs().max() < 0.03
    assert (x.std(0) - 1).abs().mean() < 0.03  # and so is every pixel


@pytest.mark.parametrize(("make", "slope"), [(pink, -1.0), (white, 0.0)])
def test_slope_of_the_radial_amplitude_spectrum(make: Any, slope: float) -> None:
    x, _ = make((1, 64, 64), size=128).part(0)
    amplitude = torch.fft.fft2(x[:, 0].double()).abs().mean(0)  # [H, W]
    k = torch.fft.fftfreq(64, 1 / 64)
    radius = torch.hypot(k[:, None], k)
    rings = torch.arange(1, 32)
    profile = torch.stack([amplitude[(radius - ring).abs() < 0.5].mean() for ring in rings])
    measured = np.polyfit(rings.log().numpy(), profile.log().numpy(), 1)[0]
    assert measured == pytest.approx(slope, abs=0.03)


def test_channels_of_pink_noise_are_correlated_and_those_of_white_are_not() -> None:
    for make, expected in ((pink, 0.9), (white, 0.0)):
        x, _ = make(size=512).part(0)
        correlation = torch.corrcoef(x.transpose(0, 1).flatten(1))  # [C, C]
        off_diagonal = correlation[~torch.eye(3, dtype=torch.bool)]
        assert (off_diagonal - expected).abs().max() < 0.02


def test_a_part_depends_on_seed_index_shape_and_size_alone() -> None:
    batch = pink(size=8, parts=2)
    x, y = labelled(batch)
    assert torch.equal(pink(size=8, parts=4).part(0)[0], x)
    assert torch.equal(pink(size=8, num_classes=100).part(0)[0], x)
    later = pink(size=8, parts=2)
    later.part(1)
    assert torch.equal(later.part(0)[0], x)
    assert torch.equal(labelled(later)[1], y)
    for other in (batch.part(1)[0], pink(size=8, seed=1).part(0)[0]):
        assert not torch.isclose(other, x).any(dim=0).all()
    assert batch.part(0)[0] is x  # kept, not made again


def test_noise_leaves_the_global_generators_alone() -> None:
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    white().part(0)
    pink().part(1)
    after = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # type: ignore[index]
    assert torch.equal(before[0], after[0])
    assert before[1:] == after[1:]


def test_pink_is_the_same_in_another_process() -> None:
    batch = pink(size=4, parts=2, seed=3)
    code = (
        "import torch; torch.manual_seed(9); from epochzero.data import pink;"
        "b = pink(size=4, parts=2, seed=3);"
        "x, y = b.part(1); print(b.id, x.numpy().tobytes().hex(), y.tolist())"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONHASHSEED": "1"}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout
    x, y = labelled(batch, 1)
    assert out.strip() == f"{batch.id} {x.numpy().tobytes().hex()} {y.tolist()}"


def test_the_id_of_noise_is_readable_and_covers_the_recipe() -> None:
    assert pink().id.startswith("pink-3x32x32-10c-64-s0-")
    ids = {
        make(shape, classes, size, 4, seed).id
        for make in (pink, white)
        for shape in ((3, 32, 32), (1, 32, 32))
        for classes in (10, 100)
        for size in (1, 64)
        for seed in (0, 1)
    }
    assert len(ids) == 32
    assert pink(parts=1).id == pink(parts=4).id  # the parts they share are the same


def test_white_takes_any_shape_and_pink_only_images() -> None:
    assert white((7,), size=2).part(0)[0].shape == (2, 7)
    with pytest.raises(DataError, match=r"\[7\]: use white noise"):
        pink((7,))
    for shape in ((), (3, 0, 4)):
        with pytest.raises(DataError, match="at least 1 element"):
            white(shape)


@given(st.tuples(st.integers(1, 4), st.integers(1, 9), st.integers(1, 9)), st.integers(0, 2**63))
@settings(max_examples=25, deadline=None)
def test_pink_noise_of_any_image_shape_and_seed(shape: tuple[int, int, int], seed: int) -> None:
    x, _ = pink(shape, size=3, seed=seed).part(0)
    assert x.shape == (3, *shape)
    assert x.isfinite().all()
    assert x.abs().max() > 0


def test_a_batch_can_be_sent_to_another_process(tmp_path: Path) -> None:
    for batch in (pink(size=2), load(save(tmp_path / "a.npz", x=pixels(8, 4, 4)), size=2)):
        copy = pickle.loads(pickle.dumps(batch))
        assert copy.id == batch.id
        assert torch.equal(copy.part(1)[0], batch.part(1)[0])


def test_a_part_that_is_not_there() -> None:
    sentence = "This batch has 1 part of 64 samples, and part 2 is needed: give more data or a smaller batch size."
    with pytest.raises(DataError) as error:
        pink(parts=1).part(1)
    assert str(error.value) == sentence
    with pytest.raises(DataError, match="has 4 parts of 64"):
        pink().part(-1)


@pytest.mark.parametrize(
    ("what", "wrong"),
    [
        ("batch size", {"size": 0}),
        ("number of batches", {"parts": 0}),
        ("data seed", {"seed": -1}),
        ("number of classes", {"num_classes": 0}),
    ],
)
def test_numbers_that_make_no_sense(what: str, wrong: dict[str, int], tmp_path: Path) -> None:
    for source in ("pink", "white", save(tmp_path / "a.npz", x=pixels(4, 4, 4))):
        with pytest.raises(UserError, match=f"The {what} is"):
            load(source, **wrong)  # type: ignore[arg-type]


# ---- load


def test_load_makes_noise_by_name() -> None:
    assert load().id == pink().id
    assert load("white", input_shape=(4,), num_classes=2, size=3, parts=1, seed=5).id == white((4,), 2, 3, 1, 5).id


def test_an_unknown_word_gets_a_hint() -> None:
    with pytest.raises(DataError, match=r"No data are called 'pnik'\. Did you mean 'pink'\? Give 'pink', 'white', an"):
        load("pnik")


@pytest.mark.parametrize("source", ["missing.npz", "no/such/folder", "missing.pkl", "p" * 5000])
def test_a_path_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=source[:500]):
        load(source)


@pytest.mark.parametrize("name", ["a.pkl", "a.pickle", "a.pt", "A.PTH", "data_batch_1", "a.npz"])
def test_a_pickle_is_refused_unopened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path(name).write_bytes(pickle.dumps(Trap()))
    with pytest.raises(DataError, match=f"{name} is a pickle, which can run code when it is opened; save it as .npz"):
        load(name)
    assert not Path("sprung").exists()


def test_a_file_of_another_kind(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("x,y\n")
    with pytest.raises(DataError, match=r"a\.csv has an unknown format: give 'pink'"):
        load(path)
