"""Image files in a folder for each class."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from epochzero.errors import DataError
from epochzero.train.image_data import load_images
from tests.command import epochzero, refusal
from tests.photos import photos
from tests.train.train_images import SMALLEST, write

Image = pytest.importorskip("PIL.Image", reason="Pillow reads image files")


def test_classes_are_the_folders_in_their_order(tmp_path: Path) -> None:
    photos(tmp_path / "train")
    photos(tmp_path / "test", 2)
    data = load_images(tmp_path, side=8)
    assert data.x.shape == (6, 3, 8, 8) and data.test_x.shape == (4, 3, 8, 8)
    assert data.y.tolist() == [0, 0, 0, 1, 1, 1] and data.num_classes == 2
    assert data.x[0, :, 4, 4].tolist() == [0, 0, 250] and data.x[5, :, 4, 4].tolist() == [250, 0, 0]
    assert data.facts["test_is"] == "the file's test images" and data.facts["classes"] == ["blue", "red"]


def test_other_files_name_no_classes(tmp_path: Path) -> None:
    """Nor do their facts change, by which a stopped training knows its data again."""
    facts = load_images(write(tmp_path / "squares.npz", 8, 4, 8)).facts
    assert set(facts) == {"file", "train", "test", "test_is", "mean", "std", "scale", "unreadable", "sha256"}


def test_the_middle_is_taken(tmp_path: Path) -> None:
    """A wide image, black but for its middle third: all white, scaled by nothing."""
    pixels = np.zeros((8, 24, 3), np.uint8)
    pixels[:, 8:16] = 255
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(3):
            Image.fromarray(pixels).save(tmp_path / name / f"{number}.png")
    assert (load_images(tmp_path, side=8).x == 255).all()


def test_an_unreadable_image_stops_or_is_named(tmp_path: Path) -> None:
    bad = photos(tmp_path / "photos", 6) / "red" / "2.png"
    bad.write_bytes(bad.read_bytes()[:40])
    asked = ("train", "--space", "resnet", "--arch", SMALLEST, "--data", tmp_path / "photos", "--epochs", 1)
    more = ("--image-size", 8, "--out", tmp_path / "run")
    says = refusal(*asked, *more)
    assert f"The image '{bad}' cannot be read" in says and "--unreadable skip" in says
    ran = epochzero(*asked, *more, "--unreadable", "skip", "--json")
    assert ran.json["data"]["unreadable"] == ["red/2.png"]
    assert ran.json["data"]["train"] + ran.json["data"]["test"] == 11
    assert "left out: red/2.png" in ran.err
    assert "--unreadable takes stop or skip" in refusal(*asked, *more, "--unreadable", "maybe")


def test_folders_that_hold_no_images(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds neither CIFAR files nor a folder of images for each class"):
        load_images(tmp_path)
    (tmp_path / "cats").mkdir()
    with pytest.raises(DataError, match="A class without images: "):
        load_images(tmp_path)


def test_a_test_class_that_was_never_learnt(tmp_path: Path) -> None:
    photos(tmp_path / "train")
    (photos(tmp_path / "val") / "green").mkdir()
    with pytest.raises(DataError, match="has a class 'green' that"):
        load_images(tmp_path)
