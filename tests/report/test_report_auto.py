"""Reports of searches by `auto`: its column is computed again from the scores of its members."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import epochzero as ez
from epochzero.objectives.auto import NEWEST
from tests.report.stores import Opened, opened

NAME = f"auto:{NEWEST}"


def trust(found: Opened) -> str:
    (text,) = [one["text"] for one in found.head["statements"] if one["title"] == "Trust"]
    return str(text)


def test_a_search_by_auto(tmp_path: Path) -> None:
    result = ez.search("nb201", "auto", budget=8, batch_size=4, store=tmp_path / "run.db")
    found = opened(tmp_path / "run.db")
    merits = [np.nan if merit is None else merit for merit in result.merits]
    assert found.columns[NAME] == pytest.approx(np.array(merits), nan_ok=True)
    assert found.head["by"] == NAME and found.head["archs"][found.head["best"][0]] == result.winner.text
    assert f"{NAME} ranks networks of nb201" in trust(found) and "Counting FLOPs" in trust(found)


def test_a_front_with_auto(tmp_path: Path) -> None:
    result = ez.search("nb201", objectives="auto,-flops", budget=8, batch_size=4, store=tmp_path / "run.db")
    found = opened(tmp_path / "run.db")
    assert {found.head["archs"][i] for i in found.head["front"]} == {member.text for member in result.members}
    values = dict(zip(found.head["archs"], found.columns[NAME], strict=True))
    assert {member.text: member.values[0] for member in result.members} == {
        member.text: pytest.approx(values[member.text]) for member in result.members
    }


def test_a_report_has_the_trust_and_the_remarks_of_the_search(tmp_path: Path) -> None:
    options = {"networks": 12, "proxies": "params,linear_regions"}
    more: dict[str, Any] = {"method": "guided", "options": options, "budget": 3, "data": torch.rand(4, 3, 8, 8)}
    result = ez.search("nats_sss", "params", store=tmp_path / "run.db", **more)
    found = opened(tmp_path / "run.db")
    assert "their inputs are small (3x8x8)" in result.trust and result.trust == trust(found)
    assert len(result.remarks) > 1 and set(result.remarks) <= set(found.head["notes"])


def test_while_a_search_runs_the_facts_are_those_of_the_plans(tmp_path: Path) -> None:
    file, more = (
        tmp_path / "run.db",
        {"method": "random", "data": torch.rand(4, 3, 8, 8), "time_limit": 1e-6},
    )
    result = ez.search("nats_sss", "params", store=file, **more)  # type: ignore[arg-type]
    assert result.out_of_time and result.trust == trust(opened(file))


def test_the_report_of_a_ranking_says_what_the_ranking_says(tmp_path: Path) -> None:
    bare = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 4, 10))
    given = {"a": bare, "b": nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4 * 4, 10))}
    ranking = ez.rank(given, proxy="flops", data=torch.ones(4, 3, 4, 4), seeds=1, store=tmp_path / "ranks.db")
    found = opened(tmp_path / "ranks.db")
    assert "not all have norms" in ranking.trust and ranking.trust == trust(found)
    assert dict(zip(found.head["archs"], found.columns["step"], strict=True)) == {"a": 0, "b": 1}
    assert found.head["lacking"] == 0


def test_a_network_lacks_a_score_if_it_lacks_the_one_that_ranks(tmp_path: Path) -> None:
    given = {"a": nn.Sequential(nn.Flatten(), nn.Linear(48, 10)), "b": nn.Sequential(nn.Flatten(), nn.ReLU())}
    ez.rank(given, proxy="l2_norm", data=torch.ones(4, 3, 4, 4), seeds=2, store=tmp_path / "ranks.db")
    assert opened(tmp_path / "ranks.db").head["lacking"] == 1
