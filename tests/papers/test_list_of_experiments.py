"""The list of experiments: everything the papers have, its protocol and figures, and the error for missing data."""

from __future__ import annotations

import math
import re
from pathlib import Path

import pytest

from epochzero.errors import DataError, UserError
from epochzero.registry import experiments, proxies, spaces
from epochzero_papers.harness.base import Recipe
from epochzero_papers.harness.correlations import Correlations
from epochzero_papers.harness.files import CIFAR10, CIFAR100, IMAGENET16, NB201
from epochzero_papers.harness.planned import Planned
from tests.command import epochzero, refusal

WANTED = [
    "dextr-table1",
    "dextr-table4",
    "dextr-table5",
    "dextr-table6",
    "dextr-table7",
    "dextr-figure1",
    "dextr-figure2",
    "dextr-figure3",
    "sigeo-table2",
    "sigeo-table3",
    "sigeo-figure2",
    "sigeo-figure7",
    "nasi-table3",
    "nasi-table7",
    "nasi-figure1",
    "nasi-figure3",
    "thesis-table7.1",
    "thesis-table7.4",
    "thesis-table7.5",
    "thesis-table7.6",
    "thesis-table7.9",
    "thesis-table7.10",
    "thesis-table7.11",
    "thesis-table7.12",
    "thesis-figure7.2",
    "thesis-figure7.4",
]
UNPRINTED = {
    "dextr-figure1", "dextr-figure3", "nasi-figure3", "nb101-narrow", "nb101-pool", "nb201-latency-front",
    "sigeo-figure2", "sigeo-figure4", "sigeo-figure7", "sigeo-recommender", "thesis-figure5.2", "thesis-figure5.3",
    "thesis-figure5.5", "thesis-figure5.7", "thesis-figure6.2", "thesis-figure6.6", "thesis-figure7.3",
    "thesis-figure7.4", "thesis-figure7.5",
}  # fmt: skip
"""the papers show pictures there, or it is our own"""
OUT_OF_REACH = {"thesis-table5.3", "thesis-table6.3", "thesis-table7.8"}
"""other tables' networks, trained on ImageNet"""


@pytest.mark.parametrize("name", WANTED)
def test_what_the_papers_have_of_scores_can_be_run(name: str) -> None:
    assert isinstance(experiments[name], Recipe)


@pytest.mark.parametrize("name", list(experiments))
def test_each_says_what_it_does_and_what_the_paper_found(name: str) -> None:
    one = experiments[name]
    assert one.name == name
    assert one.about.endswith((".", "?")) and "\n" not in one.about
    assert len(one.protocol) > 30 and one.source
    assert bool(one.quoted) == (name not in UNPRINTED) or one.source == "our own"
    assert all(math.isfinite(figure.value) for figure in one.quoted)
    assert len({figure[:3] for figure in one.quoted}) == len(one.quoted), "a figure is quoted twice"
    for file in one.needs:
        assert file.names and file.what


@pytest.mark.parametrize("name", [n for n in experiments if isinstance(experiments[n], Correlations)])
def test_tables_of_correlations_are_whole(name: str) -> None:
    table = experiments[name]
    assert table.quick.networks < table.full.networks
    for figures in (table.spearman, table.kendall):
        for values in figures.values():
            assert len(values) == len(table.targets)
            assert all(value is None or -1 <= value <= 1 for value in values)
    assert not table.kendall or list(table.kendall) == list(table.spearman)
    assert len({target.label for target in table.targets}) == len(table.targets)
    for target in table.targets:
        assert target.space in spaces
    for objective in table.objectives:
        assert all(proxy.name in proxies for proxy in objective.proxies)


def test_figures_as_printed() -> None:
    def printed(name: str, x: str, statistic: str = "spearman") -> dict[str, float]:
        return {f.y: f.value for f in experiments[name].quoted if (f.x, f.statistic) == (x, statistic)}

    assert list(printed("dextr-table1", "dextr").values()) == [0.53, 0.75, 0.55, 0.65, 0.90, 0.91, 0.87, 0.44]
    assert printed("dextr-table4", "harmonic(zen,zico)")["NB201-IN16"] == 0.47
    assert printed("dextr-table7", "dextr_opt")["SSS-C100"] == 0.66
    assert printed("sigeo-table2", "jacov", "kendall")["NB101"] == -0.20
    assert printed("sigeo-table2", "plain")["NB101"] == 0.32, "printed as -.32, with higher as better"
    assert list(printed("sigeo-table3", "sigeo, 40 %").values()) == [0.70, 0.83, 0.88, 0.87, 0.56]
    assert printed("nasi-table3", "nasi_trace, conditioned") == {"S1": 0.62, "S2": 0.74, "S3": 0.76}
    assert printed("thesis-table5.4", "NESBS, SVGD-RD", "test accuracy %")["C100 AutoAttack defence"] == 31.07
    assert printed("thesis-table5.4", "DeepEns (ENAS)", "test accuracy %")["C10 CW attack"] == 31.36
    assert printed("thesis-table6.8", "b = 64", "test error %") == {"S1": 6.0, "S2": 7.2, "S3": 6.6}
    assert printed("sigeo-table5", "ZiCo, full, 1 %", "as named")["Avazu AUC"] == 0.7860
    assert printed("thesis-table7.1", "non-realizable, grasp")["NB101"] == 0.46
    assert printed("thesis-table7.5", "kappa/M, snip")["NB201-C10"] == 0.728
    assert printed("thesis-table7.9", "1/M, grasp", "kendall")["NB201-C10, He"] == 0.242
    assert printed("thesis-table7.10", "kappa, b = 4, grad") == {"NB201-C10": 0.578}
    assert printed("thesis-table7.11", "M, 32, trace", "kendall") == {"NB201-C10": 0.558}
    assert printed("thesis-table7.12", "1/M, synflow")["NB201-C100 from C10"] == 0.76


def test_what_is_out_of_reach_says_what_it_needs_in_one_sentence() -> None:
    planned = {name: one for name, one in experiments.items() if isinstance(one, Planned)}
    assert set(planned) == OUT_OF_REACH
    for name, one in planned.items():
        assert one.status() == "planned"
        with pytest.raises(UserError, match=rf"^{name} cannot be run here: it needs .*GPU time; its protocol and the "):
            one.run()
    sentence = refusal("reproduce", "thesis-table7.8", "--quick")
    assert sentence == (
        "thesis-table7.8 cannot be run here: it needs ImageNet and days of GPU time; its protocol and the paper's "
        "figures: epochzero reproduce thesis-table7.8 --about."
    )


@pytest.mark.parametrize("name", list(experiments))
def test_nothing_is_put_off_to_a_step_of_ours(name: str) -> None:
    one = experiments[name]
    unmeasured = getattr(one, "unmeasured", ())
    told = " ".join([one.about, one.protocol, *unmeasured, getattr(one, "wants", "")])
    assert not re.search(r"\bstep [0-9]\b", told)


@pytest.mark.parametrize("name", [n for n in experiments if isinstance(experiments[n], Correlations)])
def test_missing_data_says_what_to_put_where(name: str, tmp_path: Path) -> None:
    table = experiments[name]
    assert table.status(tmp_path) == "needs data"
    with pytest.raises(DataError) as caught:
        table.run(table.quick, folder=tmp_path)
    sentence = str(caught.value)
    assert sentence.startswith(f"{name} needs data that are not there: put ")
    assert sentence.endswith(f"into the folder '{tmp_path}', or name another folder with --data-folder.")
    wanted = [t for t in table.targets if t.space in (table.quick.spaces or [t.space])]
    for target in wanted:
        assert target.table.names[0] in sentence and target.images[0].names[0] in sentence


def test_missing_data_are_told_from_what_may_be_left_out(tmp_path: Path) -> None:
    both = f"{CIFAR100.request}, and {IMAGENET16.request}"
    with pytest.raises(DataError) as caught:
        experiments["dextr-table4"].run(folder=tmp_path)
    assert f": put {NB201.request}, and {CIFAR10.request}, and optionally {both}, into the folder" in str(caught.value)
    with pytest.raises(DataError) as caught:
        experiments["sigeo-table2"].run(folder=tmp_path)
    assert f"{CIFAR10.request}; or {NB201.request}, and" in str(caught.value), "one of its tables will do"


def test_the_list_shows_all_with_their_status(tmp_path: Path) -> None:
    ran = epochzero("reproduce", "--list", "--data-folder", tmp_path, "--json")
    rows = {row["name"]: row for row in ran.json["experiments"]}
    assert list(rows) == sorted(experiments)
    assert rows["dextr-table1"]["status"] == rows["sigeo-figure2"]["status"] == "needs data"
    assert rows["thesis-table7.4"]["status"] == "ready", "noise will do"
    assert rows["thesis-table6.3"]["status"] == "planned" and rows["sigeo-figure4"]["status"] == "ready"
    assert rows["sigeo-table4"]["status"] == "needs data" and rows["dextr-table8"]["status"] == "ready"
    for name in ("nb201.csv.gz", "cifar10.npz"):
        (tmp_path / name).write_text("")
    assert experiments["dextr-table1"].status(tmp_path) == "part"
    assert experiments["dextr-table4"].status(tmp_path) == "ready", "CIFAR-10 stands in for the other images"
    assert experiments["thesis-table7.6"].status(tmp_path) == "part", "but not where they are the point"
    shown = epochzero("reproduce", "--list", "--data-folder", tmp_path).out
    assert "planned: out of reach here" in " ".join(shown.split()) and f"Data are looked for in '{tmp_path}'" in shown


def test_about_shows_protocol_data_and_figures(tmp_path: Path) -> None:
    shown = epochzero("reproduce", "dextr-table1", "--about", "--data-folder", tmp_path).out
    assert "mean of 3 runs" in shown and "Status: needs data." in shown and "NB201-IN16" in shown
    assert (
        f"NAS-Bench-201, columns arch_str, cifar10_test, cifar100_test, imagenet16_test): missing in '{tmp_path}'."
        in (shown)
    )
    found = epochzero("reproduce", "thesis-table7.8", "--about", "--json").json
    assert found["status"] == "planned" and found["protocol"].startswith("Found on CIFAR-100 and on ImageNet")
    assert {"x": "HNAS (C100)", "y": "top-1 error %", "statistic": "as named", "value": 24.8} in found["paper"]
    assert "The paper prints no figures." in epochzero("reproduce", "nasi-figure3", "--about").out


def test_a_name_is_needed() -> None:
    assert (
        refusal("reproduce")
        == "Name what to reproduce, such as dextr-table1, or --all; epochzero reproduce --list shows all."
    )


def test_every_recipe_is_one_or_the_other() -> None:
    assert all(isinstance(one, Recipe | Planned) for one in experiments.values())
