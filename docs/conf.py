"""Settings of the documentation site: `make docs` builds it into build/docs."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer  # type: ignore[import-untyped]
from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent))
import catalogue

from epochzero import __version__

project = "EpochZero"
version = release = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["data"]
myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence"]
copybutton_exclude = ".linenos, .gp, .go"
highlight_language = "text"
smartquotes = False  # --json is no dash
suppress_warnings = ["misc.highlighting_failure"]  # blocks that begin with `# file: name.json`

html_theme = "furo"
html_title = f"EpochZero {version}"
html_logo = "images/logo.svg"
html_favicon = "images/logo.svg"
html_theme_options: dict[str, Any] = {
    "light_css_variables": {"color-brand-primary": "#1d5fae", "color-brand-content": "#1d5fae"},
    "dark_css_variables": {"color-brand-primary": "#86b8f5", "color-brand-content": "#86b8f5"},
}
if repository := os.environ.get("GITHUB_REPOSITORY"):  # where the site is built by the host of the repository
    address = f"{os.environ.get('GITHUB_SERVER_URL', '')}/{repository}"
    html_theme_options |= {"source_repository": address, "source_branch": "main", "source_directory": "docs/"}
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_copyright = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
python_maximum_signature_line_length = 80
python_display_short_literal_types = True


def fill(app: Sphinx, page: str, source: list[str]) -> None:
    """Put what is generated in the place of its marks."""
    source[0] = catalogue.source(page, source[0])


def generate(app: Sphinx) -> None:
    """Write the generated pages beside those that list them, where that page is."""
    for path, text in catalogue.generated() if app.config.generate_pages else ():
        file = Path(app.srcdir) / path
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text(encoding="utf-8") != text:
            file.write_text(text, encoding="utf-8")


def as_code(app: Sphinx, kind: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Our docstrings write code in single backticks, which reStructuredText writes in double ones."""
    lines[:] = [re.sub(r"(?<!`)`([^`]+)`(?!`)", r"``\1``", line) for line in lines]


def setup(app: Sphinx) -> None:
    app.add_lexer("csv", TextLexer)
    app.add_config_value("generate_pages", True, "env", types=[bool])
    app.connect("builder-inited", generate)
    app.connect("source-read", fill)
    app.connect("autodoc-process-docstring", as_code)
