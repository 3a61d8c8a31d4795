"""The names that users import, asked for more than once."""

from __future__ import annotations

import doctest
import inspect

import pytest
from torch import nn

import epochzero as ez


def test_lists_stay_the_same_when_asked_again() -> None:
    for names in (ez.list_proxies, ez.list_spaces, ez.list_searches):
        assert names() == names()
    assert {"dextr", "sigeo", "nasi_trace"} <= set(ez.list_proxies())
    assert {"nb201", "darts", "nasrec_small"} <= set(ez.list_spaces())
    assert {"evolution", "hnas", "nasi", "zero_cost_pt"} <= set(ez.list_searches())


def test_every_public_name_is_there() -> None:
    assert all(getattr(ez, name) is not None for name in ez.__all__)


@pytest.mark.parametrize("name", ["space", "score", "search", "rank", "choices"])
def test_the_examples_of_docstrings_are_right(name: str) -> None:
    function = inspect.unwrap(getattr(ez, name))
    (examples,) = doctest.DocTestFinder(recurse=False).find(function, name, globs={"ez": ez, "nn": nn})
    told: list[str] = []
    assert examples.examples and doctest.DocTestRunner().run(examples, out=told.append).failed == 0, "".join(told)
