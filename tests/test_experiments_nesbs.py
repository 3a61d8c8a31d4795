"""The chain of NESBS: what its figures are made of, and the whole of it on a few images."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import stats

from epochzero.ensemble.metrics import ensemble_error, nll
from epochzero.ensemble.posterior import Posterior
from epochzero.errors import UserError
from epochzero.experiments import nesbs_chain, nesbs_report
from epochzero.experiments.nesbs_curves import Inherited, agreement, correlations, curve, discrepancy, pearson, ranks
from epochzero.plan import generator
from epochzero.registry import spaces
from epochzero.supernet import SharedWeights, shared
from tests.train_images import write

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
    found = correlations(estimated, y, true, other_y, (1, 3))
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


def test_chain_measures_every_ensemble_and_goes_on_where_it_was(tmp_path: Path) -> None:
    data = write(tmp_path / "squares.npz", train=80, test=24, side=8)
    out = tmp_path / "nb201.json"
    sizes = [f"--{name}={value}" for name, value in SMALL.items()]
    command = ["--space", "nb201", "--data", str(data), "--out", str(out), *sizes]
    nesbs_chain.main(command)
    found = json.loads(out.read_text())
    ensembles = found["stages"]["trained"]["ensembles"]
    assert set(ensembles) == {
        "NESBS, mc", "NESBS, svgd", "best-response, mc", "best-response, svgd", "deep ensemble of the single best",
        "without training", "URS", "NES-RS", "single best",
    }  # fmt: skip
    assert {len(one["members"]) for way, one in ensembles.items() if way != "single best"} == {3}
    assert ensembles["single best"]["ppd"] == 0 and ensembles["single best"]["error"] == ensembles["single best"]["ate"]
    assert set(found["seconds"]) == set(found["stages"])
    kept = out.stat().st_mtime_ns
    nesbs_chain.main(command)
    assert out.stat().st_mtime_ns == kept, "nothing was left to do"
    del found["stages"]["trained"], found["seconds"]["trained"]
    out.write_text(json.dumps(found))
    nesbs_chain.main(command)
    again = json.loads(out.read_text())["stages"]["trained"]
    assert again["ensembles"] == ensembles, "from the predictions that were kept"
    with pytest.raises(UserError, match="holds a run with other settings"):
        nesbs_chain.main([*command, "--seed", "1"])


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
    assert nesbs_report.plot(runs, tmp_path) and (tmp_path / "nesbs_curves.png").stat().st_size > 1000
    files[1].write_text(json.dumps({"settings": {"space": "darts"}, "stages": {}}))
    with pytest.raises(UserError, match="runs in one space"):
        nesbs_report.read(files)
