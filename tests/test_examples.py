"""The scripts of docs/examples, run as they are, each in a folder of its own."""

from __future__ import annotations

import re
import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "docs" / "examples"
SHOWS = {
    "choices.py": r"^12 networks.*best kind=.*3 cannot be built.*kind=",
    "images_to_onnx.py": r"accuracy \d\.\d\d.*of 6 test images right.*served (dark|light) [01]\.\d\d\nfile,class,prob",
    "language_model.py": r"snip \d.*jacov -?\d.*epe_nas needs class labels.*found width=",
    "microcontroller.py": r"^\d+:\d+:\d+:\d+:\d+\n[\d,]+ bytes of weights, [\d,]+ of activations",
    "own_module.py": r"'snip': Score.*'residual'.*exported \(2, 3\)",
    "rank_modules.py": r"wide .* group 1.*linear .* degenerate.*Group 1: .*Counting FLOPs would put wide first",
    "rank_published.py": r"^\[\{'place': 1|^Models of timm: need the package timm",
    "regression.py": r"3 x 64 .* ± .*\d \| needs class labels, which the targets of the loss huber_loss",
    "slim.py": r"^18 versions, such as depth=2, 0=4, .*parameters.accuracy 1.00, .* and, trained on, \d\.\d\d",
    "text_classifier.py": r"4 x 32 .*\d parameters .*\d FLOPs .* ms  \d.* ± ",
    "segmentation.py": r"^width=\d, levels=\d \d",
}
"""patterns of their output"""


def test_every_example_is_run() -> None:
    assert {file.name for file in EXAMPLES.glob("*.py")} == {*SHOWS, "tiny_darts.py"}  # which tests/test_plugin.py runs


@pytest.mark.usefixtures("shallow_nb201", "onnx_rules")
@pytest.mark.parametrize("name", SHOWS)
def test_example(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if name == "text_classifier.py":
        pytest.importorskip("transformers")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "model", raising=False)
    runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert re.search(SHOWS[name], capsys.readouterr().out, re.DOTALL), name
    monkeypatch.delitem(sys.modules, "model", raising=False)
