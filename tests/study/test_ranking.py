"""`ez.rank` and `epochzero rank`: which of several networks to train."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import epochzero as ez
from epochzero.errors import UserError
from epochzero.objectives.auto import NEWEST
from epochzero.store import Store
from epochzero.study.winners import Winner, winners
from tests.command import CHEAP, CUT, epochzero, refusal
from tests.photos import photos

X, Y = torch.randn(96, 3, 8, 8, generator=torch.Generator().manual_seed(0)), torch.arange(96) % 4
MIXED = "|nor_conv_3x3~0|+|nor_conv_1x1~0|skip_connect~1|+|skip_connect~0|none~1|nor_conv_3x3~2|"


def net(width: int) -> Callable[..., nn.Module]:
    def make(num_classes: int = 10) -> nn.Module:
        conv = nn.Conv2d(3, width, 3, padding=1)
        return nn.Sequential(conv, nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(4 * width, num_classes))

    return make


def broken() -> nn.Module:
    raise ValueError("no such width")


def loader() -> DataLoader[tuple[torch.Tensor, ...]]:
    return DataLoader(TensorDataset(X, Y), batch_size=8)


def test_functions_modules_and_failures_in_one_table() -> None:
    ranking = ez.rank({"a": net(4), "b": net(16), "c": net(8)(4), "bad": broken}, loader(), proxy="snip", seeds=3)
    assert [row.name for row in ranking][3] == "bad" and len(ranking) == 4
    assert (ranking["bad"].status, ranking["bad"].why) == ("failed", "'bad' cannot be built: ValueError: no such width")
    means = [row.value for row in ranking.scored]
    assert means == sorted(means, reverse=True)
    for row in ranking.scored:
        assert len(row.scores) == 3 and row.value == pytest.approx(np.mean(row.scores))
        assert row.spread == pytest.approx(np.std(row.scores, ddof=1)) and row.group is not None
    assert ranking["b"].params == 16 * 28 + 4 * 65 and ranking["b"].by_flops == 1
    assert ranking["b"].flops == 64 * 16 * 27 + 4 * 64
    assert "Counting FLOPs would put b first" in " ".join(ranking.sentences)
    assert "1 of them are modules, which keep their weights" in ranking.remarks[0]
    assert "was not tested on these networks" in ranking.trust
    assert list(ranking.table()["name"]) == [row.name for row in ranking]


def test_score_takes_one() -> None:
    with pytest.raises(UserError, match="give data as data="):
        ez.score(net(4)(4), [(torch.ones(4, 3, 8, 8), torch.zeros(4))])  # type: ignore[list-item]
    with pytest.raises(UserError, match=r"score takes one network: rank\(networks, data=...\) compares several"):
        ez.score([net(4)(4), net(8)(4)], "snip", data=(X, Y))


def test_a_draw_has_the_score_of_ez_score() -> None:
    """Of a module, with the data of that draw."""
    module = net(4)(4)
    ranking = ez.rank([module], (X[:32], Y[:32]), proxy="snip", seeds=[0, 5], batch_size=32)
    alone = ez.score(module, "snip", data=(X[:32], Y[:32]))["snip"].value
    assert ranking[0].scores == pytest.approx([alone, alone], rel=1e-5)  # all samples, in another order
    assert module.training and all(p.grad is None for p in module.parameters())


def test_the_order_is_the_proxys() -> None:
    lower = ez.rank({"small": net(2), "large": net(9)}, proxy="plain", batch_size=8)
    values = [row.value for row in lower]
    assert values == sorted(values) and [row.merit for row in lower] == [-value for value in values]
    several = ez.rank({"small": net(2), "large": net(9)}, proxy="params, flops", batch_size=8, seeds=2)
    assert several.text == "rank(params,flops)" and several.best.name == "large" and several.agreement is None


def test_auto_compares_with_the_other_networks() -> None:
    ranking = ez.rank({"a": net(4), "b": net(16), "twin": net(16)}, proxy="auto", batch_size=8, input_shape=(3, 8, 8))
    assert ranking.text == f"auto:{NEWEST}" and [row.status for row in ranking] == ["ok"] * 3
    assert all(row.spread > 0 for row in ranking)  # within one draw, ranks would be the same in each
    assert ranking[2].name == "a" and ranking["a"].group == 2 and ranking["twin"].group == ranking["b"].group == 1


def test_one_network_has_its_percentile() -> None:
    """Its ranks among its own draws would say nothing."""
    alone = ez.rank([CHEAP], space="nb201", proxy="auto", batch_size=8, seeds=2)
    assert alone[0].status == "ok" and alone[0].value == pytest.approx(np.mean(alone[0].scores))
    first = ez.score(CHEAP, "auto", space="nb201", batch_size=8)["auto"]
    assert alone[0].scores[0] == pytest.approx(first.value) and 0 < first.value < 100
    assert f"the value is its {first.why}." in alone.remarks[0]
    lone = ez.rank([broken], proxy="auto", batch_size=8, input_shape=(3, 8, 8), seeds=2)
    assert lone[0].status == "failed" and lone.remarks == [] and "no such width" in lone[0].why


def test_members_that_give_way_are_named() -> None:
    """One convolution each: the depth is the same for all, and there are no blocks to pass gradients between."""
    alike = ez.rank({"a": net(4), "b": net(9)}, proxy="auto", batch_size=8, input_shape=(3, 8, 8), seeds=2)
    assert alike.remarks == [
        f"auto:{NEWEST} counts flops in place of depth: it is the same for all networks.",
        f"auto:{NEWEST} counts flops in place of az_trainability(samples=16): 100% of the networks lack it.",
    ]
    assert not ez.rank([CHEAP, MIXED], space="nb201", proxy="auto:1", batch_size=8, seeds=1).remarks


def test_equal_scores_and_members_that_all_fail() -> None:
    twins = ez.rank({"a": net(4)(4), "b": net(4)(4)}, proxy="auto", batch_size=8, input_shape=(3, 8, 8), seeds=1)
    assert [row.status for row in twins] == ["ok"] * 2 and twins.best.name in "ab"
    failed = ez.rank({"a": broken, "b": broken}, proxy="auto", batch_size=8, input_shape=(3, 8, 8), seeds=1)
    assert [row.status for row in failed] == ["failed"] * 2 and failed.remarks == []
    with pytest.raises(UserError, match=f"No network has a score by auto:{NEWEST}: 'a' cannot be built"):
        _ = failed.best


def test_architectures_of_a_space(shallow_nb201: None) -> None:
    ranking = ez.rank(
        [CHEAP, MIXED, CUT], space="nb201", proxy="naswot", seeds=2, batch_size=8, input_shape=(3, 16, 16)
    )
    assert {row.name for row in ranking} == {CHEAP, MIXED, CUT}
    assert ranking[MIXED].params == ez.space("nb201").plan(ez.space("nb201").parse(MIXED)).params
    assert "naswot ranks networks of nb201 with a Spearman correlation" in ranking.trust


def test_the_store_resumes(tmp_path: Path) -> None:
    built: list[int] = []

    def counted(num_classes: int) -> nn.Module:
        built.append(1)
        return net(4)(num_classes)

    nets = {"a": counted, "b": net(8)}
    first = ez.rank(nets, proxy="snip", batch_size=8, store=tmp_path / "r.db")
    once = len(built)
    again = ez.rank(nets, proxy="snip", batch_size=8, store=tmp_path / "r.db")
    assert [row.scores for row in again] == [row.scores for row in first] and again.run == first.run
    assert len(built) == once + 1  # to know that it is the same network
    module = net(8)(10)
    kept = ez.rank({"m": module}, proxy="snip", batch_size=8, store=tmp_path / "r.db")
    with torch.no_grad():
        next(module.parameters()).mul_(2)
    other = ez.rank({"m": module}, proxy="snip", batch_size=8, store=tmp_path / "r.db")
    assert other[0].arch != kept[0].arch and other[0].value != kept[0].value
    with Store.open(tmp_path / "r.db") as store:
        assert {run.state for run in store.runs()} == {"finished"}


def test_an_iterator_is_read_as_it_goes() -> None:
    alive: list[int] = []

    def modules() -> Iterator[tuple[str, nn.Module]]:
        for i in range(5):
            alive.append(i)
            yield f"net{i}", net(2 + i)(10)

    seen: list[tuple[int, int | None, int]] = []
    ez.rank(modules(), proxy="params", seeds=1, batch_size=4, progress=lambda *now: seen.append((*now[:2], len(alive))))
    assert [(done, total) for done, total, _ in seen] == [(i, None) for i in range(1, 6)]
    assert seen[0][2] <= 2  # no more than the one after it was made


def test_peak_memory_of_a_chain_by_hand() -> None:
    """Weights, and the most that are alive at a time: those of the convolution, then of the ReLU."""
    ranking = ez.rank({"net": net(4)}, (X, Y), proxy="params", seeds=1, batch_size=4)
    weights, x, maps = 4 * 28 + 16 * 4 + 4, 3 * 64, 4 * 64
    assert ranking[0].memory == 4 * (weights + x + 2 * maps)


@pytest.mark.parametrize(
    ("networks", "options", "says"),
    [
        ([], {}, "There is no network to rank"),
        ({"a": 3}, {}, "'a' is int: give a module, a function that makes one"),
        ({"a": net(2)}, {"seeds": 0}, "at least one seed"),
        (None, {}, "A network cannot be NoneType: give a module"),
        ({"a": net(2)}, {"proxy": None}, "A score is named by a text"),
        ({"a": net(2)}, {"latency": 5}, "A latency source is named by a text"),
        ({"a": net(2)}, {"seeds": "3"}, "give how many, or a list"),
        ({"a": net(2)}, {"seeds": 2.5}, "give how many, or a list"),
        ({"a": net(2)}, {"input_shape": "3,8,8"}, r"whole numbers such as \(3, 224, 224\), not '3,8,8'"),
        ({"a": net(2)}, {"input_shape": 8}, "An input shape is whole numbers"),
        ({"a": net(2)}, {"data": (X, Y[:5])}, "labels should be 96, one for each input, not 5"),
        ({"a": net(2)}, {"data": X[:0]}, "hold no sample"),
        ({"a": net(2)}, {"data": torch.tensor(3.0)}, "hold no sample"),
        (["nets.py:make"], {}, "There is no file 'nets.py'"),
        (["what"], {}, "'what' is str: give a module"),
        (["what"], {"space": "nb201"}, "what"),
        ({"a": net(2)}, {"latency": "stopwatch"}, "no latency source 'stopwatch'"),
    ],
)
def test_refused(networks: object, options: dict[str, object], says: str) -> None:
    with pytest.raises(UserError, match=says):
        ez.rank(networks, batch_size=4, **options)  # type: ignore[arg-type]


# the command

HELPER = """
from torch import nn

def layer(width):
    return nn.Conv2d(3, width, 3)
"""
NETS = """
from torch import nn

from widths import layer

def small(num_classes):
    return nn.Sequential(layer(4), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, num_classes))

def large(num_classes):
    return nn.Sequential(layer(9), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(9, num_classes))

def bad():
    return nn.Linear(3, 3)

both = {"one": small, "two": large}
"""


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "widths.py").write_text(HELPER)
    (tmp_path / "nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_command(files: Path) -> None:
    common = ("--batch-size", "4", "--input-shape", "3,8,8", "--proxy", "snip", "--store", "r.db")
    found = epochzero("rank", "nets.py:small", "nets.py:both", *common, "--json").json
    assert {row["name"] for row in found["networks"]} == {"nets.py:small", "nets.py:both one", "nets.py:both two"}
    assert [row["place"] for row in found["networks"]] == [1, 2, 3] and found["draws"] == 3
    assert found["says"][-1].startswith("snip ")
    shown = epochzero("rank", "nets.py:small", "nets.py:large", "nets.py:bad", *common, "--latency", "torch")
    assert shown.code == 0 and "nets.py:large" in shown.out and "nets.py:bad  failed: " in shown.out


def test_the_chain_of_a_ranking(files: Path) -> None:
    photos(files / "photos")
    common = ("--image-size", "8", "--proxy", "snip", "--store", "r.db", "--json")
    found = epochzero("rank", "nets.py:small", "nets.py:large", "--data", "photos", *common).json
    assert "6 of the 6 training samples" in found["data"]
    best = found["networks"][0]["name"]
    assert winners("r.db", 2)[0] == Winner("", best)
    again = epochzero("rank", "nets.py:small", "nets.py:large", "--data", "photos", *common[:-1])
    assert "next    epochzero train --from r.db --data photos --image-size 8 --out trained\n" in again.err
    unnamed = epochzero("rank", "nets.py:both", "--data", "photos", *common[:-1])
    assert unnamed.code == 0 and "next" not in unnamed.err
    with pytest.raises(UserError, match=r"networks without a file of their own, such as 'nets.py:both (one|two)'"):
        winners("r.db")


def test_the_report_of_a_ranking(tmp_path: Path) -> None:
    nets = {"a": net(4), "b": net(8)}
    ranking = ez.rank(nets, (X, Y), proxy="snip", store=tmp_path / "r.db")
    page = ranking.report(tmp_path / "r.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    with pytest.raises(UserError, match="from a store on disk: call it again with store="):
        ez.rank(nets, (X, Y), proxy="snip").report(tmp_path / "none.html")
    with pytest.raises(UserError, match="has no network 'c'"):
        ranking["c"]
    with pytest.raises(UserError, match="reads images from files, not from tuple"):
        ranking.train((X, Y))  # type: ignore[arg-type]
    with pytest.raises(UserError, match="The batch size is '4'; it has to be a whole number"):
        ez.rank(nets, proxy="snip", batch_size="4")  # type: ignore[arg-type]
    space = ez.rank([CHEAP, CUT], space="nb201", proxy="flops", store=tmp_path / "s.db")
    assert winners(tmp_path / "s.db", 2) == [Winner("nb201", row.name) for row in space]


def test_command_without_any_score_ends_with_1(files: Path) -> None:
    ran = epochzero("rank", "nets.py:bad", "--batch-size", "4", "--proxy", "snip")
    assert ran.code == 1 and "failed" in ran.out
    assert "has no 'smal'. Did you mean 'small'?" in refusal("rank", "nets.py:smal")


def test_draws_that_do_not_differ() -> None:
    """Given modules on all samples of the data: no group is claimed."""
    torch.manual_seed(0)
    ranking = ez.rank({"small": net(2)(3), "large": net(9)(3)}, (X, Y % 3), proxy="naswot", batch_size=96)
    assert [row.group for row in ranking] == [None, None]
    assert any("All draws give the same scores" in sentence for sentence in ranking.sentences)


def test_one_network_of_noise_of_a_shape() -> None:
    """`score` takes what `rank` takes, and the same names for noise."""
    asked: Any = {"input_shape": (3, 8, 8), "classes": 3, "batch_size": 8}
    made = ez.score(net(4), "snip", **asked)["snip"]
    assert made.ok and made != ez.score(net(4), "snip", seed=1, **asked)["snip"]
    assert ez.search([net(2), net(5)], "params", **asked).winner.score.value > 0
    for data in (X, (X, Y)):
        with pytest.raises(UserError, match="An input shape is for noise"):
            ez.score(net(4), "snip", data=data, input_shape=(3, 8, 8))
