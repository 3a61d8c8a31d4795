"""The command line, run in this process: quick, and with the exit code that the shell would see."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from typing import Any, NamedTuple
from unittest.mock import patch

from epochzero.cli import main

CHEAP = "|none~0|+|none~0|none~1|+|skip_connect~0|none~1|none~2|"
CUT = "|none~0|+|none~0|none~1|+|none~0|none~1|none~2|"


class Ran(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        """The printed output, which is one JSON object on one line and nothing else."""
        assert self.code == 0, self.err
        assert self.out.count("\n") == 1
        found: dict[str, Any] = json.loads(self.out, parse_constant=_refuse)
        return found


def _refuse(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


def epochzero(*arguments: object) -> Ran:
    """Run `epochzero ...`. Whatever `main` does not handle is raised here, as it would be a traceback there."""
    out, err = io.StringIO(), io.StringIO()
    code: object = 0
    with (
        patch.object(sys, "argv", ["epochzero", *map(str, arguments)]),
        redirect_stdout(out),
        redirect_stderr(err),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code or 0
    assert isinstance(code, int)
    return Ran(code, out.getvalue(), err.getvalue())


def refusal(*arguments: object, code: int = 2) -> str:
    """The one sentence on standard error with which a command is refused."""
    ran = epochzero(*arguments)
    assert (ran.code, ran.out) == (code, ""), ran
    assert "Traceback" not in ran.err
    lines = ran.err.strip().splitlines()
    assert len(lines) == 1, ran.err
    start, _, sentence = lines[0].partition("error: ")
    assert start == "" and sentence, ran.err
    return sentence


def process(*arguments: str) -> list[str]:
    """The command for a process of its own."""
    return [sys.executable, "-c", "from epochzero.cli import main; main()", *arguments]
