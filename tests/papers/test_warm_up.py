"""Warm-up: training alone, in lockstep, by a loop written out; the store, the command for bare machines, the table."""

from __future__ import annotations

import csv
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

import epochzero as ez
from epochzero import data
from epochzero.bare import command
from epochzero.engine import PlanNetwork
from epochzero.errors import DataError, MachineError, UserError
from epochzero.registry import spaces
from epochzero.store import Store
from epochzero.types import Origin
from epochzero_papers.__main__ import main
from epochzero_papers.harness.population import SGD, train_network, train_population
from epochzero_papers.sigeo import warm_up
from epochzero_papers.sigeo.table3 import SigeoTable3, Warmth
from epochzero_papers.sigeo.warm_up import PARTS, WARM, ZERO_SHOT, ZICO, Shallow, WarmUp
from tests.data.data_files import labelled, save
from tests.fresh import Fresh
from tests.papers.small import SMALL_IMAGES, small_images

ARCHS = (
    "|nor_conv_3x3~0|+|skip_connect~0|none~1|+|none~0|skip_connect~1|skip_connect~2|",
    "|nor_conv_1x1~0|+|none~0|skip_connect~1|+|skip_connect~0|none~1|none~2|",
    "|skip_connect~0|+|none~0|none~1|+|none~0|nor_conv_1x1~1|none~2|",
)
STEADY = ARCHS[0]
"""the third, on so little data, turns a change of 1e-7 in its weights into one of .04 in its loss within four steps"""
STOPS = (0, 2, 6)
DEAD = (
    "|nor_conv_3x3~0|+|none~0|none~1|+|skip_connect~0|none~1|nor_conv_1x1~2|",
    "|nor_conv_3x3~0|+|nor_conv_1x1~0|none~1|+|none~0|none~1|none~2|",
    "|skip_connect~0|+|nor_conv_1x1~0|skip_connect~1|+|nor_conv_3x3~0|nor_conv_3x3~1|none~2|",
)
"""a convolution that nothing reads, and one of zeros; no way at all; a sum that nothing reads"""
SEVEN = (*ARCHS, *DEAD, "|avg_pool_3x3~0|+|nor_conv_1x1~0|nor_conv_3x3~1|+|none~0|nor_conv_3x3~1|avg_pool_3x3~2|")
pytestmark = pytest.mark.usefixtures("shallow_nb201")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    small_images(folder, "cifar10.npz")
    rng = Random(0)
    with (folder / "nb201.csv").open("w", newline="", encoding="utf-8") as file:
        rows = [[arch, rng.random(), rng.random(), rng.random()] for arch in ARCHS]
        csv.writer(file).writerows([["arch_str", "cifar10_test", "cifar100_test", "imagenet16_test"], *rows])
    return folder


@pytest.fixture
def warm(folder: Path) -> WarmUp:
    return WarmUp.on(spaces["nb201"], folder / "cifar10.npz", 8, 0, "cpu")


def slow(images: Path, arch: str, stop: int) -> dict[str, float]:
    """Five batches of 8 in turn; SGD with Nesterov momentum written out; then the next four batches."""
    space = spaces["nb201"]
    stream = data.load(images, size=8, parts=5)
    module = space.plan(space.parse(arch), 3, (3, 8, 8)).module(Origin(seed=0)).train()
    velocity: dict[str, Any] = {}
    for step in range(stop):
        x, y = labelled(stream, step % 5)
        module.zero_grad()
        cross_entropy(module(x), y).backward()  # type: ignore[no-untyped-call]
        with torch.no_grad():
            for name, weight in module.named_parameters():
                if weight.grad is None:
                    continue
                g = weight.grad + 5e-4 * weight
                velocity[name] = g.clone() if name not in velocity else 0.9 * velocity[name] + g
                weight.sub_(0.025 * (g + 0.9 * velocity[name]))
    parts = [labelled(stream, (stop + i) % 5) for i in range(4)]
    x, y = (torch.cat(both) for both in zip(*parts, strict=True))
    batch = data.from_tensors(x, y, size=8, parts=4)
    wanted = [ZICO, WARM if stop else ZERO_SHOT]
    return {name: score.value for name, score in ez.score(module, wanted, data=batch).items()}


@pytest.mark.parametrize(("population", "stops"), [([STEADY], STOPS), ([ARCHS[2], STEADY, ARCHS[1]], (0, 1, 3))])
def test_scores_are_those_of_a_loop_written_out(
    warm: WarmUp, folder: Path, population: list[str], stops: tuple[int, ...]
) -> None:
    """Few steps in lockstep: at the fourth a value comes so near to zero that rounding decides what a ReLU does."""
    assert warm.stream.parts == 5
    found = dict(warm.scores([warm.network(warm.space.parse(arch)) for arch in population], stops))
    assert list(found) == list(stops)
    steady = {stop: warmed[population.index(STEADY)] for stop, warmed in found.items()}
    for stop, (scores, seconds) in steady.items():
        expected = slow(folder / "cifar10.npz", STEADY, stop)
        assert {name: score.value for name, score in scores.items()} == pytest.approx(expected, rel=1e-3), stop
        assert seconds > 0
    zico = [scores[ZICO].value for scores, _ in steady.values()]
    assert len(set(zico)) == 3, "training changes the score"


def test_terms_are_stored_apart(warm: WarmUp) -> None:
    apart = replace(warm, apart=True)
    ((_, (found,)),) = apart.scores([apart.network(apart.space.parse(STEADY))], (2,))
    scores = {name: score.value for name, score in found.scores.items()}
    log_fr, last, mean = (scores[name] for name in PARTS)
    assert scores[WARM] == pytest.approx(scores[ZICO] + 50 * log_fr + last, rel=1e-5)
    assert mean < 0 and mean != last


def test_the_shallow_space_has_one_cell_a_stage() -> None:
    """As nb201 with one cell in each stage, which these tests have."""
    cell = spaces["nb201"].parse(STEADY)
    plans = [space.plan(cell, 3, (3, 8, 8)) for space in (Shallow(), spaces["nb201"])]
    assert plans[0].weights.keys() == plans[1].weights.keys() and plans[0].flops == plans[1].flops


@pytest.mark.parametrize("rate", ["0", "-1", "nan"])
def test_a_rate_is_positive(folder: Path, tmp_path: Path, rate: str) -> None:
    with pytest.raises(UserError, match="--rate"):
        warm_up.run(
            warm_up.Asked(
                table=folder / "nb201.csv", data=str(folder / "cifar10.npz"), store=tmp_path / "w.db", rate=float(rate)
            )
        )


def fresh(arch: str) -> PlanNetwork:
    space = spaces["nb201"]
    return PlanNetwork(space.plan(space.parse(arch), 3, (3, 8, 8)), Origin(seed=0))


@pytest.fixture(scope="module")
def batches() -> list[tuple[Tensor, Tensor | None]]:
    """In double precision, so that what differs by more than rounding shows."""
    rng = torch.Generator().manual_seed(0)
    draw = (torch.randn(8, 3, 8, 8, generator=rng, dtype=torch.float64) for _ in range(3))
    return [(x, torch.randint(0, 3, (8,), generator=rng)) for x in draw]


Weights = dict[int, dict[str, Tensor]]
"""of one network, by number of steps"""


@pytest.fixture(scope="module")
def alone(batches: list[Any]) -> dict[str, Weights]:
    modules = {arch: fresh(arch).plan.module(Origin(seed=0)).double() for arch in SEVEN}
    return {arch: dict(train_network(module, batches, (0, 1, 5), SGD())) for arch, module in modules.items()}


@pytest.mark.parametrize("size", [1, 3, 7])
def test_in_lockstep_each_is_trained_as_if_alone(batches: list[Any], alone: dict[str, Weights], size: int) -> None:
    """Also what is dead, and the statistics that batch norms remember."""
    archs = Random(size).sample(SEVEN, size)
    found = dict(train_population([fresh(arch) for arch in archs], batches, (5, 0, 1), SGD()))
    assert list(found) == [0, 1, 5]
    for stop, weights in found.items():
        for arch, own in zip(archs, weights, strict=True):
            torch.testing.assert_close(own, alone[arch][stop], rtol=0, atol=1e-8)
            assert list(own) == list(alone[arch][stop])


@pytest.mark.parametrize("arch", DEAD)
def test_dead_weights_do_not_decay(batches: list[Any], arch: str) -> None:
    """In a population with a network in which they are alive."""
    ways = "|nor_conv_3x3~0|+|nor_conv_1x1~0|nor_conv_3x3~1|+|nor_conv_3x3~0|nor_conv_3x3~1|nor_conv_1x1~2|"
    network = fresh(arch)
    module = network.plan.module(Origin(seed=0)).double()
    cross_entropy(module(batches[0][0]), batches[0][1]).backward()  # type: ignore[no-untyped-call]
    dead = {name for name, weight in module.named_parameters() if weight.grad is None}
    (_, (before, _)), (_, (after, _)) = train_population([network, fresh(ways)], batches, (0, 2), SGD())
    still = {name for name in dict(module.named_parameters()) if torch.equal(before[name], after[name])}
    zero = {name for name, weight in before.items() if not weight.any()}  # they stay so where their gradient is zero
    assert still - zero == dead - zero != set()


def test_a_network_that_runs_away_takes_no_other_along(
    batches: list[Any], alone: dict[str, Weights], warm: WarmUp
) -> None:
    lost = fresh(SEVEN[3])
    lost = PlanNetwork(lost.plan, {name: torch.full_like(w, torch.nan) for name, w in lost.weights.items()})
    ((_, weights),) = train_population([fresh(STEADY), lost, fresh(SEVEN[6])], batches, (5,), SGD())
    torch.testing.assert_close(weights[0], alone[STEADY][5], rtol=0, atol=1e-8)
    torch.testing.assert_close(weights[2], alone[SEVEN[6]][5], rtol=0, atol=1e-8)
    steady = warm.network(warm.space.parse(STEADY))
    wild = replace(warm, optimiser=SGD(rate=1e30))
    scores = dict(wild.scores([steady, warm.network(warm.space.parse(SEVEN[4]))], (0, 4)))
    assert [scores[0][i].scores[ZICO].ok for i in (0, 1)] == [True, False]
    assert "holds" in scores[4][0].scores[ZICO].why


def test_where_memory_runs_out_half_as_many_go_on(
    warm: WarmUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []

    def short(networks: list[PlanNetwork], *rest: Any) -> Any:
        sizes.append(len(networks))
        if len(networks) > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return train_population(networks, *rest)

    archs = [warm.space.parse(arch) for arch in SEVEN]
    monkeypatch.setattr(warm_up, "train_population", short)
    shares: list[float] = []
    with Store.open(tmp_path / "warm.db") as store:
        run = store.begin_run("warm-up", {}, {})
        done = list(replace(warm, population=7).fill(archs, (0, 1), store, run, shares.append))
        one_by_one = list(warm.evaluate(archs, (0, 1), store, run))
    assert sizes == [7, 3, 3]  # and one alone
    assert done == [0, 3, 6, 7]
    assert shares == pytest.approx([12 / 63, 27 / 63, 39 / 63, 54 / 63, 58 / 63, 1])  # 4 batches, then 1 and 4
    assert [list(scores) for scores in one_by_one] == [[0, 1]] * 7


def test_out_of_memory_on_one_network_is_said(warm: WarmUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*given: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(warm_up, "train_network", full)
    with Store.open(tmp_path / "warm.db") as store, pytest.raises(MachineError, match="batch size 8: use a smaller"):
        list(warm.evaluate([warm.space.parse(STEADY)], (0, 1), store, store.begin_run("warm-up", {}, {})))


def test_the_origin_says_how_the_weights_came_about(warm: WarmUp) -> None:
    assert warm.setting(0).origin == "default:0"
    origin = warm.setting(78).origin
    assert origin == f"default:0, 78 steps of sgd(rate=0.025,momentum=0.9,decay=0.0005,nesterov) on {warm.stream.id}"
    other = WarmUp(warm.space, warm.stream, optimiser=SGD(rate=0.1))
    assert len({str(warm.setting(78)), str(other.setting(78)), str(warm.setting(79))}) == 3


@pytest.mark.parametrize(
    ("population", "expected"),
    [(None, [(1, (3,)), (1, (3,)), (1, (0, 2, 3))]), (8, [(2, (3,)), (1, (0, 2, 3))])],
)
def test_what_is_stored_is_not_trained_again(
    warm: WarmUp, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, population: int | None, expected: list[Any]
) -> None:
    """Networks that lack the same scores are trained in one population."""
    archs = [warm.space.parse(arch) for arch in ARCHS]
    with Store.open(tmp_path / "warm.db") as store:
        run = store.begin_run("warm-up", {}, {})
        first = list(warm.evaluate(archs[:2], (0, 2), store, run))
        asked: list[tuple[int, tuple[int, ...]]] = []
        scores = WarmUp.scores

        def counting(self: WarmUp, networks: list[Any], stops: tuple[int, ...]) -> Any:
            asked.append((len(networks), stops))
            return scores(self, networks, stops)

        monkeypatch.setattr(WarmUp, "scores", counting)
        warm = replace(warm, population=population)
        again = list(warm.evaluate(archs, (3, 0, 2), store, store.begin_run("warm-up", {"more": 1}, {})))
    assert [{stop: one[stop] for stop in (0, 2)} for one in again[:2]] == first
    assert asked == expected


def test_steps_are_those_of_the_papers_epoch() -> None:
    assert [Warmth(networks=3).steps(percent) for percent in (0, 10, 20, 40)] == [0, 78, 156, 312]


def test_the_table_sets_each_level_beside_the_paper(folder: Path, tmp_path: Path) -> None:
    settings = Warmth(networks=3, batch_size=8, images=80, spaces=("nb201",))  # 1, 2 and 4 steps
    result = SigeoTable3().run(settings, folder=folder, store=tmp_path / "run.db")
    rows = {(row.x, row.y, row.statistic): row for row in result.rows}
    assert rows["sigeo, 10 %", "NB201-C10", "spearman"].paper == 0.83
    assert rows["zico, 40 %", "NB201-IN16", "kendall"].paper == 0.59
    (sample,) = result.samples.values()
    place = sample.archs.index(STEADY)
    for stop, percent in ((0, 0), (4, 40)):
        expected = slow(folder / "cifar10.npz", STEADY, stop)
        assert sample.values[f"zico, {percent} %"][place] == pytest.approx(expected[ZICO], rel=1e-3)
        sigeo = expected[WARM if stop else ZERO_SHOT]
        assert sample.values[f"sigeo, {percent} %"][place] == pytest.approx(sigeo, rel=1e-3)
    assert "Trained on 5 batches in turn by sgd(rate=0.025" in next(iter(sample.data.values()))
    assert result.left_out == ["NB101, NB301: left out of this small form."]


def test_a_bare_machine_fills_the_store_that_the_table_reads(folder: Path, tmp_path: Path, fresh: Fresh) -> None:
    """One share with torch and numpy alone, the other here."""
    program = "from epochzero_papers.__main__ import main; main()"
    store = tmp_path / "warm.db"
    given = [
        "--table", str(folder / "nb201.csv"), "--data", str(folder / "cifar10.npz"), "--store", str(store),
        "--networks", "3", "--steps", "0,1,2,4", "--batch-size", "8", "--device", "cpu",
    ]  # fmt: skip
    done = fresh.bare(program, "warm-up", *given, "--share", "2/2")
    assert done.code == 0, done.err
    assert "1/1 networks, " in done.err
    main(["warm-up", *given, "--share", "1/2", "--population", "2"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(warm_up, "train_network", None)  # nothing is trained any more
        patch.setattr(warm_up, "train_population", None)
        settings = Warmth(networks=3, batch_size=8, images=80, spaces=("nb201",))
        result = SigeoTable3().run(settings, folder=folder, store=store)
    assert all(row.found is not None or row.why for row in result.rows)


def test_a_time_limit_stops_after_the_population_in_hand(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [
        "--table", str(folder / "nb201.csv"), "--data", str(folder / "cifar10.npz"), "--store", str(tmp_path / "t.db"),
        "--networks", "3", "--steps", "0,1", "--batch-size", "8", "--device", "cpu", "--population", "2",
        "--time-limit", "1e-6",
    ]  # fmt: skip
    main(["warm-up", *given])
    said = capsys.readouterr().err
    assert "0/3 networks" in said and "2/3 networks" in said and "3/3" not in said
    assert said.endswith("The time is up. The same command goes on from here.\n")
    with Store.open(tmp_path / "t.db") as store:
        (run,) = store.runs()
        assert run.state == "unfinished"
    main(["warm-up", *given])
    said = capsys.readouterr().err
    assert "0/3" not in said and "2/3 networks" in said and "3/3 networks" in said and "time" not in said
    with Store.open(tmp_path / "t.db") as store:
        (run,) = store.runs()
        assert run.state == "finished"


@pytest.mark.parametrize(
    "wrong",
    [
        ["--share=3/2"],
        ["--share=x"],
        ["--steps=1,a"],
        ["--steps=-1"],
        ["--population=0"],
        ["--time-limit=0"],
        ["--time-limit=nan"],
        ["--device=nowhere"],
    ],
)
def test_a_bare_command_that_cannot_be_read(
    wrong: list[str], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ["--table", str(folder / "nb201.csv"), "--data", str(folder / "cifar10.npz")]
    with pytest.raises(SystemExit) as stop:
        command(partial(main, ["warm-up", *given, "--store", str(tmp_path / "warm.db"), "--device", "cpu", *wrong]))
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(("error: --s", "error: --population is 0", "error: --time-limit is", "error: The device"))


def test_noise_and_images_without_labels_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'pink' is noise"):
        WarmUp.on(spaces["nb201"], "pink", 8, 0, "cpu")
    with pytest.raises(DataError, match="has no labels, and training needs them"):
        WarmUp.on(spaces["nb201"], save(tmp_path / "plain.npz", x=SMALL_IMAGES), 8, 0, "cpu")
