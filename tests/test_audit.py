"""Findings of an audit, so that they stay fixed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import epochzero as ez
from epochzero.data import pink
from epochzero.engine import parse
from epochzero.store import Store
from epochzero.study.task import Task
from tests.command import epochzero

pytestmark = pytest.mark.usefixtures("shallow_nb201")


class LeNet(nn.Module):
    """Flattens with `view`, which refuses channels-last maps."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Conv2d(3, 6, 5), nn.Linear(6 * 14 * 14, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(torch.relu(self.one(x)), 2)
        out: Tensor = self.two(x.view(x.size(0), -1))
        return out


def test_a_module_that_views_its_maps_is_scored_at_any_batch_size() -> None:
    for size in (4, 16):
        for name, score in ez.score(LeNet(), "naswot,snip,fmi", data=pink(size=size)).items():
            assert score.ok, f"{name} at {size}: {score.why}"


def test_the_projections_of_attention_are_layers() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
            self.head = nn.Linear(32, 10)

        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(x.flatten(1, 2))
            out: Tensor = self.head(self.attention(x, x, x)[0].mean(1))
            return out

    net = Net()
    scores = ez.score(net, "snip,l2_norm,naswot,params", data=pink(size=4))
    assert all(score.ok for score in scores.values())
    weights = (net.attention.in_proj_weight, net.attention.out_proj.weight, net.head.weight)
    assert scores["l2_norm"].value == pytest.approx(sum(w.norm().item() for w in weights), rel=1e-5)


def test_only_missing_proxies_are_computed(tmp_path: Path) -> None:
    space, batch = ez.space("nb201"), pink(size=4)
    archs = [space.smallest(), ("nor_conv_1x1",) * 6]
    asked: list[list[str]] = []

    class Counting(Task):
        def score(self, archs):  # type: ignore[no-untyped-def]
            asked.append(sorted(proxy.text for proxy in self.proxies))
            return super().score(archs)

    with Store.open(tmp_path / "s.db") as store:
        run = store.begin_run("test", {}, {})
        first = Counting(space, [parse("params")], batch)
        first.evaluate(archs[:1], store, run, 0)
        both = Counting(space, [parse("params"), parse("l2_norm")], batch)
        both.evaluate(archs, store, run, 0)
    assert asked[0] == ["params"]
    assert sorted(asked[1:]) == [["l2_norm"], ["l2_norm", "params"]]


@pytest.mark.parametrize("method", ["random", "evolution"])
def test_every_network_is_found_in_the_end(method: str) -> None:
    space: Any = ez.space("mlp")
    batch, limit = pink((1, 4, 4), size=2), 700
    everything: list[Any] = list(space)
    fitting = sum(space.plan(arch, 10, batch.input_shape).params <= limit for arch in everything)
    found = ez.search(space, "params", method, 20_000, max_params=limit, data=batch)
    assert found.evaluated == fitting
    assert 10 < fitting < len(everything)


def test_ranks_are_for_sets(tmp_path: Path) -> None:
    found = epochzero(
        "search", "--proxy", "rank(params,l2_norm)", "--budget", "30", "--batch-size", "2", "--json",
        "--store", str(tmp_path / "r.db"),
    )  # fmt: skip
    assert found.code == 0, found.err
    with Store.open(tmp_path / "r.db") as store:
        (search,) = [run for run in store.runs() if run.kind == "search"]
        largest = max(row.value or 0 for row in store.all_scores() if row.proxy == "params")
    assert search.settings["proxy"] == "rank(params,l2_norm)"
    best = ez.space("nb201").parse(found.json["best"]["arch"])
    assert ez.space("nb201").plan(best).params >= 0.5 * largest
    alone = epochzero("score", "--arch", ez.space("nb201").text(best), "--proxy", "rank(params,l2_norm)")
    assert alone.code == 2 and "is not defined for a single one" in alone.err
