from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from epochzero.data import load
from epochzero.errors import DataError
from tests.data.data_files import Trap, labelled, pixels, save

REAL = Path(__file__).parents[2] / "../shared/data/cifar10.npz"


@pytest.mark.parametrize("keys", [("x", "y"), ("x_train", "y_train")])
def test_npz_is_standardised_by_the_whole_training_array(tmp_path: Path, keys: tuple[str, str]) -> None:
    x, y = pixels(50, 6, 6, 3), np.arange(50) % 7
    path = save(tmp_path / "My Set.npz", **{keys[0]: x, keys[1]: y, "x_test": x[:2]})
    batch = load(path, size=10, parts=5)
    scaled = x / 255
    expected = (scaled - scaled.mean((0, 1, 2))) / scaled.std((0, 1, 2))
    expected = torch.from_numpy(expected.transpose(0, 3, 1, 2)).float()
    drawn = torch.cat([batch.part(i)[0] for i in range(5)])
    labels = torch.cat([labelled(batch, i)[1] for i in range(5)])
    order = torch.cdist(drawn.flatten(1), expected.flatten(1)).argmin(1)
    assert sorted(order.tolist()) == list(range(50))  # each sample once, with its own label
    assert labels.tolist() == y[order].tolist()
    torch.testing.assert_close(drawn, expected[order], rtol=0, atol=1e-6)
    assert drawn.double().mean((0, 2, 3)).abs().max() < 1e-6
    assert (drawn.double().std((0, 2, 3), correction=0) - 1).abs().max() < 1e-6
    assert batch.num_classes == 7
    assert batch.input_shape == (3, 6, 6)
    assert batch.id.startswith("my-set-")
    assert f"mean ({scaled[..., 0].mean():.4g}" in batch.about
    assert "50 of the 50 training samples of My Set.npz, drawn with seed 0; scaled to [0, 1]" in batch.about
    assert "real labels, 7 classes" in batch.about


def test_a_hand_checked_file(tmp_path: Path) -> None:
    x = np.array([0, 0, 255, 255, 255, 255, 0, 0], np.uint8).reshape(2, 2, 2)  # grey, mean .5, std .5
    batch = load(save(tmp_path / "a.npz", x=x), size=2, num_classes=5)
    z, y = batch.part(0)
    assert batch.input_shape == (1, 2, 2)
    assert sorted(z.flatten(1).tolist()) == [[-1, -1, 1, 1], [1, 1, -1, -1]]
    assert y is None
    assert "mean (0.5) and std (0.5)" in batch.about
    assert "no labels, 5 classes" in batch.about


@pytest.mark.parametrize(
    ("stored", "shape"),
    [
        ((1, 8, 9, 3), (3, 8, 9)),
        ((1, 1, 8, 9), (1, 8, 9)),
        ((1, 3, 4, 4), (3, 4, 4)),  # both axes could be channels: the images are square
        ((1, 4, 4, 3), (3, 4, 4)),
        ((1, 3, 8, 1), (1, 3, 8)),  # neither reading is square: the last axis
        ((1, 3, 3, 3), None),  # both are: the last axis
    ],
)
def test_layouts(tmp_path: Path, stored: tuple[int, ...], shape: tuple[int, ...] | None) -> None:
    x = pixels(*stored)
    batch = load(save(tmp_path / "a.npz", x=x), size=1)
    channels_first = x if shape == stored[1:] else x.transpose(0, 3, 1, 2)
    assert batch.input_shape == (shape or (3, 3, 3)) == channels_first.shape[1:]
    centred = channels_first - channels_first.mean((0, 2, 3), keepdims=True)
    expected = torch.from_numpy(centred / channels_first.std((0, 2, 3), keepdims=True)).float()
    torch.testing.assert_close(batch.part(0)[0], expected)


def test_the_id_is_that_of_the_content_whatever_the_layout(tmp_path: Path) -> None:
    x = pixels(6, 8, 9, 3)
    last = save(tmp_path / "last/a.npz", x=x)
    first = save(tmp_path / "first/a.npz", x=np.ascontiguousarray(x.transpose(0, 3, 1, 2)))
    assert load(last, size=3).id == load(first, size=3).id


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", ">f4"])
def test_float_files_are_standardised_the_same_way(tmp_path: Path, dtype: str) -> None:
    x = np.random.default_rng(0).normal(5, 3, (20, 3, 8, 8)).astype(dtype)
    z, _ = load(save(tmp_path / "a.npz", x=x), size=20).part(0)
    assert z.dtype == torch.float32
    assert z.double().mean((0, 2, 3)).abs().max() < 1e-6
    assert (z.double().std((0, 2, 3), correction=0) - 1).abs().max() < 1e-6


def test_a_constant_channel_becomes_zero(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(4, 3, 8, 8))
    x[:, 1] = 0.1
    z, _ = load(save(tmp_path / "a.npz", x=x), size=4).part(0)
    assert z[:, 1].abs().max() < 1e-12
    assert z[:, 0].std() > 0.9


def test_the_seed_picks_the_samples_and_the_id_covers_what_matters(tmp_path: Path) -> None:
    x, y = pixels(40, 4, 4), np.arange(40) % 3
    path = save(tmp_path / "a.npz", x=x, y=y)
    batch = load(path, size=8, parts=2)
    again = load(str(path), size=8, parts=2)
    assert again.id == batch.id
    assert torch.equal(again.part(1)[0], batch.part(1)[0])
    assert torch.equal(load(path, size=8, parts=4).part(0)[0], batch.part(0)[0])
    brighter = x.copy()
    brighter[0] = 255
    relabelled = (y + 1) % 3
    others = [
        load(path, size=8, parts=2, seed=1),
        load(path, size=16, parts=1),
        load(path, size=8, parts=2, num_classes=4),
        load(save(tmp_path / "b/a.npz", x=x, y=relabelled), size=8, parts=2),
        load(save(tmp_path / "c/a.npz", x=x), size=8, parts=2, num_classes=3),
        load(save(tmp_path / "d/a.npz", x=brighter, y=y), size=8, parts=2),  # other mean and std at least
    ]
    assert len({batch.id, *(other.id for other in others)}) == 7


def test_fewer_samples_than_asked_for(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", x=pixels(40, 4, 4))
    batch = load(path, size=16, parts=4)
    assert batch.parts == 2
    with pytest.raises(DataError, match="has 2 parts of 16 samples, and part 3 is needed"):
        batch.part(2)
    with pytest.raises(DataError, match="has 40 samples, fewer than one batch of 64: use --batch-size 40 or less"):
        load(path, size=64)
    assert (load(path).size, load(path).parts) == (40, 1)


GOOD = pixels(8, 4, 4)


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ({"images": GOOD, "y": np.zeros(8, int)}, r"has no array x_train or x \(only: images, y\)"),
        ({}, r"\(only: nothing\)"),
        ({"x": GOOD.astype(object)}, "allow_pickle=False"),
        ({"x": GOOD, "y": np.array([{}] * 8)}, "allow_pickle=False"),
        ({"x": GOOD.astype(np.int64)}, "of type int64: images have to be uint8"),
        ({"x": GOOD.astype(np.complex64)}, "of type complex64"),
        ({"x": GOOD.astype("U3")}, "of type <U3"),
        ({"x": GOOD[0]}, r"has the shape \[4, 4\]"),
        ({"x": pixels(2, 2, 2, 2, 2)}, r"has the shape \[2, 2, 2, 2, 2\]"),
        ({"x": pixels(8, 5, 5, 7)}, "1, 3 or 4"),
        ({"x": pixels(0, 4, 4)}, "is empty"),
        ({"x": pixels(8, 0, 4)}, "is empty"),
        ({"x": np.full((8, 4, 4), np.nan)}, "NaN or infinite"),
        ({"x": np.where(GOOD > 250, np.inf, 0.0)}, "NaN or infinite"),
        ({"x": 1e308 * (GOOD / 128.0 - 1)}, "too large to be standardised"),
        ({"x": GOOD, "y": np.zeros(7, int)}, r"has the shape \[7\]: labels have to be \[8\]"),
        ({"x": GOOD, "y": np.eye(8, dtype=int)}, r"has the shape \[8, 8\]"),
        ({"x": GOOD, "y": np.zeros(8)}, "of type float64: labels have to be integers"),
        ({"x": GOOD, "y": np.arange(8) - 1}, "has the label -1: classes are numbered from 0"),
        ({"x": GOOD, "y": np.full(8, 2**64 - 1, np.uint64)}, "18446744073709551615, too large"),
        ({"x": GOOD, "y": np.arange(8) + 3}, "has the label 10, but 10 classes were asked for"),
    ],
)
def test_npz_files_that_cannot_be_used(tmp_path: Path, arrays: dict[str, Any], says: str) -> None:
    path = save(tmp_path / "a.npz", **arrays)
    with pytest.raises(DataError, match=says) as error:
        load(path, size=8, num_classes=10)
    assert str(path) in str(error.value)
    assert "\n" not in str(error.value)


def test_labels_in_a_column(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", x=GOOD, y=np.arange(8, dtype=np.uint8)[:, None])
    assert sorted(labelled(load(path, size=8))[1].tolist()) == list(range(8))


def test_another_shape_than_that_of_the_file(tmp_path: Path) -> None:
    path = save(tmp_path / "a.npz", x=GOOD)
    assert load(path, size=8, input_shape=(1, 4, 4)).input_shape == (1, 4, 4)
    with pytest.raises(DataError, match="of shape 1x4x4, but 3x32x32 was asked for"):
        load(path, size=8, input_shape=(3, 32, 32))


def header_that_promises(shape: str) -> bytes:
    text = f"{{'descr': '|u1', 'fortran_order': False, 'shape': {shape}}}\n".encode()
    member = b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("x.npy", member)
    return file.getvalue()


def bare_npy() -> bytes:
    file = io.BytesIO()
    np.save(file, GOOD)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "is not an .npz file"),
        (b"x,y\n1,2\n", "is not an .npz file"),
        (bare_npy(), "is not an .npz file"),
        (pickle.dumps(Trap()), "is a pickle, which can run code when it is opened; save it as .npz"),
        (pickle.dumps(Trap(), protocol=0), "is not an .npz file"),
        (b"PK\x03\x04 and then nothing", "cannot be read as an .npz file"),
        (header_that_promises("(1000000, 1000000, 1000000)"), "cannot be read as an .npz file"),
        (header_that_promises("(4611686018427387904, 4, 4)"), "cannot be read as an .npz file"),
        (header_that_promises("__import__('os')"), "cannot be read as an .npz file"),
    ],
)
def test_files_that_are_no_npz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, says: str) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "a.npz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=says) as error:
        load(path)
    assert str(path) in str(error.value)
    assert not (tmp_path / "sprung").exists()


@given(st.data())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_damaged_npz_is_read_or_refused_in_one_sentence(tmp_path: Path, data: st.DataObject) -> None:
    path = save(tmp_path / "a.npz", x=GOOD, y=np.arange(8))
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(len(content) // 2, len(content)))])
    try:
        assert load(path, size=1).part(0)[0].isfinite().all()
    except DataError as error:
        assert str(path) in str(error)
        assert "\n" not in str(error)


@pytest.mark.skipif(not REAL.exists(), reason="needs shared/data/cifar10.npz, which is not part of the repository")
def test_real_images() -> None:
    batch = load(str(REAL), size=64, parts=4, seed=1)
    x, y = labelled(batch, 3)
    assert batch.id.startswith("cifar10-")
    assert (batch.input_shape, batch.num_classes, batch.parts) == ((3, 32, 32), 10, 4)
    assert x.shape == (64, 3, 32, 32)
    assert x.mean().abs() < 0.2
    assert abs(x.std() - 1) < 0.15
    with np.load(REAL) as archive:
        images, labels = archive["x_train"], archive["y_train"]
    mean, std = images.mean((0, 1, 2)), images.std((0, 1, 2))
    restored = x.permute(0, 2, 3, 1).double().numpy() * std + mean  # [B, H, W, C]
    for image, label in zip(np.rint(restored).astype(np.uint8)[:5], y.tolist(), strict=False):
        (found,) = np.flatnonzero((images[:, :, 0] == image[:, 0]).all((1, 2)))
        assert (images[found] == image).all()
        assert labels[found] == label
