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


def test_the_page_has_the_figure_of_the_space_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = usual(tmp_path)
    page = tmp_path / "page.md"
    options = ["--scores", words[1], "--resamples", "5", "--markdown", str(page), "--candidates", "snip,params,flops"]
    with patch.object(sys, "argv", ["choice.py", *words[3::2], *options]):
        script("choice").main()
    (row, *_) = (line for line in page.read_text().splitlines() if line.startswith("| alpha x_test | 40 |"))
    rho = np.mean([spearmanr(values("alpha", "params", seed), truth("alpha")).statistic for seed in (0, 1)])
    assert row.split("|")[6].strip().startswith(f"{rho:.3f}".removeprefix("0")), "one score, chosen on beta"
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
