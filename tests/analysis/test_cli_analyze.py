"""`epochzero analyze`: numbers as JSON, pictures as files, and a sentence for what cannot be."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from epochzero.cli.analyze import subjects as analyze_subjects
from tests.command import CHEAP, CUT, epochzero, refusal
from tests.papers.small import small_images

NET = """
import torch
from torch import nn

def make():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(144, 3))

def broken():
    return nn.Linear(7, 2)
"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    (tmp_path / "net.py").write_text(NET)
    return f"{tmp_path / 'net.py'}"


def test_topology_of_known_cells_and_variants(tmp_path: Path) -> None:
    found = epochzero("analyze", "topology", "--arch", "AmoebaNet", "--variants", 3, "--json").json
    rows = [row for row in found["cells"] if row["cell"] == "normal"]
    assert [(row["variant"], row["width"], row["depth"]) for row in rows[:2]] == [("as it is", 4, 4), ("widest", 3, 2)]
    assert [row["variant"] for row in rows[2:]] == ["other connections"] * 3 + ["other operations"] * 3
    assert all((row["width"], row["depth"]) == (4, 4) for row in rows[5:])
    shown = epochzero("analyze", "topology", "--space", "nb201", "--arch", CHEAP, "--out", tmp_path / "a")
    assert "width 1c   depth 2" in shown.out
    assert json.loads((tmp_path / "a" / "topology.json").read_text())["cells"][0]["width"] == 1


def test_landscape_of_a_module(net: str, tmp_path: Path) -> None:
    images, out = small_images(tmp_path), tmp_path / "out"
    asked = ["--module", f"{net}:make", "--data", images, "--across", 3, "--batch-size", 8]
    found = epochzero("analyze", "landscape", *asked, "--out", out, "--json").json
    (plane,) = found["planes"].values()
    assert np.array(plane["values"]).shape == (1, 3, 3) and plane["axis"] == [-1, 0, 1]
    (numbers,) = found["networks"].values()
    assert numbers["centre"] == plane["values"][0][1][1]
    wanted = {f"landscape_{kind}.{ending}" for kind in ("contour", "surface") for ending in ("png", "svg")}
    assert {Path(file).name for file in found["files"]} == wanted | {"landscape.json"}
    assert all(Path(file).stat().st_size > 100 for file in found["files"])
    shown = epochzero("analyze", "gradient-variance", *asked, "--parts", 2).out
    assert "steepest slope" in shown and "of the plane" not in shown, "how much more loss says nothing of a variance"


def test_two_architectures_side_by_side(tmp_path: Path) -> None:
    both = ["--space", "nb201", "--arch", CHEAP, "--arch", CHEAP.replace("skip_connect", "avg_pool_3x3")]
    found = epochzero("analyze", "features", *both, "--out", tmp_path, "--json").json
    assert len(found["networks"]) == 2 and {"name", "kind", "channels", "independence"} == set(
        next(iter(found["networks"].values()))[0]
    )
    assert (tmp_path / "features.png").exists()
    found = epochzero("analyze", "curve", *both, "--points", 8, "--out", tmp_path, "--json").json
    assert all(len(one["points"]) == 8 for one in found["networks"].values())
    assert (tmp_path / "curve.svg").exists()
    assert "curvature, mean" in epochzero("analyze", "curve", *both, "--points", 8).out
    found = epochzero("analyze", "stability", *both, "--images", 3, "--out", tmp_path, "--json").json
    for one in found["networks"].values():
        assert len(set(one["values"])) == 3 and one["mean"] == pytest.approx(np.mean(one["values"]))
        assert one["deviation"] == pytest.approx(np.std(one["values"], ddof=1))
    assert (tmp_path / "stability.png").exists()
    assert "standard deviation" in epochzero("analyze", "stability", *both, "--images", 2).out


def test_architectures_that_begin_alike_are_told_apart() -> None:
    late = CHEAP[: CHEAP.rindex("|", 0, -1)] + "|nor_conv_1x1~2|"
    found = epochzero("analyze", "features", "--arch", CHEAP, "--arch", late, "--json").json
    assert list(found["networks"]) == [CHEAP, late]
    long = "Genotype" * 20
    assert analyze_subjects._names([f"{long}a", f"{long}b"]) == [f"{n}: {long[:93]}..." for n in (1, 2)]


def test_trained_weights_are_looked_at(tmp_path: Path) -> None:
    images, run = small_images(tmp_path), tmp_path / "run"
    trained = epochzero(
        "train", "--space", "nb201", "--arch", CHEAP, "--data", images, "--epochs", 1, "--out", run, "--json"
    ).json
    asked = ["--arch", CHEAP, "--weights", run, "--data", images, "--batch-size", 36, "--across", 3, "--json"]
    found = epochzero("analyze", "landscape", *asked).json
    fresh = epochzero("analyze", "landscape", "--arch", CHEAP, *asked[4:], "--norm", "eval").json
    losses = [next(iter(one["networks"].values()))["centre"] for one in (found, fresh)]
    assert trained["epochs"] == 1 and losses[0] != losses[1]
    assert "another network" in refusal(
        "analyze", "landscape", "--arch", CUT.replace("none~2", "nor_conv_3x3~2"), *asked[2:]
    )
    assert "holds no training" in refusal("analyze", "landscape", "--arch", CHEAP, "--weights", tmp_path, *asked[4:])


def test_mistakes_are_sentences(net: str, tmp_path: Path) -> None:
    images = small_images(tmp_path)
    assert "Give either --arch" in refusal("analyze", "landscape")
    assert "Give either --arch" in refusal("analyze", "curve", "--arch", CHEAP, "--module", f"{net}:make")
    assert "a positive q, not" in refusal("analyze", "curve", "--arch", CHEAP, "--q", 0)
    assert "no path connects them" in refusal("analyze", "curve", "--arch", CUT)
    assert "odd number of points" in refusal("analyze", "landscape", "--arch", CHEAP, "--across", 4)
    assert "--norm takes eval or train" in refusal("analyze", "landscape", "--arch", CHEAP, "--norm", "x")
    assert "cannot be analysed" in refusal("analyze", "features", "--module", f"{net}:broken", "--data", images)
    assert "Width and depth are defined" in refusal("analyze", "topology", "--space", "nats_sss", "--arch", "8:8:8:8:8")
    assert "given twice" in refusal("analyze", "features", "--arch", CHEAP, "--arch", CHEAP)
    assert "leave --space" in refusal("analyze", "features", "--module", f"{net}:make", "--space", "nb201")


def test_the_kernel_of_architectures_and_of_a_module(net: str, shallow_nb201: None) -> None:
    asked = ["--module", f"{net}:make", "--input-shape", "3,8,8", "--classes", 3, "--batch-size", 6]
    found = epochzero("analyze", "kernel", *asked, "--json").json
    ((name, numbers),) = found["networks"].items()
    assert name.endswith("net.py:make") and numbers["M_trace"] > 0 and numbers["kappa"] > 1
    score = epochzero("score", *asked, "--proxy", "ntk_trace,ntk_cond", "--json").json["scores"]
    assert numbers["M_trace"] == pytest.approx((score["ntk_trace"]["value"] / 6) ** 0.5)
    assert numbers["kappa"] == pytest.approx(score["ntk_cond"]["value"])
    shown = epochzero("analyze", "kernel", "--arch", CHEAP, "--arch", CUT, "--batch-size", 4).out
    assert shown.count("M_Trace") == 2 and "none: " in shown, "a network that no gradient reaches has no kernel"
