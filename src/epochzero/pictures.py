"""The style of all plots: transparent, in readable type, for a light page and a dark one. Needs matplotlib.

    @style()
    def drawn(values): figure = new_figure(4, 3); ...; return figure
    save(drawn(values), Path("plots"), "values")    # values.png, values.svg

An SVG file follows the colours of the page that shows it, by a rule for each colour in its head. `save(..., dark=True)`
adds values-dark.png, for pages that choose between two images.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from contextlib import contextmanager
from io import StringIO
from pathlib import Path
from typing import Any

from epochzero.errors import needed

INK, QUIET, LINE = "#1c2733", "#56626f", "#d5dbe3"
"""text, ticks and edges, grid"""
BLUE, ORANGE, GREEN, VIOLET, RED, TEAL = "#2f6db3", "#c8641d", "#1f8f5f", "#7d55c7", "#c2405f", "#18889b"
PALE = "#b8c4d6"
"""everything in the background"""
DARK = {
    **{INK: "#e7ecf3", QUIET: "#a0adbe", LINE: "#2f3946", PALE: "#4c5a6d"},
    **{BLUE: "#6ea8ea", ORANGE: "#ee9350", GREEN: "#4cc791", VIOLET: "#b093f0", RED: "#ef7f98", TEAL: "#4dbfd1"},
}
"""from a colour on a light page to that on a dark one"""
SIZE = 9
"""points of the text"""
STYLE: dict[str, Any] = {
    **dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor", "legend.facecolor"), "none"),
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.titlecolor", "legend.labelcolor"), INK),
    **dict.fromkeys(("xtick.labelcolor", "ytick.labelcolor"), QUIET),
    **dict.fromkeys(("xtick.color", "ytick.color", "axes.edgecolor"), QUIET),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("font.size", "axes.titlesize", "axes.labelsize"), SIZE),
    **dict.fromkeys(("xtick.labelsize", "ytick.labelsize", "legend.fontsize"), SIZE - 1),
    **{"axes.grid": True, "axes.axisbelow": True, "grid.color": LINE, "grid.linewidth": 0.6},
    **{"axes.linewidth": 0.8, "lines.linewidth": 1.4, "lines.markersize": 4, "image.cmap": "viridis"},
    **dict.fromkeys(("boxplot.flierprops.markeredgecolor", "boxplot.boxprops.color"), QUIET),
    **dict.fromkeys(("boxplot.whiskerprops.color", "boxplot.capprops.color"), QUIET),
    **{"boxplot.medianprops.color": ORANGE, "patch.facecolor": BLUE, "savefig.dpi": 150},
    **dict.fromkeys(("figure.labelsize", "figure.titlesize"), SIZE),
    **{f"axes3d.{side}axis.panecolor": (0, 0, 0, 0) for side in "xyz"},
    **{"svg.hashsalt": "epochzero", "figure.constrained_layout.use": True},
}


@contextmanager
def style() -> Iterator[None]:
    """The style, in a `with` or as a decorator of what draws; UserError without matplotlib."""
    colours = _matplotlib("rcsetup").cycler(color=[BLUE, ORANGE, GREEN, VIOLET, RED, TEAL])
    with _matplotlib().rc_context({**STYLE, "axes.prop_cycle": colours}):
        yield


@style()
def new_figure(width: float, height: float) -> Any:
    """An empty figure of this size in inches."""
    return _matplotlib("figure").Figure(figsize=(width, height))


@style()
def new_panels(count: int, per_line: int, width: float, height: float, **how: Any) -> tuple[Any, list[Any]]:
    """A figure of `count` panels, `per_line` in a row, each of this size in inches; and their axes."""
    across = min(per_line, count)
    down = math.ceil(count / across)
    figure = new_figure(width * across, height * down)
    return figure, [figure.add_subplot(down, across, place, **how) for place in range(1, count + 1)]


def new_counts() -> Any:
    """A formatter of ticks as 150 M."""
    return _matplotlib("ticker").EngFormatter()


def save(figure: Any, folder: Path, name: str, *, dark: bool = False) -> list[str]:
    """Writes the figure as PNG and SVG, with `dark` also as a PNG for dark pages; returns the names of the files."""
    names = [f"{name}.png", f"{name}.svg"]
    with style():
        figure.savefig(folder / names[0])
        image = StringIO()
        figure.savefig(image, format="svg")
        (folder / names[1]).write_text(adaptive(image.getvalue()), encoding="utf-8", newline="")
        if dark:
            names.append(f"{name}-dark.png")
            darken(figure)
            figure.savefig(folder / names[-1])
    return names


def adaptive(svg: str) -> str:
    """An SVG of matplotlib with rules for its colours on a dark page."""
    rules = "".join(
        f'[style*="{of}: {light}"]{{{of}:{dark}!important}}'
        for light, dark in DARK.items()
        for of in ("fill", "stroke")
    )
    whole = f"<style>@media(prefers-color-scheme:dark){{{rules}}}</style>"
    return re.sub(r"(<svg\b[^>]*>)", lambda found: f"{found[1]}\n{whole}", svg, count=1)


def darken(figure: Any) -> None:
    """Gives everything in a figure its colour for dark pages."""
    colours = _matplotlib("colors")

    def turned(colour: Any) -> Any:
        red, green, blue, alpha = colours.to_rgba(colour)
        dark = DARK.get(colours.to_hex((red, green, blue)))
        return colour if dark is None else colours.to_rgba(dark, alpha)

    for artist in figure.findobj():
        for part in ("color", "facecolor", "edgecolor", "markerfacecolor", "markeredgecolor"):
            get, put = getattr(artist, f"get_{part}", None), getattr(artist, f"set_{part}", None)
            if get is None or put is None:
                continue
            found = get()
            if colours.is_color_like(found):
                put(turned(found))
            elif getattr(found, "ndim", 0) == 2 and not _mapped(artist) and len(found):
                put([turned(colour) for colour in found])


def _mapped(artist: Any) -> bool:
    """True if the artist's colours are values of a colour map."""
    return getattr(artist, "get_array", lambda: None)() is not None


def _matplotlib(part: str = "") -> Any:
    return needed(f"matplotlib.{part}".rstrip("."), "A plot", "plots")
