"""`epochzero ensemble`: every way of choosing, resumed, attacked, saved as one; and what it refuses."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epochzero.ensemble import selection
from epochzero.ensemble.build import PICTURE
from epochzero.ensemble.metrics import measure
from epochzero.ensemble.model import Ensemble
from epochzero.ensemble.selection import CHOICE
from epochzero.errors import MachineError
from epochzero.registry import spaces
from epochzero.supernet.single_path import SinglePath
from epochzero.train.image_data import load_images
from epochzero.train.recipes import Recipe
from tests.command import CHEAP, epochzero, refusal
from tests.photos import photos
from tests.report.stores import opened
from tests.train.train_images import images, write

pytestmark = pytest.mark.usefixtures("shallow_nb201")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("data") / "squares.npz", 64, 32, 8)


def ran(file: Path, out: Path, *more: object) -> dict[str, Any]:
    asked = ("ensemble", "--data", file, "--out", out, "--epochs", 1, "--batch-size", 32, "--size", 2, "--json")
    return epochzero(*asked, *more).json


def measured(ensemble: Ensemble, file: Path) -> dict[str, float]:
    data = load_images(file)
    return measure(ensemble.predict(data.standardised(data.test_x)), data.test_y).as_json()


def test_a_deep_ensemble_is_attacked_saved_and_goes_on(file: Path, tmp_path: Path) -> None:
    asked = ("--arch", CHEAP, "--attack", "fgsm,pgd", "--attack-images", 4)
    report = ran(file, tmp_path, *asked)
    assert (report["method"], report["size"]) == ("deep ensemble", 2)
    assert [member["arch"] for member in report["members"]] == [CHEAP] * 2
    assert report["ensemble"]["ate"] == pytest.approx(sum(m["test_error"] for m in report["members"]) / 2)
    assert [row["attack"] for row in report["attacks"]] == ["fgsm", "pgd"]
    assert all(row["images"] == 4 and len(row["attacked"]) == 2 for row in report["attacks"])
    saved = Ensemble.load(tmp_path)
    assert measured(saved, file) == report["ensemble"] == saved.facts["measures"]
    plain = ("ensemble", "--data", file, "--out", tmp_path, "--epochs", 1, "--batch-size", 32, "--size", 2)
    shown = epochzero(*plain, *asked[:2], "--attack", "fgsm")
    assert shown.code == 0 and "disagreement" in shown.out and "fgsm" in shown.out
    facts = Ensemble.load(tmp_path).facts
    assert facts["measures"] == report["ensemble"]
    assert [(one["attack"], one["images"]) for one in facts["attacks"]] == [("fgsm", 32), ("pgd", 4)], "pgd is kept"


def test_an_attack_that_fails_leaves_the_ensemble(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object, **more: object) -> None:
        raise MachineError("The attack failed.")

    monkeypatch.setattr("epochzero.ensemble.build.robustness", fail)
    asked = ("ensemble", "--data", file, "--out", tmp_path, "--arch", CHEAP, "--epochs", 1, "--size", 1)
    assert epochzero(*asked, "--attack", "fgsm").code == 1
    saved = Ensemble.load(tmp_path)
    assert measured(saved, file) == saved.facts["measures"] and saved.facts["attacks"] == []


def test_folders_keep_their_class_names_up_to_the_card(tmp_path: Path) -> None:
    """An ensemble of image files, one of which cannot be read, and its product, checked on the same files."""
    bad = photos(tmp_path / "photos", 6) / "red" / "2.png"
    bad.write_bytes(b"no image")
    asked = ("ensemble", "--data", tmp_path / "photos", "--out", tmp_path / "run", "--arch", CHEAP, "--epochs", 1)
    assert "--unreadable skip" in refusal(*asked)
    ran = epochzero(*asked, "--size", 2, "--image-size", 8, "--unreadable", "skip", "--json")
    assert ran.json["data"]["classes"] == ["blue", "red"] and "left out: red/2.png" in ran.err
    product = ("export", "--weights", tmp_path / "run", "--data", tmp_path / "photos", "--no-onnx", "--json")
    made = epochzero(*product, "--out", tmp_path / "product")
    assert made.json["errors"]["model.py"] < 1e-5
    card = (tmp_path / "product/MODEL_CARD.md").read_text()
    plan = spaces["nb201"].plan(spaces["nb201"].parse(CHEAP), 2, (3, 8, 8))
    for row in (
        f"| multiply-accumulates | {2 * plan.flops:,} for one sample |",
        "| data | photos: 10 images of 3x8x8 to train on, 2 classes |",
        "| classes | 0 blue, 1 red |",
        "| test | 1 images, held out of the training images by seed 0 |",
        f"| test error | {ran.json['ensemble']['error']:.4f} |",
        "| input | image files are cropped to the square in their centre, and scaled to 8 pixels; pixels are ",
        "| recipe | epochs 1, batch_size 128, ",
        "| seed | 0 to 1, one for each member |",
        "| on | random and real inputs |",
    ):
        assert row in card, row
    assert "temperature" not in card, "there was no teacher"


def test_the_supernet_of_darts_has_partial_channels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def stopped(network: SinglePath, *given: object, **more: object) -> None:
        seen.append(network.facts["partial"])
        raise MachineError("Enough is known.")

    monkeypatch.setattr(selection, "train_supernet", stopped)
    images = load_images(write(tmp_path / "squares.npz", 8, 4, 8))
    for name in ("darts", "nb201"):
        with pytest.raises(MachineError, match="Enough is known"):
            selection.choose(selection.Job(spaces[name], images, Recipe(), selection.Settings("nesbs-mc")))
    assert seen == [2, 1]


@pytest.mark.parametrize(
    ("method", "more"),
    [
        ("random", ()),
        ("proxies", ("--pool", 4, "--proxy", "rank(naswot,params)")),
        ("nes-rs", ("--pool", 3)),
    ],
)
def test_other_ways_of_choosing(file: Path, tmp_path: Path, method: str, more: tuple[object, ...]) -> None:
    report = ran(file, tmp_path, "--method", method, *more)
    kept = json.loads((tmp_path / CHOICE).read_text())
    assert kept["archs"] == [member["arch"] for member in report["members"]]
    assert len(Ensemble.load(tmp_path).members) == 2
    assert report["method"] == method


def test_the_report_shows_members_and_what_was_measured(file: Path, tmp_path: Path) -> None:
    asked = ("--method", "random", "--attack", "fgsm", "--attack-images", 4, "--size", 3, "--picture")
    report = ran(file, tmp_path, *asked)
    assert ran(file, tmp_path, *asked)["store"] == report["store"], "the same run again is the same run"
    shown = opened(Path(report["store"]))
    members = [member["arch"] for member in report["members"]]
    assert [shown.head["archs"][at] for at in shown.head["members"]] == members
    assert (shown.head["kind"], shown.head["title"]) == ("ensemble", "Ensemble of networks of nb201")
    accuracies = shown.columns["feedback:test_accuracy"][shown.head["members"]]
    assert accuracies == pytest.approx([100 * (1 - member["test_error"]) for member in report["members"]])
    (attack,) = report["attacks"]
    assert shown.head["result"] == {
        "members": members,
        **report["ensemble"],
        "params": report["params"],
        "fgsm: attack accuracy": attack["attack_accuracy"],
        "fgsm: defence accuracy": attack["defence_accuracy"],
    }
    assert shown.head["fits"] == "3×8×8, 4 classes" and len(shown.head["runs"]) == 1
    assert (tmp_path / PICTURE).read_bytes().startswith(b"\x89PNG")


def test_a_deep_ensemble_is_one_network_of_several_seeds_in_the_report(file: Path, tmp_path: Path) -> None:
    shown = opened(Path(ran(file, tmp_path, "--arch", CHEAP)["store"]))
    assert shown.head["archs"] == [CHEAP] and shown.head["members"] == [0, 0]
    assert [column["repeats"] for column in shown.head["columns"] if column["kind"] == "truth"] == [2]


def test_nesbs_keeps_its_supernet_and_its_choice(file: Path, tmp_path: Path) -> None:
    epochs = ("--supernet-epochs", 1, "--posterior-epochs", 1)
    asked = ("--method", "nesbs-mc", *epochs, "--candidates", 2, "--likelihood", "mean")
    report = ran(file, tmp_path, *asked)
    kept = json.loads((tmp_path / CHOICE).read_text())["asked"]
    assert kept["candidates"] == 2 and kept["likelihood"] == "mean"
    assert (tmp_path / "supernet" / "epoch-000001.pt").is_file()
    (tmp_path / CHOICE).unlink()
    assert ran(file, tmp_path, *asked)["members"] == report["members"]
    (tmp_path / CHOICE).unlink()
    plain = ("ensemble", "--data", file, "--out", tmp_path, "--size", 2, "--epochs", 1, *asked[2:])
    other = epochzero(*plain, "--method", "nesbs-svgd", "--delta", 0.5, "--batch-size", 16)
    assert other.code == 2 and "member-1' holds a training with another" in other.err  # chosen, but members are there
    says = refusal("ensemble", "--data", file, "--out", tmp_path, "--method", "random", "--size", 2)
    assert "holds an ensemble with another" in says and "another method" in says
    (tmp_path / CHOICE).write_text("[")
    says = refusal("ensemble", "--data", file, "--out", tmp_path, "--method", "random")
    assert "is damaged: remove it to choose again" in says


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        (("--method", "nesbs"), "No method is called 'nesbs'. Did you mean 'nesbs-mc'?"),
        (("--method", "proxies", "--pool", 2), "A pool of 2 is too small to choose 3 from"),
        (("--method", "proxies", "--proxy", "naswt"), "No proxy is called 'naswt'. Did you mean 'naswot'?"),
        (("--attack", "fgms"), "No attack is called 'fgms'. Did you mean 'fgsm'?"),
        (("--size", 2, "--picture"), "needs at least 3 members, not 2"),
        (("--delta", "much"), "--delta takes a number, grid or bayes, not 'much'."),
        (("--delta", "nan"), "Delta is a number from -2 to 1, grid or bayes, not nan."),
        (("--delta", "inf"), "Delta is a number from -2 to 1, grid or bayes, not inf."),
        (("--arch", "|conv|"), ""),
        (("--classes", 2), "has the label 3, but 2 classes were asked for"),
        (("--recipe", "dart"), "No recipe is called 'dart'. Did you mean 'darts'?"),
        (("--space", "resnet", "--method", "nesbs-mc"), "has no weight-sharing network: use nb201 or darts"),
    ],
)
def test_what_is_refused(file: Path, tmp_path: Path, asked: tuple[object, ...], says: str) -> None:
    assert says in refusal("ensemble", "--data", file, "--out", tmp_path, *asked)


def test_attacks_need_bytes(tmp_path: Path) -> None:
    x, y = images(20, 0, 8)
    np.savez(tmp_path / "floats.npz", x=x.astype(np.float32), y=y)
    says = refusal(
        "ensemble", "--data", tmp_path / "floats.npz", "--out", tmp_path, "--arch", CHEAP, "--attack", "fgsm"
    )
    assert "these images are not bytes" in says


def test_a_toolbox_that_is_missing_is_said_at_once(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "art", None)
    says = refusal("ensemble", "--data", file, "--out", tmp_path, "--arch", CHEAP, "--attack", "cw")
    assert "pip install 'epochzero[attacks]'" in says
