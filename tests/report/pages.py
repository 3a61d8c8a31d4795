"""A page of a report in a browser."""

from __future__ import annotations

from typing import Any


class Page:
    """A page that remembers what went wrong in it and what it asked for."""

    def __init__(
        self, browser: Any, address: str, width: int = 1280, scheme: str = "light", touch: bool = False
    ) -> None:
        self.context = browser.new_context(
            viewport={"width": width, "height": 800}, color_scheme=scheme, has_touch=touch
        )
        self.page = self.context.new_page()
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda message: self.errors.append(message.text))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(address)

    def __enter__(self) -> Page:
        self.page.wait_for_selector("main[data-ready]")
        return self

    def __exit__(self, *_: object) -> None:
        self.context.close()

    def columns(self, name: str) -> list[str]:
        """The cells of a column, of the rows that are in the page."""
        heads = [text.strip().split("↕")[0] for text in self.page.locator(".candidates thead th").all_inner_texts()]
        place = heads.index(name) + 1
        found: list[str] = self.page.locator(
            f".candidates tbody tr[data-network] td:nth-child({place})"
        ).all_inner_texts()
        return found

    def points(self, figure: str) -> int:
        return int(self.page.locator(f"#figure-{figure} .chart").get_attribute("data-points"))

    @property
    def overflow(self) -> int:
        """Pixels by which the page can be scrolled sideways."""
        found: int = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        return found
