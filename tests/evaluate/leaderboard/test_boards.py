"""Files of scores and accuracies become boards."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from epochzero.engine.declared import declared
from epochzero.errors import DataError, UserError
from epochzero.evaluate.leaderboard.boards import Board, boards_of, targets_of
from epochzero.evaluate.leaderboard.stored import read_stored
from epochzero.objectives.objective import parse_objective
from tests.evaluate.leaderboard.files import ARCHS, N, accuracies, export, sweep, truth

ONES = [float(i) for i in range(N)]
FIRST = ("noise-1", "default:0")


def board(tmp_path: Path, target: str = "x_test", networks: int = N, **columns: Any) -> Board:
    table = accuracies(tmp_path / "table.csv", "alpha", **columns)
    (one,) = boards_of(targets_of([f"alpha={table}:{target}"]), read_stored([tmp_path / "scores"]), networks)
    return one


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scores").mkdir()
    return tmp_path / "scores"


def test_both_kinds_of_files_are_read(folder: Path) -> None:
    missing = [None, *ONES[1:]]
    export(folder / "a.csv.gz", {("alpha", "snip#2", *FIRST): missing, ("beta", "zen", *FIRST): ONES})
    reasons = ['{"zico": ["degenerate", "all equal"]}', *[""] * (N - 1)]
    sweep(folder / "b.csv", "alpha", {"snip": [7] * N, "zico": ["", *ONES[1:]], "reasons": reasons})
    (folder / "notes.csv").write_text("something,else\n1,2\n")
    stored = read_stored([folder])
    assert stored.files == {"a.csv.gz": 2 * N, "b.csv": 2 * N} and stored.spaces == ["alpha", "beta"]
    first = ARCHS["alpha"][0]
    snip, zico = stored.of("alpha")["snip"][FIRST], stored.of("alpha")["zico"][FIRST]
    assert (snip[first].status, snip[first].why, snip[ARCHS["alpha"][2]].value) == ("degenerate", "equal inputs", 2.0)
    assert (zico[first].status, zico[first].why, len(zico)) == ("degenerate", "all equal", N)


def test_the_newest_recipe_counts(folder: Path) -> None:
    of = {("alpha", key, *FIRST): [float(i)] * N for i, key in enumerate(("snip", "snip#3", "snip#2"))}
    export(folder / "a.csv.gz", of)
    assert {score.value for score in read_stored([folder]).of("alpha")["snip"][FIRST].values()} == {1.0}


def test_weights_and_batches_are_repeats_if_they_cover_enough(tmp_path: Path, folder: Path) -> None:
    scores = {("alpha", "snip", f"noise-{seed}", f"default:{seed}"): ONES for seed in range(2)}
    scores |= {("alpha", "snip", "noise-2", "default:2"): ONES[: N // 2 - 1]}
    scores |= {("alpha", "snip", "noise-3", "default:0, 78 steps of sgd"): ONES}
    scores |= {("alpha", "zen", "noise-0", "default:0"): ONES[: N // 2], ("alpha", "zico", *FIRST): ONES[:3]}
    export(folder / "a.csv.gz", scores)
    made = board(tmp_path)
    assert list(made.scores["snip"]) == [("noise-0", "default:0"), ("noise-1", "default:1")]
    assert list(made.scores) == ["snip", "zen"]
    assert made.scores["zen"]["noise-0", "default:0"][-1].why == "the proxy was not run on this network"


def test_networks_with_the_most_scores_come_first(tmp_path: Path, folder: Path) -> None:
    export(folder / "a.csv.gz", {("alpha", "snip", *FIRST): ONES, ("alpha", "zen", *FIRST): ONES[:10]})
    made = board(tmp_path, networks=10)
    assert made.archs == ARCHS["alpha"][:10] and set(made.scores) == {"snip", "zen"}
    more = board(tmp_path, networks=15)
    assert len(more.archs) == 15 and set(made.archs) < set(more.archs)
    np.testing.assert_array_equal(made.truth, truth("alpha")[:10])
    assert made.notes[-1] == "10 of 40 networks with scores, of 40 in the table."


def test_a_target_has_scores_on_its_own_data(tmp_path: Path, folder: Path) -> None:
    names = ("cifar10-1", "cifar100-2")
    scores = {("alpha", "snip", batch, "default:0"): [float(i)] * N for i, batch in enumerate(names)}
    export(folder / "a.csv.gz", scores | {("alpha", "zen", "cifar10-1", "default:0"): ONES})
    on_100 = board(tmp_path, "cifar100_test", cifar100_test=ONES)
    assert on_100.data == "cifar100" and on_100.scores["snip"][names[1], "default:0"][0].value == 1.0
    assert list(on_100.scores["zen"]) == [("cifar10-1", "default:0")]
    assert board(tmp_path, "imagenet16_test", imagenet16_test=ONES).data == "cifar10"


def test_models_with_inputs_of_two_sizes_are_one_repeat(tmp_path: Path, folder: Path) -> None:
    large = [("alpha", "snip", "noise-3x224-1", "default:0"), ("alpha", "zen", "noise-3x224-1", "default:0")]
    export(folder / "a.csv.gz", dict.fromkeys(large, ONES[: N // 4]))
    swept = sweep(folder / "b.csv", "alpha", {"snip": ONES, "zen": ONES})
    lines = swept.read_text().splitlines()
    swept.write_text("\n".join([lines[0], *lines[1 + N // 4 :]]) + "\n")
    made = board(tmp_path)
    assert all(len(by) == 1 and all(score.ok for score in next(iter(by.values()))) for by in made.scores.values())


def test_unknown_accuracies_are_counted_and_lower_may_be_better(tmp_path: Path, folder: Path) -> None:
    export(folder / "a.csv.gz", {("alpha", "snip", *FIRST): ONES})
    made = board(tmp_path, "-error", error=["", "nan", *ONES[2:]])
    assert (made.truth == [-value for value in ONES[2:]]).all() and made.name == "alpha error"
    assert made.notes[0] == "2 networks without error are left out."


def test_sizes_come_from_scores_or_from_the_table(tmp_path: Path, folder: Path) -> None:
    export(folder / "a.csv.gz", {("alpha", "params", *FIRST): ONES})
    made = board(tmp_path, params_M=[9.0] * N, macs=[2 * one for one in ONES])
    assert made.sizes["params"].tolist() == ONES and made.sizes["flops"][1] == 2.0


def test_a_combination_joins_repeats_of_its_members(tmp_path: Path, folder: Path) -> None:
    seeds = [(f"noise-{seed}", f"default:{seed}") for seed in range(3)]
    scores = {("alpha", "snip", *seed): ONES for seed in seeds[:2]} | {
        ("alpha", "zen", *seed): ONES for seed in seeds[1:]
    }
    export(folder / "a.csv.gz", scores | {("alpha", "params", *seeds[2]): ONES, ("alpha", "zico", *FIRST): ONES})
    made = board(tmp_path)
    numbers = {
        text: len(made.merits(parse_objective(text, declared)) or ())
        for text in ("snip", "rank(snip,zen)", "rank(snip,params)", "rank(snip,zico)", "naswot", "rank(snip,naswot)")
    }
    assert list(numbers.values()) == [2, 1, 2, 1, 0, 0]


def test_texts_that_differ_are_read_by_their_space(tmp_path: Path, folder: Path) -> None:
    cells = ["conv3x3:0/output:1", "conv1x1:0/output:1", "maxpool3x3:0/output:1"]
    ours = folder / "s.csv"
    sweep(ours, "alpha", {"snip": [1, 2, 3]})
    ours.write_text("arch,snip\n" + "".join(f"{cell},{i}\n" for i, cell in enumerate(cells)))
    ours.with_suffix(".json").write_text(ours.with_suffix(".json").read_text().replace("alpha", "nb101"))
    table = tmp_path / "official.csv"
    ops = ("conv3x3-bn-relu", "conv1x1-bn-relu", "maxpool3x3")
    table.write_text(
        "adjacency,ops,acc\n" + "".join(f'010;001;000,"input,{op},output",.{i}\n' for i, op in enumerate(ops))
    )
    (made,) = boards_of(targets_of([f"nb101={table}:acc"]), read_stored([folder]), 10)
    assert [score.value for score in made.scores["snip"][FIRST]] == [0, 1, 2] and made.unit == "fraction"


def test_models_of_timm_with_and_without_their_source(tmp_path: Path, folder: Path) -> None:
    export(folder / "a.csv.gz", {("alpha", "snip", *FIRST): ONES})
    rows = "".join(f"timm,timm:net{i},snip,pink-1,default:0,{i},ok,,\n" for i in range(3))
    (folder / "b.csv").write_text(f"space,arch,proxy,batch,origin,value,status,why,seconds\n{rows}")
    (tmp_path / "t.csv").write_text("model,top1\nnet2,72\nnet0,70\nnet7,75\nnet1,71\n")
    (made,) = boards_of(targets_of([f"timm={tmp_path / 't.csv'}:top1"]), read_stored([folder]), 10)
    assert (made.space, made.archs, made.unit) == ("published", ["net2", "net0", "net1"], "percent")
    assert [score.value for score in made.scores["snip"]["pink-1", "default:0"]] == [2, 0, 1]


def test_tables_of_a_folder_have_known_names(tmp_path: Path, folder: Path) -> None:
    sweep(folder / "s.csv", "alpha", {"snip": ONES})
    text = (folder / "s.json").read_text()
    (folder / "s.json").write_text(text.replace("alpha", "transnas_micro"))
    for name in ("transnas_micro_scene_half", "darts_500"):
        table = accuracies(tmp_path / f"{name}.csv", "alpha", class_scene_val_acc=ONES, cifar10_val_acc=ONES)
        assert table.is_file()
    made = boards_of(targets_of([str(tmp_path)]), read_stored([folder]), N)
    assert [one.name for one in made] == ["transnas_micro class_scene_val_acc"]


@pytest.mark.parametrize(
    ("tables", "says"),
    [
        ([], "No table is named"),
        (["alpha=t.csv"], "takes SPACE=FILE:COLUMN or a folder"),
        (["absent"], "there is no folder 'absent'"),
        (["."], "has no table of a known name"),
        (["gamma=table.csv:x_test"], "have none of the space 'gamma'. They are of alpha."),
        (["alpha=table.csv:y_test"], "no column 'y_test'. Did you mean 'x_test'?"),
        (["alpha=others.csv:x_test"], "Only 0 networks of others.csv have stored scores of alpha; 3 are needed."),
    ],
)
def test_tables_that_cannot_be_used(
    tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, tables: list[str], says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    export(folder / "a.csv.gz", {("alpha", "snip", *FIRST): ONES})
    accuracies(tmp_path / "table.csv", "alpha")
    accuracies(tmp_path / "others.csv", "beta")
    with pytest.raises(UserError, match=says.replace("?", r"\?")):
        boards_of(targets_of(tables), read_stored([folder]), N)


def test_files_that_hold_no_scores(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(UserError, match="has no file of scores"):
        read_stored([folder])
    with pytest.raises(UserError, match="does not exist"):
        read_stored([tmp_path / "absent.csv"])
    with pytest.raises(DataError, match="neither the columns of `epochzero store --to` nor the settings of a sweep"):
        read_stored([accuracies(tmp_path / "table.csv", "alpha")])
