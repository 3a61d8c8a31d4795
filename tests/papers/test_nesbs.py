"""The chain of NESBS: what its figures are made of, and the whole of it on a few images."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from epochzero.ensemble import attacks
from epochzero.ensemble.metrics import ensemble_error, nll
from epochzero.ensemble.posterior import Posterior
from epochzero.errors import UserError
from epochzero.plan import generator
from epochzero.registry import spaces
from epochzero.supernet import SharedWeights, shared
from epochzero_papers.__main__ import main
from epochzero_papers.harness.member_training import (
    OUT_OF_TIME,
    Member,
    MemberTraining,
    OutOfTimeError,
    network_of,
    stopping,
)
from epochzero_papers.thesis import nesbs_attacks, nesbs_chain, nesbs_report
from epochzero_papers.thesis.nesbs_curves import (
    Inherited,
    agreement,
    correlations,
    curve,
    discrepancy,
    of_ensembles,
    pearson,
    ranks,
)
from tests.train.train_images import write

SMALL = {
    "channels": 4,
    "cells": 1,
    "epochs": 2,
    "batch": 28,
    "posterior-epochs": 1,
    "posterior-batch": 24,
    "candidates": 1,
    "svgd-steps": 50,
    "pool": 4,
    "untrained-pool": 4,
    "member-epochs": 1,
    "member-batch": 28,
    "looked-at": 2,
    "curve-images": 24,
    "keep-every": 2,
}


@pytest.fixture(scope="module")
def inherited() -> Inherited:
    network, rng = shared(spaces["nb201"], 3, (3, 8, 8), channels=4, cells=1), torch.Generator().manual_seed(0)
    x, test_x = torch.randn(2, 12, 3, 8, 8, generator=rng)
    y, test_y = torch.randint(3, (2, 12), generator=rng)
    return Inherited(SharedWeights(network, network.draw(0)), x, y, test_x, test_y, steps=50)


# Statistics


def test_correlations_are_scipy_s() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.integers(5, size=30).astype(float), rng.normal(size=30)
    assert pearson(one, other) == pytest.approx(stats.pearsonr(one, other).statistic)
    assert pearson(ranks(one), ranks(other)) == pytest.approx(stats.spearmanr(one, other).statistic)
    assert pearson(one, np.ones(30)) is None


def test_agreement_by_hand() -> None:
    one, other = np.array([1.0, 2, 3, 4, 5, 6]), np.array([1.0, 6, 2, 5, 4, 3])
    assert agreement(one, other, 0.5) == pytest.approx(2 / 3), "0 and 2 of 0, 1, 2"


def test_correlations_of_ensembles_are_over_all_of_a_size() -> None:
    rng = generator(0, "pool")
    estimated, true = torch.rand(2, 5, 20, 3, generator=rng, dtype=torch.float64).softmax(3)
    y, other_y = torch.randint(3, (2, 20), generator=rng)
    found = correlations(of_ensembles(estimated, y), of_ensembles(true, other_y))
    assert set(found) == {"error, n = 1", "nll, n = 1", "error, n = 3", "nll, n = 3"}
    assert found["nll, n = 3"]["ensembles"] == 10 and found["error, n = 1"]["ensembles"] == 5
    expected = stats.spearmanr(
        [nll(estimated[i : i + 1], y) for i in range(5)], [nll(true[i : i + 1], other_y) for i in range(5)]
    ).statistic
    assert found["nll, n = 1"]["spearman"] == pytest.approx(expected)


# With inherited weights


def test_curves_report_the_best_so_far_by_held_out_loss(inherited: Inherited) -> None:
    posterior = Posterior(tuple(torch.zeros(5) for _ in range(6)))
    for way in ("URS", "MC", "SVGD-RD", "NES-RS"):
        found = curve(inherited, way, posterior, 2, 0.0, 3, generator(0, way))
        assert len(found) == 3 and all(0 <= error <= 1 for error in found)
    rng = generator(1, "by hand")
    candidates = [tuple(inherited.shared.network.uniform(rng) for _ in range(2)) for _ in range(4)]
    losses = [inherited.loss(members) for members in candidates]
    x, y = inherited.test_x, inherited.test_y
    errors = [ensemble_error(torch.stack([inherited.shared.predict(p, x) for p in m]), y) for m in candidates]
    expected = [errors[int(np.argmin(losses[:count]))] for count in range(1, 5)]
    assert inherited.best_so_far(candidates) == expected


def test_discrepancy_is_never_negative(inherited: Inherited) -> None:
    posterior = Posterior(tuple(torch.randn(5, generator=generator(0, i)) for i in range(6)))
    found = discrepancy(inherited, posterior, 4, seed=0)
    assert found["gap"] == pytest.approx(found["most_probable"] - found["best"]) and found["gap"] >= 0


# The whole


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """The command of a chain that was run to its end, data and file first."""
    folder = tmp_path_factory.mktemp("chain")
    data = write(folder / "squares.npz", train=80, test=24, side=8)
    sizes = [f"--{name}={value}" for name, value in SMALL.items()]
    command = ["--data", str(data), "--out", str(folder / "nb201.json"), "--space", "nb201", *sizes]
    main(["nesbs-chain", *command])
    return command


def test_chain_measures_every_ensemble_and_goes_on_where_it_was(chain: list[str]) -> None:
    out = Path(chain[3])
    found = json.loads(out.read_text())
    ensembles = found["stages"]["trained"]["ensembles"]
    assert set(ensembles) == {
        "NESBS, mc", "NESBS, svgd", "best-response, mc", "best-response, svgd", "deep ensemble of the single best",
        "without training", "URS", "NES-RS", "single best", "MC DropPath",
    }  # fmt: skip
    of_one = [ensembles["single best"], ensembles["MC DropPath"]]
    assert of_one[0]["members"] == of_one[1]["members"] and len(of_one[0]["members"]) == 1
    assert {len(one["members"]) for one in ensembles.values() if one not in of_one} == {3}
    assert found["stages"]["NESBS, mc"]["tried"] == found["stages"]["NESBS, svgd"]["tried"]
    assert ensembles["single best"]["ppd"] == 0 and ensembles["single best"]["error"] == ensembles["single best"]["ate"]
    deep = ensembles["deep ensemble of the single best"]["members"]
    assert len({member["arch"] for member in deep}) == 1 and len({member["seed"] for member in deep}) == 3
    assert set(found["seconds"]) == set(found["stages"])
    assert [one.name for one in out.with_suffix(".run").iterdir()] == ["members"], "supernets are removed"
    kept = out.stat().st_mtime_ns
    main(["nesbs-chain", *chain])
    assert out.stat().st_mtime_ns == kept, "nothing was left to do"
    del found["stages"]["trained"], found["seconds"]["trained"]
    out.write_text(json.dumps(found))
    main(["nesbs-chain", *chain])
    again = json.loads(out.read_text())["stages"]["trained"]
    assert again["ensembles"] == ensembles, "from the predictions that were kept"
    with pytest.raises(UserError, match="holds a run with other settings"):
        main(["nesbs-chain", *chain, "--seed", "1"])


def test_a_chain_that_ran_out_of_time_ends_as_one_that_did_not(chain: list[str], tmp_path: Path) -> None:
    """The clock strikes in the second epoch of the supernet, then in that of the best response."""
    command = [*chain[:3], str(tmp_path / "nb201.json"), *chain[4:], "--keep-every", "1"]
    for strikes in (6, 17):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(nesbs_chain, "stopping", lambda until: _after(strikes))  # noqa: B023
            with pytest.raises(SystemExit) as stopped:
                main(["nesbs-chain", *command])
        assert stopped.value.code == OUT_OF_TIME
    main(["nesbs-chain", *command])
    whole, resumed = (json.loads(Path(file).read_text())["stages"] for file in (chain[3], command[3]))
    assert resumed["posterior"] == whole["posterior"] and resumed["estimates"] == whole["estimates"]
    assert resumed["trained"]["ensembles"] == whole["trained"]["ensembles"]


def _after(checks: int) -> Callable[[int, int, str], None]:
    """Returns a callback that raises after this number of calls."""
    left = iter(range(checks))

    def check(done: int, total: int, note: str) -> None:
        if next(left, None) is None:
            raise OutOfTimeError

    return check


def test_inherited_weights_alone_train_no_member(chain: list[str], tmp_path: Path) -> None:
    out = tmp_path / "alone.json"
    main(["nesbs-chain", *chain[:3], str(out), *chain[4:], "--inherited", "--curves", "--trials", "1", "--budget", "2"])
    stages = json.loads(out.read_text())["stages"]
    whole = json.loads(Path(chain[3]).read_text())["stages"]
    assert "trained" not in stages and not list((tmp_path / "alone.run" / "members").iterdir())
    assert stages["posterior"] == whole["posterior"] and stages["NESBS, mc"] == whole["NESBS, mc"]
    assert {len(trials[0]) for trials in stages["curves"].values()} == {2} and "curves" not in whole


def test_clock() -> None:
    stopping(math.inf)(0, 1, "")
    with pytest.raises(OutOfTimeError):
        stopping(time.time() - 1)(0, 1, "")


def test_members_of_processes_are_those_trained_here_and_keep_their_weights(chain: list[str], tmp_path: Path) -> None:
    out = Path(chain[3])
    run = json.loads(out.read_text())
    here = nesbs_chain.setting_of(run["settings"], chain[1], "cpu", out)
    member = Member(**run["stages"]["trained"]["ensembles"]["URS"]["members"][0])
    there = replace(here, folder=str(tmp_path))
    with MemberTraining(there, workers=2) as training:
        training.begin([member])
        found = training.found([member, member])[member]
    with MemberTraining(here) as kept:
        expected = kept.found([member])[member]
    assert torch.equal(found.test, expected.test) and torch.equal(found.held_out, expected.held_out)
    images = here.images()
    with torch.inference_mode():
        said = network_of(member, here)(images.standardised(images.test_x)).softmax(1)
    torch.testing.assert_close(said, expected.test)
    with MemberTraining(replace(here, folder=str(tmp_path / "late")), until=0) as late, pytest.raises(OutOfTimeError):
        late.found([member])


# Attacks


def test_attacks_are_a_stage_of_the_run(
    chain: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(attacks.OWN, "pgd", partial(attacks.pgd, steps=4))
    out = Path(chain[3])
    command = [str(out), "--data", chain[1], "--images", "12"]
    main(["nesbs-attacks", *command, "--attacks", "fgsm,pgd"])
    stages = json.loads(out.read_text())["stages"]
    for attack in ("fgsm", "pgd"):
        found = stages[f"attack {attack}"]
        assert set(found) == set(nesbs_attacks.ENSEMBLES)
        attacked = {way: len(one["attacked"]) for way, one in found.items()}
        assert attacked == dict.fromkeys(nesbs_attacks.ENSEMBLES, 3) | {"single best": 1}
        assert {one["images"] for one in found.values()} == {12}
    main(["nesbs-report", str(out)])
    assert "| accuracy on 12 test images | fgsm, attack % | fgsm, defence % | pgd, attack %" in capsys.readouterr().out


def test_attacks_want_a_finished_run_its_data_and_its_weights(chain: list[str], tmp_path: Path) -> None:
    run = json.loads(Path(chain[3]).read_text())
    alone = tmp_path / "alone.json"
    alone.write_text(json.dumps(run))
    with pytest.raises(UserError, match="bring the run's folder"):
        main(["nesbs-attacks", str(alone), "--data", chain[1]])
    other = write(tmp_path / "other.npz", train=80, test=24, side=8)
    with pytest.raises(UserError, match=r"is of squares\.npz"):
        main(["nesbs-attacks", str(alone), "--data", str(other)])
    del run["stages"]["trained"]
    alone.write_text(json.dumps(run))
    with pytest.raises(UserError, match="not all trained"):
        main(["nesbs-attacks", str(alone), "--data", chain[1]])


# The report


def test_report_by_hand() -> None:
    assert nesbs_report.mean([0.1, 0.2, None], 100) == "15.00 ± 7.07"
    assert nesbs_report.mean([0.5]) == "0.50" and nesbs_report.mean([None]) == "none"


def test_report_of_runs(tmp_path: Path) -> None:
    good = dict.fromkeys(("error", "ate", "ppd", "ece", "nll"), 0.25)
    stages = {
        "trained": {"ensembles": {"URS": good, "best": good | {"error": 0.2}}, "correlations": {}},
        "curves": {"URS, n = 3, tau = 1": [[0.5, 0.4]], "MC, n = 3, tau = 1": [[0.45, 0.3]]},
    }
    files = [tmp_path / f"{seed}.json" for seed in range(2)]
    for file in files:
        file.write_text(json.dumps({"settings": {"space": "nb201"}, "stages": stages}))
    runs = nesbs_report.read(files)
    text = nesbs_report.as_markdown(runs)
    assert "| best | 20.00 ± 0.00 | 25.00 ± 0.00 |" in text and text.index("| best") < text.index("| URS |")
    assert "| MC, n = 3, tau = 1 | 45.00 ± 0.00 | 30.00 ± 0.00 |" in text
    pytest.importorskip("matplotlib")
    assert nesbs_report.plot(runs, tmp_path / "new") and (tmp_path / "new" / "nesbs_curves.png").stat().st_size > 1000
    files[1].write_text(json.dumps({"settings": {"space": "darts"}, "stages": {}}))
    with pytest.raises(UserError, match="runs in one space"):
        nesbs_report.read(files)


def test_report_draws_the_members_of_a_run(chain: list[str], tmp_path: Path) -> None:
    pytest.importorskip("sklearn")
    pytest.importorskip("matplotlib")
    main(["nesbs-report", chain[3], "--plot", str(tmp_path / "new"), "--data", chain[1]])
    assert (tmp_path / "new" / "nesbs_predictions.png").stat().st_size > 5000
    alone = tmp_path / "alone.json"
    alone.write_text(Path(chain[3]).read_text())
    with pytest.raises(UserError, match="bring the run's folder"):
        nesbs_report.picture(alone, chain[1], tmp_path)


def test_report_counts_what_was_tried_and_the_runs_that_have_a_way() -> None:
    good = dict.fromkeys(("error", "ate", "ppd", "ece", "nll"), 0.25)
    measured = {"NESBS, svgd": good, "URS": good | {"error": 0.3}}
    hit = {"attack_accuracy": 0.25, "defence_accuracy": 0.5, "images": 12}
    whole = {
        "NESBS, svgd": {"tried": 35},
        "trained": {"ensembles": measured, "correlations": {}},
        "attack fgsm": {"URS": hit, "NESBS, svgd": hit},
    }
    part = {"trained": {"ensembles": {"URS": good}, "correlations": {}}, "attack fgsm": {"URS": hit}}
    text = nesbs_report.as_markdown([part, whole])
    assert "| NLL | tried |" in text
    assert "| NESBS, svgd (1 of 2 runs) | 25.00 | 25.00 | 25.00 | 25.00 | 0.250 | 35 |" in text
    assert "| URS | 27.50 ± 3.54 | 25.00 ± 0.00 | 25.00 ± 0.00 | 25.00 ± 0.00 | 0.250 ± 0.000 |  |" in text
    assert "| accuracy on 12 test images |" in text and "| NESBS, svgd (1 of 2 runs) | 25.00 | 50.00 |" in text
    assert "tried" not in nesbs_report.as_markdown([part]), "no run says it"
