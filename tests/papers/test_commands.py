"""Commands that come with the papers, and what is printed where these are not installed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import epochzero as epochzero_
from epochzero_papers.thesis import convergence_pictures
from tests.analysis.test_pictures import AXIS, BOWL, HOLED
from tests.command import epochzero, refusal
from tests.fresh import Fresh
from tests.papers.small import SMALL_IMAGES, small_images

HIDDEN = """
import importlib.metadata, sys

class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "epochzero_papers":
            raise ModuleNotFoundError(name)

installed = importlib.metadata.entry_points
sys.meta_path.insert(0, Hidden())
importlib.metadata.entry_points = lambda **of: [e for e in installed(**of) if "epochzero_papers" not in e.value]
"""
"""the beginning of a program that runs as if epochzero-papers were not installed"""


def study() -> dict[str, Any]:
    networks = [
        {"name": name, "width": width, "depth": 3, "rate": rate, "seed": 0}
        for rate in (0.25, 0.025)
        for name, width in (("DARTS", 3.5), ("C1", 2.0))
    ]
    epoch = {"loss": [1.0] * 4, "test_loss": [1.0, 2.0, None, 1.5], "test_accuracy": [0.1, 0.2, 0.1, 0.3]}
    plane = {"networks": ["DARTS", "C1"], "axis": AXIS, "values": [BOWL, HOLED]}
    return {"networks": networks, "curves": [epoch, epoch], "landscape": plane, "gradient_variance": plane}


def test_convergence_is_studied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, out = tmp_path / "images.npz", tmp_path / "out"
    x, y = SMALL_IMAGES, np.arange(40) % 3
    np.savez(images, x_train=x[:20], y_train=y[:20], x_test=x[20:], y_test=y[20:])
    drawn: list[dict[str, Any]] = []

    def draw(found: dict[str, Any], folder: Path) -> list[str]:
        drawn.append(found)
        return []

    monkeypatch.setattr(convergence_pictures, "draw", draw)
    small = ["--channels", 1, "--cells", 3, "--epochs", 1, "--batch-size", 18, "--across", 3]
    found = epochzero("analyze", "convergence", "--data", images, "--out", out, *small, "--json").json
    assert len(found["networks"]) == 21 and found["networks"][0]["name"] == "DARTS"
    assert drawn[0]["curves"][0]["test_accuracy"][0] == found["networks"][0]["test_accuracy"]
    assert np.array(drawn[0]["gradient_variance"]["values"], float).shape == (7, 3, 3)


def test_a_study_that_is_there_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "study.json").write_text(json.dumps(study()))
    found = epochzero(
        "analyze", "convergence", "--from", tmp_path / "study.json", "--out", tmp_path / "b", "--json"
    ).json
    assert len(found["files"]) == 8 and all(Path(file).exists() for file in found["files"])
    assert [one["test_accuracy"] for one in found["networks"]] == [0.1, 0.2, 0.1, 0.3]


def test_what_convergence_refuses(tmp_path: Path) -> None:
    images = small_images(tmp_path)
    few = refusal("analyze", "convergence", "--data", images, "--out", tmp_path)
    assert "at least 2 parts" in few, "4 test images are not enough, and it is said before the training"
    assert "either --data" in refusal("analyze", "convergence", "--out", tmp_path)
    missing = refusal("analyze", "convergence", "--from", tmp_path / "none.json", "--out", tmp_path)
    assert "cannot be read (No such file" in missing
    (tmp_path / "a.json").write_text("[]")
    assert "no study" in refusal("analyze", "convergence", "--from", tmp_path / "a.json", "--out", tmp_path)


def test_the_theorems(tmp_path: Path) -> None:
    asked = ("analyze", "theorems", "--cells", 5, "--nodes", 3, "--size", 3)
    found = epochzero(*asked, "--out", tmp_path, "--json").json
    assert found["broken"]["4.3"]["linear"] == found["broken"]["4.4"]["linear"] == [0, 0, 0]
    assert found["broken"]["4.3"]["quadratic"][0] == 5
    assert found["kappa"]["wide"] == pytest.approx([1.0] * 5)
    assert json.loads((tmp_path / "theorems.json").read_text())["cells"] == 5
    assert "theorem 4.4, linear    objective: broken in 0, 0, 0 of 5 cells" in epochzero(*asked).out


def test_a_study_is_drawn_whole(tmp_path: Path) -> None:
    convergence_pictures.draw(study(), tmp_path, "found")
    parts = ("curves", "landscape_contour", "landscape_surface", "gradient_variance_heat")
    wanted = {f"found_{part}.{ending}" for part in parts for ending in ("png", "svg")}
    assert {file.name for file in tmp_path.iterdir()} == wanted
    figure = convergence_pictures._curves(study())
    assert len(figure.axes) == 6 and all(len(axes.lines) == 2 for axes in figure.axes)


def test_the_product_never_imports_the_papers() -> None:
    files = Path(epochzero_.__file__).parent.rglob("*.py")
    assert not [
        file
        for file in files
        if "import epochzero_papers" in (text := file.read_text()) or "from epochzero_papers" in text
    ]


def test_the_product_works_without_the_papers(fresh: Fresh) -> None:
    program = (
        "import epochzero as ez\n"
        "from epochzero.cli import main\n"
        "assert ez.search(budget=2, space='nb201').best\n"
        "assert not ez.registry.experiments\n"
        "assert not [name for name in sys.modules if name.startswith('epochzero_papers')]\n"
        "main()\n"
    )
    assert "convergence" in fresh(HIDDEN + program, "analyze", "--help").out
    for asked in ("reproduce dextr-table1 --quick", "analyze convergence --from a.json", "list experiments"):
        ran = fresh(HIDDEN + program, *asked.split())
        assert ran.code == 2, ran
        assert "epochzero-papers: install it with `pip install ./papers`" in " ".join(ran.err.split())


def blocks_of_the_readme() -> list[str]:
    readme = (Path(__file__).parents[2] / "papers" / "README.md").read_text(encoding="utf-8")
    return [part.partition("```")[0] for part in readme.split("```python\n")[1:]]


def test_an_experiment_of_ones_own_is_a_plug_in(fresh: Fresh, tmp_path: Path) -> None:
    """The file that the README shows, anywhere; and its test."""
    file = tmp_path / "sizes.py"
    experiment, test = blocks_of_the_readme()
    file.write_text(experiment, encoding="utf-8")
    program = "from epochzero.cli import main\nmain()\n"
    ran = fresh(program, "reproduce", "sizes", "--plugin", str(file), "--quick", "--json", "--data", "pink")
    assert json.loads(ran.out)["rows"][0]["found"]["value"] > 0.5, ran.err
    tested = fresh(f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\nimport sizes\ndel sizes\n{test}")
    assert tested.code == 0, tested.err


def test_an_experiment_is_one_file(fresh: Fresh, tmp_path: Path) -> None:
    """The file that the README shows, put into the folder of a paper."""
    (tmp_path / "sizes.py").write_text(blocks_of_the_readme()[0], encoding="utf-8")
    program = (
        "import epochzero_papers.ours\n"
        f"epochzero_papers.ours.__path__.append({str(tmp_path)!r})\n"
        "from epochzero.cli import main\n"
        "main()\n"
    )
    listed = json.loads(fresh(program, "list", "experiments", "--json").out)["experiments"]
    (row,) = [one for one in listed if one["name"] == "sizes"]
    assert row["status"] == "ready" and row["about"].startswith("Ours: do parameters")
    ran = fresh(program, "reproduce", "sizes", "--quick", "--json", "--data", "pink")
    assert json.loads(ran.out)["rows"][0]["found"]["value"] > 0.5, ran.err
