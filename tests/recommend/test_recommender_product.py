"""A recommender on the command line: searched, trained, exported with its embeddings, and predicting a file."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
import torch

from epochzero import recommend
from epochzero.errors import DataError, UserError
from epochzero.recommend import product_encoder, recommender
from epochzero.recommend.data.synthetic import Planted
from epochzero.recommend.data.table import open_table
from epochzero.recommend.jobs import Remark
from epochzero.recommend.recommender import Recommender
from epochzero.recommend.training.baselines import baseline
from epochzero.recommend.training.settings import Settings
from epochzero.recommend.training.trainer import evaluate
from epochzero.recommend.training.trainer import train as train_model
from epochzero.registry import spaces
from epochzero_papers.sigeo.click_text import write_text
from tests.command import epochzero, refusal
from tests.damage import flip
from tests.fresh import Fresh

LAW = Planted(sizes=(20, 20, 10, 10, 6), num_dense=3, pairs=((0, 3), (1, 2)), gates=((0, 4),))
SIZES = {"population": 3, "generations": 1, "tournament": 2, "children": 1, "top": 1, "batch_size": 16, "widest": 16}
LIMIT, RATE = {"max_embedding_bytes": 40 * 16 * 4}, {"highest": 0.2}
ROWS = 640


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of clicks, its schema, a search on it (with embeddings of 40 rows and a learning rate of its own) and what
    it found, trained.
    """
    folder = tmp_path_factory.mktemp("clicks")
    write_text(folder / "clicks.tsv", ROWS, LAW)
    (folder / "schema.json").write_text(json.dumps(LAW.schema.json()))
    sizes = [f"--option={name}={value}" for name, value in (SIZES | LIMIT | RATE).items()]
    data = [f"--data={folder}/clicks.tsv", f"--schema={folder}/schema.json"]
    found = epochzero(
        "recommend", "search", *data, "--proxy=zico", "--warmup=0.1", "--preset=reduced", *sizes,
        "--recipe=published", "--option=random=0", "--baselines=none", "--seeds=1", f"--out={folder}/search", "--json",
    ).json  # fmt: skip
    assert found["embedding_params"] <= 40 * 16
    (folder / "found.json").write_text(json.dumps(found))
    (folder / "trained.json").write_text(json.dumps(train(folder, "run")))
    return folder


def train(place: Path, out: str, *more: str) -> dict[str, Any]:
    return epochzero("recommend", "train", f"--data={place}/search", f"--out={place}/{out}", *more, "--json").json


def test_training_takes_over_what_the_search_has_trained(place: Path) -> None:
    found, trained = (json.loads((place / name).read_text()) for name in ("found.json", "trained.json"))
    best = found["best"]
    assert trained["arch"] == best["arch"] and math.isclose(trained["seconds"], 0, abs_tol=0.5)
    assert trained["metrics"]["test"]["log_loss"] == pytest.approx(best["test_log_loss"], rel=1e-6)
    assert trained["metrics"]["val"]["auc"] == pytest.approx(best["val_auc"], rel=1e-6)
    assert (trained["params"], trained["embedding_params"]) == (best["params"], found["embedding_params"])
    assert trained["rows"] == {"train": 512, "val": 64, "test": 64} and trained["settings"]["highest"] == 0.2


def test_training_anew_with_other_settings(place: Path) -> None:
    first = train(place, "other", "--epochs=2", "--option=highest=0.05", "--seed=3")
    again = train(place, "other", "--epochs=2", "--option=highest=0.05", "--seed=3")
    assert first["steps"] == 64 and first["settings"]["highest"] == 0.05 and first["seed"] == 3
    assert again["metrics"] == first["metrics"] != json.loads((place / "trained.json").read_text())["metrics"]


def test_a_folder_with_another_training_is_refused(place: Path) -> None:
    """Also one of the same shapes: its figures are not given under another seed or network."""
    told = (place / "run" / "recommender.json").read_text()
    asked = ["recommend", "train", f"--data={place}/search", f"--out={place}/run"]
    assert "is of a training with other seed: choose another place" in refusal(*asked, "--seed=3")
    space = spaces["nasrec_small"]
    other = space.text(space.sample(Random(0)))
    assert "is of a training with other network: choose another place" in refusal(*asked, "--arch", other)
    assert (place / "run" / "recommender.json").read_text() == told


def test_a_damaged_training_of_the_search_is_not_taken_over(place: Path, tmp_path: Path) -> None:
    """It is named; once it is removed the network is trained anew, to the same end."""
    moved = shutil.copytree(place / "search", tmp_path / "moved")
    (file,) = moved.glob("trained-*.pt")
    flip(file, next(iter(torch.load(file)["model"].values())))
    said = refusal("recommend", "train", f"--data={moved}", f"--out={tmp_path}/run")
    assert file.name in said and "Remove it: the same command then writes it again" in said
    assert not (tmp_path / "run" / "training.pt").exists()
    file.unlink()
    anew = epochzero("recommend", "train", f"--data={moved}", f"--out={tmp_path}/run", "--json").json
    assert anew["metrics"] == json.loads((place / "trained.json").read_text())["metrics"]


def test_a_search_can_be_moved_and_trained_on_a_part(place: Path, tmp_path: Path) -> None:
    """Also one that names its table by a path that is no more and does not name its learning rate, as results once
    did.
    """
    moved = shutil.copytree(place / "search", tmp_path / "moved")
    told = json.loads((moved / "result.json").read_text())
    old = {key: value for key, value in told.items() if key != "recipe"} | {"table": str(tmp_path / "gone" / "table")}
    for other, rate in ((told, 0.2), (old, 0.12)):
        (moved / "result.json").write_text(json.dumps(other))
        half = train(tmp_path, f"half{rate}", f"--data={moved}", "--option=share=0.5")
        assert half["rows"] == {"train": 256, "val": 64, "test": 64} and half["steps"] == 16
        assert half["settings"]["highest"] == rate


def test_the_same_network_by_its_name_and_table(place: Path) -> None:
    """Without the folder of a search: the same training from the text file, found by hand."""
    arch = (place / "search" / "choice.json").read_text()
    by_hand = epochzero(
        "recommend", "train", "--arch", arch, f"--data={place}/clicks.tsv",
        f"--schema={place}/schema.json", "--batch-size=16", "--recipe=published",
        *(f"--option={k}={v}" for k, v in (LIMIT | RATE).items()), f"--out={place}/by_hand", "--json",
    ).json  # fmt: skip
    assert by_hand["metrics"] == json.loads((place / "trained.json").read_text())["metrics"]


@pytest.fixture(scope="module")
def product(place: Path, onnx_rules: None) -> Path:
    made = epochzero(
        "recommend",
        "export",
        f"--weights={place}/run",
        f"--data={place}/clicks.tsv",
        f"--out={place}/product",
        "--json",
    ).json
    assert max(made["errors"].values()) < 1e-5
    return place / "product"


def test_the_product_has_its_embeddings_and_stands_alone(place: Path, product: Path, fresh: Fresh) -> None:
    """model.py in a process without epochzero, and ONNX Runtime, against the network of the training."""
    import onnxruntime

    kept = Recommender.read(place / "run")
    table = open_table(place / "search" / "table").capped(kept.encoding.rows)
    (batch,) = table.batches("test", size=1000)
    expected = kept.module()(batch.dense, batch.ids).detach().numpy()  # [64, 1]
    np.savez(place / "rows.npz", dense=batch.dense, ids=batch.ids)
    script = (
        "import sys; sys.modules['epochzero'] = None\n"
        "import numpy as np, torch, model\n"
        "rows = np.load('../rows.npz'); inputs = [torch.from_numpy(rows[name]) for name in ('dense', 'ids')]\n"
        "np.save('../alone.npy', model.load()(*inputs).detach().numpy())\n"
    )
    assert fresh(script, folder=product) == (0, "", "")
    assert np.abs(np.load(place / "alone.npy") - expected).max() < 1e-6
    session = onnxruntime.InferenceSession(product / "model.onnx")
    (found,) = session.run(["y"], {"dense": batch.dense.numpy(), "ids": batch.ids.numpy()})
    assert np.abs(found - expected).max() < 1e-5
    tables = [name for name in kept.weights if name.startswith("embedding.")]
    assert sum(kept.weights[name].numel() for name in tables) == 16 * sum(table.rows) and len(tables) == 5
    card = (product / "MODEL_CARD.md").read_text()
    found = json.loads((place / "found.json").read_text())
    assert "| evolution_nasrec by zico(batches=4), 4 networks, seed 0 |" in card
    assert f"inherited from the supernet | {found['best']['score']:.6g} |" in card
    assert "| limits of the search | max_embedding_bytes 2,560 |" in card
    assert "`dense` [batch, 3]; `ids` [batch, 5]" in card and "512 rows to train on" in card and "sigmoid(y)" in card


def test_an_encoder_that_reads_other_numbers_is_not_exported(
    place: Path, product: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (product / "encoder.py").read_text() == Path(product_encoder.__file__).read_text()
    monkeypatch.setitem(product_encoder.READERS, "hex", lambda *given: 1)
    with pytest.raises(DataError, match=r"encoder\.py would read row 1 of the table in another way"):
        recommend.export(place / "run", tmp_path / "product", data=place / "clicks.tsv", onnx=False)
    assert not (tmp_path / "product").exists()


def test_predictions_of_training_and_product_are_those_of_the_network(place: Path, product: Path) -> None:
    data = (f"--data={place}/clicks.tsv",)
    for model in (place / "run", product):
        told = epochzero("recommend", "predict", f"--model={model}", *data, f"--out={model}/p.csv", "--json")
        assert told.json["rows"] == ROWS and told.json["bad_lines"] == 0
    written = (product / "p.csv").read_text()
    assert written == (place / "run" / "p.csv").read_text()
    kept = Recommender.read(product)
    table = open_table(place / "search" / "table")
    ids = torch.from_numpy(kept.encoding.folded(np.array(table.column("ids")))).long()
    clicks = kept.module()(torch.from_numpy(np.array(table.column("dense"))), ids).double().sigmoid()
    found = [float(line.split(",")[1]) for line in written.splitlines()[1:]]
    assert found == pytest.approx(clicks.flatten().tolist(), rel=1e-5)


def test_unseen_values_and_bad_lines_are_predicted_or_named(place: Path) -> None:
    lines = (place / "clicks.tsv").read_text().splitlines()[:4]
    fields = lines[1].split("\t")
    lines[1] = "\t".join([*fields[:-1], "ffffffff"])  # a value that no training row has
    lines[2] = "\t".join(["1", "nan", *lines[2].split("\t")[2:]])
    (place / "new.tsv").write_text("\n".join(lines))
    command = ("recommend", "predict", f"--model={place}/run", f"--data={place}/new.tsv", f"--out={place}/new.csv")
    assert "Line 3 of" in (said := refusal(*command)) and "--bad-lines skip" in said
    assert not (place / "new.csv").exists()
    told = epochzero(*command, "--bad-lines=skip", "--json").json
    assert (told["rows"], told["bad_lines"]) == (3, 1)
    rows = (place / "new.csv").read_text().splitlines()[1:]
    assert 0 < float(rows[1].split(",")[1]) < 1
    assert rows[2].startswith("3,,") and "nan" in rows[2]


def test_the_spellings_before_say_what_to_use(place: Path, tmp_path: Path) -> None:
    for step, command in (
        ("train", ["train", f"--data={place}/search", f"--out={tmp_path}/run"]),
        ("export", ["export", f"--weights={place}/run", f"--out={tmp_path}/product", "--no-onnx"]),
        ("predict", ["predict", f"--model={place}/run", f"--data={place}/clicks.tsv", f"--out={tmp_path}/p.csv"]),
    ):
        ran = epochzero(*command)
        assert ran.code == 0 and f"Use `epochzero recommend {step}`: this spelling" in ran.err


def test_baselines_are_trained_on_the_rows_of_the_search(place: Path) -> None:
    """Again from their checkpoints; by hand they come out the same."""
    command = ["recommend", "baselines", f"--data={place}/search", f"--out={place}/baselines", "--models=dlrm, deepfm"]
    first, shown, again = epochzero(*command, "--json").json, epochzero(*command), epochzero(*command, "--json").json
    rows = first["baselines"]
    assert [row["name"] for row in rows] == ["dlrm", "deepfm"] and rows[0]["steps"] == 32
    assert [row["test"] for row in again["baselines"]] == [row["test"] for row in rows]
    assert f"{rows[1]['test']['log_loss']:.4f}" in shown.out and shown.code == 0
    table = open_table(place / "search" / "table").capped(Recommender.read(place / "run").encoding.rows)
    torch.manual_seed(0)
    model = baseline("dlrm", table.num_dense, table.rows)
    train_model(model, table, Settings(batch_size=16, highest=0.2))
    assert evaluate(model, table, "test").log_loss == pytest.approx(rows[0]["test"]["log_loss"], rel=1e-5)
    assert "Did you mean 'dlrm'" in refusal(*command[:-1], "--models=dlmr")


def test_python_takes_the_same_steps(place: Path, tmp_path: Path) -> None:
    sizes = SIZES | LIMIT | RATE | {"random": 0}
    with pytest.warns(Remark, match="too few to learn"):
        result = recommend.search(
            place / "clicks.tsv", schema=place / "schema.json", out=tmp_path / "search", proxy="zico", warmup=0.1,
            preset="reduced", recipe="published", baselines=(), seeds=1, options=sizes,
        )  # fmt: skip
    found = json.loads((place / "found.json").read_text())
    assert result.best.arch == found["best"]["arch"] and result.best.test_log_loss == found["best"]["test_log_loss"]
    report = recommend.train(tmp_path / "search", out=tmp_path / "run")
    assert report["metrics"] == json.loads((place / "trained.json").read_text())["metrics"]
    done = recommend.predict(tmp_path / "run", place / "clicks.tsv", tmp_path / "p.csv")
    assert (done.rows, done.bad_lines, done.remarks) == (ROWS, 0, ())
    with pytest.raises(UserError, match="needs a --schema"):
        recommend.train(place / "clicks.tsv", arch=result.best.arch, out=tmp_path / "other")
    assert sorted(recommend.__all__) == recommend.__all__ and callable(recommend.baselines)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", "--data=PLACE/search", "--out=OUT", "--schema=criteo"], "leave --schema out"),
        (["train", "--data=PLACE/search", "--out=OUT", "--option=hihgest=1"], "Did you mean 'highest'"),
        (["train", "--data=PLACE/search", "--out=OUT", "--option=share=2"], "above 0, at most 1"),
        (["train", "--data=PLACE/search", "--out=OUT", "--option=max_embedding_rows=9"], "search again"),
        (["train", "--data=PLACE/search", "--out=OUT", "--recipe=nb201"], "has no use for --recipe"),
        (["train", "--data=PLACE/search", "--out=PLACE/run", "--epochs=3"], "of a training with other settings"),
        (["train", "--data=PLACE/clicks.tsv", "--schema=criteo", "--out=OUT"], "give --space nasrec_small"),
        (["train", "--space=nasrec_small", "--data=PLACE/clicks.tsv", "--schema=criteo", "--out=OUT"], "give --arch"),
        (["export", "--weights=PLACE/run", "--out=OUT", "--arch=x"], "leave --arch out"),
        (["export", "--weights=PLACE/run", "--out=PLACE/run"], "choose another --out"),
        (["predict", "--model=PLACE/search", "--data=PLACE/clicks.tsv", "--out=OUT"], "holds no model for images"),
        (
            ["recommend", "predict", "--model=PLACE/search", "--data=PLACE/clicks.tsv", "--out=OUT"],
            "holds no recommender",
        ),
        (["predict", "--model=PLACE/run", "--data=PLACE/none.tsv", "--out=OUT"], "none.tsv cannot be opened"),
        (["predict", "--model=PLACE/run", "--data=PLACE/schema.json", "--out=OUT"], "does not fit"),
        (
            ["predict", "--model=PLACE/run", "--data=PLACE/clicks.tsv", "--out=OUT", "--bad-lines=drop"],
            "strict or skip",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_one_sentence(
    place: Path, tmp_path: Path, arguments: list[str], says: str
) -> None:
    given = [argument.replace("PLACE", str(place)).replace("OUT", str(tmp_path / "out")) for argument in arguments]
    assert says in refusal(*given)


def test_damaged_recommenders_are_refused(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("recommender.json", "encoding.json", "training.pt"):
        (tmp_path / name).write_bytes((place / "run" / name).read_bytes())
    monkeypatch.setattr(recommender, "ONNX_BYTES", 1000)
    with pytest.raises(UserError, match="export with --no-onnx"):
        Recommender.read(tmp_path).export(tmp_path)
    (tmp_path / "training.pt").write_bytes(b"no checkpoint")
    with pytest.raises(DataError, match="damaged, cut short"):
        Recommender.read(tmp_path)
    (tmp_path / "recommender.json").write_text("{}")
    with pytest.raises(UserError, match="holds no recommender"):
        Recommender.read(tmp_path)
