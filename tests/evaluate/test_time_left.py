"""Time left, by hand."""

from __future__ import annotations

from epochzero.evaluate.time_left import TimeLeft


def test_each_kind_has_its_own_pace() -> None:
    left = TimeLeft({"quick": 100, "slow": 10})
    left.add("quick", 20, 2.0)
    assert left.seconds is None and left.text == "time left not known yet"
    left.add("slow", 2, 60.0)
    assert left.seconds == 80 * 0.1 + 8 * 30
    assert left.text == "about 4 min left"
    left.add("slow", 8, 240.0)
    assert left.text == "about 8 s left"
    left.add("quick", 80, 4.0)
    assert left.seconds == 0 and left.text == "done"


def test_a_kind_without_work_needs_no_pace() -> None:
    left = TimeLeft({"stored": 0, "new": 4000})
    left.add("new", 1000, 4000.0)
    assert left.seconds == 12000 and left.text == "about 3.3 h left"
