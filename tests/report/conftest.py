"""One browser for all tests of reports."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.report.pages import Page


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        pytest.skip("there is no Chromium here")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def opened(browser: Any) -> Iterator[Callable[..., Page]]:
    pages: list[Page] = []

    def open_(address: Path | str, **more: Any) -> Page:
        pages.append(Page(browser, address.as_uri() if isinstance(address, Path) else address, **more))
        return pages[-1].__enter__()

    yield open_
    for page in pages:
        page.__exit__()
