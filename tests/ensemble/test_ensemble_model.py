"""An ensemble as one model: averaged, saved whole, loaded whole or refused, and trained member by member."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor

from epochzero.ensemble.members import train_members
from epochzero.ensemble.model import MANIFEST, Ensemble, Pixels
from epochzero.ensemble.selection import Job, Settings
from epochzero.errors import DataError, MachineError, UserError
from epochzero.registry import spaces
from epochzero.train.image_data import load_images
from epochzero.train.recipes import Recipe, recipe_of
from epochzero.types import Origin
from tests.train.train_images import CLASSES, SMALLEST, SPACE, write

NB201 = spaces["nb201"]
PIXELS = Pixels((0.4, 0.5, 0.6), (0.2, 0.25, 0.3), 255.0)
SHAPE = (3, 16, 16)
QUICK = Recipe(epochs=2, batch_size=32)


def drawn(count: int = 3, classes: int = 4) -> Ensemble:
    rng = Random(1)
    archs = [NB201.sample(rng) for _ in range(count)]
    modules = [NB201.plan(arch, classes, SHAPE).module(Origin(seed=i)) for i, arch in enumerate(archs)]
    return Ensemble(NB201, archs, modules, PIXELS, {"chosen": "random"}).eval()


def inputs(count: int = 5) -> Tensor:
    return torch.rand(count, *SHAPE, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    drawn().save(folder)
    return folder


def copied(folder: Path, place: Path) -> Path:
    place.mkdir()
    for file in folder.iterdir():
        (place / file.name).write_bytes(file.read_bytes())
    return place


def test_the_prediction_is_the_mean_of_the_members_probabilities() -> None:
    ensemble, pixels = drawn(), inputs()
    x = (pixels - torch.tensor(PIXELS.mean)[:, None, None]) / torch.tensor(PIXELS.std)[:, None, None]
    with torch.no_grad():
        members = [member(x).softmax(1) for member in ensemble.members]
        expected = sum(members) / 3
        assert isinstance(expected, Tensor)
        torch.testing.assert_close(ensemble(x), expected)
        torch.testing.assert_close(ensemble.of_pixels(pixels), expected)
    torch.testing.assert_close(ensemble.predict(x, size=2), torch.stack(members))
    assert (ensemble.num_classes, ensemble.input_shape) == (4, SHAPE)


def test_what_is_saved_is_loaded(saved: Path) -> None:
    ensemble, again = drawn(), Ensemble.load(saved)
    assert (again.texts, again.pixels, again.facts) == (ensemble.texts, PIXELS, {"chosen": "random"})
    assert not again.training and again.params == ensemble.params
    assert torch.equal(again.predict(inputs()), ensemble.predict(inputs()))


def test_saved_over_another_only_the_new_one_is_left(saved: Path, tmp_path: Path) -> None:
    place = copied(saved, tmp_path / "a")
    drawn(2).save(place)
    assert len(Ensemble.load(place).members) == 2
    assert len(list(place.iterdir())) == 3


def test_a_full_disk_keeps_the_old_ensemble(saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = copied(saved, tmp_path / "a")
    replace = Path.replace

    def full(self: Path, target: Path) -> Path:
        if target.name.startswith("member-2"):
            raise OSError(28, "No space left on device")
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(MachineError, match="No space left on device"):
        drawn(2, classes=7).save(place)
    assert torch.equal(Ensemble.load(place).predict(inputs()), drawn().predict(inputs()))
    assert not list(place.glob("*.part"))


def test_damaged_weights_are_refused(saved: Path, tmp_path: Path) -> None:
    place = copied(saved, tmp_path / "a")
    file = min(place.glob("member-2*"))
    content = file.read_bytes()
    for damaged in (content[:-100], content[:-1] + bytes([content[-1] ^ 1])):
        file.write_bytes(damaged)
        with pytest.raises(DataError, match="do not match their checksum"):
            Ensemble.load(place)
    file.unlink()
    with pytest.raises(DataError, match="cannot be read"):
        Ensemble.load(place)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"format": 2}, "is of format 2"),
        ({"members": []}, "is damaged"),
        ({"members": [{"arch": "a", "weights": "../../secret", "sha256": ""}]}, "is damaged"),
        ({"pixels": {}}, "is damaged"),
        ({"input_shape": "3x"}, "is damaged"),
        ({"input_shape": []}, "is damaged"),
        ({"num_classes": 10**12}, "is damaged"),
        ({"pixels": {"mean": [0.5], "std": [0.5], "scale": 1}}, "is damaged"),
        ({"num_classes": 5}, "are of another network, or of other classes"),
    ],
)
def test_a_list_that_does_not_fit(saved: Path, tmp_path: Path, change: dict[str, Any], says: str) -> None:
    place = copied(saved, tmp_path / "a")
    about = json.loads((place / MANIFEST).read_text())
    (place / MANIFEST).write_text(json.dumps(about | change))
    with pytest.raises(DataError, match=says):
        Ensemble.load(place)


def test_what_is_no_ensemble(saved: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no ensemble\.json"):
        Ensemble.load(tmp_path)
    (tmp_path / MANIFEST).write_text("{")
    with pytest.raises(DataError, match="is damaged"):
        Ensemble.load(tmp_path)
    with pytest.raises(UserError, match="is of space 'nb201', not of 'resnet'"):
        Ensemble.load(saved, SPACE)
    with pytest.raises(UserError, match="one network for each architecture"):
        Ensemble(NB201, [], [], PIXELS)


def test_a_deep_ensemble_is_trained_from_several_seeds_and_goes_on(tmp_path: Path) -> None:
    """Stopped in the second member, it ends as one that was never stopped."""
    data, arch = load_images(write(tmp_path / "squares.npz")), SPACE.parse(SMALLEST)

    def stop(done: int, total: int | None, note: str) -> None:
        assert total == 2 * 2 * 5
        if done == 13:
            raise KeyboardInterrupt

    job = Job(SPACE, data, QUICK, Settings(seed=4))
    whole = train_members(job, [arch, arch])
    with pytest.raises(KeyboardInterrupt):
        train_members(replace(job, folder=tmp_path, progress=stop), [arch, arch])
    ensemble = train_members(replace(job, folder=tmp_path), [arch, arch])
    x = data.standardised(data.test_x)
    predicted = ensemble.predict(x)
    assert torch.equal(predicted, whole.predict(x))
    assert not torch.equal(predicted[0], predicted[1])
    assert ensemble.num_classes == CLASSES


def test_members_lose_their_towers(tmp_path: Path) -> None:
    space = spaces["darts_search"]
    data = load_images(write(tmp_path / "squares.npz", 8, 4, 32))
    recipe = recipe_of("darts", {"epochs": 1, "batch_size": 4})
    ensemble = train_members(Job(space, data, recipe, Settings()), [space.smallest()])
    ensemble.save(tmp_path / "e")
    x = torch.ones(2, 3, 32, 32)
    assert torch.equal(Ensemble.load(tmp_path / "e").predict(x), ensemble.predict(x))
