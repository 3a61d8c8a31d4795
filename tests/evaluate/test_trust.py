"""Trust in a score: evidence, facts outside it, warnings, and the choice by FLOPs."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import epochzero as ez
from epochzero.evaluate import evidence, trust
from epochzero.evaluate.evidence import Known, Table
from epochzero.evaluate.trust import chosen_by_flops, trust_in
from epochzero.objectives.auto import VERSIONS
from epochzero.objectives.objective import Objective, looked_up, parse_objective
from epochzero.registry import spaces
from epochzero.study.facts import Facts, facts_of_plans
from tests.command import CHEAP, epochzero
from tests.evaluate.leaderboard.files import usual

PLAIN = Facts((3, 32, 32), attention=False, norm=True, width=(37.0, 37.0), depth=(6, 51), flops=(1e7, 1e8))
WIDE = Facts((3, 32, 32), attention=False, norm=True, width=(8.0, 64.0), depth=(15, 15), flops=(1e7, 1e8))
ATTENTIVE = Facts((3, 224, 224), attention=True, norm=True, width=(8.0, 64.0), depth=(15, 30), flops=(1e9, 1e10))
STRANGE = Facts((3, 8, 8), attention=True, norm=False, width=(4.0, 16.0), depth=(1, 3), flops=(1e5, 1e12))


def table(space: str, facts: Facts, rho: float, flops: float) -> Table:
    known = {"naswot": Known(rho, rho - 0.1, rho + 0.1), "flops": Known(flops, flops, flops)}
    return Table(f"{space} test", space, "test", 500, facts, known)


@pytest.fixture
def two(monkeypatch: pytest.MonkeyPatch) -> None:
    told = table("cells", PLAIN, 0.8, 0.6), table("widths", WIDE, 0.3, 0.5)
    monkeypatch.setattr(trust, "tables", lambda: told)


@pytest.mark.usefixtures("two")
def test_what_is_known_here_and_nearby() -> None:
    naswot, flops = parse_objective("naswot"), parse_objective("flops")
    assert trust_in(naswot, "cells", PLAIN) == (
        "naswot ranks networks of cells with a Spearman correlation of .80 [.70, .90] with test (500 networks), and "
        "counting FLOPs has .60."
    )
    near = trust_in(naswot, "other", WIDE)
    assert "was not tested on networks of other; on widths" in near and "counting FLOPs is better here" in near
    assert "counting FLOPs is as good here" in trust_in(naswot, "given", None)  # medians of .55
    assert "on cells and widths" in trust_in(naswot, "given", None) and "these networks" in trust_in(naswot, "given")
    assert "FLOPs has" not in trust_in(flops, "cells", PLAIN)
    assert "was not measured" in trust_in(parse_objective("zen"), "cells", PLAIN)
    assert trust_in(Objective((looked_up("table:accuracy"),)), "cells") == ""


@pytest.mark.usefixtures("two")
def test_what_lies_outside_the_tested_ground() -> None:
    said = trust_in(parse_objective("naswot"), "given", STRANGE)
    for way in ("attention", "not all have norms", "inputs are small (3x8x8)", "much smaller", "much larger"):
        assert way in said
    assert "widths vary" not in said  # as those of one tested space do
    assert "unlike" not in trust_in(parse_objective("naswot"), "cells", PLAIN)
    assert "their inputs are large" in trust_in(parse_objective("naswot"), "vit", ATTENTIVE)


@pytest.mark.usefixtures("two")
def test_warnings_that_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    """Width is in the card's warning; on a tested space the figures say more."""
    told = {"az_expressivity": Known(0.5, 0.4, 0.6)}
    monkeypatch.setattr(trust, "tables", lambda: (Table("t", "cells", "test", 500, PLAIN, told),))
    expressivity = parse_objective("az_expressivity")
    assert "Beware of az_expressivity: a sum over blocks" in trust_in(expressivity, "given", WIDE)
    assert "Beware" not in trust_in(expressivity, "cells", WIDE)


def test_the_choice_by_flops() -> None:
    names = ["a", "b", "c"]
    assert chosen_by_flops(names, [1.0, 3.0, 2.0], [5, 1, 9]).endswith("chosen c, number 2 of 3 by this score.")
    assert chosen_by_flops(names, [1.0, 3.0, 2.0], [5, 9, 1]).endswith("the same network.")
    assert chosen_by_flops(names, [1.0, None, 2.0], [5, 9, 1]).endswith("b, which has no score.")
    assert chosen_by_flops(["a"], [1.0], [5]) == chosen_by_flops(names, [1.0] * 3, [7] * 3) == ""
    assert chosen_by_flops(names, [None] * 3, [1, 2, 3]) == ""


def test_facts_are_read_off_plans_and_modules() -> None:
    def facts(space: str, archs: list[str]) -> Facts:
        return facts_of_plans([spaces[space].plan(spaces[space].parse(arch)) for arch in archs])

    sizes = facts("nats_sss", ["8:8:8:8:8", "64:64:64:64:64"])
    assert sizes.widths_vary and not sizes.depths_vary and sizes.norm and not sizes.attention
    assert sizes.flops == (4481104, 274399872)
    vit = spaces["autoformer_tiny"]
    assert facts("autoformer_tiny", [vit.text(vit.smallest())]).attention
    bare = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4, 10))
    ranking = ez.rank({"a": bare, "b": bare}, proxy="flops", data=torch.ones(4, 3, 4, 4), seeds=1)
    assert "not all have norms" in ranking.trust and "inputs are small (3x4x4)" in ranking.trust


def test_every_search_says_it() -> None:
    words = ["search", "--proxy", "params", "--method", "random", "--budget", "6", "--winner-scores", "none"]
    said = epochzero(*words).err.replace("\n", " ")
    assert "params ranks networks of nb201" in said and "Counting FLOPs would have chosen the same network." in said
    told = epochzero(*words, "--json").json["trust"]
    assert told.startswith("params ranks networks of nb201") and "counting FLOPs is as good here" in told


def test_the_leaderboard_writes_what_is_read(tmp_path: Path) -> None:
    """The file of the package has this form, with `auto` and its members."""
    for one in evidence.tables():
        assert one.facts is None or one.facts.flops[1] >= one.facts.flops[0] > 0
        assert all(of.low <= of.spearman <= of.high for of in one.known.values())
    for version in VERSIONS:
        members = {f"auto:{version}", "flops", "params", *VERSIONS[version].scores}
        assert all(members <= set(one.known) for one in evidence.tables() if one.space in ("nb201", "nb101"))
    file = tmp_path / "evidence.json"
    words = [*usual(tmp_path), "--resamples", 5, "--choose", 2, "--evidence", file]
    rows = epochzero("leaderboard", *words, "--json").json["rows"]
    read = {(row["name"], one.name): one.known.get(row["name"]) for row in rows for one in evidence.read(file)}
    for row in rows:
        for name, result in row["tables"].items():
            known = read[row["name"], name]
            if row["name"].startswith("best "):
                assert known is None
            else:
                assert known is not None and known.spearman == round(result["figures"]["spearman"]["value"], 3)
    assert evidence._facts_in("nb201", [CHEAP] * 3).input == (3, 32, 32)  # type: ignore[union-attr]
    assert evidence._facts_in("nowhere", [CHEAP]) is None
