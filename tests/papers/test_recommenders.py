"""SiGeo's recommenders: a small study from synthetic clicks, and missing files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from epochzero.recommend.sub_one_shot import RecommenderResult, SubOneShotSearch, TrainedCandidate
from epochzero.registry import experiments
from epochzero_papers.harness.report import plot
from epochzero_papers.sigeo.table5 import CONTESTS, PAPER, SMALL

TINY = replace(SMALL, rows=3000, batch_size=32)


def found(loss: float) -> RecommenderResult:
    one = TrainedCandidate("a", 1.0, 10, 10, 0.5, 0.6, loss, 0.7)
    return RecommenderResult(
        (one, replace(one, arch="b", val_log_loss=0.4, test_log_loss=loss + 0.2)), "sigeo", 8, 1, 5, {}
    )


def test_contests_are_the_papers_of_the_small_space() -> None:
    assert {spec.label for spec in CONTESTS} == {name for name in PAPER if "small" in name}


def test_figures_are_of_the_best_by_validation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(SubOneShotSearch, "run", lambda chain, folder: found(chain.seed / 10))
    result = experiments["sigeo-table5"].run(replace(TINY, repeats=3), folder=tmp_path)
    losses = {row.x: row.found for row in result.rows if row.y == "synthetic log-loss"}
    assert set(losses) == {spec.label for spec in CONTESTS}
    for figure in losses.values():
        assert figure is not None and figure.value == pytest.approx(0.3) and figure.n == 3


def test_boxes_are_of_all_that_a_search_trained(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One panel for all scores, one for the lowest losses."""
    monkeypatch.setattr(SubOneShotSearch, "run", lambda chain, folder: found(chain.seed / 10))
    result = experiments["sigeo-figure4"].run(replace(TINY, repeats=2), folder=tmp_path)
    rows = {(row.x, row.y): row.found for row in result.rows}
    mean, lowest = (rows["Fisher-Rao norm", f"synthetic {what}"] for what in ("log-loss", "lowest log-loss"))
    assert mean is not None and mean.n == 4 and mean.value == pytest.approx((0.0 + 0.2 + 0.1 + 0.3) / 4)
    assert lowest is not None and lowest.n == 2 and lowest.value == pytest.approx(0.05)
    figures = pytest.importorskip("matplotlib.figure", reason="plots need matplotlib")
    drawn: list[list[str]] = []
    monkeypatch.setattr(
        figures.Figure,
        "savefig",
        lambda figure, *_, **__: drawn.extend([tick.get_text() for tick in a.get_xticklabels()] for a in figure.axes),
    )
    assert plot(result, tmp_path) == ["result.png", "result.svg"]
    assert drawn == [["ZiCo", "Fisher-Rao norm", "loss", "SiGeo"]] * 2 * 2


@pytest.mark.parametrize("name", ["sigeo-table5", "sigeo-figure4"])
def test_the_whole_settings_fit_a_sample(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of 8,000 rows, a tenth of which validate; a chain of which something does not fit is refused when it is made."""
    made: list[SubOneShotSearch] = []

    def run(chain: SubOneShotSearch, folder: Path) -> RecommenderResult:
        made.append(chain)
        return found(0.1)

    monkeypatch.setattr(SubOneShotSearch, "run", run)
    recipe = experiments[name]
    recipe.run(replace(recipe.full, rows=8000, repeats=1), folder=tmp_path)
    assert len(made) == len(recipe.searches) and {chain.preset.top for chain in made} == {recipe.full.top}
    assert all(chain.fitted.embedding_rows <= recipe.full.embedding_rows for chain in made)


def test_a_table_that_is_asked_for_and_missing_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(SubOneShotSearch, "run", lambda chain, folder: found(0.1))
    result = experiments["sigeo-table5"].run(replace(TINY, tables=("Avazu",)), folder=tmp_path)
    assert result.left_out[0].startswith("Avazu is left out: it needs avazu_sample.csv.gz")
    assert {row.paper for row in result.rows} == {None}, "synthetic clicks are no paper's"


def test_a_part_is_searched_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = experiments["sigeo-figure4"]
    monkeypatch.setattr(type(one), "searches", one.searches[1:2])
    result = one.run(replace(TINY, top=1), folder=tmp_path, store=tmp_path / "run.db")
    losses = [row.found.value for row in result.rows if row.found is not None]
    assert len(losses) == 2 and all(0.2 < loss < 2 for loss in losses)
    assert (tmp_path / "run.db.recommenders" / "synthetic").is_dir()
