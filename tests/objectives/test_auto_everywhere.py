"""`auto` itself in every space and on every kind of module: each network has a finite value, or the reason why not.

A set is compared by every version, and each of its networks alone has its percentile. Also tested: sets that say
nothing: one network, equal ones, networks that fail, feedback that is constant or no number, a table of two rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from torch import nn

import epochzero as ez
from epochzero import data
from epochzero.engine import PlanNetwork, Proxy
from epochzero.engine.score import score_network
from epochzero.engine.space_networks import batch_for
from epochzero.objectives.auto import VERSIONS
from epochzero.objectives.objective import Objective, parse_objective
from epochzero.objectives.objective import members as members_of
from epochzero.registry import spaces
from epochzero.types import Score
from tests.command import CHEAP, CUT, epochzero
from tests.engine.modules.test_any_module_table import NETWORKS as MODULES
from tests.engine.population.test_every_proxy_in_every_space import CLASSES, Row, row_of

OBJECTIVES = [parse_objective(f"auto:{version}") for version in VERSIONS]
MEMBERS: list[Proxy] = members_of(OBJECTIVES)
Rows = list[dict[str, Score]]
NETWORKS, SAMPLES = 4, 4


def check(rows: Rows, space: str, shape: tuple[int, ...]) -> None:
    """Every network has a finite value or a reason, in the set, in sets of one, and by its percentile."""
    for objective in OBJECTIVES:
        for some in (rows, *([row] for row in rows)):
            for scores, merit in zip(some, objective.merits(some), strict=True):
                assert objective.why_not(scores) if merit is None else math.isfinite(merit)
        alone = objective.calibrated(space, shape, of_size=space == "given")
        for scores in rows:
            value = alone.percentile(scores)
            assert 0 < value.value < 100 and value.why.startswith("percentile") if value.ok else value.why
        newest = [objective.row(scores) for scores in rows]
        given_way = objective.given_way([[None if math.isnan(x) else x for x in row] for row in newest])
        assert len(given_way) == swapped(objective, rows)


def swapped(objective: Objective, rows: Rows) -> int:
    """Members whose first score fewer than nine in ten have, or that is the same for all, where that is not FLOPs."""
    version, found = VERSIONS[objective.version or 0], 0
    for member in version.members:
        values = [row[member.scores[0]].value for row in rows if row[member.scores[0]].ok]
        found += len(values) < 0.9 * len(rows) or len(set(values)) < 2
    return found


@pytest.mark.parametrize("name", [name for name in spaces if isinstance(row_of(name), Row)])
def test_in_every_space(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    row, rng = row_of(name), Random(name)
    assert isinstance(row, Row)
    for module, constant, value in row.patches:
        monkeypatch.setattr(module, constant, value)
    source = "pink" if len(row.shape) == 3 else "white"
    batch = data.load(source, input_shape=row.shape, num_classes=CLASSES, size=SAMPLES)
    plans = [row.make(spaces[name], i, rng, row.shape) for i in range(NETWORKS)]
    rows = [score_network(PlanNetwork(plan), MEMBERS, batch, 0).scores for plan in plans]
    assert all(one["flops"].ok and one["near"].ok and one["size"].ok for one in rows)
    check(rows, name, row.shape)
    assert all(merit is not None for merit in OBJECTIVES[-1].merits(rows)), "as many as have FLOPs"


def test_in_a_space_of_language_models() -> None:
    space = spaces["decoder"]
    batch, small = batch_for(space, size=2), space.smallest()
    archs = [small, space.mutate(small, Random(0))]
    plans = [space.plan(arch, batch.num_classes, batch.input_shape) for arch in archs]
    rows = [score_network(PlanNetwork(plan), MEMBERS, batch, 0).scores for plan in plans]
    check(rows, "decoder", batch.input_shape)
    assert None not in OBJECTIVES[-1].merits(rows)


def conv(width: int, act: Callable[[], nn.Module] = nn.ReLU, blocks: int = 1) -> Callable[[], nn.Module]:
    def made() -> nn.Module:
        parts = [nn.Sequential(nn.Conv2d(3 if i == 0 else width, width, 3, padding=1), act()) for i in range(blocks)]
        return nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, CLASSES))

    return made


def perceptron(width: int) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Flatten(), nn.Linear(3 * 16 * 16, width), nn.Tanh(), nn.Linear(width, CLASSES))


def images() -> Any:
    return data.pink((3, 16, 16), CLASSES, size=SAMPLES)


FAMILIES: dict[str, tuple[list[Callable[[], nn.Module]], Callable[[], Any], int]] = {
    **{kind: ([make, make], batch, 2) for kind, (make, batch, _) in MODULES.items()},
    "no ReLU": ([conv(4, nn.Sigmoid, 2), conv(8, nn.Sigmoid, 3)], images, 2),
    "one block": ([conv(4), conv(8)], images, 2),
    "linear": ([conv(4, nn.Identity, 2), conv(8, nn.Identity, 2)], images, 2),
    "vectors": ([perceptron(4), perceptron(8)], images, 2),
    "mixed": ([perceptron(4), conv(8, blocks=3), MODULES["residual"][0]], images, 3),
}
"""networks, their data, and how many of them have a value"""


@pytest.mark.parametrize("family", FAMILIES)
def test_on_every_kind_of_module(family: str) -> None:
    makes, batch, valued = FAMILIES[family]
    sample = batch()
    asked = [proxy.text for proxy in MEMBERS]
    check([ez.score(make(), asked, data=sample) for make in makes], "given", sample.input_shape)
    ranking = ez.rank({str(i): make for i, make in enumerate(makes)}, proxy="auto", data=sample, seeds=1)
    assert sum(row.status == "ok" for row in ranking) == valued
    assert all(row.status == "ok" or row.why for row in ranking)


# ---- sets that say nothing


def rows_of(*columns: list[float | None]) -> Rows:
    """Networks whose members all have these values."""
    return [{proxy.text: Score.failed("it broke") if x is None else Score(x) for proxy in MEMBERS} for x in columns[0]]


@pytest.mark.parametrize("objective", OBJECTIVES, ids=lambda one: one.text)
def test_sets_that_say_nothing(objective: Objective) -> None:
    assert objective.merits([]) == []
    (alone,), equal = objective.merits(rows_of([3.0])), objective.merits(rows_of([3.0] * 5))
    assert alone is not None and math.isfinite(alone) and equal == [pytest.approx(alone)] * 5
    assert objective.merits(rows_of([None, None])) == [None, None]
    one_left = objective.merits(rows_of([None, 3.0, math.nan]))
    assert one_left[0] is one_left[2] is None and one_left[1] == pytest.approx(alone)
    low, high = objective.merits(rows_of([1.0, 2.0]))
    assert low is not None and high is not None and low < high
    first, second, last = objective.merits(rows_of([1.0, math.inf, 2.0]))
    assert first < last < second < math.inf  # type: ignore[operator]


@pytest.mark.parametrize(("told", "says"), [(math.nan, "gave nan"), (1.0, "the same of all 4 networks")])
def test_feedback_that_says_nothing(told: float, says: str) -> None:
    options = {"networks": 12, "proxies": "params,flops"}
    result = ez.search("nb201", lambda arch: told, "guided", 4, options=options)
    said = " ".join([*result.remarks, *result.unscored])
    assert result.evaluated == 4 and says in said
    assert (result.best is None) == math.isnan(told)


def test_a_table_of_two_rows(tmp_path: Path) -> None:
    (tmp_path / "two.csv").write_text(f'arch,accuracy\n"{CHEAP}",50\n"{CUT}",10\n')
    table: list[object] = ["--proxy", "table:accuracy", "--table", tmp_path / "two.csv", "--pool", tmp_path / "two.csv"]
    table += ["--winner-scores", "none", "--json"]
    options = ["--option", "proxies=params,flops"]
    for method in (["--method", "guided", *options], ["--method", "random"]):
        assert epochzero("search", *method, *table, "--budget", 5).json["best"]["arch"] == CHEAP
