"""Architecture texts with odd characters and long parts: an architecture, or one short sentence, soon."""

from __future__ import annotations

import os
import time
from random import Random

import pytest

from epochzero.errors import UserError
from epochzero.registry import spaces

TIMES = int(os.environ.get("EPOCHZERO_FUZZ", "1"))
ODD = (
    "\x1c",
    "\x1f",
    "\x85",
    "\xa0",
    "\u2028",
    "\u0661",
    "\u00b2",
    "\uff11",
    "\x0b",
    "\0",
    "\ud800",
    " ",
    "\n",
    "-",
    "_",
)
LONG = ("9" * 5000, "x" * 5000, "[" * 3000, "{" * 3000, "(" * 5000, "1," * 3000, "|" * 3000)
FORMS = (
    "(0, 1, 1, 0, 0, 0, 1, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 4, 2, 1)",
    "0110;0011;0001;0000 input,conv3x3-bn-relu,maxpool3x3,output",
    "[0, 1, 2]",
    '{"a": 1}',
    "null",
    "",
)


@pytest.mark.parametrize("name", [name for name in spaces if name != "published"])  # texts of other packages
def test_texts_are_read_or_refused_in_a_sentence(name: str) -> None:
    space, rng = spaces[name], Random(0)
    forms = [*FORMS, *(space.text(space.sample(rng)) for _ in range(3))]
    for _ in range(200 * TIMES):
        text = rng.choice(forms)
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(LONG if rng.random() < 0.2 else ODD) + text[at + rng.randrange(2) :]
        begin = time.process_time()
        try:
            space.parse(text)
        except UserError as error:
            assert 0 < len(str(error)) < 2100
        except Exception as error:
            raise AssertionError(f"{name}: {text[:200]!r}: {error!r}") from error
        assert time.process_time() - begin < 1, text[:200]
