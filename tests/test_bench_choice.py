"""The choice of auto's members without each space: the procedure against a slow second version, and its page."""

from __future__ import annotations

import sys
from itertools import combinations
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pytest
from scipy.stats import norm, rankdata, spearmanr

from epochzero.errors import UserError
from epochzero.evaluate.leaderboard.boards import boards_of, targets_of
from epochzero.evaluate.leaderboard.stored import read_stored
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
    procedure = module.Procedure(boards, proxies, 3)
    own = {name: unit(values("beta", name)[[int(arch[-2:]) for arch in boards[1].archs]]) for name in QUICK}
    merits = {}
    for members in (set_ for size in (1, 2, 3) for set_ in combinations(QUICK, size)):
        if all(abs(np.mean(own[a] * own[b])) <= 0.9 for a, b in combinations(members, 2)):
            merits[members] = np.corrcoef(sum(own[name] for name in members), unit(boards[1].truth))[0, 1]
    assert procedure.best(module.Variant(1, 1), "alpha") == ("params",)
    assert procedure.best(module.Variant(1, 1), "beta") == ("snip",)
    for least in (1, 2, 3):
        best = max((members for members in merits if len(members) >= least), key=merits.__getitem__)
        assert procedure.best(module.Variant(least, 3), "alpha") == best


def test_the_page_has_the_figure_of_the_space_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = usual(tmp_path)
    page = tmp_path / "page.md"
    options = ["--scores", words[1], "--resamples", "5", "--markdown", str(page), "--candidates", "snip,params,flops"]
    with patch.object(sys, "argv", ["choice.py", *words[3::2], *options]):
        script("choice").main()
    (row,) = (line for line in page.read_text().splitlines() if line.startswith("| alpha x_test | 40 |"))
    rho = np.mean([spearmanr(values("alpha", "params", seed), truth("alpha")).statistic for seed in (0, 1)])
    assert row.split("|")[3].strip().startswith(f"{rho:.3f}".removeprefix("0")), "one score, chosen on beta"
    assert "`params` (without alpha); `snip` (without beta)" in page.read_text()
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
    found = board.merits(module.Combination.of(("naswot",)))
    assert np.argsort([score.value for score in found[0]]).tolist() == np.argsort(flops).tolist()  # type: ignore[index]
