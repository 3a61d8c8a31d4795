"""`recommend score` and `rank`: networks on one's own clicks, against scores of their modules."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from epochzero import recommend
from epochzero.errors import DataError, UserError
from epochzero.recommend.data.synthetic import Planted, synthetic
from epochzero.recommend.data.table import open_table
from epochzero.recommend.supernet.weights import NASRECS
from epochzero.registry import spaces
from epochzero.types import Origin
from epochzero_papers.sigeo.click_text import write_text
from tests.command import epochzero, refusal

LAW = Planted(sizes=(20, 20, 10, 10, 6), num_dense=3, pairs=((0, 3),), gates=())
BLOCKS = [f"linear-2d:16@{n}/linear-3d:16@{n}/0,0/plain" for n in range(7)]
PLAIN = "|".join(BLOCKS)
WIDE = PLAIN.replace("linear-2d:16@6", "linear-2d:64@6")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return synthetic(tmp_path_factory.mktemp("clicks") / "table", 400, LAW).folder


def test_a_score_is_that_of_the_network_with_its_own_weights(table: Path) -> None:
    """The norms of gradients, by autograd on the module with the same weights and rows: those of the first batch."""
    opened, space = open_table(table), spaces["nasrec_small"]
    fitted = space.on(opened.num_dense, opened.rows)
    found = recommend.score(table, PLAIN, proxies="grad_norm,params", seed=2)
    size = 320 // 4
    start = Random(2).randrange(320 // size - 4 + 1)
    (batch,) = islice(opened.batches("train", size=size, start=start), 1)
    module = fitted.plan(fitted.parse(PLAIN)).module(Origin(NASRECS.scheme, 2))
    loss = F.binary_cross_entropy_with_logits(module(batch.dense, batch.ids)[:, 0], batch.label)
    torch.autograd.backward(loss)
    weights = [(name, p) for name, p in module.named_parameters() if p.dim() == 2 and "table" not in name]
    by_hand = sum(float(p.grad.norm()) for _, p in weights if p.grad is not None)
    assert found["params"].value == fitted.plan(fitted.parse(PLAIN)).params
    assert found["grad_norm"].value == pytest.approx(by_hand, rel=1e-4)


def test_a_ranking_has_the_mean_of_scores(table: Path) -> None:
    ranking = recommend.rank(table, [PLAIN, WIDE], random=2, proxy="zico", seeds=2)
    assert len(ranking) == 4 and {PLAIN, WIDE} <= {row.name for row in ranking}
    for row in ranking:
        values = [
            recommend.score(table, row.name, proxies="zico", seed=seed)["zico(batches=4)"].value for seed in (0, 1)
        ]
        assert row.value == pytest.approx(np.mean(values), rel=1e-6)
    values = [row.value for row in ranking]
    assert values == sorted(values, reverse=True)
    assert [row.name for row in recommend.rank(table, [WIDE, PLAIN], proxy="params", seeds=1)] == [WIDE, PLAIN]


def test_on_the_command_line(tmp_path: Path) -> None:
    write_text(tmp_path / "t.tsv", 400, LAW)
    (tmp_path / "s.json").write_text(json.dumps(LAW.schema.json()))
    data = [f"--data={tmp_path}/t.tsv", f"--schema={tmp_path}/s.json", "--option=max_embedding_rows=30"]
    told = epochzero("recommend", "score", *data, "--arch", PLAIN, "--proxy=sigeo,params", "--json").json
    assert told["scores"]["params"]["value"] > 0 and len(told["scores"]) == 2
    assert "params" in epochzero("recommend", "score", *data, "--arch", PLAIN, "--proxy=params").out
    ranked = epochzero("recommend", "rank", PLAIN, WIDE, *data, "--proxy=params", "--seeds=1", "--json").json
    assert [row["name"] for row in ranked["networks"]] == [WIDE, PLAIN]
    assert WIDE in epochzero("recommend", "rank", WIDE, *data, "--random=1", "--proxy=params", "--seeds=1").out
    assert "at least one network" in refusal("recommend", "rank", *data)
    assert "one_shot needs the supernet" in refusal("recommend", "rank", PLAIN, *data, "--proxy=one_shot")
    assert not list(Path("/tmp").glob("epochzero-clicks-*/table"))


def test_what_cannot_be_scored_is_refused(table: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="at least one seed"):
        recommend.rank(table, [PLAIN], seeds=0)
    few = synthetic(tmp_path / "few", 10, Planted(sizes=(4,), num_dense=1, pairs=(), gates=()))
    assert recommend.score(few.folder, PLAIN, proxies="params")["params"].ok
    with pytest.raises((DataError, UserError)):
        recommend.score(table, "no architecture")
