"""Short trainings as the feedback of a search: what they learn from and are judged by, and a search end to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from epochzero.cli.plugin import load_plugins
from epochzero.errors import UserError
from epochzero.registry import spaces
from epochzero.train.feedback import ShortTraining, halved
from epochzero.train.image_data import load_images
from tests.command import epochzero, refusal
from tests.forgetting import plugins_forgotten
from tests.train.train_images import SPACE, write

TINY = (
    "from epochzero.registry import spaces\n"
    "from epochzero.spaces.darts import Darts\n"
    "spaces.register('darts_tiny', Darts('darts_tiny', channels=4, cells=3))\n"
)


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("images") / "squares.npz", side=32)


def test_one_half_teaches_and_the_other_judges(images: Path) -> None:
    whole = load_images(images)
    parts = halved(whole, 100, seed=3)
    assert len(parts.x) == len(parts.test_x) == 50
    rows = {row.numpy().tobytes() for row in whole.x}
    learnt, judged = ({row.numpy().tobytes() for row in part} for part in (parts.x, parts.test_x))
    assert len(learnt) == len(judged) == 50 and not learnt & judged and learnt | judged <= rows, "no test image"
    assert torch.equal(halved(whole, 100, seed=3).x, parts.x)
    assert not torch.equal(halved(whole, 100, seed=4).x, parts.x)
    assert len(halved(whole, None, seed=0).x) == 80


def test_it_learns_and_gives_the_same_again(images: Path) -> None:
    short = ShortTraining.of("default(epochs=6,batch_size=16)", SPACE, images)
    arch = SPACE.smallest()
    assert 40 < short(arch) <= 100, "chance is 25 %"
    assert short(arch) == short(arch)
    other = ShortTraining.of("default(epochs=6, batch_size=16)", SPACE, images, seed=1)
    assert short.name != other.name and short.name.startswith("default(epochs=6,batch_size=16) on squares.npz ")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("hnass", "Did you mean 'hnas'"),
        ("hnas(epochs)", "'epochs' does not change a recipe"),
        ("hnas(epochs=0)", "epochs is 1 to"),
        ("hnas(images=1000)", "takes 4 to 160 images of these data, not 1000"),
        ("hnas(images=2.5)", "takes 4 to 160 images of these data, not 2.5"),
        ("hnas((", "is not a short training"),
    ],
)
def test_mistakes_are_sentences(images: Path, text: str, says: str) -> None:
    with pytest.raises(UserError, match=says):
        ShortTraining.of(text, SPACE, images)


def test_hnas_on_darts_by_one_epoch_of_training(images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bayes_opt")
    (tmp_path / "tiny.py").write_text(TINY)
    search: list[Any] = ["search", "--space", "darts_tiny", "--method", "hnas", "--data", images, "--batch-size", 2]
    search += ["--feedback", "hnas(epochs=1,batch_size=16,images=40)", "--option", "metric=snip", "--budget", 3]
    search += ["--option", "networks=4", "--option", "probes=2", "--winner-scores", "none", "--top", 3]
    search += ["--store", tmp_path / "run.db", "--json"]
    with plugins_forgotten():
        load_plugins([str(tmp_path / "tiny.py")])
        found = epochzero(*search).json
        short = ShortTraining.of("hnas(epochs=1,batch_size=16,images=40)", spaces["darts_tiny"], images)
        assert found["evaluated"] == 3 and len(found["top"]) == 3
        assert found["best"]["score"] == short(spaces["darts_tiny"].parse(found["best"]["arch"]))
        assert found["best"]["score"] == max(one["score"] for one in found["top"])
        monkeypatch.setattr(ShortTraining, "__call__", lambda *_: pytest.fail("trained again"))
        assert epochzero(*search).json["best"] == found["best"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([], "--feedback needs images with labels to train on, and pink is noise"),
        (["--method", "nasi"], "nasi evaluates no single networks"),
        (["--objectives", "dextr,-flops"], "leave out --objectives with --feedback"),
        (["--executor", "processes"], "leave out --executor with --feedback"),
    ],
)
def test_what_does_not_go_with_it(options: list[str], says: str) -> None:
    assert says in refusal("search", "--feedback", "hnas", *options)
