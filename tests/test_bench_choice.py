"""The choice of auto's members without each space: the procedure against a slow second version, and its page."""

from __future__ import annotations

import sys
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from scipy.stats import norm, rankdata, spearmanr

from epochzero.errors import UserError
from epochzero.evaluate.leaderboard.boards import boards_of, targets_of
from epochzero.evaluate.leaderboard.stored import read_stored
from epochzero.types import Score
from tests.evaluate.leaderboard.files import Floats, truth, usual, values
from tests.test_bench_scripts import script

QUICK = ("params", "flops", "snip", "naswot")


def unit(column: Floats) -> Floats:
    scores = norm.ppf((rankdata(column) - 0.5) / len(column))
    return np.asarray(scores / scores.std())


def test_the_largest_mean_and_worst_of_the_other_space_wins(tmp_path: Path) -> None:
    words = usual(tmp_path)
    module = script("choice")
    boards = boards_of(targets_of(words[3::2]), read_stored([Path(words[1])]), 40)
    proxies = module.candidates(boards, None)
    assert [one.text for one in proxies] == list(QUICK), "a tangent kernel is not cheap"
    procedure = module.Procedure(boards, proxies)
    assert procedure.best(module.Variant(module.ONE), "alpha") == ("params",)
    assert procedure.best(module.Variant(module.ONE), "beta") == ("snip",)
    own = {name: values("beta", name)[[int(arch[-2:]) for arch in boards[1].archs]] for name in QUICK}
    shares = {name: (rankdata(column) - 0.5) / len(column) for name, column in own.items()}

    def agreement(parts: Floats) -> Floats:
        return np.asarray(parts.mean(0) - parts.std(0) / np.sqrt(len(parts)))

    for method in ("agreement", "normal_rank"):
        merits = {}
        for size in ("params", "flops"):
            parts = np.array(
                [shares[name] if method == "agreement" else unit(own[name]) for name in (size, "naswot", "snip")]
            )
            merit = agreement(parts) if method == "agreement" else parts.sum(0)
            merits[size, "naswot", "snip"] = spearmanr(merit, boards[1].truth).statistic
        best = max(merits, key=merits.__getitem__)
        assert procedure.best(module.Variant(module.ANY_SIZE, method), "alpha") == best


def test_size_by_its_value_and_its_unit_without_a_space(tmp_path: Path) -> None:
    words = usual(tmp_path)
    module = script("choice")
    boards = boards_of(targets_of(words[3::2]), read_stored([Path(words[1])]), 40)
    logs = []
    for board in boards:
        of = [np.array([one.value for one in board.scores[name].popitem()[1]]) for name in ("params", "flops")]
        logs.append(np.log(np.abs(of[0]) + 1) + np.log(np.abs(of[1]) + 1))
        board.scores["size"] = {repeat: list(map(Score, logs[-1])) for repeat in board.scores["snip"]}
        board.scores["flops"] = {repeat: list(map(Score, of[1])) for repeat in board.scores["snip"]}
    procedure = module.Procedure(boards, module.candidates(boards, "size,naswot,snip,flops"))
    place, rhos = boards[1].space == "beta" and 1, {}
    for unit_of_size in (*module.UNITS, "3"):
        parts = [logs[place] / float(unit_of_size)]
        for name in ("naswot", "snip"):
            (first, *_) = boards[place].scores[name].values()
            column = np.array([one.value for one in first])
            parts.append((rankdata(column) - 0.5) / len(column))
        rhos[f"{module.BY_VALUE}{unit_of_size}"] = spearmanr(np.sum(parts, 0), boards[place].truth).statistic
    members = ("size", "naswot", "snip")
    assert procedure.best(module.Variant(module.KIND, module.NAMED), "alpha") == members
    found = procedure.best_unit(members, "alpha")
    assert rhos[found] == pytest.approx(max(rhos.values())) and min(rhos.values()) < max(rhos.values())
    merits = boards[place].merits(module.Combination.of(members, found))
    assert merits is not None
    assert spearmanr([one.value for one in merits[0]], boards[place].truth).statistic == pytest.approx(rhos[found])


def test_the_page_has_the_figure_of_the_space_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = usual(tmp_path)
    page = tmp_path / "page.md"
    options = ["--scores", words[1], "--resamples", "5", "--markdown", str(page), "--candidates", "snip,params,flops"]
    with patch.object(sys, "argv", ["choice.py", *words[3::2], *options]):
        script("choice").main()
    (row, *_) = (line for line in page.read_text().splitlines() if line.startswith("| alpha x_test | 40 |"))
    rho = np.mean([spearmanr(values("alpha", "params", seed), truth("alpha")).statistic for seed in (0, 1)])
    assert row.split("|")[8].strip().startswith(f"{rho:.3f}".removeprefix("0")), "one score, chosen on beta"
    assert "- one score: `params` (without alpha); `snip` (without beta" in page.read_text()
    assert page.read_text() in capsys.readouterr().out


def test_a_score_that_does_not_apply_gives_way_to_flops(tmp_path: Path) -> None:
    words = usual(tmp_path)
    module = script("choice")
    boards = boards_of(targets_of(words[3::2]), read_stored([Path(words[1])]), 40)
    (naswot,), board = module.candidates(boards, "naswot"), boards[0]
    with pytest.raises(UserError, match="two spaces"):
        module.candidates([board], None)
    flops = unit(values("alpha", "flops")[[int(arch[-2:]) for arch in board.archs]])
    assert module.column(board, naswot) != pytest.approx(flops)
    for scores in board.scores["naswot"].values():
        scores[:] = [scores[0]] * len(scores)
    assert module.column(board, naswot) == pytest.approx(flops)
    found = board.merits(module.Combination.of(("naswot",), "agreement"))
    assert np.argsort([score.value for score in found[0]]).tolist() == np.argsort(flops).tolist()  # type: ignore[index]
