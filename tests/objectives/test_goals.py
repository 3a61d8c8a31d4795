"""Several objectives as text, and the front of the evaluated networks."""

from __future__ import annotations

import math
from random import Random

import pytest

from epochzero.engine.space_networks import batch_for
from epochzero.errors import UserError
from epochzero.objectives.goals import LATENCY, parse_goals
from epochzero.registry import spaces
from epochzero.study.front import as_csv
from epochzero.study.result import Result
from epochzero.study.task import Task
from epochzero.types import Score


@pytest.mark.parametrize(
    ("text", "written", "higher"),
    [
        ("dextr,-flops", "dextr,-flops", [True, False]),
        (" dextr , flops", "dextr,flops", [True, True]),
        ("+dextr,-latency", "dextr,latency", [True, False]),
        ("ntk_cond,+ntk_cond(of=sum)", "ntk_cond,+ntk_cond(of=sum)", [False, True]),
        ("zico(batches=3),- params,+latency", "zico(batches=3),-params,+latency", [True, False, True]),
        ("table:acc,-table:cost", "table:acc,-table:cost", [True, False]),
    ],
)
def test_a_sign_or_what_the_proxy_declares(text: str, written: str, higher: list[bool]) -> None:
    goals = parse_goals(text)
    assert goals.text == written
    assert [goal.higher for goal in goals.goals] == higher
    assert parse_goals(goals.text).text == written


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("dextr", "at least two different objectives, such as 'dextr,-flops', and 'dextr' does not name them"),
        ("", "at least two different objectives"),
        ("flops,-flops", "at least two different objectives"),
        ("dextr,flps", "No proxy is called 'flps'. Did you mean 'flops'?"),
        ("dextr,-", "'' is not a proxy"),
        ("latency,rank(dextr,zico)", "rank(dextr,zico) weighs its proxies against each other: name them as objectives"),
        ("dextr,-table:", "names no column"),
    ],
)
def test_what_is_refused(text: str, said: str) -> None:
    with pytest.raises(UserError) as error:
        parse_goals(text)
    assert said in str(error.value)


def test_latency_is_measured_and_not_computed() -> None:
    assert not LATENCY.higher_is_better
    with pytest.raises(UserError, match="looked up and not computed"):
        LATENCY.compute()


def looked_at(values: list[tuple[float, float] | None]) -> Result:
    space = spaces["nb201"]
    rng = Random(0)
    front = Result(Task(space, [], batch_for(space, size=1)), parse_goals("params,-flops"))
    for pair in values:
        scores = {"params": Score(3.0), "flops": Score.degenerate("no way through")}
        if pair is not None:
            scores = dict(zip(("params", "flops"), map(Score, pair), strict=True))
        merits, moved = front.tell([space.sample(rng)], [scores])
        assert moved is None
        assert merits == [None if pair is None else (pair[0], -pair[1])]
    return front


def test_the_front_is_that_of_all_networks() -> None:
    front = looked_at([(1, 1), (2, 3), (2, 2), None, (0, 5), (2, 2), (5, 9), (4, 9)])
    assert [member.values for member in front.members] == [(5, 9), (2, 2), (2, 2), (1, 1)]
    assert front.evaluated == 8 and front.unscored == {"flops: no way through": 1}
    assert front.values.shape == (7, 2)
    assert front.best is not None and front.best.score.value == 5
    assert (front.headline, front.text) == ("front of 4", "params,-flops")
    assert front.front is not None
    lines = as_csv(front.front).splitlines()
    assert lines[0] == "arch,params,flops" and lines[1].endswith(",5,9") and len(lines) == 5
    assert math.isclose(float(lines[4].split(",")[-1]), 1.0)


def test_without_any_score_there_is_no_front() -> None:
    front = looked_at([None] * 3)
    assert front.members == [] and front.best is None
    assert not front.hopeless()
