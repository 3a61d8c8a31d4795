"""Every numeric option of every command with odd numbers: accepted or refused in one sentence, before anything runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from epochzero.cli.loading import loaded
from epochzero.engine import threads
from epochzero.errors import UserError
from epochzero.executors import executor_of
from tests.command import refusal

REFUSED = ("nan", "inf", "-inf", "1e400", "-1e400", str(2**63), str(-(2**63)), "9" * 5000, "", "\u00b2", "0x10")
OTHERS = ("-0", "0", "-1", "1.5", "1e-320", "-1e300", "\u0661\u0662", "\uff11", "1_0", " 1")


def _options(command: Any, name: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Command, its context and option, for each option."""
    for word, part in getattr(command, "commands", {}).items():
        yield from _options(part, f"{name} {word}".strip())
    if name and not hasattr(command, "commands"):
        context = command.make_context(name, [], resilient_parsing=True)
        yield from ((name, context, option) for option in command.params)


def _read(context: Any, option: Any, text: str) -> object:
    """The value of an option; None if the text is refused for a reason that the user is told."""
    several = option.multiple or option.nargs != 1
    try:
        value = option.process_value(context, [text] if several else text)
    except UserError:
        return None
    except Exception as error:
        assert getattr(error, "exit_code", None) == 2, (option.name, text[:40], error)
        return None
    return value[0] if several and value else value


def test_every_numeric_option_refuses_odd_numbers_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.set_num_threads", lambda number: None)
    monkeypatch.setattr(threads._State, "given", threads._State.given)
    numeric = [one for one in _options(loaded()) if type(_read(*one[1:], "3")) in (int, float)]
    assert len(numeric) > 120
    for name, context, option in numeric:
        for text in REFUSED:
            assert _read(context, option, text) is None, (name, option.name, text[:40])
        for text in OTHERS:
            _read(context, option, text)


@pytest.mark.parametrize("option", ["--budget", "--row-seconds"])
@pytest.mark.parametrize("number", ["nan", "inf", "-1", "0", "1e300", "1e-320"])
def test_seconds_of_bench_speed_are_sensible(option: str, number: str) -> None:
    assert option in refusal("bench-speed", option, number)


@pytest.mark.parametrize("number", [0, -1, 5000, 2**62])
def test_threads_and_workers_are_sensible(number: int) -> None:
    assert "at most 4,096" in refusal("bench-speed", "--threads", number)
    with pytest.raises(UserError, match=r"threads is .* at most 4,096"):
        executor_of(threads=number)
    with pytest.raises(UserError, match=r"workers is .* at most 4,096"):
        executor_of(workers=number)
