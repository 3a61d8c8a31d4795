"""The committed scores of all NAS-Bench-201 networks: whole, and what scoring gives."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from epochzero import data
from epochzero.engine import PlanNetwork, parse, score_network
from epochzero.registry import spaces
from epochzero.tables import AccuracyTable

FOLDER = Path(__file__).parents[2] / "docs" / "data"


@pytest.fixture(scope="module")
def table() -> AccuracyTable:
    return AccuracyTable.read(FOLDER / "nb201_all_cifar10.parquet")


def test_it_holds_every_network_and_says_how_it_was_made(table: AccuracyTable) -> None:
    space = spaces["nb201"]
    facts = json.loads((FOLDER / "nb201_all_cifar10.json").read_text(encoding="utf-8"))
    assert set(table.archs) == {space.text(arch) for arch in space} and len(table) == facts["rows"] == 15_625
    shared = dict(zip(table.archs, table.cells("scored_as"), strict=True))
    assert len(set(shared.values())) == facts["scored"] == 6_466
    for arch in table.archs[::500]:
        assert space.key(space.parse(arch)) == space.key(space.parse(str(shared[arch])))
    assert set(facts["proxies"]) == set(table.columns) - {"scored_as", "reasons"}


def test_scores_and_counts_are_those_of_the_networks(table: AccuracyTable) -> None:
    """Those that need no data, so that the table can be checked anywhere."""
    space, batch = spaces["nb201"], data.load("pink")
    for arch in table.archs[7::4_000]:
        row = table.archs.index(arch)
        plan = space.plan(space.parse(arch))
        assert table.column("params")[row] == plan.params and table.column("flops")[row] == plan.flops
        scored_as = space.plan(space.parse(str(table.cells("scored_as")[row])))
        found = score_network(PlanNetwork(scored_as), [parse("synflow"), parse("l2_norm")], batch, 0).scores
        for name, score in found.items():
            stored = table.cells(name)[row]
            assert (stored is None) != score.ok
            assert stored is None or stored == pytest.approx(score.value, rel=1e-5)
