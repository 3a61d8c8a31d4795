"""The table of the papers' claims: its verdicts, their sizes, its figures on the pages behind it, and its commands."""

from __future__ import annotations

import importlib.util
import shlex
from types import ModuleType
from typing import Any

import pytest

from epochzero.registry import experiments
from epochzero_papers.__main__ import STUDIES
from tests.test_docs import DOCS, ROOT


def _page() -> ModuleType:
    spec = importlib.util.spec_from_file_location("docs_claims", DOCS / "claims.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


PAGE = _page()
CLAIMS: list[dict[str, Any]] = PAGE.claims()


def test_the_page_is_what_the_data_say() -> None:
    assert PAGE.PAGE.read_text() == PAGE.written(CLAIMS), "run python docs/claims.py"


def test_every_work_has_claims_and_no_claim_is_twice() -> None:
    assert {"Dextr", "SiGeo", "NASI"} <= {claim["work"] for claim in CLAIMS}
    assert sum("chapter" in claim["work"] for claim in CLAIMS) >= 3
    assert len({claim["says"] for claim in CLAIMS}) == len(CLAIMS)


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim["says"][:40])
def test_a_claim(claim: dict[str, Any]) -> None:
    assert claim["verdict"] in PAGE.VERDICTS
    assert all(claim[key] for key in ("work", "says", "ours", "paper", "command"))
    assert "|" not in "".join(map(str, (claim["says"], claim["ours"], claim["differs"])))
    if claim["verdict"] in PAGE.TESTED:
        assert claim["seeds"] >= PAGE.SEEDS and claim["networks"] >= PAGE.NETWORKS
        assert "quote" in claim
    if "quote" in claim:
        assert claim["quote"] in (DOCS / "results" / claim["page"]).read_text(), "the page has another figure"


@pytest.mark.parametrize("command", sorted({claim["command"] for claim in CLAIMS}))
def test_a_command_is_one_that_there_is(command: str) -> None:
    program, *rest = shlex.split(command)
    if program == "epochzero":
        assert rest[0] == "reproduce" and rest[1] in experiments
    elif rest[:2] == ["-m", "epochzero_papers"]:
        assert rest[2] in STUDIES
    else:
        assert program == "python" and (ROOT / rest[0]).is_file()
