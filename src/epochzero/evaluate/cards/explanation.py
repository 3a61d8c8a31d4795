"""The docstring of a proxy's file, parsed. The form of a paragraph determines its meaning:

the first line                    what the proxy is
indented                          the formula
Options:                          then one indented line (or more) for each setting: its name, and what it means
Beware: / Beware (name, name):    known failure modes, of every proxy of the file or of those named
the last                          the citation
any other                         prose
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

INDENT = "    "
BEWARE = re.compile(r"Beware(?: \(([^)]*)\))?:\s*(.*)", re.DOTALL)
OPTION = re.compile(rf"{INDENT}(\w+)\s+(\S.*)")
YEAR = re.compile(r"\b(?:19|20)\d\d\b")


@dataclass(frozen=True)
class Explanation:
    """The explanation of one proxy of a file."""

    formula: str
    """with the lines that define this proxy first"""
    prose: tuple[str, ...]
    options: dict[str, str]
    beware: tuple[str, ...]
    citation: str

    @property
    def paper(self) -> str:
        """`Asthana 2025`: the first author, and the first year in the citation."""
        author, year = re.match(r"\w+", self.citation), YEAR.search(self.citation)
        return " ".join(match[0] for match in (author, year) if match)


def explain(docstring: str, name: str) -> Explanation:
    """The explanation in a file's docstring of the proxy of that name."""
    paragraphs = re.split(r"\n\s*\n", docstring.strip("\n"))[1:]
    formulas, prose, options, beware = [], [], {}, []
    citation = ""
    for paragraph in paragraphs:
        warning = BEWARE.fullmatch(paragraph)
        if paragraph.startswith(INDENT):
            formulas.append(paragraph)
        elif paragraph.startswith("Options:"):
            options = _options(paragraph)
        elif warning:
            if warning[1] is None or name in re.split(r",\s*", warning[1]):
                beware.append(_joined(warning[2]))
        elif paragraph is paragraphs[-1]:
            citation = _joined(paragraph)
        else:
            prose.append(_joined(paragraph))
    return Explanation(_own_first(formulas, name), tuple(prose), options, tuple(beware), citation)


def _joined(paragraph: str) -> str:
    return " ".join(paragraph.split())


def _options(paragraph: str) -> dict[str, str]:
    meanings: dict[str, str] = {}
    for line in paragraph.splitlines()[1:]:
        match = OPTION.fullmatch(line)
        if match:
            meanings[match[1]] = match[2]
        elif meanings:
            meanings[next(reversed(meanings))] += f" {line.strip()}"
    return meanings


def _own_first(formulas: Sequence[str], name: str) -> str:
    """The formulas, with the proxy's own equation first."""
    text = "\n\n".join(formulas)
    lines = [line.removeprefix(INDENT) for line in text.splitlines()]
    own = [line for line in lines if re.match(rf"{name}\s+=", line)]
    return "\n".join(own + [line for line in lines if line not in own])
