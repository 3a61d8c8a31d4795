"""Inputs of any number and kind, outputs of any form, from Python and from the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import epochzero as ez
from epochzero import data
from epochzero.engine.inputs import pass_curve, pass_inputs
from epochzero.engine.modules.module_network import ModuleNetwork
from epochzero.engine.passes import Pass
from epochzero.errors import DataError, UserError
from tests.command import epochzero, refusal
from tests.engine.modules.any_nets import CLASSES, DENSE, ROWS, TABLES, WORDS, Language, Recommender, Wrapped, residual
from tests.engine.modules.module_nets import seeded

ASKED = "params,flops,snip,jacov,synflow,naswot,curvature"


def tables(count: int = 8) -> tuple[Tensor, Tensor]:
    chance = torch.Generator().manual_seed(0)
    return torch.randn(count, DENSE, generator=chance), torch.randint(ROWS, (count, TABLES, 2), generator=chance)


# Several inputs


def test_inputs_by_name_by_place_and_in_pairs() -> None:
    module, (dense, ids), y = seeded(Recommender), tables(), torch.arange(8) % 2
    by_name = ez.score(module, ASKED, data={"ids": ids, "dense": dense}, y=y)
    by_place = ez.score(module, ASKED, data=(dense, ids), y=y)
    in_pair = ez.score(module, ASKED, data=((dense, ids), y))
    assert by_place == in_pair
    for name, score in by_name.items():
        assert score.ok, score.why
        if name != "curvature":  # columns stand in another order on the circle
            assert score.value == pytest.approx(by_place[name].value, rel=1e-5)
    assert "needs labels" in ez.score(module, "snip", data={"dense": dense, "ids": ids})["snip"].why


def test_the_id_of_a_batch_covers_every_tensor_its_kind_and_its_name() -> None:
    dense, ids = tables()
    other = ids.clone()
    other[3, 1, 0] += 1
    batches = [
        data.from_tensors({"dense": dense, "ids": ids}),
        data.from_tensors({"dense": dense, "ids": other}),
        data.from_tensors({"dense": dense + 1e-3, "ids": ids}),
        data.from_tensors({"dense": dense, "idx": ids}),
        data.from_tensors({"dense": dense, "ids": ids.float()}),
        data.from_tensors((dense, ids)),
        data.from_tensors((dense, ids), torch.zeros(8, dtype=torch.long), num_classes=10),
        data.from_tensors((dense, ids), parts=2),
    ]
    assert len({batch.id for batch in batches}) == len(batches)
    assert data.from_tensors({"dense": dense.clone(), "ids": ids.int()}).id == batches[0].id
    assert "ids 3x2 whole" in batches[0].about


def test_a_table_is_taken_apart_as_it_was_put_together() -> None:
    dense, ids = tables()
    mask, wave, byte = ids[:, 0] > 3, torch.complex(dense, 2 * dense), torch.arange(8, dtype=torch.uint8)
    batch = data.from_tensors({"dense": dense, "ids": ids, "mask": mask, "wave": wave, "byte": byte}, parts=2)
    assert batch.layout is not None
    args, found = batch.layout.unpack(batch.part(1)[0])
    assert args == ()
    assert torch.equal(found["dense"], dense[4:]) and torch.equal(found["ids"], ids[4:])
    assert torch.equal(found["mask"], mask[4:]) and torch.equal(found["wave"], wave[4:])
    assert found["mask"].dtype == torch.bool and found["ids"].dtype == torch.int64
    assert torch.equal(found["byte"], byte[4:] / 255)
    assert int(batch.layout.real.sum()) == DENSE + 2 * DENSE + 1


def test_what_is_drawn_or_moved_leaves_ids_alone() -> None:
    dense, ids = tables()
    batch = data.from_tensors((dense, ids))
    assert batch.layout is not None
    like = torch.empty(0)
    for run in (Pass(inputs="noise"), Pass(inputs="noise", only=(0, 12)), Pass(inputs="ones")):
        drawn, kept = batch.layout.unpack(pass_inputs(run, batch, 0, like)[0])[0]
        assert torch.equal(kept, ids[torch.arange(len(kept)) % 8])
        assert (drawn == 1).all() if run.inputs == "ones" else not torch.isin(drawn, dense).any()
    value, velocity, acceleration = pass_curve(Pass(inputs="circle", points=5), batch, 0, like)
    on_circle, kept = batch.layout.unpack(value)[0]
    assert torch.equal(kept, ids[:1].expand(5, -1, -1))
    torch.testing.assert_close(on_circle.norm(dim=1), torch.full((5,), DENSE**0.5))
    assert not velocity[:, DENSE:].any() and not acceleration[:, DENSE:].any()
    torch.testing.assert_close(acceleration[:, :DENSE], -on_circle)


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ({"a": torch.zeros(3, 2), "b": torch.zeros(4, 2)}, r"same number of samples, and have \[3, 4\]"),
        ({}, "has a dict in place of a tensor"),
        ((torch.zeros(3, 2), torch.tensor(1.0), torch.zeros(3)), r"give inputs of shape \[samples, ...\]"),
        (torch.full((2, 2), 2**25), "whole number beyond 16,777,216"),
        (torch.tensor([[1.0, float("nan")]]), "infinite or missing"),
    ],
)
def test_inputs_that_cannot_be_used(inputs: object, says: str) -> None:
    with pytest.raises(DataError, match=says):
        ez.score(nn.Linear(2, 2), "params", data=inputs)


def test_labels_for_data_that_has_its_own() -> None:
    with pytest.raises(UserError, match="this data has its own"):
        ez.score(residual(), "params", data="pink", y=torch.zeros(64))


def test_an_argument_that_the_module_does_not_take() -> None:
    found = ez.score(seeded(Recommender), "jacov,params", data={"dense": tables()[0], "idx": tables()[1]})
    assert found["jacov"].status == "failed" and "unexpected keyword argument 'idx'" in found["jacov"].why
    assert found["params"].ok


# Kinds of numbers


def test_whole_numbers_stay_whole_and_proxies_move_their_embeddings() -> None:
    tokens = torch.randint(WORDS, (8, 5), generator=torch.Generator().manual_seed(0))
    found = ez.score(seeded(Language), ASKED, data=tokens, y=torch.arange(8))
    assert all(found[name].ok for name in ("jacov", "synflow", "curvature", "snip", "params", "flops")), found


def test_whole_numbers_that_a_convolution_cannot_take() -> None:
    found = ez.score(residual(), ASKED, data=torch.randint(9, (8, 3, 8, 8)), y=torch.arange(8))
    assert found["params"].ok
    assert found["snip"].status == "failed" and "raised RuntimeError" in found["snip"].why


def test_whole_numbers_for_a_network_of_a_space() -> None:
    whole = torch.randint(9, (2, 3, 32, 32))
    space = ez.space("nb201")
    for network, given in ((space.smallest(), {"space": "nb201"}), (space.plan(space.smallest()).module(), {})):
        with pytest.raises(UserError, match="one input of real numbers, not 3x32x32 whole: give floats or bytes"):
            ez.score(network, "params", data=whole, **given)  # type: ignore[arg-type]


def test_bytes_are_images_from_0_to_1() -> None:
    images = torch.randint(256, (8, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    y, module = torch.arange(8), seeded(residual)
    assert ez.score(module, ASKED, data=(images, y)) == ez.score(module, ASKED, data=(images / 255, y))


def test_complex_inputs_run_where_the_module_takes_them_and_fail_with_a_reason_where_not() -> None:
    class Spectrum(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.head = nn.Linear(10, CLASSES)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.head(torch.relu(torch.cat([x.real, x.imag], 1)))
            return logits

    waves, y = torch.randn(8, 5, dtype=torch.complex64, generator=torch.Generator().manual_seed(0)), torch.arange(8)
    found = ez.score(seeded(Spectrum), ASKED, data=(waves, y))
    assert {name: score.why for name, score in found.items() if not score.ok} == {}
    head = seeded(Spectrum).get_submodule("head")
    flat = ez.score(nn.Sequential(nn.ReLU(), head), "jacov", data=torch.cat([waves.real, waves.imag], 1))
    assert found["jacov"].value == pytest.approx(flat["jacov"].value, rel=1e-4)
    refused = ez.score(nn.Linear(5, CLASSES), ASKED, data=(waves, y))
    assert refused["params"].ok and refused["snip"].status == "failed" and refused["snip"].why


# Outputs


@pytest.mark.parametrize(("how", "path"), [("dataclass", "logits"), ("nested", "heads.0.logits")])
def test_an_output_inside_others(how: str, path: str) -> None:
    module, batch = seeded(lambda: Wrapped(how)), data.pink((3, 16, 16), CLASSES, size=4)
    assert ez.score(module, ASKED, data=batch, output=path)["snip"].ok
    found = ez.score(module, "jacov", data=batch)["jacov"]
    parts = "loss, logits" if how == "dataclass" else "features, heads"
    if how == "dataclass":
        assert found == ez.score(module, "jacov", data=batch, output=path)["jacov"]
    else:
        assert found.status == "failed" and f"which of its parts ({parts}) is meant with output=" in found.why
    with pytest.raises(UserError, match=f"has no part 'nothing': it has {parts}"):
        ez.score(module, "jacov", data=batch, output="nothing")


def test_a_place_in_a_tuple() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = residual()

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            logits = self.net(x)
            return logits.sum(), logits

    batch = data.pink((3, 16, 16), CLASSES, size=4)
    module = seeded(Two)
    assert ez.score(module, "snip", data=batch, output=1) == ez.score(module, "snip", data=batch, output=lambda o: o[1])


# Command line

SOURCE = """
import torch
from tests.engine.modules.any_nets import DENSE, ROWS, TABLES, Recommender
def inputs(n): return {"dense": torch.randn(n, DENSE), "ids": torch.randint(ROWS, (n, TABLES, 2))}
def unlabelled(): return Recommender(), inputs(9)
def labelled(): return Recommender(), inputs(40), torch.arange(40) % 2
def positional(): return Recommender(), tuple(inputs(9).values())
def wrong(): return Recommender(), 3
"""


def test_a_factory_that_brings_its_inputs(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(SOURCE)
    for name, size in (("labelled", 8), ("unlabelled", 9), ("positional", 9)):
        ran = epochzero("score", "--module", f"{tmp_path / 'nets.py'}:{name}", "--batch-size", size, "--json",
                        "--proxy", "params,jacov,zico(batches=4)")  # fmt: skip
        found = json.loads(ran.out)
        assert found["scores"]["params"]["status"] == found["scores"]["jacov"]["status"] == "ok"
        assert found["batch"].startswith("tensors-") and f"-{size}-" in found["batch"]
        assert found["scores"]["zico(batches=4)"]["status"] == ("ok" if name == "labelled" else "failed")


def test_a_factory_draws_by_the_seed(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(SOURCE)
    command = ["score", "--module", f"{tmp_path / 'nets.py'}:labelled", "--proxy", "snip", "--json"]
    first, again, other = (epochzero(*command, "--seed", seed).json for seed in (0, 0, 1))
    assert first == again
    assert first["batch"] != other["batch"] and first["scores"] != other["scores"]


def test_a_factory_that_brings_something_else(tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text(SOURCE)
    assert "gives a module with int, not with tensors" in refusal("score", "--module", f"{tmp_path / 'nets.py'}:wrong")
    assert "brings its own inputs: leave --data and --input-shape out" in refusal(
        "score", "--module", f"{tmp_path / 'nets.py'}:labelled", "--data", "white"
    )


def test_the_network_of_a_batch_runs_as_the_module_does() -> None:
    module, (dense, ids) = seeded(Recommender), tables()
    batch = data.from_tensors({"ids": ids, "dense": dense})
    network = ModuleNetwork(module, batch)
    assert torch.equal(network.forward(batch.part(0)[0], network.weights, "train"), module(dense, ids))
