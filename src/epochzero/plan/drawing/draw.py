"""Drawings of a plan: one block or several, or the network as a row of its blocks, as SVG or as lines of text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from html import escape

from epochzero.plan.blocks import TIMES
from epochzero.plan.drawing.layout import Arrow, Box, Point, arrange
from epochzero.plan.drawing.sketch import LONGEST, Item, Link, Sketch, sketch
from epochzero.plan.plan import Plan

COLUMNS = 80
MARGIN = 28.0
HEADER = 80.0
ASIDE = 8.0
"""between a circle and its caption"""
APART = 5.0
"""between the contents of a block and its shape"""
CIRCLE = 40.0
FONT = "Inter, 'Segoe UI', system-ui, -apple-system, 'Helvetica Neue', Arial, sans-serif"

Colours = tuple[str, str, str]
"""fill, outline, text"""
COLOURS: dict[str, tuple[Colours, Colours]] = {
    "conv": (("#e3edff", "#3f7cf4", "#173a84"), ("#172a4f", "#5b93ff", "#cfe0ff")),
    "linear": (("#f0e8ff", "#8b5cf6", "#4a2199"), ("#2c1f4d", "#a98bff", "#e5dcff")),
    "attention": (("#fde7f3", "#d6409f", "#7a1554"), ("#421a33", "#f07ac0", "#fbd3ea")),
    "pool": (("#dff6ea", "#1fa06c", "#0d4d34"), ("#103527", "#3cc48d", "#c9f3e0")),
    "identity": (("#fff2d4", "#dd9a0b", "#6b4407"), ("#3d2f0d", "#e6b040", "#fbe7bb")),
    "zero": (("#f1f3f6", "#98a2b3", "#5b6575"), ("#22272f", "#788396", "#a5afbf")),
    "norm": (("#e2f5f8", "#1d9bb0", "#0e4c57"), ("#0f343b", "#45bdd1", "#c8eff6")),
    "activation": (("#ffe9e4", "#e4704f", "#7a2c15"), ("#452217", "#f28e70", "#ffd9cd")),
    "block": (("#eef0f8", "#6673a8", "#2a3358"), ("#232a45", "#8c9ad6", "#dbe1fb")),
    "other": (("#eef1f5", "#708097", "#2c3849"), ("#262d37", "#8e9db3", "#d8dfe9")),
    "sum": (("#344054", "#344054", "#ffffff"), ("#c5cedb", "#c5cedb", "#161b22")),
    "end": (("#ffffff", "#344054", "#1d2939"), ("#161b22", "#c5cedb", "#e6ebf2")),
}
"""on a light page, and on a dark one"""


def svg(plan: Plan, block: str | Sequence[str] = "") -> str:
    """Returns an SVG image of a block, of several below each other, or of the whole network for an empty name."""
    panels = [_Panel(sketch(plan, each)) for each in ([block] if isinstance(block, str) else block)]
    width = max(panel.width for panel in panels)
    height = sum(panel.height for panel in panels)
    tops = [sum(panel.height for panel in panels[:i]) for i in range(len(panels))]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" class="ez-plan" role="img" viewBox="0 0 {width:.0f} '
            f'{height:.0f}" width="{width:.0f}" height="{height:.0f}" font-family="{FONT}">',
            f"<title>{escape(', '.join(panel.seen.title for panel in panels))}</title>",
            f"<desc>{escape('; '.join(path for panel in panels for path in _paths(panel.seen)))}</desc>",
            f"<style>{STYLE}</style>",
            f'<rect class="card" x="0.5" y="0.5" width="{width - 1:.0f}" height="{height - 1:.0f}" rx="14"/>',
            *(line for panel, top in zip(panels, tops, strict=True) for line in panel.drawn(top, width)),
            "</svg>\n",
        ]
    )


class _Panel:
    """A block with its name and facts above it."""

    def __init__(self, seen: Sketch) -> None:
        self.seen, self.facts = seen, " · ".join(seen.facts)
        wide = max((_text_width(line) for item in seen.items if not item.round for line in item.lines), default=0)
        noted = max((_text_width(note, 11) for item in seen.items for note in (*item.inside, *item.notes)), default=0)
        self.boxes = [_box(item, max(wide, noted) + 30) for item in seen.items]
        self.placed = arrange(self.boxes, [(link.start, link.end) for link in seen.links])
        ends = seen.items[0], seen.items[-1]
        self.captions = [_text_width(item.caption, 11) + ASIDE * bool(item.caption) for item in ends]
        self.width = max(self.placed.width + sum(self.captions), _text_width(self.facts, 12), 240) + 2 * MARGIN
        self.height = self.placed.height + HEADER + MARGIN

    def drawn(self, top: float, width: float) -> list[str]:
        """Returns its lines of SVG, centred in a picture."""
        left = (width - self.placed.width + self.captions[0] - self.captions[1]) / 2
        return [
            f'<text class="title" x="{MARGIN:g}" y="{top + 32:g}">{escape(self.seen.title)}</text>',
            f'<text class="facts" x="{MARGIN:g}" y="{top + 51:g}">{escape(self.facts)}</text>',
            f'<g transform="translate({left:.1f} {top + HEADER:.1f})">',
            *[_arrow(arrow, link.dead) for arrow, link in zip(self.placed.arrows, self.seen.links, strict=True)],
            *[_drawn(*each) for each in zip(self.seen.items, self.boxes, self.placed.centres, strict=True)],
            "</g>",
        ]


def _rules(dark: bool, card: str, rim: str, title: str, quiet: str, line: str) -> str:
    looks = "".join(
        f".ez-plan .{look}>.shape{{fill:{fill};stroke:{stroke}}}.ez-plan .{look}>text{{fill:{text}}}"
        for look, (fill, stroke, text) in ((look, both[dark]) for look, both in COLOURS.items())
    )
    return looks + (
        f".ez-plan .card{{fill:{card};stroke:{rim}}}.ez-plan .title{{fill:{title}}}"
        f".ez-plan .facts,.ez-plan .item>.caption{{fill:{quiet}}}"
        f".ez-plan .edge{{stroke:{line}}}.ez-plan .tip{{fill:{line}}}"
        f".ez-plan .sum.dead>.shape{{fill:{card};stroke:{line}}}.ez-plan .sum.dead>text{{fill:{line}}}"
    )


STYLE = (
    ".ez-plan text{text-anchor:middle;font-size:13px;font-weight:500}"
    ".ez-plan .title{text-anchor:start;font-size:16px;font-weight:650}"
    ".ez-plan .facts{text-anchor:start;font-size:12px;font-weight:400}"
    ".ez-plan .note{font-size:11px;font-weight:400;opacity:.8}.ez-plan .caption{font-size:11px;font-weight:400}"
    ".ez-plan .caption.right{text-anchor:start}.ez-plan .caption.left{text-anchor:end}"
    ".ez-plan .shape{stroke-width:1.5}.ez-plan .edge{fill:none;stroke-width:1.6;stroke-linecap:round}"
    ".ez-plan .dead>.shape,.ez-plan .edge.dead{stroke-dasharray:4 3.5}"
    ".ez-plan .dead{opacity:.55}.ez-plan .edge.dead,.ez-plan .tip.dead{opacity:.4}"
    + _rules(False, "#ffffff", "#e3e7ee", "#101828", "#667085", "#667085")
    + "@media(prefers-color-scheme:dark){"
    + _rules(True, "#0f141b", "#2b333f", "#f2f5fa", "#98a4b5", "#8a97aa")
    + "}"
)


def _text_width(text: str, size: float = 13) -> float:
    """Estimates the width of text in a sans-serif font."""
    widths = {**dict.fromkeys("il.,:;'|!() ", 0.31), **dict.fromkeys("mwMW@%", 0.88), "…": 0.95}
    return size * sum(widths.get(c, 0.68 if c.isupper() or ord(c) > 0x2E7F else 0.585) for c in text)


def _text_height(item: Item) -> float:
    return 17 * len(item.lines) + 15 * len(item.inside) + APART * bool(item.inside) + 15 * len(item.notes)


def _box(item: Item, width: float) -> Box:
    if item.round:
        return Box(CIRCLE, CIRCLE, True)
    height = 18 + _text_height(item)
    if item.look == "end":
        width = max(_text_width(item.lines[0]), *(_text_width(note, 11) for note in item.notes), 30) + 26
    return Box(width, height)


def _arrow(arrow: Arrow, dead: bool) -> str:
    mark = " dead" if dead else ""
    back = arrow.tip.moved(arrow.direction, -8)
    across = Point(-arrow.direction.y, arrow.direction.x)
    corners = (arrow.tip, back.moved(across, 4), back.moved(across, -4))
    points = " ".join(f"{corner.x:.1f},{corner.y:.1f}" for corner in corners)
    return f'<path class="edge{mark}" d="{arrow.path}"/><polygon class="tip{mark}" points="{points}"/>'


def _drawn(item: Item, box: Box, centre: Point) -> str:
    kind = "node" if item.round else "box"
    parts = [f'<g class="item {kind} {item.look}{" dead" if item.dead else ""}">']
    parts.append(f"<title>{escape(item.about)}</title>")
    x, y = centre.x - box.width / 2, centre.y - box.height / 2
    if item.round:
        parts.append(f'<circle class="shape" cx="{centre.x:.1f}" cy="{centre.y:.1f}" r="{box.width / 2 - 1:g}"/>')
    else:
        radius = box.height / 2 if item.look == "end" else 9
        extent = f'width="{box.width:.1f}" height="{box.height:.1f}" rx="{radius:g}"'
        stack = range(4 * min(item.times - 1, 2), -1, -4)
        parts += [f'<rect class="shape" x="{x + d:.1f}" y="{y - d:.1f}" {extent}/>' for d in stack]
    y = centre.y - _text_height(item) / 2 + 13
    for line in item.lines:
        parts.append(f'<text x="{centre.x:.1f}" y="{y:.1f}">{escape(line)}</text>')
        y += 17
    for notes in (item.inside, item.notes):
        for note in notes:
            parts.append(f'<text class="note" x="{centre.x:.1f}" y="{y - 1:.1f}">{escape(note)}</text>')
            y += 15
        y += APART * bool(notes)
    if item.caption:
        side, where = (-1, "left") if item.look == "end" else (1, "right")
        edge = centre.x + side * (box.width / 2 + ASIDE)
        at = f'x="{edge:.1f}" y="{centre.y + 4:.1f}"'
        parts.append(f'<text class="caption {where}" {at}>{escape(item.caption)}</text>')
    return "".join([*parts, "</g>"])


# ---- as text


def text(plan: Plan, block: str | Sequence[str] = "") -> str:
    """Returns the drawing as lines of text, each a path between two points where paths meet.

    input ─ conv 3x3 ─────▶ node1
    input ╌ zero ╌╌╌╌╌╌╌╌╌▷ node2        dashed: cut
    """
    sketches = [sketch(plan, each) for each in ([block] if isinstance(block, str) else block)]
    return "\n".join(f"{s.title}  {'  '.join(s.facts)}\n" + "\n".join(_paths(s)) + "\n" for s in sketches)


def _paths(seen: Sketch) -> list[str]:
    into: dict[int, list[Link]] = {i: [] for i in range(len(seen.items))}
    for link in seen.links:
        into[link.end].append(link)
    leaving = Counter(link.start for link in seen.links)

    def passes(i: int) -> bool:
        return not seen.items[i].round and len(into[i]) == 1 == leaving[i]

    rows: list[tuple[str, list[str], str, bool]] = []
    for end, item in enumerate(seen.items):
        for link in [] if passes(end) else into[end]:
            over: list[str] = []
            start, dead = link.start, link.dead
            while passes(start):
                over.insert(0, _label(seen.items[start]))
                dead = dead or into[start][0].dead
                start = into[start][0].start
            rows.append((_place(seen.items[start]), over, _place(item), dead))
    inner = [(item.name, list(item.inside), item.notes[0], item.dead) for item in seen.items if item.inside]
    return [*_aligned(rows), *_aligned(inner)]


def _aligned(rows: Sequence[tuple[str, list[str], str, bool]]) -> list[str]:
    first = max((len(row[0]) for row in rows), default=0)
    middle = max((len(_joined(row[1], "─")) for row in rows), default=0)
    longest = max((len(row[2]) for row in rows), default=0)
    room = max(COLUMNS - first - longest - 6, LONGEST)
    return [line for row in rows for line in _row(*row, first, min(middle, room))]


def _row(start: str, over: list[str], end: str, dead: bool, first: int, middle: int) -> list[str]:
    """Returns one path: its start, the items on it, its end."""
    dash, tip = ("╌", "▷") if dead else ("─", "▶")
    lines: list[list[str]] = [[]]
    for word in over:
        if lines[-1] and len(_joined([*lines[-1], word], dash)) > middle:
            lines.append([])
        lines[-1].append(word)
    texts = [_joined(words, dash) for words in lines]
    heads = [start.ljust(first), *[" " * first] * (len(texts) - 1)]
    padded = 0 if len(texts) > 1 else first + 2 + middle
    *upper, last = [f"{head} {dash}{middle_text}" for head, middle_text in zip(heads, texts, strict=True)]
    return [*upper, f"{last.ljust(padded, dash)}{tip} {end}"]


def _joined(words: list[str], dash: str) -> str:
    return "".join(f" {word} {dash}" for word in words)


def _label(item: Item) -> str:
    return ", ".join(item.lines) + (f" {TIMES}{item.times}" if item.times > 1 else "")


def _place(item: Item) -> str:
    label = _label(item)
    if item.round or label == item.name:
        return item.caption or item.name
    return f"{item.name} ({label})"
