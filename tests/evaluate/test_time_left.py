"""Time left, by hand."""

from __future__ import annotations

from epochzero.evaluate.time_left import Pace


def test_each_kind_has_its_own_pace() -> None:
    pace = Pace({"quick": 100, "slow": 10})
    pace.add("quick", 20, 2.0)
    assert pace.seconds_left is None and pace.text == "time left not known yet"
    pace.add("slow", 2, 60.0)
    assert pace.seconds_left == 80 * 0.1 + 8 * 30
    assert pace.text == "about 4 min left"
    pace.add("slow", 8, 240.0)
    assert pace.text == "about 8 s left"
    pace.add("quick", 80, 4.0)
    assert pace.seconds_left == 0 and pace.text == "done"


def test_a_kind_without_work_needs_no_pace() -> None:
    pace = Pace({"stored": 0, "new": 4000})
    pace.add("new", 1000, 4000.0)
    assert pace.seconds_left == 12000 and pace.text == "about 3.3 h left"
