"""Tables of ensembles: columns from a finished chain, one chain for all tables, and missing data."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from epochzero.errors import DataError
from epochzero.registry import experiments
from epochzero_papers.harness.base import Result
from epochzero_papers.thesis import ensembles, nesbs_chain
from epochzero_papers.thesis import table5_4 as thesis_table5_4
from epochzero_papers.thesis.ensembles import SMALL, Ensembles
from epochzero_papers.thesis.table5_4 import Attacked

NAMES = ("thesis-table5.1", "thesis-table5.2", "thesis-table5.5", "thesis-table5.6", "thesis-table5.7")
WAYS = (
    "NESBS, mc", "NESBS, svgd", "best-response, mc", "best-response, svgd", "deep ensemble of the single best",
    "without training", "URS", "NES-RS", "single best", "MC DropPath",
)  # fmt: skip


def stages(seed: int) -> dict[str, Any]:
    """Figures that tell their places: the error of the i-th is i % and a tenth of the seed."""
    found = {way: {"error": (i + seed / 10) / 100, "ate": i / 50, "ppd": i / 100} for i, way in enumerate(WAYS)}
    cases = {
        f"{name}, n = {n}": {"spearman": n / 10, "pearson": None, "agreement": 0.5}
        for name in ("error", "nll")
        for n in (1, 3)
    }
    gaps = {"most_probable": 0.5, "best": 0.4, "gap": 0.1}
    return {
        "trained": {"ensembles": found, "correlations": cases},
        "curves": {"MC, n = 3, tau = 1": [[0.5, 0.4], [0.7, 0.2]], "URS, n = 3, tau = 1": [[0.6, 0.6], [0.6, 0.6]]},
        "deltas": {"10": {"test_error": {"-2": [0.5, 0.7], "0.5": [0.25]}}},
        "discrepancy, post-training": gaps,
        "discrepancy, best-response": gaps | {"gap": seed / 10},
    }


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Chains that are finished at once, and attacks that write down what they were asked."""

    def chain(given: nesbs_chain.ChainSettings) -> None:
        Path(given.out).write_text(json.dumps({"settings": asdict(given), "stages": stages(given.seed)}))

    def attacked(out: Path, data: str, device: str, attacks: tuple[str, ...], images: int) -> None:
        run = json.loads(out.read_text())
        for i, attack in enumerate(attacks):
            both = {"attack_accuracy": i / 10, "defence_accuracy": images / 100}
            run["stages"][f"attack {attack}"] = dict.fromkeys(WAYS, both)
        out.write_text(json.dumps(run))

    monkeypatch.setattr(nesbs_chain, "run", chain)
    monkeypatch.setattr(thesis_table5_4, "attacked", attacked)
    for name in ("cifar10.npz", "cifar100.npz"):
        (tmp_path / name).write_text("")
    return tmp_path


def run(name: str, folder: Path, **more: Any) -> Result:
    one = experiments[name]
    result: Result = one.run(replace(one.quick, repeats=3, data=one.full.data, **more), folder=folder)
    return result


def found(result: Result) -> dict[tuple[str, str], float | None]:
    return {(row.x, row.y): None if row.found is None else round(row.found.value, 6) for row in result.rows}


def test_errors_are_means_over_chains(folder: Path) -> None:
    result = run("thesis-table5.1", folder)
    values = found(result)
    assert values["NESBS, MC sampling", "C10"] == 0.1 and values["NES-RS", "C100"] == 7.1, "mean over seeds 0, 1, 2"
    papers = {(row.x, row.y): row.paper for row in result.rows}
    assert papers["DeepEns", "C100"] == 25.27 and papers["uniform", "C10"] is None
    assert [s for s in result.left_out if s.startswith("IN16 is left out: it needs imagenet16.npz")]
    assert experiments["thesis-table5.1"].status(folder) == "part"


def test_members_correlations_and_posteriors(folder: Path) -> None:
    members = found(run("thesis-table5.5", folder))
    assert members["NESBS, SVGD-RD", "C10 ATE"] == 2 and members["NESBS, SVGD-RD", "C100 PPD"] == 1
    correlations = run("thesis-table5.6", folder)
    assert found(correlations) == {
        ("spearman", "n = 1"): 0.1,
        ("pearson", "n = 1"): None,
        ("agreement-30%", "n = 1"): 0.5,
        ("spearman", "n = 3"): 0.3,
        ("pearson", "n = 3"): None,
        ("agreement-30%", "n = 3"): 0.5,
    }
    assert {row.why for row in correlations.rows if row.found is None} == {"all ensembles are alike"}
    posteriors = found(run("thesis-table5.7", folder))
    assert posteriors["NESBS, SVGD-RD", "best-response"] == 3.1
    assert posteriors["NESBS, SVGD-RD", "post-training"] == 1.1


def test_figures_of_inherited_weights_ask_for_no_members(folder: Path, tmp_path: Path) -> None:
    curves = found(run("thesis-figure5.3", folder, budget=2))
    assert curves["MC", "n = 3, tau = 1, 1 evaluation"] == 60 and curves["MC", "n = 3, tau = 1, best of 2"] == 30
    assert curves["URS", "n = 3, tau = 1, best of 2"] == 60
    gaps = found(run("thesis-figure5.5", folder))
    assert gaps["gap", "post-training"] == 10 and gaps["gap", "best-response"] == 10, "mean over seeds 0, 1, 2"
    assert found(run("thesis-figure5.7", folder))["delta -2", "tau = 10"] == 60
    for name, curved in (("thesis-figure5.3", True), ("thesis-figure5.5", False)):
        settings = experiments[name].quick.of_chain
        assert settings["inherited"] and settings["curves"] == curved


def test_attacks_are_those_that_were_asked_for(folder: Path) -> None:
    result = run("thesis-table5.4", folder, attacks=("fgsm", "cw"), attacked_images=12)
    values = found(result)
    assert values["NES-RS", "C10 FGSM attack"] == 0 and values["NES-RS", "C100 CW attack"] == 10
    assert values["DeepEns", "C10 CW defence"] == 12
    assert not any("PGD" in column for _, column in values)
    assert {row.paper for row in result.rows if (row.x, row.y) == ("NES-RS", "C10 CW defence")} == {86.75}


@pytest.mark.parametrize("name", NAMES)
def test_the_command_of_a_chain_takes_the_sizes(name: str, folder: Path, tmp_path: Path) -> None:
    one = experiments[name]
    one.run(one.quick, folder=folder, store=tmp_path / "run.db")
    (file,) = (tmp_path / "run.db.ensembles").iterdir()
    given = json.loads(file.read_text())["settings"]
    assert given["space"] == one.space and given["pool"] == SMALL.networks
    assert given["member_epochs"] == 1 and "repeats" not in given


def test_sizes_of_an_attack_are_no_options_of_the_chain() -> None:
    assert Attacked(**asdict(SMALL)).of_chain == SMALL.of_chain


def test_data_are_asked_for(tmp_path: Path) -> None:
    one = experiments["thesis-table5.7"]
    assert one.status(tmp_path) == "needs data"
    with pytest.raises(DataError, match=r"^thesis-table5\.7 needs data that are not there: put cifar10\.npz"):
        one.run(one.quick, folder=tmp_path)
    assert isinstance(one, Ensembles) and set(ensembles.DATA) == {"C10", "C100", "IN16"}
