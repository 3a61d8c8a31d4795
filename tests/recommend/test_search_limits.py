"""Searches that fit the time: a budget of networks, a time limit, an estimate, and lines of progress in a log."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from epochzero import recommend
from epochzero.cli.recommend import options
from epochzero.errors import UserError
from epochzero.recommend import pipeline
from epochzero.recommend.data.synthetic import Planted, synthetic
from epochzero.recommend.data.table import open_table
from epochzero.recommend.estimate import Estimate, duration, estimate
from epochzero.recommend.presets import Preset
from epochzero.recommend.sub_one_shot import SubOneShotSearch
from tests.command import epochzero, refusal

LAW = Planted(sizes=(20, 20, 10, 10, 6), num_dense=3, pairs=((0, 3), (1, 2)), gates=((0, 4),))
SIZES = {"population": 4, "generations": 2, "tournament": 2, "children": 2, "top": 1, "batch_size": 16, "widest": 16}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic(tmp_path_factory.mktemp("clicks") / "table", 640, LAW).folder


def search(table: Path, out: Path, *more: str) -> list[str]:
    sizes = [f"--option={name}={value}" for name, value in SIZES.items()]
    return [
        "recommend", "search", f"--data={table}", "--preset=reduced", "--proxy=zico", "--warmup=0", f"--out={out}",
        *sizes, *more,
    ]  # fmt: skip


def test_a_budget_is_the_number_of_networks(table: Path, tmp_path: Path) -> None:
    """More than the preset has are not scored, and fewer than are trained are refused."""
    assert epochzero(*search(table, tmp_path / "a", "--budget=5", "--json")).json["evaluated"] == 5
    assert epochzero(*search(table, tmp_path / "b", "--budget=50", "--json")).json["evaluated"] == 8
    assert "Of 2 evaluated networks, 3 cannot be trained" in refusal(
        *search(table, tmp_path / "c", "--budget=2", "--top=3")
    )
    for given in ({"budget": 0}, {"time_limit": 0.0}, {"time_limit": math.nan}):
        with pytest.raises(UserError, match="--budget takes at least 1 network, and --time-limit more than 0 seconds"):
            recommend.search(table, out=tmp_path / "d", **given)


def test_after_the_time_limit_the_best_so_far_is_trained(table: Path, tmp_path: Path) -> None:
    """The first batch is always scored; the same command without a limit ends as one that never had any."""
    short = epochzero(*search(table, tmp_path / "a", "--time-limit=0.001", "--json")).json
    assert short["evaluated"] == 2 and short["best"]["test_log_loss"] > 0
    resumed = epochzero(*search(table, tmp_path / "a", "--json")).json
    whole = epochzero(*search(table, tmp_path / "b", "--json")).json
    assert resumed["evaluated"] == whole["evaluated"] == 8 and resumed["best"] == whole["best"]


def test_an_estimate_counts_networks_and_steps(table: Path) -> None:
    run = SubOneShotSearch(open_table(table), warmup=0.0, preset=Preset(**{**SIZES, "most_rows": 16}))
    found = estimate(run)
    assert (found.networks, found.steps) == (8, 512 // 16) and found.network > 0 and found.step > 0
    given = Estimate(15.0, 2048, 0.5, 6000)
    assert given.scoring == 30_720 and given.training == 3000
    assert (
        given.text
        == "about 9.4 h after the warm-up: 2,048 networks to score at 15 s each, then 6,000 steps of training"
    )
    assert [duration(seconds) for seconds in (0.2, 42, 95, 3000, 8000)] == ["1 s", "42 s", "1.6 min", "50 min", "2.2 h"]
    one_shot = SubOneShotSearch(run.table, proxy="one_shot", preset=run.preset)
    assert estimate(one_shot).network == 0


def test_a_long_search_says_so_before_it_starts(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pipeline, "estimate", lambda run: Estimate(15.0, 2048, 0.5, 600))
    ran = epochzero(*search(table, tmp_path / "a", "--budget=2"))
    assert "The search takes about 8.6 h after the warm-up: 2,048 networks to score" in " ".join(ran.err.split())
    assert "--time-limit" in ran.err
    ran = epochzero(*search(table, tmp_path / "a", "--budget=2", "--time-limit=60"))
    assert "The search takes" not in ran.err


def test_without_a_terminal_progress_comes_in_lines(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "LINES_EVERY", 0.0)
    ran = epochzero(*search(table, tmp_path / "a", "--budget=3"))
    lines = ran.err.splitlines()
    assert any(re.fullmatch(r"0/3 of search in \d+ s, search: about .* steps of training", line) for line in lines), (
        ran.err
    )
    assert any(line.startswith("3/3 of search in ") for line in lines)
    assert "━" not in ran.err
