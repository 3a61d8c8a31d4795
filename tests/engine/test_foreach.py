"""Operations on lists of tensors: torch's private ones and what takes their place do the same."""

from __future__ import annotations

import pytest
import torch

from epochzero.engine import foreach
from epochzero.engine.foreach import one_by_one


@pytest.mark.parametrize(
    ("name", "others", "options"),
    [
        ("add_", 1, {}),
        ("add_", 1, {"alpha": 0.5}),
        ("add_", 2.0, {}),
        ("addcdiv_", 2, {"value": -0.1}),
        ("addcmul", 2, {}),
        ("addcmul_", 2, {"value": -1}),
        ("copy_", 1, {}),
        ("mul", torch.tensor(3.0), {}),
        ("mul_", 0.9, {}),
        ("norm", 0, {}),
        ("norm", 1, {}),
        ("sqrt", 0, {}),
    ],
)
def test_one_by_one_is_what_torch_does(name: str, others: object, options: dict[str, float]) -> None:
    generator = torch.Generator().manual_seed(0)

    def some() -> list[torch.Tensor]:
        return [torch.rand(size, generator=generator) + 0.1 for size in (3, 1, 7)]

    tensors = some()
    given: list[object] = [some() for _ in range(others)] if isinstance(others, int) and name != "norm" else [others]
    given = [1] if name == "norm" and others else [] if others == 0 else given
    ours, theirs = ([t.clone() for t in tensors] for _ in range(2))
    found = one_by_one(name)(ours, *given, **options)
    expected = getattr(foreach, name)(theirs, *given, **options)
    torch.testing.assert_close(ours, theirs)
    torch.testing.assert_close(found, theirs if expected is None or name.endswith("_") else list(expected))
