"""Proxy expressions, goals and options with odd characters: understood, or one short sentence, soon."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random

import pytest

from epochzero.errors import UserError
from epochzero.objectives.goals import parse_goals
from epochzero.objectives.objective import parse_objective, parse_objectives
from epochzero.quantities import count, key_values, shape

TIMES = int(os.environ.get("EPOCHZERO_FUZZ", "1"))
FORMS = (
    "dextr",
    "rank(dextr,zico,flops)",
    "zico(batches=4)",
    "agreement(rank(l2_norm,params),naswot)",
    "dextr,-flops,latency",
    "auto",
    "table:cifar10_val_12ep",
    "swap(repeats=1,samples=4),sigeo(batches=2)",
    "population=50",
    "3,224,224",
    "1.5M",
)
ODD = (
    *"()=,-+:;.'\"\\\n\0\t _[]{}%$#@!0\u0661\u00b2\ud800\u2028",
    "1e999",
    "nan",
    "__class__",
    "lambda:0",
    "rank(",
    ")",
)
LONG = ("(" * 5000, "rank(" * 2000, ")" * 5000, "9" * 5000, "x" * 5000, "dextr," * 2000, "zico(batches=" * 1000)
READERS: dict[str, Callable[[str], object]] = {
    "objective": parse_objective,
    "objectives": parse_objectives,
    "goals": parse_goals,
    "options": lambda text: key_values([text]),
    "shape": shape,
    "count": lambda text: count(text, "max_params"),
}


@pytest.mark.parametrize("name", READERS)
def test_expressions_are_read_or_refused_in_a_sentence(name: str) -> None:
    rng = Random(0)
    refused = 0
    with suppress(UserError):
        READERS[name]("no_such_proxy")  # loads all of them
    for number in range(300 * TIMES):
        text = rng.choice(FORMS)
        for _ in range(rng.choice((1, 1, 2, 5))):
            at = rng.randrange(len(text) + 1)
            text = text[:at] + rng.choice(LONG if rng.random() < 0.1 else ODD) + text[at + rng.randrange(3) :]
        begin = time.process_time()
        try:
            READERS[name](text)
        except UserError as error:
            refused += 1
            assert 0 < len(str(error)) < 3000, (number, text[:200])
        except Exception as error:
            raise AssertionError(f"{name}: {number}: {text[:200]!r}: {error!r}") from error
        assert time.process_time() - begin < 1, (number, text[:200])
    assert refused > 30 * TIMES
