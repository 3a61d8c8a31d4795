"""Warm-up: training and scoring against a loop written out, the store, the command for a bare machine, the table."""

from __future__ import annotations

import csv
import subprocess
import sys
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy

import epochzero as ez
from epochzero import data
from epochzero.errors import DataError
from epochzero.experiments import warm_up
from epochzero.experiments.sigeo_table3 import SigeoTable3, Warmth
from epochzero.experiments.warm_up import SGD, WARM, ZERO_SHOT, ZICO, WarmUp
from epochzero.registry import spaces
from epochzero.store import Store
from epochzero.types import Origin
from tests.data_files import labelled, save
from tests.experiments_small import SMALL_IMAGES, small_images

ARCHS = (
    "|nor_conv_3x3~0|+|skip_connect~0|none~1|+|none~0|skip_connect~1|skip_connect~2|",
    "|nor_conv_1x1~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|none~2|",
    "|skip_connect~0|+|none~0|none~1|+|none~0|nor_conv_1x1~1|none~2|",
)
STEADY = ARCHS[0]
"""the third, on so little data, turns a change of 1e-7 in its weights into one of .04 in its loss within four steps"""
STOPS = (0, 2, 6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    small_images(folder, "cifar10.npz")
    rng = Random(0)
    with (folder / "nb201.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [[arch, rng.random(), rng.random(), rng.random()] for arch in ARCHS]
        csv.writer(file).writerows([["arch_str", "cifar10_test", "cifar100_test", "imagenet16_test"], *rows])
    return folder


@pytest.fixture
def warm(folder: Path) -> WarmUp:
    return WarmUp.on(spaces["nb201"], folder / "cifar10.npz", 8, 0, "cpu")


def slow(images: Path, arch: str, stop: int) -> dict[str, float]:
    """Five batches of 8 in turn; SGD with Nesterov momentum written out; then the next four batches."""
    space = spaces["nb201"]
    stream = data.load(images, size=8, parts=5)
    module = space.plan(space.parse(arch), 3, (3, 8, 8)).module(Origin(seed=0)).train()
    velocity: dict[str, Any] = {}
    for step in range(stop):
        x, y = labelled(stream, step % 5)
        module.zero_grad()
        cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for name, weight in module.named_parameters():
                if weight.grad is None:
                    continue
                g = weight.grad + 5e-4 * weight
                velocity[name] = g.clone() if name not in velocity else 0.9 * velocity[name] + g
                weight.sub_(0.025 * (g + 0.9 * velocity[name]))
    parts = [labelled(stream, (stop + i) % 5) for i in range(4)]
    x, y = (torch.cat(both) for both in zip(*parts, strict=True))
    batch = data.from_tensors(x, y, size=8, parts=4)
    wanted = [ZICO, WARM if stop else ZERO_SHOT]
    return {name: score.value for name, score in ez.score(module, wanted, data=batch).items()}


def test_scores_are_those_of_a_loop_written_out(warm: WarmUp, folder: Path) -> None:
    assert warm.stream.parts == 5
    found = warm.scores(warm.space.parse(STEADY), STOPS)
    assert list(found) == list(STOPS)
    for stop, (scores, seconds) in found.items():
        expected = slow(folder / "cifar10.npz", STEADY, stop)
        assert {name: score.value for name, score in scores.items()} == pytest.approx(expected, rel=1e-3), stop
        assert seconds > 0
    zico = [scores[ZICO].value for scores, _ in found.values()]
    assert len(set(zico)) == 3, "training changes the score"


def test_the_origin_says_how_the_weights_came_about(warm: WarmUp) -> None:
    assert warm.setting(0).origin == "default:0"
    origin = warm.setting(78).origin
    assert origin == f"default:0, 78 steps of sgd(rate=0.025,momentum=0.9,decay=0.0005,nesterov) on {warm.stream.id}"
    other = WarmUp(warm.space, warm.stream, optimiser=SGD(rate=0.1))
    assert len({str(warm.setting(78)), str(other.setting(78)), str(warm.setting(79))}) == 3


def test_what_is_stored_is_not_trained_again(warm: WarmUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archs = [warm.space.parse(arch) for arch in ARCHS]
    with Store.open(tmp_path / "warm.db") as store:
        run = store.begin_run("warm-up", {}, {})
        first = list(warm.evaluate(archs[:2], (0, 2), store, run))
        asked: list[tuple[Any, list[int]]] = []
        scores = WarmUp.scores

        def counting(self: WarmUp, arch: Any, stops: list[int]) -> Any:
            asked.append((arch, stops))
            return scores(self, arch, stops)

        monkeypatch.setattr(WarmUp, "scores", counting)
        again = list(warm.evaluate(archs, (0, 2, 3), store, store.begin_run("warm-up", {"more": 1}, {})))
    assert [{stop: one[stop] for stop in (0, 2)} for one in again[:2]] == first
    assert asked == [(archs[0], [3]), (archs[1], [3]), (archs[2], [0, 2, 3])]


def test_steps_are_those_of_the_papers_epoch() -> None:
    assert [Warmth(networks=3).steps(percent) for percent in (0, 10, 20, 40)] == [0, 78, 156, 312]


def test_the_table_sets_each_level_beside_the_paper(folder: Path, tmp_path: Path) -> None:
    settings = Warmth(networks=3, batch_size=8, images=80, spaces=("nb201",))  # 1, 2 and 4 steps
    result = SigeoTable3().run(settings, folder=folder, store=tmp_path / "run.db")
    rows = {(row.x, row.y, row.statistic): row for row in result.rows}
    assert rows["sigeo, 10 %", "NB201-C10", "spearman"].paper == 0.83
    assert rows["zico, 40 %", "NB201-IN16", "kendall"].paper == 0.59
    (sample,) = result.samples.values()
    place = sample.archs.index(STEADY)
    for stop, percent in ((0, 0), (4, 40)):
        expected = slow(folder / "cifar10.npz", STEADY, stop)
        assert sample.values[f"zico, {percent} %"][place] == pytest.approx(expected[ZICO], rel=1e-3)
        sigeo = expected[WARM if stop else ZERO_SHOT]
        assert sample.values[f"sigeo, {percent} %"][place] == pytest.approx(sigeo, rel=1e-3)
    assert "Trained on 5 batches in turn by sgd(rate=0.025" in next(iter(sample.data.values()))
    assert result.left_out == ["NB101, NB301: left out of this small form."]


def test_a_bare_machine_fills_the_store_that_the_table_reads(folder: Path, tmp_path: Path) -> None:
    """One share with torch and numpy alone, the other here."""
    program = (
        "import sys\n"
        "class Blocked:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in {'scipy', 'typer', 'rich', 'pyarrow', 'click', 'matplotlib'}:\n"
        "            raise ImportError(name)\n"
        "sys.meta_path.insert(0, Blocked())\n"
        "from epochzero.experiments.warm_up import main\n"
        "main(sys.argv[1:])\n"
    )
    store = tmp_path / "warm.db"
    given = [
        "--table", str(folder / "nb201.csv"), "--data", str(folder / "cifar10.npz"), "--store", str(store),
        "--networks", "3", "--steps", "0,1,2,4", "--batch-size", "8", "--device", "cpu",
    ]  # fmt: skip
    process = [sys.executable, "-c", program, *given, "--share", "2/2"]
    done = subprocess.run(process, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "1/1 networks, " in done.stderr
    warm_up.main([*given, "--share", "1/2"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warm_up, "trained", None)  # nothing is trained any more
        settings = Warmth(networks=3, batch_size=8, images=80, spaces=("nb201",))
        result = SigeoTable3().run(settings, folder=folder, store=store)
    assert all(row.found is not None or row.why for row in result.rows)


@pytest.mark.parametrize("wrong", [["--share", "3/2"], ["--share", "x"], ["--steps", "1,a"], ["--steps=-1"]])
def test_a_bare_command_that_cannot_be_read(
    wrong: list[str], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--table", str(folder / "nb201.csv"), "--data", str(folder / "cifar10.npz")]
    with pytest.raises(SystemExit) as stop:
        warm_up.main([*given, "--store", str(tmp_path / "warm.db"), "--device", "cpu", *wrong])
    assert stop.value.code == 2
    assert capsys.readouterr().err.startswith("error: --s")


def test_noise_and_images_without_labels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'pink' is noise"):
        WarmUp.on(spaces["nb201"], "pink", 8, 0, "cpu")
    with pytest.raises(DataError, match="has no labels, and training needs them"):
        WarmUp.on(spaces["nb201"], save(tmp_path / "plain.npz", x=SMALL_IMAGES), 8, 0, "cpu")
