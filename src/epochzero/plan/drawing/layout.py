"""Layout of a drawing: positions of boxes and arrows, from left to right.

The layer of a box is the length of its longest path from an input. The longest path to the output is the spine, a
straight line. The other boxes form paths; each gets a row of its own between the layers where it leaves and joins the
rest, as near as possible to the rows of its two ends (their barycentre) and where it crosses the fewest others. A
drawing that is one long spine is broken into several rows.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

GAP = 46.0
"""between two columns"""
CHAIN_GAP = 36.0
"""the same if everything is in one row"""
ROW_GAP = 28.0
CROSSING = 3.0
"""the cost of a crossing, in rows of detour"""
LONGEST_ROW = 9
TIP = 8.0
"""the length of an arrow's head"""
TURN = 22.0
"""the margin of a row for the arrow to the next one"""

Edge = tuple[int, int]


class Point(NamedTuple):
    x: float
    y: float

    def moved(self, direction: Point, by: float) -> Point:
        return Point(self.x + direction.x * by, self.y + direction.y * by)


RIGHT = Point(1.0, 0.0)


class Box(NamedTuple):
    """The size of an item to be placed, and whether it is a circle."""

    width: float
    height: float
    round: bool = False


class Arrow(NamedTuple):
    """A drawn edge: the `d` of an SVG path that ends a little before the tip, the tip and where it points."""

    path: str
    tip: Point
    direction: Point


class Layout(NamedTuple):
    """Centres of the boxes and arrows of the edges, all within (0, 0) and (width, height)."""

    centres: list[Point]
    arrows: list[Arrow]
    width: float
    height: float


@dataclass
class Lane:
    """A path of boxes, or of none, in one row between two layers."""

    path: list[int]
    start: int | None
    """the box that it leaves from"""
    end: int | None
    """the box that it leads to"""
    after: int
    before: int
    """the layers between which no other lane is in its row"""
    row: int = 0
    edges: list[Edge] = field(default_factory=list)


def arrange(boxes: Sequence[Box], edges: Sequence[Edge]) -> Layout:
    """Places boxes that are listed in topological order, the output last."""
    graph = _Graph(len(boxes), edges)
    lanes = graph.lanes()
    _give_rows(lanes, graph.layers)
    _keep_order(lanes, graph)
    if len(lanes) == 1 and len(boxes) > LONGEST_ROW:
        return _broken(boxes, lanes[0].path, edges)
    columns = [0.0] * (max(graph.layers) + 1)
    for box, layer in zip(boxes, graph.layers, strict=True):
        columns[layer] = max(columns[layer], box.width)
    rows = [lane.row for lane in lanes]
    gap = (GAP if len(lanes) > 1 else CHAIN_GAP) + 8 * max(0, max(rows) - min(rows) - 2)
    starts = [sum(columns[:i]) + gap * i for i in range(len(columns))]
    row_of = {v: lane.row for lane in lanes for v in lane.path}
    ys, height = _heights(range(min(rows), max(rows) + 1), boxes, row_of)
    centres = [Point(starts[layer] + columns[layer] / 2, ys[row_of[v]]) for v, layer in enumerate(graph.layers)]
    levels = {edge: ys[lane.row] for lane in lanes for edge in lane.edges}
    for lane in lanes[1:]:
        _centre(lane, boxes, centres, graph, levels, gap)
    arrows = _Arrows(boxes, centres, edges, levels, gap).drawn()
    return Layout(centres, arrows, starts[-1] + columns[-1], height)


def _heights(rows: Sequence[int], boxes: Sequence[Box], row_of: dict[int, int]) -> tuple[dict[int, float], float]:
    """Returns the middle of each row, and their total height; a row without boxes is low."""
    middles: dict[int, float] = {}
    top = 0.0
    for row in rows:
        tall = max((box.height for v, box in enumerate(boxes) if row_of[v] == row), default=4.0)
        middles[row] = top + tall / 2
        top += tall + ROW_GAP
    return middles, top - ROW_GAP


class _Graph:
    def __init__(self, count: int, edges: Sequence[Edge]) -> None:
        self.edges = edges
        self.into: list[list[int]] = [[] for _ in range(count)]
        self.out: list[list[int]] = [[] for _ in range(count)]
        for a, b in edges:
            self.into[b].append(a)
            self.out[a].append(b)
        self.layers: list[int] = []
        for sources in self.into:
            self.layers.append(max((self.layers[s] + 1 for s in sources), default=0))

    def _longest(self, free: Collection[int], end: int | None = None) -> list[int]:
        """Returns the longest path through free boxes, to `end` if given."""
        best: dict[int, list[int]] = {}
        for v in sorted(free):
            before = max((best[s] for s in self.into[v] if s in best), key=len, default=[])
            best[v] = [*before, v]
        return best[end] if end is not None else max(best.values(), key=len)

    def is_simple(self, path: Sequence[int]) -> bool:
        """Returns True where nothing joins or leaves the path on its way."""
        return all(len(self.into[v]) == len(self.out[v]) == 1 for v in path)

    def lanes(self) -> list[Lane]:
        """Returns the spine, the other paths, and the edges that skip a layer or more."""
        last = len(self.layers) - 1
        free = set(range(len(self.layers)))
        lanes: list[Lane] = []
        while free:
            path = self._longest(free, None if lanes else last)
            free -= set(path)
            start = max(self.into[path[0]], key=lambda v: self.layers[v], default=None)
            end = min(self.out[path[-1]], key=lambda v: self.layers[v], default=None)
            lane = Lane(
                path,
                start,
                end,
                self.layers[path[0] if start is None else start] - (start is None),
                self.layers[path[-1] if end is None else end] + (end is None),
            )
            whole = [v for v in (start, *path, end) if v is not None]
            lane.edges = list(pairwise(whole))
            lanes.append(lane)
        lanes[0].after, lanes[0].before = -1, max(self.layers) + 1
        covered = {edge for lane in lanes for edge in lane.edges}
        for a, b in self.edges:
            if (a, b) not in covered and self.layers[b] - self.layers[a] > 1:
                lanes.append(Lane([], a, b, self.layers[a], self.layers[b], edges=[(a, b)]))
        return lanes


def _give_rows(lanes: list[Lane], layers: Sequence[int]) -> None:
    """Assigns rows: the spine is row 0; short lanes are nearest to it, each close to the boxes at its ends."""
    row_of = dict.fromkeys(lanes[0].path, 0)
    placed = [lanes[0]]
    waiting = sorted(lanes[1:], key=lambda lane: (lane.before - lane.after, lane.after))

    def ends(lane: Lane) -> list[int]:
        return [v for v in (lane.start, lane.end) if v is not None]

    def cost(lane: Lane, row: int) -> tuple[float, int]:
        known = [(row_of[v], layers[v]) for v in ends(lane) if v in row_of]
        crossed = sum(
            other.after < layer < other.before and min(row, home) < other.row < max(row, home)
            for home, layer in known
            for other in placed
        )
        target = sum(home for home, _ in known) / max(len(known), 1)
        return abs(row - target) + CROSSING * crossed, row

    def is_free(lane: Lane, row: int) -> bool:
        return all(o.row != row or o.before <= lane.after or lane.before <= o.after for o in placed)

    while waiting:
        lane = next((lane for lane in waiting if all(v in row_of for v in ends(lane))), waiting[0])
        waiting.remove(lane)
        rows = (row for row in range(-len(lanes), len(lanes) + 1) if is_free(lane, row))
        lane.row = min(cost(lane, row) for row in rows)[1]
        row_of.update(dict.fromkeys(lane.path, lane.row))
        placed.append(lane)


def _keep_order(lanes: list[Lane], graph: _Graph) -> None:
    """Puts the first input above the last, and paths that could be swapped in the order of their boxes."""
    row_of = {v: lane.row for lane in lanes for v in lane.path}
    inputs = [row_of[v] for v, sources in enumerate(graph.into) if not sources]
    if inputs[0] > inputs[-1]:
        for lane in lanes:
            lane.row = -lane.row
    spine = lanes[0].path
    alike: dict[tuple[int, int, int], list[Lane]] = {}
    for lane in lanes[1:]:
        if lane.path and lane.start is not None and lane.end is not None and graph.is_simple(lane.path):
            alike.setdefault((lane.start, lane.end, len(lane.path)), []).append(lane)
    for (start, end, length), group in alike.items():
        places = {lane.row: tuple(lane.path) for lane in group}
        if start in spine and end in spine:
            middle = tuple(spine[spine.index(start) + 1 : spine.index(end)])
            if len(middle) == length and graph.is_simple(middle):
                places[0] = middle
        for row, path in zip(sorted(places), sorted(places.values()), strict=True):
            lane = next((lane for lane in group if lane.row == row), lanes[0])
            at = lane.path.index(places[row][0])
            lane.path[at : at + length] = path
            ends = [] if lane is lanes[0] else [start, end]
            lane.edges = list(pairwise([*ends[:1], *lane.path, *ends[1:]]))


def _centre(
    lane: Lane,
    boxes: Sequence[Box],
    centres: list[Point],
    graph: _Graph,
    levels: dict[Edge, float],
    gap: float,
) -> None:
    """Spreads the boxes of a simple lane evenly between its ends, unless an arrow would run behind one of them."""
    if not graph.is_simple(lane.path) or lane.start is None or lane.end is None:
        return
    left = centres[lane.start].x + boxes[lane.start].width / 2
    right = centres[lane.end].x - boxes[lane.end].width / 2
    space = (right - left - sum(boxes[v].width for v in lane.path)) / (len(lane.path) + 1)
    moved: dict[int, Point] = {}
    for v in lane.path:
        left += space
        moved[v] = Point(left + boxes[v].width / 2, centres[v].y)
        left += boxes[v].width
    slopes = [slope for edge in graph.edges for slope in _slopes(edge, boxes, centres, levels.get(edge), gap)]
    if not any(
        a.x < centre.x + boxes[v].width / 2
        and centre.x - boxes[v].width / 2 < b.x
        and min(a.y, b.y) < centre.y < max(a.y, b.y)
        for v, centre in moved.items()
        for a, b in slopes
    ):
        for v, centre in moved.items():
            centres[v] = centre


def _slopes(
    edge: Edge, boxes: Sequence[Box], centres: Sequence[Point], level: float | None, gap: float
) -> list[tuple[Point, Point]]:
    """Returns whether an arrow goes up or down: from box to box, or to the row that it follows and from there."""
    a, b = (centres[v].moved(RIGHT, side * boxes[v].width / 2) for v, side in zip(edge, (1, -1), strict=True))
    if level is None:
        return [(a, b)]
    return [(a, Point(min(a.x + gap, b.x), level)), (Point(max(b.x - gap, a.x), level), b)]


class _Arrows:
    """Edges as smooth curves, which leave a box, follow their own row and enter the next box."""

    def __init__(
        self,
        boxes: Sequence[Box],
        centres: Sequence[Point],
        edges: Sequence[Edge],
        levels: dict[Edge, float],
        gap: float,
    ) -> None:
        self.boxes, self.centres, self.edges, self.gap = boxes, centres, edges, gap
        self.levels = levels

    def drawn(self) -> list[Arrow]:
        leaving = self._ports(0)
        entering = self._ports(1)
        return [self._arrow(edge, leaving[edge], entering[edge]) for edge in self.edges]

    def _level(self, edge: Edge, end: int) -> float:
        """Returns the height of an edge where it leaves (0) or enters (1) a box."""
        return self.levels.get(edge, self.centres[edge[1 - end]].y)

    def _ports(self, end: int) -> dict[Edge, tuple[Point, Point]]:
        """Returns for each edge the point of the box's outline where it leaves or enters, and its direction there."""
        ports: dict[Edge, tuple[Point, Point]] = {}
        side = 1 if end == 0 else -1
        for v in range(len(self.boxes)):
            box, centre = self.boxes[v], self.centres[v]
            for up in (-1, 0, 1):
                mine = [e for e in self.edges if e[end] == v and _sign(self._level(e, end) - centre.y) == up]
                mine.sort(key=lambda e: abs(self._level(e, end) - centre.y))
                for k, edge in enumerate(mine):
                    share = (k + 1) / (len(mine) + 1)
                    if box.round:
                        angle = math.radians(15 + 64 * share) * abs(up)
                        direction = Point(math.cos(angle), up * side * math.sin(angle))
                        rim = centre.moved(direction, side * box.width / 2)
                    else:
                        direction = RIGHT
                        rim = Point(centre.x + side * box.width / 2, centre.y + up * share * (box.height / 2 - 6))
                    ports[edge] = rim, direction
        return ports

    def _arrow(self, edge: Edge, leaving: tuple[Point, Point], entering: tuple[Point, Point]) -> Arrow:
        (first, away), (tip, towards) = leaving, entering
        last = tip.moved(towards, -TIP + 1)
        level = self.levels.get(edge)
        path = f"M{_xy(first)}"
        here, heading = first, away
        if level is not None:
            a, b = self.centres[edge[0]], self.centres[edge[1]]
            on = min(a.x + self.boxes[edge[0]].width / 2 + self.gap, last.x)
            off = max(b.x - self.boxes[edge[1]].width / 2 - self.gap, here.x)
            if abs(first.y - level) > 0.5:
                path += _curve(here, heading, Point(on, level), RIGHT)
                here, heading = Point(on, level), RIGHT
            if abs(last.y - level) > 0.5 and off > here.x:
                path += f" H{off:.1f}"
                here = Point(off, level)
        if abs(here.y - last.y) <= 0.5 and heading == towards == RIGHT:
            path += f" L{_xy(last)}"
        else:
            path += _curve(here, heading, last, towards)
        return Arrow(path, tip, towards)


def _broken(boxes: Sequence[Box], path: Sequence[int], edges: Sequence[Edge]) -> Layout:
    """Lays out one long path in several rows, each from left to right."""
    length = math.ceil(len(path) / math.ceil(len(path) / LONGEST_ROW))
    tall = max(box.height for box in boxes)
    pitch = tall + 1.6 * ROW_GAP
    centres = [Point(0, 0)] * len(boxes)
    x = width = 0.0
    for at, v in enumerate(path):
        x = TURN if at % length == 0 else x + CHAIN_GAP
        centres[v] = Point(x + boxes[v].width / 2, at // length * pitch + tall / 2)
        x += boxes[v].width
        width = max(width, x + TURN)
    arrows = []
    for a, b in edges:
        first = centres[a].moved(RIGHT, boxes[a].width / 2)
        tip = centres[b].moved(RIGHT, -boxes[b].width / 2)
        route = f" H{tip.x - TIP + 1:.1f}"
        if tip.y != first.y:
            r, half = TURN / 2, (tip.y - first.y) / 2
            route = (
                f" h{r / 2:.1f} q{r:g} 0 {r:g} {r:g} v{half - 2 * r:.1f} q0 {r:g} -{r:g} {r:g}"
                f" H{tip.x - r / 2:.1f} q-{r:g} 0 -{r:g} {r:g} v{half - 2 * r:.1f} q0 {r:g} {r:g} {r:g}{route}"
            )
        arrows.append(Arrow(f"M{_xy(first)}{route}", tip, RIGHT))
    return Layout(centres, arrows, width, len(path[::length]) * pitch - 1.6 * ROW_GAP)


def _curve(a: Point, out: Point, b: Point, into: Point) -> str:
    along = abs(b.x - a.x)
    reach = min(max(0.5 * along, 0.38 * math.hypot(along, b.y - a.y)), 0.9 * along)
    return f" C{_xy(a.moved(out, reach))} {_xy(b.moved(into, -reach))} {_xy(b)}"


def _xy(point: Point) -> str:
    return f"{point.x:.1f} {point.y:.1f}"


def _sign(x: float) -> int:
    return 0 if abs(x) < 0.5 else 1 if x > 0 else -1
