"""Further files of a product, their accuracy, and predictions for image files by training and product."""

from __future__ import annotations

import csv
import importlib.util
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import epochzero as ez
from epochzero.errors import DataError, UserError
from epochzero.export.formats import Given, written
from epochzero.stats.share import share_interval
from tests.command import epochzero, refusal
from tests.photos import photos
from tests.train.train_images import SMALLEST, write

pytestmark = pytest.mark.usefixtures("onnx_rules")
MADE = ("pixels", "pt2", "int8")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, onnx_rules: None) -> Path:
    """A training on photos and its product with further files, `made.json` as the command says it."""
    folder = tmp_path_factory.mktemp("product")
    photos(folder / "photos", 10)
    common = ("--data", folder / "photos")
    trained = ("train", "--space", "resnet", "--arch", SMALLEST, "--epochs", 2, "--batch-size", 8, "--image-size", 16)
    assert epochzero(*trained, *common, "--out", folder / "run").code == 0
    also = [part for name in MADE for part in ("--also", name)]
    ran = epochzero("export", "--weights", folder / "run", *common, *also, "--json", "--out", folder / "made")
    (folder / "made.json").write_text(json.dumps(ran.json))
    return folder


def test_each_file_is_compared_timed_and_tested(place: Path) -> None:
    made = json.loads((place / "made.json").read_text())
    files = ["pixels.onnx", "model.pt2", "model.int8.onnx"]
    assert sorted(made["further"]) == sorted(files)
    assert all(made["errors"][file] < 1e-4 for file in ("model.onnx", "pixels.onnx", "model.pt2"))
    assert 0 < made["errors"]["model.int8.onnx"] < 1
    card = (place / "made/MODEL_CARD.md").read_text()
    for name, measured in made["further"].items():
        assert measured["latency_ms"]["low"] <= measured["latency_ms"]["median"] <= measured["latency_ms"]["high"]
        assert f"| {name} | largest difference" in card
    accuracy = made["further"]["model.int8.onnx"]["accuracy"]
    assert accuracy["images"] == 2 and accuracy["low"] < accuracy["value"] <= accuracy["high"]
    right = round(made["accuracy"]["value"] * 2)
    low, high = share_interval(right, 2)
    text = f"{50 * right:.2f} % [{100 * low:.2f}, {100 * high:.2f}]"
    assert f"| model.py | accuracy {text} of 2 test images |" in card
    assert f"| test accuracy | {text} after 2 of 2 epochs" in card
    assert "from model import CLASSES, load, preprocess" in card


def test_a_product_serves_images_of_any_size_by_onnx_runtime_alone(place: Path) -> None:
    import onnxruntime

    session = onnxruntime.InferenceSession(place / "made/pixels.onnx", providers=["CPUExecutionProvider"])
    classes = json.loads(session.get_modelmeta().custom_metadata_map["classes"])
    assert classes == ["blue", "red"]
    expected = ez.predict(place / "run", place / "photos")
    for row, name in enumerate(expected.files):
        with Image.open(place / "photos" / name) as image:
            pixels = np.asarray(image)[None]  # 12 x 20 and more
        served = session.run(["probabilities"], {"pixels": pixels})[0]
        np.testing.assert_allclose(served[0], expected.probabilities[row], atol=1e-4)
    plain = onnxruntime.InferenceSession(place / "made/model.onnx", providers=["CPUExecutionProvider"])
    how = json.loads(plain.get_modelmeta().custom_metadata_map["preprocessing"])
    assert how["shape"] == [3, 16, 16] and how["scale"] == 255


def test_training_and_product_predict_the_same(place: Path, tmp_path: Path) -> None:
    tables = []
    for model in ("run", "made"):
        out = tmp_path / f"{model}.csv"
        asked = ("predict", "--model", place / model, "--data", place / "photos", "--out", out, "--batch-size", 7)
        told = epochzero(*asked, "--json").json
        assert told == {"images": 20, "classes": ["blue", "red"], "unreadable": {}, "file": str(out)}
        with out.open() as file:
            tables.append(list(csv.DictReader(file)))
    for trained, product in zip(*tables, strict=True):
        assert trained["file"] == product["file"] and trained["file"].split("/")[0] in ("blue", "red")
        assert float(trained["blue"]) == pytest.approx(float(product["blue"]), abs=1e-4)
        assert float(trained["blue"]) + float(trained["red"]) == pytest.approx(1, abs=1e-5)
        assert float(trained["probability"]) == pytest.approx(float(trained[trained["class"]]))
    assert len(tables[0]) == 20


def test_broken_files_are_listed_all_at_once(place: Path, tmp_path: Path) -> None:
    folder, out = photos(tmp_path / "new", 2), tmp_path / "p.csv"
    for name in ("blue/0.png", "red/x.jpg"):
        (folder / name).write_bytes(b"no image")
    asked = ("predict", "--model", place / "run", "--data", folder, "--out", out)
    ran = epochzero(*asked)
    said = ran.err
    assert (
        ran.code == 2
        and "2 images cannot be read" in said
        and "blue/0.png" in said
        and "red/x.jpg" in said
        and not out.exists()
    )
    skipping = epochzero(*asked, "--unreadable", "skip")
    assert skipping.code == 0 and "cannot be read: blue/0.png" in skipping.err
    with out.open() as file:
        rows = {row["file"]: row for row in csv.DictReader(file)}
    assert len(rows) == 5 and rows["red/x.jpg"]["class"] == rows["red/x.jpg"]["blue"] == ""
    assert "cannot identify image file" in rows["red/x.jpg"]["why"] and rows["red/1.png"]["why"] == ""
    one = ez.predict(place / "run", folder / "red/1.png")
    assert one.files == ["1.png"] and len(one.table()["red"]) == 1


@pytest.mark.parametrize(
    ("model", "images", "says"),
    [
        ("photos", "photos", "holds no model for images"),
        ("run", "nowhere", "There is no file or folder"),
        ("run", "made", "holds no images"),
    ],
)
def test_what_cannot_be_predicted_is_refused(place: Path, model: str, images: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        ez.predict(place / model, place / images)


def test_a_product_without_preprocessing_is_refused(place: Path, tmp_path: Path) -> None:
    import onnx

    bare = onnx.load(place / "made/model.onnx")
    del bare.metadata_props[:]
    (tmp_path / "model.onnx").write_bytes(bare.SerializeToString())
    with pytest.raises(DataError, match="does not say how images are prepared"):
        ez.predict(tmp_path, place / "photos")
    (tmp_path / "model.onnx").write_bytes(b"nothing")
    with pytest.raises(DataError, match="is no ONNX model"):
        ez.predict(tmp_path, place / "photos")


def test_files_that_cannot_be_made_are_refused(place: Path, tmp_path: Path) -> None:
    common: tuple[Any, ...] = ("export", "--weights", place / "run", "--out", tmp_path / "p")
    assert "No further file is called 'pixel'. Did you mean 'pixels'?" in refusal(*common, "--also", "pixel")
    assert "made of model.onnx" in refusal(*common, "--no-onnx", "--also", "pixels")
    assert "images of the training to calibrate on" in refusal(*common, "--also", "int8")
    untrained = ("export", "--space", "resnet", "--arch", SMALLEST, "--out", tmp_path / "p", "--also", "pixels")
    assert "trained on images of bytes" in refusal(*untrained)
    if importlib.util.find_spec("executorch") is None:
        assert "pip install 'epochzero[executorch]'" in refusal(*common, "--also", "executorch")
    assert not list((tmp_path / "p").iterdir())


def test_other_images_measure_no_accuracy(place: Path, tmp_path: Path) -> None:
    """Those of a training are known by their digest."""
    other = write(tmp_path / "squares.npz", 12, 6)
    made = epochzero(
        *("export", "--weights", place / "run", "--data", other, "--no-onnx", "--json", "--out", tmp_path / "p")
    ).json
    assert made["accuracy"] is None and "## Files" not in (tmp_path / "p/MODEL_CARD.md").read_text()


def test_executorch(tmp_path: Path) -> None:
    pytest.importorskip("executorch.exir", reason="ExecuTorch is not part of the tests' packages")
    network = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 3)).eval()
    given = Given(network, torch.randn(2, 3, 2, 2), None, None, None)
    assert written("executorch", given, tmp_path, None).error < 1e-4 and (tmp_path / "model.pte").is_file()
