"""Loaders, Datasets, arrays and dictionaries as data: what becomes of them, and what is said of bad ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import epochzero as ez
from epochzero.data.loaders import batch_of, batches_of
from epochzero.errors import DataError, UserError

X = torch.randn(40, 3, 8, 8, generator=torch.Generator().manual_seed(0))
Y = torch.arange(40) % 4
SAMPLES = TensorDataset(X, Y)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 4))


def parts(batch: Any) -> tuple[Tensor, Tensor]:
    """All inputs and labels of a batch."""
    pairs = [batch.part(i) for i in range(batch.parts)]
    return torch.cat([x for x, _ in pairs]), torch.cat([y for _, y in pairs])


@pytest.mark.parametrize(
    "data",
    [
        DataLoader(SAMPLES, batch_size=8),
        [(X[i : i + 8], Y[i : i + 8]) for i in range(0, 40, 8)],
        ([X[i : i + 8], Y[i : i + 8]] for i in range(0, 40, 8)),
        [{"image": X[i : i + 8], "label": Y[i : i + 8]} for i in range(0, 40, 8)],
        [(X[i : i + 8].numpy(), Y[i : i + 8].numpy()) for i in range(0, 40, 8)],
        [(X[i : i + 8], Y[i : i + 8, None]) for i in range(0, 40, 8)],
    ],
)
def test_the_first_batches_are_the_parts(data: Any) -> None:
    batch = batch_of(data)
    assert (batch.size, batch.parts, batch.num_classes, batch.input_shape) == (8, 4, 4, (3, 8, 8))
    x, y = parts(batch)
    assert torch.equal(x, X[:32]) and torch.equal(y, Y[:32])
    assert batch.about.startswith("32 samples of the first 4 batches of a loader, taken as they are; labels given")


@pytest.mark.parametrize(
    "one",
    [
        (X, Y),
        [X, Y],
        (X.numpy(), Y.numpy()),
        {"pixel_values": X, "labels": Y},
        {"x": X, "target": Y.numpy(), "weights": None},
    ],
)
def test_one_batch_as_a_loader_yields_it(one: Any) -> None:
    batch = batch_of(one)
    assert (batch.parts, batch.size) == (1, 40)
    assert torch.equal(parts(batch)[0], X) and torch.equal(parts(batch)[1], Y)
    assert ez.score(net(), "snip", data=one)["snip"] == ez.score(net(), "snip", data=(X, Y))["snip"]


def test_lists_of_labels_and_bytes_of_arrays() -> None:
    images = np.random.default_rng(0).integers(0, 255, (6, 8, 8, 3), dtype=np.uint8)
    batch = batch_of(images, [0, 1, 2, 0, 1, 2])
    assert batch.input_shape == (3, 8, 8) and batch.num_classes == 3
    assert torch.allclose(batch.part(0)[0], torch.from_numpy(images).permute(0, 3, 1, 2) / 255)
    assert batch_of(np.zeros((4, 5))).input_shape == (5,)


def test_names_are_arguments() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.head = nn.Embedding(20, 4), nn.Linear(7, 2)

        def forward(self, dense: Tensor, ids: Tensor) -> Tensor:
            return self.head(torch.cat([dense, self.table(ids)], dim=1))  # type: ignore[no-any-return]

    rows = {"dense": torch.randn(16, 3), "ids": torch.randint(20, (16,))}
    y = torch.arange(16) % 2
    module = Two()
    alone = ez.score(module, "snip", data=rows, y=y)["snip"]
    cut = [{name: x[i : i + 8] for name, x in (rows | {"labels": y}).items()} for i in (0, 8)]
    assert alone.ok
    assert ez.score(module, "snip", data=rows | {"labels": y})["snip"] == alone
    assert ez.score(module, "snip", data=(rows, y))["snip"] == alone
    assert ez.score(module, "snip", data=cut, batch_size=16)["snip"] == alone


class Squares(Dataset[Any]):
    """Samples that are drawn at random when they are asked for, with the names of classes."""

    classes = ("a", "b", "c", "d", "e")

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        return X[index] + torch.rand(()), int(Y[index])


def test_a_dataset_is_drawn_from_by_the_seed() -> None:
    first, again, other = (batch_of(Squares(), size=8, seed=seed) for seed in (0, 0, 1))
    assert (first.size, first.parts, first.num_classes) == (8, 4, 5)
    assert first.id == again.id != other.id
    assert "32 samples of a Dataset of 40, drawn with seed 0" in first.about
    assert batch_of(TensorDataset(X), size=8).part(0)[1] is None
    assert torch.equal(batch_of((X, Y.tolist())).part(0)[1], batch_of((X, Y)).part(0)[1])  # type: ignore[arg-type]
    assert (batch_of(Squares()).size, batch_of(Squares(), classes=9).num_classes) == (40, 9)  # 64 where there are more
    with pytest.raises(DataError, match="The Dataset has 40 samples, fewer than one batch of 64"):
        batch_of(Squares(), size=64)
    with pytest.raises(UserError, match=r"The data has the label \d, so there are more than 2 classes"):
        batch_of(Squares(), classes=2)
    state = torch.get_rng_state()
    batch_of(Squares(), size=8)
    assert torch.equal(torch.get_rng_state(), state)


class Table:
    """Like a Dataset of Hugging Face: rows as dictionaries of Pillow's images and numbers, and declared classes."""

    def __init__(self, images: list[Any], mode: str = "RGB") -> None:
        self.images = images
        label = type("ClassLabel", (), {"num_classes": 7})()
        self.features = {"image": object(), "label": label}

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        return {"image": self.images[index], "label": index % 2}


def test_a_table_of_pillow_images() -> None:
    pillow = pytest.importorskip("PIL.Image", reason="its images are Pillow's")
    batch = batch_of(Table([pillow.new("L", (8, 8), 51 * (i % 2)) for i in range(8)]), size=8)
    x, y = parts(batch)
    assert batch.num_classes == 7 and x.shape == (8, 3, 8, 8)
    assert torch.allclose(x.mean((1, 2, 3)), 0.2 * y)
    uneven = Table([pillow.new("L", (8, 8 + i)) for i in range(8)])
    with pytest.raises(DataError, match=r"different shapes, 3x10x8 and 3x11x8: give it a transform"):
        batch_of(uneven, size=8)
    with pytest.raises(DataError, match=r"A sample of the Dataset has an array of <U.* in place of a tensor"):
        batch_of(Table(["cat"] * 8), size=8)


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        while True:
            yield torch.randn(3, 8, 8), 1


def test_iterable_datasets_and_shuffled_loaders_follow_the_seed() -> None:
    for data in (Endless(), DataLoader(SAMPLES, batch_size=8, shuffle=True)):
        ids = [batch_of(data, size=8, seed=seed).id for seed in (0, 0, 1)]
        assert ids[0] == ids[1] != ids[2]


def test_batches_that_are_cut_anew() -> None:
    assert (batch_of(DataLoader(SAMPLES, batch_size=8), size=5).parts) == 4
    batch = batch_of(DataLoader(SAMPLES, batch_size=8), size=20)
    assert (batch.size, batch.parts) == (20, 2)
    assert batch_of(DataLoader(SAMPLES, batch_size=15), parts=9).parts == 2  # the last batch is smaller


def changing() -> Iterator[Any]:
    yield X[:8], Y[:8]
    yield X[:8, :, :4], Y[:8]


def failing() -> Iterator[Any]:
    yield X[:8], Y[:8]
    raise KeyError("a file is gone\nand more")


NAN = X[:8].clone()
NAN[3, 0, 0, 0] = float("nan")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ([], "yielded no batch: give one with data"),
        (changing(), "batch 1 has 3x8x8 float32 and labels, and batch 2 has 3x4x8 float32 and labels. Make them alike"),
        ([(X[:8], Y[:8]), [X[:8]], X[:8]], "and batch 2 has 3x8x8 float32 and no labels"),
        ([(X[:8], Y[:8]), (NAN, Y[:8])], "Batch 2 of the loader cannot be used. The inputs hold infinite or missing"),
        (failing(), "The loader raised KeyError: 'a file is gone"),
        ([(X[:0], Y[:0])], "Batch 1 of the loader is empty"),
        ([(X[:8], Y[:8], Y[:8])], "Batch 1 of the loader is a tuple of 3: yield a pair of inputs and labels"),
        (["cat", "dog"], "Batch 1 of the loader has a str in place of a tensor"),
        ([{"x": X[:8], "path": ["a"] * 8}], "Batch 1 of the loader, at 'path', has a list in place of a tensor"),
        ([(X[:8], Y[:8].float())] * 4, "The labels should be 32 whole numbers"),
        (7, "Data cannot be an int: give tensors or arrays"),
        (np.array(["a"]), "The data has an array of <U1 in place of a tensor"),
    ],
)
def test_loaders_that_cannot_be_used(data: Any, says: str) -> None:
    with pytest.raises(UserError) as error:
        ez.score(net(), "near", data=data)
    assert says in str(error.value)
    assert "\n" not in str(error.value)


def test_a_loader_that_ends_early() -> None:
    one = DataLoader(TensorDataset(X[:8], Y[:8]), batch_size=8)
    scores = ez.score(net(), "snip,zico", data=one)
    assert scores["snip"].ok
    expected = "This batch has 1 part of 8 samples, and part 2 is needed: give more data or a smaller batch size."
    assert scores["zico"].why == expected
    with pytest.raises(DataError, match="ended after 1 batch with 8 samples, fewer than one batch of 9"):
        batch_of(one, size=9)


def test_each_seed_has_samples_of_its_own() -> None:
    first, second = batches_of(DataLoader(SAMPLES, batch_size=4), None, [0, 1])
    assert torch.equal(parts(first)[0], X[:16]) and torch.equal(parts(second)[0], X[16:32])
    few = batches_of(iter(DataLoader(SAMPLES, batch_size=8)), None, [0, 1, 2])
    assert len({batch.id for batch in few}) == 3 and {(batch.size, batch.parts) for batch in few} == {(8, 4)}
    given = batches_of((X, Y), None, [0, 1], size=10, parts=2)
    assert len({batch.id for batch in given}) == 2 and {(batch.size, batch.parts) for batch in given} == {(10, 2)}
    (whole,) = batches_of((X, Y), None, [0])
    assert (whole.size, whole.parts) == (40, 1)
    drawn = batches_of(Squares(), None, [0, 1], size=8)
    assert [batch.id for batch in drawn] == [batch_of(Squares(), size=8, seed=seed).id for seed in (0, 1)]


def test_a_search_on_a_loader() -> None:
    result = ez.search(budget=2, proxy="l2_norm", data=DataLoader(SAMPLES, batch_size=8))
    assert (result.task.batch.num_classes, result.task.batch.parts) == (4, 4)
    with pytest.raises(UserError, match="takes one input of real numbers"):
        ez.search(budget=2, data={"a": X, "b": X})
    with pytest.raises(UserError, match="An image size is for folders"):
        ez.score(net(), "params", data=(X, Y), image_size=8)
