"""Settings of the documentation site: `make docs` builds it into build/docs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer  # type: ignore[import-untyped]
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))
import pages

from epochzero import __version__

project = "EpochZero"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["data"]
myst_heading_anchors = 3
highlight_language = "text"
smartquotes = False  # --json is no dash
suppress_warnings = ["misc.highlighting_failure"]  # blocks that begin with `# file: name.json`

html_theme = "furo"
html_title = "EpochZero"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False

autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_typehints_description_target = "documented"


def fill(app: Sphinx, page: str, source: list[str]) -> None:
    """Put what is generated in the place of its marks."""
    source[0] = pages.filled(source[0])


def as_code(app: Sphinx, kind: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Our docstrings write code in single backticks, which reStructuredText writes in double ones."""
    lines[:] = [re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line) for line in lines]


def setup(app: Sphinx) -> None:
    app.add_lexer("csv", TextLexer)
    app.connect("source-read", fill)
    app.connect("autodoc-process-docstring", as_code)
