"""From what was found to what is trained, exported, put together and analysed: --from, and the same in Python."""

from __future__ import annotations

import json
import runpy
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import epochzero as ez
from epochzero.errors import UserError
from epochzero.study.winners import Winner, resolved, winners
from tests.command import epochzero, refusal
from tests.forgetting import plugins_forgotten

QUICK = ("--epochs", "1", "--batch-size", "8", "--option", "pad=0")
NETS = """
from torch import nn


def make(num_classes, input_shape):
    conv = nn.Conv2d(input_shape[0], 4, 3, padding=1)
    return nn.Sequential(conv, nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(256, num_classes))


def wrong():
    return nn.Linear(3, 3)
"""
pytestmark = pytest.mark.usefixtures("shallow_nb201", "onnx_rules")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images, a file of modules, and a search with its store and files."""
    made = tmp_path_factory.mktemp("chain")
    rng = np.random.default_rng(0)
    x, y = rng.integers(0, 256, (48, 3, 8, 8), dtype=np.uint8), np.arange(48) % 3
    np.savez(made / "data.npz", x_train=x[:32], y_train=y[:32], x_test=x[32:], y_test=y[32:])
    (made / "nets.py").write_text(NETS)
    options = (
        "--proxy",
        "flops",
        "--budget",
        "8",
        "--method",
        "random",
        "--data",
        made / "data.npz",
        "--batch-size",
        "4",
    )
    ran = epochzero(
        *(
            "search",
            *options,
            "--top",
            "3",
            "--store",
            made / "run.db",
            "--out",
            made / "won",
            "--winner-scores",
            "none",
        )
    )
    assert ran.code == 0, ran.err
    assert f"epochzero report {made}/run.db --out report.html\n" in ran.err
    assert f"epochzero train --from {made}/run.db --data {made}/data.npz --out trained\n" in ran.err
    return made


def test_the_best_of_a_store_and_of_a_winner(folder: Path) -> None:
    found = winners(folder / "run.db", 8)
    assert len({one.arch for one in found}) == 8 and {one.space for one in found} == {"nb201"}
    space = ez.space("nb201")
    sizes = [space.plan(space.parse(one.arch), 3, (3, 8, 8)).flops for one in found]
    assert sizes == sorted(sizes, reverse=True)
    assert winners(folder / "won" / "winner.json", 3) == found[:3]
    with pytest.raises(UserError, match="lists 3 of the 4 networks: name the store"):
        winners(folder / "won" / "winner.json", 4)
    (folder / "odd.json").write_text("[]")
    with pytest.raises(UserError, match=r"is not the winner\.json"):
        winners(folder / "odd.json")
    with pytest.raises(UserError, match=r"no store or winner.json 'nothing.db'"):
        winners("nothing.db")


def test_train_and_export_the_best_of_a_search(folder: Path, tmp_path: Path) -> None:
    data = ("--data", folder / "data.npz")
    both = epochzero(
        "train", "--from", folder / "run.db", "--top", "2", *data, *QUICK, "--out", tmp_path, "--json"
    ).json
    reports = both["networks"]
    assert {one["arch"] for one in reports} == {one.arch for one in winners(folder / "run.db", 2)}
    assert [one["test_accuracy"] for one in reports] == sorted((one["test_accuracy"] for one in reports), reverse=True)
    assert {Path(one["folder"]).name for one in reports} == {"1", "2"}
    (best,) = winners(folder / "won" / "winner.json")
    weights = next(one["folder"] for one in reports if one["arch"] == best.arch)
    out = ("--weights", weights, "--out", tmp_path / "product", "--no-onnx", "--json")
    assert epochzero("export", "--from", folder / "won" / "winner.json", *out).json["arch"] == best.arch


def test_train_and_export_a_module(folder: Path, tmp_path: Path) -> None:
    reference = f"{folder}/nets.py:make"
    data = ("--data", folder / "data.npz")
    trained = epochzero("train", "--from", reference, *data, *QUICK, "--out", tmp_path / "run", "--json").json
    assert (trained["space"], trained["arch"], trained["flops"]) == ("given", reference, None)
    again = epochzero("train", "--from", reference, *data, *QUICK, "--out", tmp_path / "run", "--json").json
    assert again["resumed"] == 1 and again["test_loss"] == trained["test_loss"]
    out = ("--weights", tmp_path / "run", "--out", tmp_path / "product", "--json")
    assert f"name it too, --from {reference}" in refusal("export", *out)
    product = epochzero("export", "--from", reference, *data, *out).json
    assert {Path(file).name for file in product["files"]} == {
        *("model.py", "model.pt2", "model.safetensors", "model.onnx", "MODEL_CARD.md")
    }
    assert product["errors"]["model.py"] < 1e-4 and product["errors"]["model.onnx"] < 1e-4
    network: nn.Module = runpy.run_path(str(tmp_path / "product" / "model.py"))["load"]()
    assert network(torch.randn(5, 3, 8, 8)).shape == (5, 3)
    card = (tmp_path / "product" / "MODEL_CARD.md").read_text()
    assert "test accuracy" in card and "multiply-accumulates" in card
    assert "cannot be trained on these images" in refusal(
        "train", "--from", f"{folder}/nets.py:wrong", *data, *QUICK, "--out", tmp_path / "wrong"
    )


def test_several_sources(folder: Path, tmp_path: Path) -> None:
    sources = ("--from", f"{folder}/nets.py:make", "--from", folder / "run.db", "--top", "2")
    data = ("--data", folder / "data.npz")
    reports = epochzero("train", *sources, *data, *QUICK, "--out", tmp_path / "all", "--json").json["networks"]
    best = {one.arch for one in winners(folder / "run.db", 2)}
    assert {one["arch"] for one in reports} == {f"{folder}/nets.py:make", *best}


SPACE = """
import epochzero as ez
from torch import nn


def build(width, num_classes):
    return nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36 * width, num_classes))


sizes = ez.choices(build, width=[2, 4])
"""


def test_a_space_of_choices_by_its_file(folder: Path, tmp_path: Path) -> None:
    with plugins_forgotten():
        (folder / "sizes.py").write_text(SPACE)
        space, data = f"{folder}/sizes.py:sizes", ("--data", folder / "data.npz")
        store = ("--store", tmp_path / "own.db", "--winner-scores", "none")
        found = epochzero(
            "search", "--space", space, "--proxy", "params", *data, "--batch-size", "4", *store, "--json"
        ).json
        assert found["best"]["arch"] == "width=4" and found["space"].startswith("build:")
        with pytest.raises(UserError, match=r"'build:0' is not known here: name its file too, --plugin file.py:NAME"):
            resolved(Winner("build:0", "width=4"))
        plugin = ("--plugin", space)
        source = ("--from", tmp_path / "own.db", *plugin)
        trained = epochzero("train", *source, *data, *QUICK, "--out", tmp_path / "run", "--json").json
        assert trained["arch"] == "width=4"
        out = ("--weights", tmp_path / "run", *plugin, "--no-onnx", "--out", tmp_path / "product", "--json")
        assert {Path(file).name for file in epochzero("export", *out).json["files"]} >= {"model.py", "model.pt2"}
        assert "is function, not a space" in refusal("search", "--space", f"{folder}/sizes.py:build")


def test_analyze_and_ensemble(folder: Path, tmp_path: Path) -> None:
    best, second = (one.arch for one in winners(folder / "run.db", 2))
    assert epochzero("analyze", "topology", "--from", folder / "run.db", "--json").json["arch"] == best
    both = epochzero("analyze", "features", "--from", folder / "run.db", "--top", "2", "--json")
    assert both.code == 0 and best in both.out and second in both.out
    module = epochzero("analyze", "features", "--from", f"{folder}/nets.py:make", "--input-shape", "3,8,8", "--json")
    assert "nets.py:make" in module.out + module.err
    data = ("--data", folder / "data.npz")
    report = epochzero(
        *("ensemble", "--from", folder / "run.db", "--top", "2", *data, *QUICK, "--out", tmp_path / "two", "--json")
    ).json
    assert {one["arch"] for one in report["members"]} == {one.arch for one in winners(folder / "run.db", 2)}


@pytest.mark.parametrize(
    ("command", "says"),
    [
        (("train", "--arch", "x", "--from", "run.db"), "--from names the networks"),
        (("train", "--top", "2", "--arch", "x"), "--top is about the networks of --from"),
        (("train",), "give --arch, or --from"),
        (("export", "--from", "run.db", "--from", "nets.py:make"), "--from is given 2 times"),
        (("ensemble", "--from", "run.db", "--from", "nets.py:make"), "ensembles are made of networks of a space"),
        (("export", "--arch", "x", "--from", "run.db"), "--from names the network"),
        (("ensemble", "--from", "nets.py:make"), "ensembles are made of networks of a space of plans"),
    ],
)
def test_refused(folder: Path, tmp_path: Path, command: tuple[str, ...], says: str) -> None:
    words = [str(folder / word) if word in ("run.db",) else word for word in command]
    words = [f"{folder}/{word}" if word.startswith("nets.py") else word for word in words]
    data = () if command[0] == "export" else ("--data", folder / "data.npz")
    assert says in refusal(*words, *data, "--out", tmp_path / "out")


def test_in_python(folder: Path, tmp_path: Path) -> None:
    def make(width: int) -> Callable[..., nn.Module]:
        def made(num_classes: int) -> nn.Module:
            return nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.Flatten(), nn.Linear(36 * width, num_classes))

        return made

    data = folder / "data.npz"
    ranking = ez.rank({"small": make(2), "large": make(6)}, data, proxy="params", seeds=1, batch_size=4)
    trained = ranking.train(data, top=2, epochs=1, batch_size=8, pad=0)
    assert set(trained) == {"small", "large"}
    accuracies = [one.history[-1]["test_accuracy"] for one in trained.values()]
    assert accuracies == sorted(accuracies, reverse=True)
    space = ez.choices(lambda width, num_classes: make(width)(num_classes), width=[2, 4])
    result = ez.search(space, "params", budget=2, data=data, batch_size=4)
    result.train(data, epochs=1, batch_size=8, pad=0, folder=tmp_path / "run")
    made = result.export(tmp_path / "product", weights=tmp_path / "run", onnx=False)
    assert {file.name for file in made.files} == {"model.py", "model.pt2", "model.safetensors", "MODEL_CARD.md"}
    assert json.dumps(made.code_error)


def test_what_a_module_has_to_give(folder: Path) -> None:
    class Odd(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.flatten(1)

    ranking = ez.rank({"odd": Odd()}, folder / "data.npz", proxy="params", seeds=1, batch_size=4)
    with pytest.raises(UserError, match=r"should give \[2, 3\] for two of these images, and gives \[2, 192\]"):
        ranking.train(folder / "data.npz", epochs=1)
