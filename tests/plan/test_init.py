"""Weights drawn together are those drawn one by one."""

from __future__ import annotations

from unittest import mock

import pytest
import torch
from torch import Tensor

from epochzero.plan import init
from epochzero.plan.ops.base import Param
from epochzero.plan.upload import ALIGNED, copied_at_once, moved
from epochzero.types import Origin

PARAMS = {
    "conv": Param((8, 3, 3, 3), "weight", 27, 72),
    "bias": Param((8,), "bias", 27, 72),
    "scale": Param((5,), "one"),
    "tokens": Param((1, 7, 9), "table"),
    "large": Param((700, 800), "weight", 800, 700),
    "shift": Param((5,), "zero", trainable=False),
}


@pytest.mark.parametrize("scheme", init.SCHEMES)
def test_a_buffer_filled_by_threads_holds_the_same_weights(scheme: str) -> None:
    origin = Origin(scheme, 3)
    alone = {name: init.draw({name: param}, origin)[name] for name, param in PARAMS.items()}
    gpu = torch.device("cuda")

    def fill(parts: list[Tensor]) -> None:
        with mock.patch("os.cpu_count", lambda: 16):
            init._fill_all(origin, PARAMS, gpu, parts)

    shapes = [param.shape for param in PARAMS.values()]
    together = copied_at_once(shapes, fill, torch.device("cpu"))
    for (name, own), part in zip(alone.items(), together, strict=True):
        assert torch.equal(own, part), name
        assert part.storage_offset() % ALIGNED == 0


def test_the_cache_gives_the_same_tensors_and_forgets_the_oldest() -> None:
    cache, cpu, origin = init._Drawn(most_bytes=4 * (8 * 27 + 8)), torch.device("cpu"), Origin()
    first = {name: PARAMS[name] for name in ("conv", "bias")}
    conv, bias = cache(origin, first, cpu)
    again, other = cache(origin, {"bias": PARAMS["bias"], "scale": PARAMS["scale"]}, cpu)
    assert again is bias and torch.equal(other, torch.ones(5))
    fresh, kept = cache(origin, {"conv": PARAMS["conv"], "scale": PARAMS["scale"]}, cpu)
    assert fresh is not conv and torch.equal(fresh, conv) and kept is other


def test_drawings_find_what_was_drawn_ahead() -> None:
    wide, narrow = Param((8, 3), "weight", 3, 4), Param((2, 3), "weight", 3, 4)
    drawings = [init.Drawing(["a", "b"], wide), init.Drawing(["a"], narrow), init.Drawing(["c", "c"], wide)]
    asked: list[int] = []
    real = init._fresh

    def fresh(origin: Origin, params: dict[str, Param], device: torch.device) -> list[Tensor]:
        asked.append(len(params))
        return real(origin, params, device)

    with mock.patch.object(init, "_fresh", fresh), mock.patch.object(init, "_drawn", init._Drawn(2**20)):
        init.draw_ahead(drawings, Origin(seed=9), torch.device("cpu"))
        assert asked == [3, 1], "a name of two shapes needs a second buffer"
        together = [drawing.drawn(Origin(seed=9)) for drawing in drawings]
        assert len(asked) == 2, "nothing is drawn again"
    for drawing, found in zip(drawings, together, strict=True):
        assert torch.equal(found, drawing.drawn(Origin(seed=9)))


def test_moved_tensors_keep_names_values_and_kinds() -> None:
    tensors = {"a": torch.randn(3, 4), "count": torch.tensor(3), "wide": torch.randn(2).double()}
    for name, own in moved(tensors, torch.device("cpu")).items():
        assert torch.equal(own, tensors[name]) and own.dtype == tensors[name].dtype
