"""One by one or as a population: the choice by counted work, and the calibration that is kept in a file."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest
import torch

from epochzero import data
from epochzero.engine import PlanNetwork, parse_list
from epochzero.engine.population import cost, grouping
from epochzero.engine.population.cost import H200, Calibration, Crossing, alone_is_faster, measured_speed
from epochzero.engine.population.grouping import MemoryBudget, in_groups
from epochzero.plan import Plan
from epochzero.registry import spaces
from epochzero.types import Shape

CUDA = torch.device("cuda:7")  # which no test machine has: nothing here runs on it


def sampled(space: str, shape: Shape, count: int = 8) -> list[Plan]:
    rng = Random(0)
    return [spaces[space].plan(spaces[space].sample(rng), 10, shape) for _ in range(count)]


def groups(plans: list[Plan], shape: Shape, samples: int, proxies: str = "grad_norm,naswot") -> list[int]:
    """The sizes of populations on a GPU with a great deal of memory."""
    batch = data.pink(shape, size=samples)
    needs = [need for proxy in parse_list(proxies) for need in proxy.needs]
    networks = [PlanNetwork(plan, device=CUDA) for plan in plans]
    return [len(group) for group in in_groups(networks, needs, batch, "auto", MemoryBudget())]


@pytest.fixture
def h200(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "calibration", lambda _: H200)
    monkeypatch.setattr(grouping, "_free", lambda _: 1 << 37)


@pytest.mark.usefixtures("h200")
@pytest.mark.parametrize(
    ("space", "shape", "samples", "together"),
    [
        ("nb201", (3, 32, 32), 64, True),  # 1.4 ms a network together, 69 alone
        ("autoformer_tiny", (3, 224, 224), 32, False),  # 143 and 82
        ("nb101", (3, 32, 32), 64, False),  # 105 and 65
        ("mnasnet", (3, 224, 224), 32, False),  # over 1,000, and 98
    ],
)
def test_the_choice_is_the_faster_way_as_measured_on_a_gpu(
    space: str, shape: Shape, samples: int, together: bool
) -> None:
    plans = sampled(space, shape)
    assert groups(plans, shape, samples) == ([8] if together else [1] * 8)
    assert groups(plans, shape, samples, "synflow") == [8], "a pass over one sample leaves a GPU idle"


@pytest.mark.usefixtures("h200")
def test_wide_cells_run_alone_and_narrow_ones_together() -> None:
    """75 ms a network of nb101 one by one, 157 in populations of 48; its narrow copy has a hundredth of the work."""
    wide, narrow = sampled("nb101", (3, 32, 32)), sampled("nb101_stem16", (3, 32, 32))
    assert len(groups(wide, (3, 32, 32), 64)) > 1 == len(groups(narrow, (3, 32, 32), 64))


@pytest.mark.usefixtures("h200")
def test_too_little_memory_for_two_runs_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(grouping, "_free", lambda _: 1 << 20)
    assert groups(sampled("nb201", (3, 32, 32), 3), (3, 32, 32), 64) == [1, 1, 1]


def test_by_hand() -> None:
    plan = sampled("nb201", (3, 32, 32), 1)[0]
    nodes, launch = plan.totals.nodes, 1.0
    speed = Calibration(launch, macs=1e30, bytes=cost.MOVED * 100 * plan.activations / nodes)
    # A node takes B / 100 launches of work for B samples: alone max(4, 4 B / 100), together B / 100 in routines and
    # 12 B / 100 outside, and .5; a network takes 700 more on the host, which is 700 / N = 2.5 for each node.
    assert nodes == 279
    assert not alone_is_faster(plan, [Crossing(20, 0, 0)], 512, speed)  # 6.5, and .7
    assert not alone_is_faster(plan, [Crossing(500, 0, 0)], 512, speed)  # 22.5, and 5.5
    assert not alone_is_faster(plan, [Crossing(49, 0, plan.activations)], 512, speed)  # 6.51, and 6.39
    assert alone_is_faster(plan, [Crossing(51, 0, plan.activations)], 512, speed)  # 6.51, and 6.63
    assert not alone_is_faster(plan, [Crossing(51, 0, plan.activations // 2)], 512, speed)  # 6.5, and 3.8
    assert alone_is_faster(plan, [Crossing(1, 0, 0)], 1, speed)  # 6.5, and 7.0


@pytest.fixture
def calibrate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], tuple[Calibration, int]]]:
    """Returns what a fresh process finds, and how often it measured."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _: "GPU 9/x")
    measured: list[torch.device] = []

    def measure(device: torch.device) -> Calibration:
        measured.append(device)
        return H200

    monkeypatch.setattr(cost, "measured_speed", measure)

    def fresh() -> tuple[Calibration, int]:
        cost.calibration.cache_clear()
        measured.clear()
        return cost.calibration(CUDA), len(measured)

    yield fresh
    cost.calibration.cache_clear()


Calibrate = Callable[[], tuple[Calibration, int]]


def test_a_calibration_is_kept_for_the_next_process(calibrate: Calibrate, tmp_path: Path) -> None:
    assert calibrate() == (H200, 1)
    assert [file.name for file in (tmp_path / "epochzero").iterdir()] == ["calibration-GPU-9-x.json"]
    assert calibrate() == (H200, 0)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda text: text[:20], "is damaged"),
        (lambda text: "[]", "is damaged"),
        (lambda text: text.replace('"launch": ', '"launch": -'), "is damaged"),
        (lambda text: text.replace('"launch"', '"lunch"'), "is damaged"),
        (lambda text: text.replace(f'"version": {cost.VERSION}', '"version": 0'), "is of another version"),
        (lambda text: text.replace(torch.__version__, "1.0"), "is of another version"),
    ],
)
def test_a_calibration_that_does_not_fit_is_made_again(
    calibrate: Calibrate, tmp_path: Path, change: Callable[[str], str], says: str
) -> None:
    calibrate()
    (file,) = (tmp_path / "epochzero").iterdir()
    whole = file.read_text()
    assert change(whole) != whole
    file.write_text(change(whole))
    with pytest.warns(RuntimeWarning, match=says):
        assert calibrate() == (H200, 1)
    assert json.loads(file.read_text()) == json.loads(whole)
    assert calibrate() == (H200, 0)


def test_without_a_place_to_keep_it_or_memory_to_measure_it_works(
    calibrate: Calibrate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "epochzero").write_text("a file where the folder would be")

    def full(_: torch.device) -> Calibration:
        raise torch.OutOfMemoryError("full")

    with pytest.warns(RuntimeWarning, match="is damaged"):
        assert calibrate() == (H200, 1)
    monkeypatch.setattr(cost, "measured_speed", full)
    with pytest.warns(RuntimeWarning, match="is damaged"):
        assert calibrate() == (H200, 0)


def test_a_device_can_be_measured() -> None:
    speed = measured_speed(torch.device("cpu"))
    assert 1e-7 < speed.launch < 1e-1 and 1e7 < speed.macs < 1e14 and 1e7 < speed.bytes < 1e14
