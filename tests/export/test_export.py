"""Export: code and weights that need torch alone, ONNX that agrees, and bad input that is refused in a sentence."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from epochzero.errors import DataError, MachineError, UserError
from epochzero.export import Subject, export, onnx_model, standalone
from epochzero.export.weights import read_weights
from epochzero.plan import Plan, chain
from epochzero.plan.ops.attention import Attention
from epochzero.plan.ops.conv import Conv
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.pool import TokenMean
from epochzero.plan.ops.token import ClassToken, PositionEmbedding, ToTokens
from epochzero.registry import spaces
from epochzero.stats.share import share_text
from epochzero.train.image_data import load_images
from epochzero.train.images import plan_for, train
from epochzero.train.recipes import recipe_of
from tests.command import CHEAP, epochzero, refusal
from tests.photos import photos
from tests.train.test_train_checkpoint import Hostile
from tests.train.train_images import SMALLEST, write

VISION = {
    "nb201": (3, 8, 8),
    "nats_sss": (3, 8, 8),
    "nb101": (3, 8, 8),
    "nb1shot1_s1": (3, 8, 8),
    "darts": (3, 8, 8),
    "darts_imagenet": (3, 32, 32),
    "transnas_micro": (3, 32, 32),
    "transnas_macro": (3, 32, 32),
    "transnas_macro_jigsaw": (9, 3, 8, 8),
    "autoformer_tiny": (3, 16, 16),
    "mobilenet": (3, 32, 32),
    "resnet": (3, 16, 16),
}
pytestmark = pytest.mark.usefixtures("shallow_nb201", "onnx_rules")


def subject_of(name: str, **given: Any) -> Subject:
    space = spaces[name]
    return Subject.of(space, space.smallest(), **given)


def run_alone(program: str, *arguments: object) -> str:
    """A process that can import torch, what torch needs, and nothing of ours."""
    environment = {"PATH": os.environ["PATH"], "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-I", "-W", "ignore", "-c", program, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


# Every vision space

ALONE = """
import importlib.util, json, sys

needs = {"torch", "torchgen", "functorch", "typing_extensions", "sympy", "mpmath", "networkx", "jinja2", "filelock"}

class TorchAlone:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in sys.stdlib_module_names | needs:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, TorchAlone())
import torch

outputs = []
for place, shape in json.loads(sys.argv[1]):
    spec = importlib.util.spec_from_file_location("model", place)
    model = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(model)
    network = model.load()
    assert not network.training
    x = torch.sin(torch.arange(2 * torch.Size(shape).numel())).reshape(2, *shape)
    with torch.no_grad():
        outputs.append(network(x).tolist())
print(json.dumps(outputs))
"""


def test_every_vision_space_runs_with_torch_alone(tmp_path: Path) -> None:
    """One member of each, all in one process in which nothing but torch can be imported."""
    asked, expected = [], []
    for name, shape in VISION.items():
        subject = subject_of(name, num_classes=5, input_shape=shape)
        place = tmp_path / name
        place.mkdir()
        made = export(subject, place, onnx=False)
        assert made.code_error < 1e-5
        assert sorted(file.name for file in place.iterdir()) == ["MODEL_CARD.md", "model.py", "model.safetensors"]
        asked.append((str(place / "model.py"), shape))
        x = torch.sin(torch.arange(2 * torch.Size(shape).numel())).reshape(2, *shape)
        module = subject.plan.module().eval()
        with torch.no_grad():
            expected.append(module(x))
    outputs = json.loads(run_alone(ALONE, json.dumps(asked)))
    for name, found, wanted in zip(VISION, outputs, expected, strict=True):
        torch.testing.assert_close(torch.tensor(found), wanted, atol=1e-5, rtol=1e-5, msg=name)


# ONNX


def with_statistics(subject: Subject) -> Subject:
    """With batch norms that have seen images, as after a training."""
    module = subject.plan.module()
    module.train()
    with torch.no_grad():
        module(torch.randn(8, *subject.plan.input_shape, generator=torch.Generator().manual_seed(1)))
    return Subject(subject.space, subject.arch, subject.plan, dict(module.state_dict()), "one batch")


def transformer() -> Plan:
    """A small one: tokens, a class token whose copies depend on the batch, positions, attention."""
    return chain(
        (3, 8, 8),
        patch=Conv(12, 4, 4),
        tokens=ToTokens(),
        first=ClassToken(),
        positions=PositionEmbedding(),
        qkv=Linear(36),
        attention=Attention(2),
        mean=TokenMean(),
        head=Linear(5),
    )


def test_onnx_agrees_for_any_batch(tmp_path: Path) -> None:
    import onnxruntime

    subject = with_statistics(subject_of("nats_sss", num_classes=5, input_shape=(3, 8, 8)))
    made = export(subject, tmp_path, real=torch.rand(4, 3, 8, 8))
    assert made.onnx_error is not None and made.onnx_error < 1e-4
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    module = subject.plan.module().eval()
    module.load_state_dict(subject.weights)
    for size in (1, 7):
        x = torch.randn(size, 3, 8, 8)
        with torch.no_grad():
            expected = module(x).numpy()
        np.testing.assert_allclose(session.run(["y"], {"x": x.numpy()})[0], expected, atol=1e-4)
    assert float(np.abs(expected).max()) > 0.01
    text = (tmp_path / "MODEL_CARD.md").read_text()
    assert "| parameters | 11," in text and "random and real inputs" in text and " ms for one sample" in text


def test_onnx_of_a_transformer_takes_any_batch(tmp_path: Path) -> None:
    plan = transformer()
    subject = Subject("own", "tiny", plan, dict(plan.module().state_dict()), "drawn")
    made = export(subject, tmp_path)
    assert made.onnx_error is not None and made.onnx_error < 1e-4


def test_each_export_is_a_module_of_its_own(tmp_path: Path) -> None:
    """torch.export remembers what a module of that name held: a second model.py under the same name would break."""
    export(subject_of("mlp"), tmp_path, onnx=False)
    with standalone.loaded(tmp_path) as first, standalone.loaded(tmp_path) as second:
        names = {type(first).__module__, type(second).__module__}
        assert len(names) == 2 and names < sys.modules.keys()
    assert names.isdisjoint(sys.modules)


def test_onnx_that_differs_is_refused() -> None:
    class Wrong:
        def run(self, names: list[str], inputs: dict[str, np.ndarray]) -> list[np.ndarray]:
            return [inputs["x"] * 1.001]

    with pytest.raises(MachineError, match=r"differs from PyTorch by 0.001, more than 0.0001, on a batch of 2"):
        onnx_model.largest_error(Wrong(), torch.nn.Identity(), [(torch.ones(2, 3),)])
    with pytest.raises(MachineError, match="differs from PyTorch by nan"):
        onnx_model.largest_error(Wrong(), torch.nn.Identity(), [(torch.full((2, 3), torch.nan),)])
    assert onnx_model.largest_error(Wrong(), torch.nn.Identity(), [(torch.full((2, 3), 0.01),)]) < 1e-4


def test_an_export_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*given: object, **more: object) -> bytes:
        raise MachineError("no")

    monkeypatch.setattr(onnx_model, "to_onnx", fail)
    with pytest.raises(MachineError, match="no"):
        export(subject_of("mlp"), tmp_path)
    assert not list(tmp_path.iterdir())


# From training and search


def test_from_a_search_through_training_to_a_product(tmp_path: Path) -> None:
    """Search, train, export: each with what the one before left behind."""
    file, store, run = write(tmp_path / "squares.npz", 40, 20), tmp_path / "run.db", tmp_path / "run"
    asked = ("search", "--space", "nb201", "--proxy", "params", "--max-params", "80k", "--budget", 3)
    best = epochzero(*asked, "--winner-scores", "none", "--store", store, "--json").json["best"]["arch"]
    found = epochzero(
        "export",
        "--store",
        store,
        "--classes",
        4,
        "--input-shape",
        "3,16,16",
        "--no-onnx",
        "--json",
        "--out",
        tmp_path / "untrained",
    ).json
    assert (found["arch"], found["space"]) == (best, "nb201")
    text = (tmp_path / "untrained/MODEL_CARD.md").read_text()
    assert "| search | evolution by params, 3 networks, seed 0 |" in text and "untrained" in text
    assert "| budget | at most 80,000 parameters |" in text
    epochzero("train", "--arch", best, "--data", file, "--epochs", 1, "--out", run)
    made = epochzero(
        "export", "--weights", run, "--store", store, "--data", file, "--no-onnx", "--json", "--out", tmp_path / "p"
    )
    assert made.json["weights"] == "from run"
    text = (tmp_path / "p/MODEL_CARD.md").read_text()
    assert "| search | evolution by params" in text
    assert "| test | 20 images, the file's test images |" in text
    assert "| recipe | epochs 1, batch_size 128" in text
    metrics = json.loads((run / "metrics.jsonl").read_text())
    right = round(20 * metrics["test_accuracy"])
    assert f"| test accuracy | {share_text(right, 20)} after 1 of 1 epoch;" in text
    assert "temperature" not in text, "there was no teacher"
    kept = torch.load(run / "epoch-000001.pt", weights_only=True)["weights"]
    stored = read_weights(tmp_path / "p/model.safetensors").tensors
    assert all(torch.equal(kept[name], stored[name]) for name in stored) and stored.keys() == kept.keys()


def test_an_image_folder_is_checked_on_and_its_classes_are_named(tmp_path: Path) -> None:
    folder, run = photos(tmp_path / "photos", 4), tmp_path / "run"
    asked = ("train", "--space", "resnet", "--arch", SMALLEST, "--data", folder, "--epochs", 1, "--image-size", 16)
    assert epochzero(*asked, "--out", run).code == 0
    product = ("export", "--data", folder, "--no-onnx")
    assert epochzero(*product, "--weights", run, "--out", tmp_path / "p").code == 0
    text = (tmp_path / "p/MODEL_CARD.md").read_text()
    assert "| classes | 0 blue, 1 red |" in text and "| on | random and real inputs |" in text
    assert "| input | image files are cropped to the square in their centre, and scaled to 16 pixels" in text
    untrained = (*product, "--space", "resnet", "--arch", SMALLEST)
    assert epochzero(*untrained, "--out", tmp_path / "q").code == 0
    text = (tmp_path / "q/MODEL_CARD.md").read_text()
    assert "`x` [batch, 3, 32, 32]" in text and "`y` [batch, 2]" in text
    says = refusal(*untrained, "--input-shape", "3,16,24", "--out", tmp_path / "q")
    assert "samples of shape 3x24x24, but 3x16x24 was asked for" in says


def test_an_auxiliary_tower_stays_behind(tmp_path: Path) -> None:
    space = spaces["darts_search"]
    data = load_images(write(tmp_path / "squares.npz", 8, 4, 32))
    recipe = recipe_of("darts", {"epochs": 1, "batch_size": 4})
    plan = plan_for(space, space.smallest(), data, recipe)
    (tmp_path / "run").mkdir()
    (tmp_path / "out").mkdir()
    facts = {"space": space.name, "arch": space.text(space.smallest())}
    trained = train(plan, data, recipe, folder=tmp_path / "run", facts=facts)
    subject = Subject.of(space, space.smallest(), weights=read_weights(tmp_path / "run"))
    export(subject, tmp_path / "out", onnx=False)
    assert subject.plan.auxiliary is None
    assert subject.weights.keys() < trained.module.state_dict().keys()
    assert "auxiliary" not in (tmp_path / "out/model.py").read_text()


# Bad input


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state_dict of a network for four classes."""
    place = tmp_path_factory.mktemp("weights") / "four.pt"
    torch.save(subject_of("resnet", num_classes=4).weights, place)
    return place


def refused(tmp_path: Path, *arguments: object, code: int = 2) -> str:
    return refusal("export", "--no-onnx", "--out", tmp_path / "out", *arguments, code=code)


def test_weights_for_other_classes(tmp_path: Path, saved: Path) -> None:
    asked = ("--space", "resnet", "--arch", SMALLEST, "--weights", saved)
    says = refused(tmp_path, *asked, "--classes", 7)
    assert "have 4 classes, and the network 7: give --classes 4." in says
    assert epochzero("export", "--no-onnx", "--out", tmp_path / "out", *asked, "--num-classes", 4).code == 0


def test_weights_of_another_network(tmp_path: Path, saved: Path) -> None:
    says = refused(tmp_path, "--arch", CHEAP, "--weights", saved)
    assert "are of another network: they lack" in says and "Give the --space and --arch they are of." in says


def test_weights_that_are_no_numbers(tmp_path: Path) -> None:
    weights = subject_of("resnet").weights
    weights = {
        name: tensor * torch.nan if name.endswith("linear.weight") else tensor for name, tensor in weights.items()
    }
    torch.save(weights, tmp_path / "nan.pt")
    says = refused(tmp_path, "--space", "resnet", "--arch", SMALLEST, "--weights", tmp_path / "nan.pt")
    assert "NaN or infinite" in says


@pytest.mark.parametrize("ending", ["pt", "safetensors"])
def test_weights_that_are_cut_short(tmp_path: Path, saved: Path, ending: str) -> None:
    place = tmp_path / f"cut.{ending}"
    place.write_bytes(saved.read_bytes()[:-3000])
    with pytest.raises(DataError, match="damaged, cut short or no"):
        read_weights(place)
    assert "damaged, cut short or no" in refused(tmp_path, "--arch", CHEAP, "--weights", place)


def test_weights_that_would_run_code(tmp_path: Path) -> None:
    torch.save({"weight": Hostile(tmp_path / "ran")}, tmp_path / "evil.pt")
    says = refused(tmp_path, "--arch", CHEAP, "--weights", tmp_path / "evil.pt")
    assert "is refused: it holds more than numbers and could run code" in says
    assert not (tmp_path / "ran").exists()


def test_a_damaged_last_checkpoint_is_passed_over(tmp_path: Path) -> None:
    file = write(tmp_path / "squares.npz", 20, 4)
    asked = ("train", "--space", "resnet", "--arch", SMALLEST, "--data", file, "--epochs", 2, "--out", tmp_path / "run")
    assert epochzero(*asked).code == 0
    (tmp_path / "run/epoch-000002.pt").write_bytes(b"nothing")
    ran = epochzero("export", "--weights", tmp_path / "run", "--no-onnx", "--out", tmp_path / "out")
    assert ran.code == 0 and "epoch-000002.pt' is damaged" in " ".join(ran.err.split())
    assert "after 1 of 2 epochs" in (tmp_path / "out/MODEL_CARD.md").read_text()


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Say what to export: give --from, --arch, --store, or --weights of `epochzero train`."),
        (("--arch", "|conv~0|"), "'|conv~0|'"),
        (("--arch", CHEAP, "--space", "nb21"), "No space is called 'nb21'. Did you mean 'nb201'?"),
        (("--store", "nowhere.db"), "There is no store 'nowhere.db'."),
        (("--weights", "nowhere.pt"), "There are no weights 'nowhere.pt'."),
        (("--arch", CHEAP, "--out", "/proc/nothing"), "The folder '/proc/nothing' cannot be written"),
        (("--arch", CHEAP, "--data", "nowhere.npz"), "There is no file or folder nowhere.npz"),
    ],
)
def test_what_cannot_be_exported(tmp_path: Path, arguments: tuple[str, ...], says: str) -> None:
    assert says in refused(tmp_path, *arguments)


def test_a_store_without_a_winner(tmp_path: Path) -> None:
    """No network of NAS-Bench-201 has the attention that tf_tas looks at."""
    assert epochzero("search", "--proxy", "tf_tas", "--budget", 2, "--store", tmp_path / "run.db").code == 1
    says = refused(tmp_path, "--store", tmp_path / "run.db")
    assert "has no winner to export" in says


def test_a_space_of_modules_has_no_code() -> None:
    class Modules:
        name = "mine"

    with pytest.raises(UserError, match="'mine' gives modules and no plans"):
        Subject.of(Modules(), None)  # type: ignore[arg-type]
