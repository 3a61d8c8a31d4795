"""A cell and its variants trained in one population: equal to training one by one, resumed, and kept separate."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from torch.nn.functional import cross_entropy

from epochzero.analysis.topology import KNOWN, topologies
from epochzero.errors import UserError
from epochzero.plan import generator
from epochzero.train.augment import crop, flip
from epochzero.train.image_data import Images, load_images
from epochzero.types import Origin
from epochzero_papers.__main__ import main
from epochzero_papers.thesis import convergence
from epochzero_papers.thesis.convergence import PAD, Study, Trainer, ladder, lineup, study_convergence
from tests.fresh import Fresh

SMALL = Study(
    widths=(2.5,),
    operations=1,
    channels=2,
    cells=3,
    rates=(0.25, 0.025),
    epochs=2,
    batch_size=8,
    images=8,
    across=3,
    noise_images=4,
    noise_parts=2,
    noise_across=3,
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(0)
    y = np.arange(24) % 3
    x = (rng.integers(0, 120, (24, 8, 8, 3)) + 40 * y[:, None, None, None]).astype(np.uint8)
    path = tmp_path_factory.mktemp("data") / "images.npz"
    np.savez(path, x_train=x[:16], y_train=y[:16], x_test=x[16:], y_test=y[16:])
    return path


@pytest.fixture(scope="module")
def images(file: Path) -> Images:
    return load_images(file)


def test_the_lineup_falls_in_width_and_keeps_its_operations() -> None:
    cells = lineup(Study())
    assert list(cells) == ["DARTS", "C1", "C2", "C3", "C4", "O1", "O2"]
    shapes = {name: topologies(arch)["normal"] for name, arch in cells.items()}
    assert [shapes[name].width for name in cells] == [3.5, 3, 2.5, 2, 1.5, 3.5, 3.5]
    assert len({shapes[name] for name in ("DARTS", "O1", "O2")}) == 1
    assert len(set(cells.values())) == 7


@pytest.mark.parametrize(
    ("space", "arch"),
    [
        ("nb201", "|nor_conv_3x3~0|+|nor_conv_3x3~0|none~1|+|none~0|nor_conv_1x1~1|skip_connect~2|"),
        ("nb101", "conv3x3:0/conv3x3:0/conv1x1:12/output:03"),
    ],
)
def test_other_spaces_have_a_lineup_too(space: str, arch: str) -> None:
    cells = lineup(Study(space=space, arch=arch))
    widths = [next(iter(topologies(cell).values())).width for name, cell in cells.items() if name.startswith("C")]
    assert len(widths) >= 2 and widths == sorted(set(widths), reverse=True)
    assert next(iter(cells)) == "cell" and [name for name in cells if name.startswith("O")] == ["O1", "O2"]


def test_a_cell_of_nb201_is_studied(images: Images, tmp_path: Path, shallow_nb201: None) -> None:
    arch = "|skip_connect~0|+|skip_connect~0|none~1|+|none~0|nor_conv_1x1~1|skip_connect~2|"
    study = replace(SMALL, space="nb201", arch=arch, widths=(2.0,), operations=1, rates=(0.025,), epochs=1)
    found = study_convergence(study, images, tmp_path / "a.json")
    assert [one["name"] for one in found["networks"]] == ["cell", "C1", "O1"]
    assert found["networks"][0]["arch"] == arch and found["landscape"]["networks"] == ["cell", "C1", "O1"]


@pytest.mark.parametrize("together", [6, 4, 1])
def test_each_is_trained_as_if_it_were_alone(together: int, images: Images) -> None:
    trainer = Trainer(SMALL, images, "cpu", together)
    curves = [trainer.epoch(number) for number in range(2)]
    for place, entry in enumerate(trainer.entries):
        plan = trainer.space.plan(entry.arch, images.num_classes, images.input_shape)
        module = plan.module(Origin(seed=entry.seed))
        sgd = torch.optim.SGD(module.parameters(), entry.rate, momentum=0.9, weight_decay=3e-4)
        for number in range(2):
            module.train()
            rng = generator(0, "convergence", number)
            order = torch.randperm(16, generator=rng)
            losses = []
            for step in range(2):
                chosen = order[step * 8 : step * 8 + 8]
                x = images.standardised(flip(crop(images.x[chosen], PAD, rng), rng))
                sgd.param_groups[0]["lr"] = entry.rate * (1 + math.cos(math.pi * (2 * number + step) / 4)) / 2
                sgd.zero_grad()
                loss = cross_entropy(module(x), images.y[chosen])
                loss.backward()  # type: ignore[no-untyped-call]
                sgd.step()
                losses.append(float(loss.detach()))
            assert curves[number]["loss"][place] == pytest.approx(sum(losses) / 2, rel=2e-3)
            module.eval()
            with torch.no_grad():
                test = float(cross_entropy(module(images.standardised(images.test_x)), images.test_y))
            assert curves[number]["test_loss"][place] == pytest.approx(test, rel=2e-2)


def test_a_network_that_diverges_leaves_the_others_alone(images: Images) -> None:
    def curve(rate: float) -> list[float]:
        trainer = Trainer(replace(SMALL, rates=(rate, 0.025)), images, "cpu", together=6)
        return trainer.epoch(0)["test_loss"][3:]

    assert curve(1e30) == curve(0.25)


def test_a_stopped_study_goes_on_to_the_same_end(
    images: Images, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = study_convergence(SMALL, images, tmp_path / "whole.json")
    out, notes = tmp_path / "stopped.json", []

    def stop(note: str) -> None:
        notes.append(note)
        if note.startswith("epoch 1/"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study_convergence(SMALL, images, out, say=stop)
    assert "landscape" not in json.loads(out.read_text())
    found = study_convergence(SMALL, images, out, say=notes.append)
    assert sum(note.startswith("epoch 1/") for note in notes) == 1
    for part in ("networks", "curves", "landscape", "gradient_variance", "study", "data"):
        assert found[part] == whole[part], part
    assert json.loads(out.read_text()) == json.loads(json.dumps(found))
    monkeypatch.setattr(Trainer, "epoch", None)
    again = study_convergence(SMALL, images, out)
    assert again["curves"] == whole["curves"]


def test_what_is_found_is_whole(images: Images, tmp_path: Path) -> None:
    found = study_convergence(SMALL, images, tmp_path / "found.json")
    assert [one["name"] for one in found["networks"]] == ["DARTS", "C1", "O1"] * 2
    assert [one["rate"] for one in found["networks"]] == [0.25] * 3 + [0.025] * 3
    assert found["networks"][1]["width"] == 2.5
    for epoch in found["curves"]:
        assert all(len(epoch[key]) == 6 for key in ("loss", "test_loss", "test_accuracy"))
    last = found["curves"][-1]["test_loss"]
    planes = found["landscape"], found["gradient_variance"]
    assert all(plane["networks"] == ["DARTS", "C1", "O1"] and plane["axis"] == [-1, 0, 1] for plane in planes)
    for network, values in enumerate(found["landscape"]["values"]):
        assert values[1][1] == pytest.approx(last[network], rel=1e-4), "the middle rate of two is the larger"
    assert np.array(found["gradient_variance"]["values"], float).min() >= 0
    assert len({json.dumps(values) for values in found["landscape"]["values"]}) == 3, "variants are other networks"


def test_every_seed_is_looked_at_on_directions_of_its_own(images: Images, tmp_path: Path) -> None:
    study = replace(SMALL, rates=(0.025,), epochs=1, seeds=2)
    plane = study_convergence(study, images, tmp_path / "found.json")["landscape"]
    assert plane["networks"] == ["DARTS", "C1", "O1"] * 2 and plane["seeds"] == [0] * 3 + [1] * 3
    first = study_convergence(replace(study, seeds=1), images, tmp_path / "first.json")["landscape"]
    assert plane["values"][:3] == first["values"] and plane["values"][3:] != first["values"]
    trainer = Trainer(replace(study, seeds=1), images, "cpu", together=3)
    trainer.epoch(0)
    together = convergence._looked(trainer, convergence._landscape)["values"]
    torch.testing.assert_close(torch.tensor(together), torch.tensor(first["values"]), rtol=2e-2, atol=1e-3)


def test_another_study_is_not_overwritten(images: Images, tmp_path: Path) -> None:
    out = tmp_path / "found.json"
    out.write_text("{}")
    with pytest.raises(UserError, match="holds no study to go on with"):
        study_convergence(SMALL, images, out)
    out.write_text(json.dumps({"study": {}, "data": {}}))
    with pytest.raises(UserError, match="holds a study with other settings or data"):
        study_convergence(SMALL, images, out)
    with pytest.raises(UserError, match="odd number of points"):
        Study(across=4)
    with pytest.raises(UserError, match="at least 2 parts"):
        Study(noise_parts=1)
    with pytest.raises(UserError, match="fewer than 3 cells have no normal one"):
        Study(cells=2)


def test_it_runs_with_torch_and_numpy_alone(fresh: Fresh) -> None:
    program = (
        "from epochzero_papers.__main__ import reader\n"
        "_, options = reader('convergence')\n"
        "assert options.parse_args(['--data', 'a.npz', '--out', 'b.json']).epochs == 10\n"
    )
    done = fresh.bare(program)
    assert done.code == 0, done.err


def test_the_command(file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = f"convergence --data {file} --out {tmp_path}/a.json --device cpu --channels 1 --cells 3 --epochs 1"
    monkeypatch.setattr(convergence, "study_convergence", lambda *given: calls.append(given))
    calls: list[tuple[object, ...]] = []
    main(f"{asked} --batch-size 8 --across 3 --noise-across 3".split())
    assert isinstance(calls[0][0], Study) and (calls[0][0].cells, calls[0][0].across) == (3, 3)
    with pytest.raises(UserError, match=r"ends with \.json"):
        main(f"convergence --data {file} --out a.txt".split())


def test_a_ladder_of_falling_width_is_no_shallower_from_rung_to_rung() -> None:
    rungs = [topologies(arch)["normal"] for arch in ladder(KNOWN["DARTS"], (3, 2.5, 2, 1.5), Random(0))]
    assert [rung.width for rung in rungs] == [3, 2.5, 2, 1.5]
    assert sorted(rung.depth for rung in rungs) == [rung.depth for rung in rungs]
    with pytest.raises(UserError, match="None of 10 random variants of this cell is 9c wide"):
        list(ladder(KNOWN["DARTS"], (9,), Random(0), draws=10))
