"""The page: one HTML file with its style, script and data, without external resources.

The content of a store reaches the page only as compressed bytes, and the script inserts it as text, so that no name can
become markup. The Content-Security-Policy allows only the script with the given hash, and no connections; a live page
may connect to its own server.
"""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

from epochzero.plan.drawing.draw import STYLE as DRAWN

SCRIPTS = (
    *("data.js", "elements.js", "chart.js", "sorting.js", "table.js"),
    *("choices.js", "parallel.js", "sections.js", "figures.js", "first.js", "compare.js", "parts.js", "main.js"),
)
DARK = "@media(prefers-color-scheme:dark){"


def page(content: bytes | None) -> str:
    """The HTML of a report; without content that of a live report, which fetches it."""
    template, style, script = _part("page.html"), _style(), _script()
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src data:; "
        f"connect-src {chr(39)}{'none' if content else 'self'}{chr(39)}; base-uri 'none'; form-action 'none'"
    )
    data = "" if content is None else base64.b64encode(content).decode()
    filled = {"{{policy}}": policy, "{{style}}": style, "{{script}}": script, "{{data}}": data}
    for place, text in filled.items():
        template = template.replace(place, text)
    return template


@cache
def _script() -> str:
    """All scripts in one closed scope."""
    parts = "\n".join(_part(name) for name in SCRIPTS)
    return f'"use strict";\n(() => {{\n{parts}\n}})();\n'


@cache
def _style() -> str:
    """The styles of the page and of the drawings, whose dark colours follow the page's theme."""
    light, _, dark = DRAWN.partition(DARK)
    return f"{_part('page.css')}\n{light}\n:root[data-theme=dark] {{ {dark.removesuffix('}')} }}\n"


@cache
def _part(name: str) -> str:
    return (files("epochzero.report") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
