"""Folders of images as data for scores: which pixels come out of which files, and what is said of bad ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import epochzero as ez
from epochzero.data import load
from epochzero.data.image_folder import FolderReader
from epochzero.errors import DataError, UserError
from tests.command import CHEAP, epochzero, refusal
from tests.data.data_files import labelled
from tests.photos import photos

Image = pytest.importorskip("PIL.Image", reason="Pillow reads image files")
RAMP = np.linspace(0, 65535, 64).reshape(8, 8).astype(np.uint16)
"""grey in 16 bits, from black to white"""


def pixels(folder: Path, image: Any, name: str = "0.png", **saving: Any) -> np.ndarray[Any, Any]:
    """The pixels [3, 8, 8] that are read of an image of 8 pixels."""
    (folder / "one").mkdir(parents=True)
    image.save(folder / "one" / name, **saving)
    (x, _), _ = FolderReader(8, skip=False).read(folder)
    return np.asarray(x[0])


def test_sixteen_bits_are_scaled_and_not_cut_off(tmp_path: Path) -> None:
    expected = (RAMP / 257).round()
    for name in ("16.png", "16.tif"):
        read = pixels(tmp_path / name, Image.fromarray(RAMP), name)
        assert (read == expected).all(), name
        assert (read == 255).mean() < 0.05
    assert (pixels(tmp_path / "32", Image.fromarray(RAMP.astype(np.int32)), "32.tif") == expected).all()
    fractions = Image.fromarray((RAMP / 65535).astype(np.float32))
    assert (pixels(tmp_path / "float", fractions, "float.tif") == expected).all()
    with pytest.raises(DataError, match="neither from 0 to 65535 nor fractions"):
        pixels(tmp_path / "beyond", Image.fromarray(np.full((8, 8), -1.0, np.float32)), "beyond.tif")


def test_grey_palette_and_transparent_images(tmp_path: Path) -> None:
    grey = Image.fromarray((RAMP // 257).astype(np.uint8))
    assert (pixels(tmp_path / "grey", grey) == np.asarray(grey)).all()
    colours = Image.new("RGB", (8, 8), (10, 200, 30))
    assert (pixels(tmp_path / "palette", colours.quantize()).reshape(3, -1).T == (10, 200, 30)).all()
    clear = Image.new("RGBA", (8, 8), (10, 200, 30, 0))  # a colour that nobody sees
    assert (pixels(tmp_path / "clear", clear) == 255).all()
    half = pixels(tmp_path / "half", Image.new("LA", (8, 8), (0, 128)))
    assert (half == 127).all()
    palette = Image.new("P", (8, 8), 0)
    palette.putpalette([10, 200, 30])
    assert (pixels(tmp_path / "keyed", palette, transparency=0) == 255).all()


def test_exif_turns_the_image(tmp_path: Path) -> None:
    left = np.zeros((8, 8, 3), np.uint8)
    left[:, :4] = 250  # bright on the left as stored
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned clockwise: bright on top as seen
    read = pixels(tmp_path, Image.fromarray(left), "0.png", exif=exif)
    assert (read[:, :4] == 250).all() and (read[:, 4:] == 0).all()


def test_a_folder_is_a_batch(tmp_path: Path) -> None:
    batch = load(photos(tmp_path / "photos", 6), size=4, image_size=8, seed=1)
    x, y = labelled(batch)
    assert (batch.size, batch.parts, batch.num_classes, batch.input_shape) == (4, 3, 2, (3, 8, 8))
    assert (x[:, 2].mean((1, 2)) > x[:, 0].mean((1, 2))).tolist() == (y == 0).tolist()  # class 0 is blue
    assert "12 of the 12 training samples of photos, drawn with seed 1" in batch.about
    assert load(tmp_path / "photos", size=4).input_shape == (3, 32, 32)
    assert load(tmp_path / "photos", size=4, image_size=8, seed=1).id == batch.id
    assert load(tmp_path / "photos", size=4, image_size=8, seed=2).id != batch.id
    assert (load(tmp_path / "photos").size, load(tmp_path / "photos").parts) == (12, 1)  # 64 where there are more
    with pytest.raises(DataError, match="12 samples, fewer than one batch of 64: use --batch-size 12 or less"):
        load(tmp_path / "photos", size=64)
    for source in ("pink", __file__):
        with pytest.raises(UserError, match="no image files to scale"):
            load(source, image_size=8)


def test_only_drawn_images_are_read(tmp_path: Path) -> None:
    photos(tmp_path, 40)
    for file in (tmp_path / "red").glob("*.png"):
        file.write_bytes(b"broken")
    reads = [load(tmp_path, size=1, parts=1, image_size=8, seed=seed) for seed in range(8) if _draws_blue(seed)]
    assert reads and {int(labelled(batch)[1][0]) for batch in reads} == {0}


def _draws_blue(seed: int) -> bool:
    return bool(np.random.default_rng(seed).permutation(80)[0] < 40)


def test_broken_files_are_listed_at_once_or_left_out(tmp_path: Path) -> None:
    photos(tmp_path, 4)
    broken = [tmp_path / "blue" / "1.png", tmp_path / "red" / "0.png", tmp_path / "red" / "3.png"]
    for file in broken:
        file.write_bytes(file.read_bytes()[:40])
    asked = ("--space", "nb201", "--data", tmp_path, "--image-size", 8, "--batch-size", 4, "--proxy", "l2_norm")
    (tmp_path / "table.csv").write_text("arch,accuracy\n")
    bench = ("bench", "--table", tmp_path / "table.csv", "--target", "accuracy")
    for verb in (("score", "--arch", CHEAP), ("search", "--budget", 2), bench):
        says = refusal(*verb, *asked)
        assert says.startswith("3 images cannot be read") and all(f"'{file}' (" in says for file in broken)
        assert says.endswith("Repair or remove them, or use --unreadable skip.")
    ran = epochzero("score", "--arch", CHEAP, *asked, "--unreadable", "skip")
    assert ran.code == 0 and "4 of the 8 training samples" in ran.out
    assert "left out as unreadable: " in ran.out and "red/3.png" in ran.out
    assert "--unreadable takes stop or skip" in refusal("score", "--arch", CHEAP, *asked, "--unreadable", "so")
    for file in tmp_path.rglob("*.png"):
        file.write_bytes(b"")
    assert "None of the 8 images can be read" in refusal("score", "--arch", CHEAP, *asked, "--unreadable", "skip")


def test_a_class_without_images_is_named(tmp_path: Path) -> None:
    photos(tmp_path)
    (tmp_path / "green").mkdir()
    (tmp_path / "white").mkdir()
    (tmp_path / "white" / "notes.txt").write_text("no image")
    with pytest.raises(DataError, match=r"A class without images: '.*green', '.*white'\. Add images .* the folders"):
        load(tmp_path, size=2)


def test_a_space_says_the_size(tmp_path: Path) -> None:
    photos(tmp_path, 4)
    asked: Any = {"proxy": "params", "budget": 2, "data": tmp_path, "batch_size": 4}
    assert ez.search("transnas_macro", **asked).task.batch.input_shape == (3, 256, 256)
    assert ez.search("nb201", **asked, image_size=16).task.batch.input_shape == (3, 16, 16)
