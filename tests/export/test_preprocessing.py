"""Images as a product prepares them, in `model.py` and in ONNX, against the images of a training."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from epochzero.data.image_folder import in_colour, read_image
from epochzero.errors import DataError
from epochzero.export import onnx_model
from epochzero.export.preprocessing import Preprocessing

MEAN, STD = [0.4, 0.5, 0.6], [0.2, 0.25, 0.3]
SIDE = 32
pytestmark = pytest.mark.usefixtures("onnx_rules")


def odd_images(folder: Path) -> list[Path]:
    """50 image files of odd sizes, modes and formats."""
    rng = np.random.default_rng(0)
    files = []
    sizes = [(1, 1), (1, 300), (300, 1), (2, 3), (31, 33), (32, 32), (64, 64), (33, 257), (511, 37), (640, 480)]
    sizes += [(int(height), int(width)) for height, width in rng.integers(1, 400, (40, 2))]
    for number, (height, width) in enumerate(sizes):
        image = Image.fromarray(rng.integers(0, 256, (height, width, 3), dtype=np.uint8))
        mode = ("RGB", "L", "P", "RGBA", "LA", "1", "CMYK", "RGB", "I;16", "RGB")[number % 10]
        exif = Image.Exif()
        if mode == "RGB":
            exif[0x0112] = 1 + number % 8
        if mode == "I;16":
            image = Image.fromarray(rng.integers(0, 65536, (height, width)).astype(np.uint16))
        elif mode in ("RGBA", "LA"):
            image.putalpha(Image.fromarray(rng.integers(0, 256, (height, width), dtype=np.uint8)))
            image = image.convert(mode)
        else:
            image = image.convert(mode)
        files.append(folder / f"{number}.{'tif' if mode == 'CMYK' else 'png'}")
        image.save(files[-1], exif=exif)
    return files


def decoded(file: Path) -> Tensor:
    """Bytes [1, H, W, 3] of a file in full size, upright."""
    from PIL import ImageOps

    with Image.open(file) as image:
        return torch.from_numpy(np.array(in_colour(ImageOps.exif_transpose(image))))[None]


def ours(file: Path) -> Tensor:
    """An image as a training standardises it."""
    pixels = read_image(file, (SIDE, SIDE))
    assert not isinstance(pixels, str), pixels
    mean, std = (255 * torch.tensor(values)[:, None, None] for values in (MEAN, STD))
    return ((torch.from_numpy(pixels.copy()).float() - mean) / std)[None]


def test_50_odd_images_are_prepared_as_in_training(tmp_path: Path) -> None:
    """By the text in `model.py`, run alone, and by ONNX Runtime: equal to 1e-5."""
    how = Preprocessing((3, SIDE, SIDE), tuple(MEAN), tuple(STD), 255.0, ("a", "b"))
    (tmp_path / "model.py").write_text("import torch\nfrom torch import Tensor, nn\n" + how.source)
    model = runpy.run_path(str(tmp_path / "model.py"))
    assert model["CLASSES"] == ["a", "b"]
    example = torch.zeros(2, 40, 50, 3, dtype=torch.uint8)
    graph = onnx_model.to_onnx(how.module(), example, names=["pixels"], free=("batch", "height", "width"))
    session = onnx_model.session_of(graph)
    files = odd_images(tmp_path)
    assert len(files) == 50
    for file in files:
        pixels, expected = decoded(file), ours(file)
        torch.testing.assert_close(model["preprocess"](pixels), expected, atol=1e-5, rtol=0)
        served = torch.from_numpy(session.run(None, {"pixels": pixels.numpy()})[0])
        torch.testing.assert_close(served, expected, atol=1e-5, rtol=0)


def test_a_second_version_of_the_filter(tmp_path: Path) -> None:
    """Three loops in exact whole numbers: triangle weights of 22 bits, bytes between rows and columns."""
    pixels = torch.from_numpy(np.random.default_rng(1).integers(0, 256, (1, 9, 5, 1), dtype=np.uint8))
    how = Preprocessing((1, 3, 3), (0.0,), (1 / 255,), 255.0, ("a",))
    found = how.module()(pixels)[0, 0]
    square = pixels[0, 2:7, :, 0].tolist()  # the centre of 9 rows of 5

    def scaled(line: list[int]) -> list[int]:
        row, scale = [], 5 / 3
        for place in range(3):
            middle = (place + 0.5) * scale
            shares = [max(0.0, 1 - abs(at + 0.5 - middle) / scale) for at in range(5)]
            whole = [int(share / sum(shares) * 2**22 + 0.5) for share in shares]
            row.append((sum(a * b for a, b in zip(line, whole, strict=True)) + 2**21) // 2**22)
        return row

    rows = [scaled(line) for line in square]
    columns = [scaled([row[at] for row in rows]) for at in range(3)]
    expected = [[columns[at][row] for at in range(3)] for row in range(3)]
    assert found.round(decimals=3).tolist() == expected


def test_numbers_that_are_no_bytes_have_names_and_no_preprocessing() -> None:
    facts = {"mean": [0.5], "std": [0.1], "scale": 1}
    how = Preprocessing.of(facts, (1, 4, 4), 3)
    assert how.classes == ("0", "1", "2") and not how.of_bytes
    assert "preprocess" not in how.source and "CLASSES = ['0', '1', '2']" in how.source
    assert Preprocessing.read(how.metadata, "m") == how


def test_metadata_of_others_are_refused() -> None:
    good = Preprocessing((3, 8, 8), tuple(MEAN), tuple(STD), 255.0, ("cat", "dög")).metadata
    assert json.loads(good["classes"]) == ["cat", "dög"]
    for key, text in [("classes", "[]"), ("classes", "[1]"), ("preprocessing", "{}"), ("preprocessing", "no")]:
        with pytest.raises(DataError, match="does not say how images are prepared"):
            Preprocessing.read(good | {key: text}, "model.onnx")
    with pytest.raises(DataError, match="does not say"):
        Preprocessing.read({}, "model.onnx")
