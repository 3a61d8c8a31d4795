"""The content of a report: counts and correlations computed independently, every kind of run, and bad input."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from random import Random

import numpy as np
import pytest
from scipy.stats import spearmanr

from epochzero.errors import StoreError, UserError
from epochzero.registry import spaces
from epochzero.report import Subject, write
from epochzero.report.agreement import FEW
from epochzero.report.page import page
from epochzero.report.reading import reading
from epochzero.report.server import server
from epochzero.store import Evaluated, Store
from epochzero.types import Score, Setting
from tests.command import epochzero, refusal
from tests.report.stores import EVIL, HERE, SPACE, begin, known, networks, opened, record

pytestmark = pytest.mark.usefixtures("shallow_nb201")

ARCHS = networks(30)
LATENCIES = {"latency": [1.5, 2.5], "latency_low": [1.0, 2.0], "latency_high": [1.75, 2.5]}
RNG = np.random.default_rng(0)
DEXTR = RNG.normal(size=30).tolist()
NASWOT = (np.array(DEXTR) + RNG.normal(size=30)).tolist()
ACCURACY = (90 + np.array(NASWOT) + 0.3 * RNG.normal(size=30)).tolist()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.db"


def test_a_search(path: Path) -> None:
    with Store.open(path) as store:
        run = begin(store)
        record(run, ARCHS, {"dextr": DEXTR})
        record(run, ARCHS[:5], {"dextr": DEXTR[:5]}, first=30)  # evaluated again
        winner = ARCHS[int(np.argmax(DEXTR))]
        run.finish({"best": winner, "value": max(DEXTR), "clock": {"scoring": 2.0, "overhead": 1.0}})
        beside = begin(store, "winner", search=run.id)
        record(beside, [winner], {"zico#2": [7.0]})
        timing = Setting("nb201", "torch on a CPU", "measured")
        record(begin(store, "latency"), ARCHS[:2], LATENCIES, timing)
    found = opened(path)
    head = found.head
    assert (head["kind"], head["state"], head["networks"], head["evaluated"]) == ("search", "finished", 30, 35)
    assert head["archs"] == ARCHS
    assert found.columns["dextr"].tolist() == DEXTR
    assert found.columns["step"].tolist() == list(range(30))
    assert head["best"] == np.argsort(DEXTR)[::-1][:5].tolist()
    plans = [SPACE.plan(SPACE.parse(arch), 10, (3, 32, 32)) for arch in ARCHS]
    assert found.columns["params"].tolist() == [plan.params for plan in plans]
    assert found.columns["flops"].tolist() == [plan.flops for plan in plans]
    assert found.columns["latency"][:2].tolist() == [1.5, 2.5] and np.isnan(found.columns["latency"][2:]).all()
    assert found.names("cost") == ["latency", "params", "flops"]
    (latency,) = (column for column in head["columns"] if column["name"] == "latency")
    assert [end[:3] for end in latency["ends"]] == [[1.0, 2.0, None], [1.75, 2.5, None]]
    assert head["time"] == {
        "scoring": {"dextr": 17.5, "latency": 3.0},
        "clock": {"scoring": 2.0, "overhead": 1.0},
        "around": {},
    }
    assert head["winner_scores"] == [{"name": "zico", "arch": winner, "value": 7.0, "why": ""}]
    layers = head["layers"]
    best = plans[head["best"][0]]
    assert sum(layer["params"] for layer in layers) == best.params
    assert sum(layer["macs"] for layer in layers) == best.flops
    assert [one["network"] for one in head["drawings"]] == head["best"]
    assert all("<svg" in one["svg"] and "<style" not in one["svg"] for one in head["drawings"])
    assert head["truths"] == [] and head["front"] == []


def test_runs_that_really_ran(path: Path, tmp_path: Path) -> None:
    """A search and a benchmark, both by their commands, in one store."""
    small = ("--input-shape", "3,8,8", "--batch-size", "2", "--store", path, "--json")
    epochzero("search", "--proxy", "l2_norm", "--budget", "12", "--winner-scores", "none", *small)
    head = opened(path).head
    clock = head["time"]["clock"]
    assert (head["kind"], head["evaluated"]) == ("search", 12)
    assert clock["scoring"] > 0 and sum(clock.values()) < 600 and clock["scoring"] <= sum(clock.values())
    table = known(tmp_path, ARCHS[:12], ACCURACY[:12])
    epochzero("bench", "--table", table, "--target", "cifar10_test", "--proxy", "params,l2_norm", *small)
    head = opened(path, table=table, targets=["cifar10_test"]).head
    assert (head["kind"], head["networks"]) == ("bench", 12)
    truths = {row["score"]: row for row in head["truths"]}
    for figure in head["figures"]:
        row = truths[figure["name"].removesuffix(" cifar10_test")]
        assert (figure["statistic"], figure["n"], figure["paper"]) == ("spearman", row["n"], None)
        assert figure["value"] == pytest.approx(row["value"]) and figure["low"] < figure["value"] < figure["high"]
    assert len(head["figures"]) == 2
    assert any("--table" in note for note in opened(path).head["notes"])


def test_scores_against_a_table(path: Path, tmp_path: Path) -> None:
    with Store.open(path) as store:
        record(begin(store), ARCHS, {"dextr": DEXTR, "naswot": NASWOT, "ntk_cond": DEXTR})
    found = opened(path, table=known(tmp_path, ARCHS[:25], ACCURACY[:25]), targets=["cifar10_test"])
    rows = {row["score"]: row for row in found.head["truths"]}
    expected = spearmanr(NASWOT[:25], ACCURACY[:25]).statistic
    assert rows["naswot"]["value"] == pytest.approx(expected) and rows["naswot"]["n"] == 25
    assert rows["naswot"]["low"] < expected < rows["naswot"]["high"]
    assert rows["ntk_cond"]["value"] == pytest.approx(-rows["dextr"]["value"])  # of which less is better
    assert any("5 of the 30" in note for note in found.head["notes"])
    names, values = found.head["agreement"]["names"], np.array(found.head["agreement"]["values"], float)
    assert np.allclose(values, values.T) and np.allclose(np.diag(values), 1)
    both = values[names.index("dextr"), names.index("naswot")]
    assert both == pytest.approx(spearmanr(DEXTR, NASWOT).statistic)


@pytest.mark.parametrize(("networks", "shown"), [(FEW - 1, False), (FEW, True)])
def test_agreement_of_few_networks_is_left_out(path: Path, networks: int, shown: bool) -> None:
    with Store.open(path) as store:
        record(begin(store), ARCHS[:networks], {"dextr": DEXTR[:networks], "naswot": NASWOT[:networks]})
    assert (opened(path).head["agreement"] is not None) == shown


def test_a_combination_is_a_column_of_its_own(path: Path) -> None:
    with Store.open(path) as store:
        run = begin(store, proxy="rank(dextr,naswot)")
        record(run, ARCHS, {"dextr": ["gone", *DEXTR[1:]], "naswot": NASWOT})
    found = opened(path)
    ranks = [np.argsort(np.argsort(column[1:])) + 1 for column in (DEXTR, NASWOT)]
    merits = sum(np.log(rank / 29) for rank in ranks)
    column = found.columns["rank(dextr,naswot)"]
    assert np.isnan(column[0]) and np.allclose(column[1:], merits)
    assert found.head["best"][0] == 1 + int(np.argmax(merits))
    assert found.head["whys"][found.head["why"][0]] == "dextr failed: gone"


def test_sizes_that_a_search_goes_by_are_as_the_proxy_declares_them(path: Path) -> None:
    sizes = [1000.0 * value for value in NASWOT]
    with Store.open(path) as store:
        record(begin(store, proxy="params"), ARCHS, {"params": sizes})
    assert opened(path).head["best"][0] == int(np.argmax(sizes))


def test_sizes_count_in_a_combination_as_the_proxy_declares_them(path: Path) -> None:
    with Store.open(path) as store:
        record(begin(store, proxy="rank(dextr,params)"), ARCHS, {"dextr": DEXTR, "params": NASWOT})
    found = opened(path)
    merits = sum(np.log((np.argsort(np.argsort(column)) + 1) / 30) for column in (DEXTR, NASWOT))
    assert np.allclose(found.columns["rank(dextr,params)"], merits)
    assert found.head["best"][0] == int(np.argmax(merits))


def test_several_goals_give_a_front(path: Path) -> None:
    with Store.open(path) as store:
        record(begin(store, proxy="dextr,-flops"), ARCHS, {"dextr": DEXTR, "flops": NASWOT})
    found = opened(path)
    beaten = [
        any(
            DEXTR[j] >= DEXTR[i] and NASWOT[j] <= NASWOT[i] and (DEXTR[j], NASWOT[j]) != (DEXTR[i], NASWOT[i])
            for j in range(30)
        )
        for i in range(30)
    ]
    assert found.head["front"] == [i for i in range(30) if not beaten[i]]
    assert set(found.head["best"][:2]) <= set(found.head["front"])
    assert found.head["curves"] == ["dextr", "flops"]


def test_a_benchmark_with_repeats(path: Path, tmp_path: Path) -> None:
    again = Setting("nb201", "pink-3x32x32", "default:1")
    with Store.open(path) as store:
        run = begin(store, "bench")
        record(run, ARCHS, {"naswot": NASWOT})
        record(run, ARCHS, {"naswot": DEXTR}, again)
        run.finish({"naswot cifar10_test": 0.5})
    found = opened(path, table=known(tmp_path, ARCHS, ACCURACY))
    assert found.head["title"] == "Benchmark of scores on nb201"
    assert found.columns["naswot"].tolist() == NASWOT  # the first repeat is shown
    (row,) = [row for row in found.head["truths"] if row["score"] == "naswot"]
    each = [spearmanr(scores, ACCURACY).statistic for scores in (NASWOT, DEXTR)]
    assert row["value"] == pytest.approx(np.mean(each)) and row["repeats"] == 2
    assert found.head["result"] == {"naswot cifar10_test": 0.5} and not found.head["searched"]
    (figure,) = found.head["figures"]  # of a store that keeps the value alone
    assert (figure["name"], figure["value"], figure["low"]) == ("naswot cifar10_test", 0.5, None)


def test_other_data_and_other_weights_are_columns_of_their_own(path: Path, tmp_path: Path) -> None:
    """Repeats are not: they draw the same kind of data and weights anew."""
    settings = [
        Setting("nb201", f"{data}-{10**11 + seed}", f"{scheme}:{seed}")
        for data, scheme, seed in [
            ("cifar10", "default", 0),
            ("cifar10", "default", 1),
            ("cifar100", "default", 0),
            ("cifar100", "kaiming", 0),
        ]
    ]
    with Store.open(path) as store:
        run = begin(store, "experiment")
        for times, setting in enumerate(settings, start=1):
            record(run, ARCHS, {"ntk_cond": [times * value for value in DEXTR]}, setting)
    found = opened(path)
    assert found.names("score") == [
        "ntk_cond@cifar10/default",
        "ntk_cond@cifar100/default",
        "ntk_cond@cifar100/kaiming",
    ]
    columns = {column["name"]: column for column in found.head["columns"]}
    assert [columns[name]["repeats"] for name in found.names("score")] == [2, 1, 1]
    assert not any(columns[name]["higher"] for name in found.names("score"))
    assert found.columns["ntk_cond@cifar100/kaiming"].tolist() == [4 * value for value in DEXTR]
    assert found.head["by"] == "" and found.head["best"] == [], "no search: no network is the best"
    known_too = opened(path, table=known(tmp_path, ARCHS, ACCURACY))  # the space is that of the networks
    assert known_too.head["best"][0] == int(np.argmax(ACCURACY))


def test_what_is_scored_together_has_one_time(path: Path) -> None:
    with Store.open(path) as store:
        run = begin(store, proxy="dextr")
        for step, arch in enumerate(ARCHS[:4]):
            shares = {"dextr": 0.25, "zico": 0.25, "naswot": 0.125 * step}
            run.record(HERE, [Evaluated(step, arch, {name: (Score(1.0), took) for name, took in shares.items()})])
    spent = opened(path).head["time"]["scoring"]
    together = "dextr, zico: scored together"
    assert spent == {
        together: 1.5,
        "naswot": 0.125 + 0.375,
        "dextr, zico, naswot: scored together": 0.75,
    }


def test_a_recommender_and_its_training(path: Path) -> None:
    space = "nasrec_small"
    nasrec = spaces[space]
    archs = [nasrec.text(nasrec.sample(Random(seed))) for seed in range(6)]
    with Store.open(path) as store:
        run = begin(store, space=space, proxy="sigeo(weights=zero_shot)")
        record(run, archs, {"sigeo(weights=zero_shot)": DEXTR[:6]}, Setting(space, "clicks", "given"))
        trained = Setting(space, "from scratch", "looked up")
        record(begin(store, "training"), archs[:3], {"feedback:val_log_loss": [0.5, 0.4, 0.6]}, trained)
    found = opened(path)
    (loss,) = [column for column in found.head["columns"] if column["kind"] == "truth"]
    assert (loss["label"], loss["higher"]) == ("val_log_loss", False)
    assert found.columns["feedback:val_log_loss"][:3].tolist() == [0.5, 0.4, 0.6]
    assert "params" not in found.columns  # it depends on the table of clicks, which older stores do not hold
    assert found.head["time"]["around"] == {"training from scratch": 1.5}
    assert found.head["drawings"][0]["svg"]


def test_runs_of_other_kinds_and_spaces(path: Path) -> None:
    with Store.open(path) as store:
        first = begin(store, "experiment")
        record(first, ["some network"], {"dextr": [1.0]}, Setting("of a plug-in", "b", "o"))
        first.finish({"nb201: dextr Spearman": 0.9, "nothing": None})
        second = begin(store, "ensemble", members=3)
        record(second, ARCHS, {"dextr": DEXTR, "my_own_score": NASWOT})
        second.finish({"members": [ARCHS[7], ARCHS[3], "one that was not evaluated"]})
    latest = opened(path)
    assert latest.head["members"] == [7, 3] and latest.head["best"][:2] == [7, 3]
    assert latest.head["best"] == [7, 3, *[i for i in range(30) if i not in (7, 3)][:3]]  # the rest as it came
    assert latest.head["kind"] == "ensemble" and latest.head["networks"] == 30
    assert "my_own_score" in latest.names("score")
    older = opened(path, run=first.id[:6])
    assert older.head["title"] == "Reproduction of dextr_table1" and older.head["drawings"][0]["svg"] == ""
    assert older.head["layers"] == []
    with pytest.raises(UserError, match=r"No runs of .* begin with 'zz': choose one of"):
        opened(path, run="zz")


def test_only_failures(path: Path) -> None:
    with Store.open(path) as store:
        run = begin(store)
        record(run, ARCHS[:4], {"dextr": ["no labels", "no labels", "broken", "no labels"]})
        run.finish({"best": None, "value": None})
    notes = opened(path).head["notes"]
    assert notes[:3] == [
        "None of the 4 networks has a score.",
        "3 × dextr failed: no labels",
        "1 × dextr failed: broken",
    ]


def test_a_run_that_has_just_begun(path: Path) -> None:
    with Store.open(path) as store:
        begin(store)
    assert opened(path).head["notes"] == ["No network has been evaluated yet."]


def test_more_than_a_million_numbers_are_single(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(path) as store:
        record(begin(store), ARCHS, {"dextr": DEXTR})
    monkeypatch.setattr("epochzero.report.content.EXACT", 10)
    found = opened(path)
    assert found.head["bytes"] == 4
    assert np.allclose(found.columns["dextr"], DEXTR, rtol=1e-6)


def test_counting_stops_in_time_and_says_so(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Store.open(path) as store:
        record(begin(store), ARCHS, {"dextr": DEXTR})
    ticks = iter(range(1000))
    monkeypatch.setattr("epochzero.report.networks.time.monotonic", lambda: float(next(ticks)))
    found = opened(path)
    counted = np.flatnonzero(~np.isnan(found.columns["params"]))
    assert 0 < len(counted) < 30
    assert set(counted) == set(np.argsort(DEXTR)[::-1][: len(counted)])
    assert any(f"the best {len(counted)} networks" in note for note in found.head["notes"])


def test_no_name_becomes_markup(path: Path, tmp_path: Path) -> None:
    with Store.open(path) as store:
        run = begin(store, space=EVIL, proxy=EVIL, method=EVIL)
        record(run, [EVIL, "b"], {EVIL: [1.0, EVIL]}, Setting(EVIL, EVIL, EVIL))
    write(Subject(path), tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "owned" not in text and text.count("<script") == 2
    assert "default-src 'none'" in text and "connect-src 'none'" in text and "unsafe" not in text
    assert "http" not in text.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")


def test_a_hundred_thousand_networks_fit_into_15_megabytes(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the size of each of some of darts, whose texts are long: 5.5 MB were measured for all of them."""
    space, rng, sizes = spaces["darts"], Random(0), []
    monkeypatch.setattr("epochzero.report.drawings.SECONDS", 0.0)
    monkeypatch.setattr("epochzero.report.networks.Networks._counted", lambda *_: (rng.random(), rng.random()))
    archs = [space.text(space.sample(rng)) for _ in range(2000)]
    values = np.random.default_rng(0).normal(size=(2, 2000)).tolist()
    for count in (500, 2000):
        with Store.open(path) as store:
            run = begin(store, space="darts", seed=count)
            record(run, archs[:count], {"dextr": values[0], "naswot": values[1]}, Setting("darts", "pink", "default:0"))
        sizes.append(write(Subject(path), tmp_path / "report.html"))
    assert sizes[0] + (sizes[1] - sizes[0]) / 1500 * 100_000 < 15e6


def test_a_browser_that_goes_away_is_no_error(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open(path) as store:
        begin(store)
    with server(Subject(path)) as made:
        for error, said in ((ConnectionResetError(), ""), (ValueError("a bug"), "a bug")):
            try:
                raise error
            except (ConnectionResetError, ValueError):
                made.handle_error(None, ("127.0.0.1", 1))
            assert said in capsys.readouterr().err if said else not capsys.readouterr().err


def test_reading_writes_nothing_and_sees_whole_batches(path: Path) -> None:
    with Store.open(path) as store:
        run = begin(store)
        record(run, ARCHS[:3], {"dextr": DEXTR[:3]})
        writer = sqlite3.connect(path, isolation_level=None)
        writer.execute("BEGIN IMMEDIATE")  # a batch that is being written
        writer.execute("DELETE FROM history")
        assert opened(path).head["networks"] == 3
        with reading(path) as reader:
            before = reader.version()
            writer.execute("ROLLBACK")
            run.record(HERE, [Evaluated(3, ARCHS[3], {"dextr": (Score(9.0), 0.1)})])
            assert reader.version() == before and len(list(reader.rows(run))) == 3  # one moment
        writer.close()
        assert opened(path).head["networks"] == 4
        with reading(path) as reader:
            assert reader.version() != before
            with pytest.raises(StoreError, match="read-only"), reader._database.reading() as db:
                db.execute("DELETE FROM history")


def test_files_that_are_no_stores(tmp_path: Path) -> None:
    out = tmp_path / "report.html"

    def refused(name: str) -> str:
        return refusal("report", tmp_path / name, "--out", out)

    (tmp_path / "empty.db").touch()
    (tmp_path / "text.db").write_text("this is no database, and long enough to differ from one" * 20)
    with sqlite3.connect(tmp_path / "foreign.db") as foreign:
        foreign.execute("CREATE TABLE cats (name)")
    foreign.close()
    with Store.open(tmp_path / "new.db"):
        pass
    assert "does not exist" in refused("none.db")
    assert "is a folder" in refused("")
    assert "is empty" in refused("empty.db")
    assert "not an SQLite file" in refused("text.db")
    assert "another program" in refused("foreign.db")
    assert "holds no run yet" in refused("new.db")
    assert not out.exists()
    with pytest.raises(StoreError):
        opened(tmp_path / "foreign.db")


def test_the_command(path: Path, tmp_path: Path) -> None:
    with Store.open(path) as store:
        record(begin(store), ARCHS, {"dextr": DEXTR})
    out = tmp_path / "made.html"
    table = known(tmp_path, ARCHS, ACCURACY)
    told = epochzero("report", path, "--table", table, "--out", out, "--json").json
    assert told == {"report": str(out), "bytes": out.stat().st_size}
    assert "cifar10_tset" in refusal("report", path, "--table", table, "--target", "cifar10_tset")
    assert "--table" in refusal("report", path, "--target", "cifar10_test")
    assert "--serve" in refusal("report", path, "--serve", "--out", out)
    assert "follows one store" in refusal("report", path, path, "--serve")
    assert "the store itself" in refusal("report", path, "--out", path)
    assert "other machines" in refusal("report", path, "--serve", "--host", "0.0.0.0")
    assert "no host" in refusal("report", path, "--serve", "--host", "no.such.host.invalid")


def test_other_machines_are_kept_out_unless_forced(path: Path) -> None:
    with Store.open(path) as store:
        begin(store)
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        with pytest.raises(UserError, match="other machines"):
            server(Subject(path), host)
    with server(Subject(path), "0.0.0.0", force=True) as made:
        assert made.server_port
    with server(Subject(path), "localhost") as first, pytest.raises(UserError, match="another --port"):
        server(Subject(path), "localhost", first.server_port)


def test_a_live_page_may_ask_its_own_server_alone() -> None:
    assert "connect-src 'self'" in page(None) and "default-src 'none'" in page(None)
