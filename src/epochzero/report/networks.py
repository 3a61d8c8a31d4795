"""Sizes, drawings and layers of a run's networks, and their accuracies in a table.

Nothing is built or run: all of it is read from plans. A space of modules, or of a plug-in that is not loaded, has none
of these.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from epochzero.errors import UserError
from epochzero.plan import Plan
from epochzero.plan.blocks import input_shapes, shape_text
from epochzero.plan.drawing import draw
from epochzero.recommend.spaces.nasrec import Nasrec
from epochzero.registry import spaces
from epochzero.report.candidates import ON, Candidates
from epochzero.spaces.base import Space
from epochzero.spaces.budget import Sizing
from epochzero.store import JSON, Run
from epochzero.study.sources import TableSource
from epochzero.tables.columns import described
from epochzero.types import Score

SHAPE, CLASSES = re.compile(r"of shape (\d+(?:x\d+)+)"), re.compile(r"(\d+) classes")
"""patterns in the description of the data"""
FITTED = ("dense", "tables", "widths", "rows")
LARGEST = 400
"""largest number of items in a legible drawing; larger ones are left out"""


@dataclass
class Networks:
    """The space of a run, with a cache of sizes, so that a live report counts each network once."""

    run: Run
    seconds: float = 20.0
    """time limit for counting sizes"""
    sizes: dict[tuple[str, str], tuple[float, float]] = field(default_factory=dict)

    @property
    def _fitted(self) -> Mapping[str, JSON]:
        return _part(_part(self.run.manifest, "settings"), "fitted")

    @property
    def _about(self) -> str:
        data = _part(self.run.manifest, "settings").get("data")
        return str(data[0] if isinstance(data, Sequence) and not isinstance(data, str) and data else data)

    def space(self, name: str) -> Space | None:
        """The space as the run used it: one for tables of clicks is adapted to a table."""
        found, kept = _space(name), self._fitted
        if isinstance(found, Nasrec) and kept:
            return replace(found, **{part: _sizes(kept[part]) for part in FITTED if part in kept})
        return found

    @property
    def features(self) -> str:
        """A description of the table of clicks that the networks were made for, or empty."""
        tables = self._fitted.get("tables")
        if not isinstance(tables, Sequence):
            return ""
        return f"{self._fitted.get('dense')} dense and {len(tables)} categorical features, without the embeddings"

    @property
    def fits(self) -> dict[str, Any]:
        """Input shape and classes of the networks, as far as the run names them; else the space's defaults."""
        shape, classes = SHAPE.search(self._about), CLASSES.search(self._about)
        kept = _part(self.run.manifest, "settings").get("input_shape")
        rows: dict[str, Any] = {}
        if isinstance(kept, list):
            rows["input_shape"] = tuple(kept)
        elif shape:
            rows["input_shape"] = tuple(map(int, shape[1].split("x")))
        if classes:
            rows["num_classes"] = int(classes[1])
        return rows

    def plan(self, space: str, text: str) -> Plan | None:
        """The plan of a network, or None."""
        known_space = self.space(space)
        if known_space is None:
            return None
        try:
            return known_space.plan(known_space.parse(text), **({} if isinstance(known_space, Nasrec) else self.fits))
        except UserError:
            return None

    def size(self, space: str, text: str) -> tuple[float, float]:
        """Parameters and multiply-accumulates; nan if unknown."""
        key = (space, text)
        if key not in self.sizes:
            self.sizes[key] = self._counted(space, text)
        return self.sizes[key]

    def _counted(self, space: str, text: str) -> tuple[float, float]:
        known_space = self.space(space)
        if known_space is None:
            return math.nan, math.nan
        if isinstance(known_space, Nasrec):
            return self._counted_nasrec(known_space, text)
        if isinstance(known_space, Sizing):
            native = known_space.plan(known_space.smallest())
            fits: dict[str, Any] = {"num_classes": native.output_shape[0], "input_shape": native.input_shape}
            try:
                return known_space.size(known_space.parse(text), **(fits | self.fits))
            except UserError:
                return math.nan, math.nan
        plan = self.plan(space, text)
        return (math.nan, math.nan) if plan is None else (plan.params, plan.flops)

    def _counted_nasrec(self, space: Nasrec, text: str) -> tuple[float, float]:
        """Sizes without the embeddings; unknown if the run does not name the table of clicks."""
        plan = None if space is _space(space.name) else self.plan(space.name, text)
        return (math.nan, math.nan) if plan is None else (plan.params - space.embedding_params, plan.flops)

    def add_sizes(self, candidates: Candidates, order: Sequence[int]) -> str:
        """Adds columns of parameters and FLOPs, best networks first; a sentence if time was too short for all."""
        there = {column.name.split(ON)[0] for column in candidates.of_kind("cost")}
        wanted = [name for name in ("params", "flops") if name not in there]
        if not wanted or not len(candidates):
            return ""
        counted = [(math.nan, math.nan)] * len(candidates)
        places = list(dict.fromkeys([*order, *range(len(candidates))]))
        end, done = time.monotonic() + self.seconds, 0
        while done < len(places) and time.monotonic() < end:
            at = places[done]
            counted[at] = self.size(candidates.spaces[at], candidates.archs[at])
            done += 1
        for which, name in enumerate(("params", "flops")):
            if name in wanted and not all(math.isnan(size[which]) for size in counted):
                candidates.add(name, "cost", False, [size[which] for size in counted])
        if done < len(places):
            return f"Parameters and FLOPs are shown for the best {done:,} networks; counting all would take too long."
        return ""

    def drawing(self, space: str, text: str) -> str:
        """A network's cell as SVG without its style; empty if it cannot be drawn."""
        plan, known_space = self.plan(space, text), self.space(space)
        if plan is None or known_space is None:
            return ""
        try:
            image = draw.svg(plan, known_space.cell_block)
        except UserError:
            return ""
        if image.count('<g class="item') > LARGEST:
            return ""
        return re.sub(r"<style>.*?</style>", "", image, flags=re.DOTALL)

    def code(self, space: str, text: str) -> str:
        """A network as Python source; empty if it cannot be printed."""
        plan = self.plan(space, text)
        try:
            return "" if plan is None else plan.code()
        except (UserError, NotImplementedError):
            return ""

    def layers(self, space: str, text: str) -> list[dict[str, JSON]]:
        """The layers of a network in order, with shapes and sizes; without inputs and nodes that only move or add."""
        plan = self.plan(space, text)
        if plan is None:
            return []
        used: set[str] = set()
        rows: list[dict[str, JSON]] = []
        for at, node in enumerate(plan.nodes):
            own = [name for name in node.params if name not in used]
            used.update(own)
            params = sum(plan.weights[name].numel for name in own if plan.weights[name].trainable)
            macs = node.op.macs(*input_shapes(plan, at))
            if not (node.op.kind or params or macs):
                continue
            shape = shape_text(node.shape)
            label, kind = node.op.label(), node.op.kind
            rows.append({"name": node.name, "op": label, "kind": kind, "shape": shape, "params": params, "macs": macs})
        return rows


def _space(name: str) -> Space | None:
    try:
        space = spaces[name]
    except UserError:
        return None
    return space if isinstance(space, Space) else None


def _part(kept: Mapping[str, JSON], name: str) -> Mapping[str, JSON]:
    part = kept.get(name)
    return part if isinstance(part, Mapping) else {}


def _sizes(kept: JSON) -> Any:
    return tuple(kept) if isinstance(kept, Sequence) else kept


class Known:
    """The accuracies that a table holds for the networks of a run, which may be of several spaces."""

    def __init__(self, path: Path, targets: Sequence[str], run: Run, seen: Sequence[str]) -> None:
        named = run.settings.get("space")
        self.source = _table(path, [str(named)] if named else list(dict.fromkeys(seen)))
        self.targets = list(targets) or self._usual(run)
        for target in self.targets:
            self.source.check_column(target)

    def _usual(self, run: Run) -> list[str]:
        """The targets of a benchmark, or the first accuracy of the table."""
        named = run.settings.get("targets")
        own = [str(name) for name in named] if isinstance(named, Sequence) and not isinstance(named, str) else []
        usual = [name for name in own if name in self.source.table.columns] or self._accuracies()[:1]
        if not usual:
            raise UserError(
                f"{self.source.table.source} has no column that is named as an accuracy: choose one with --target; "
                f"it has {', '.join(self.source.table.columns)}."
            )
        return usual

    def _accuracies(self) -> list[str]:
        return [name for name in self.source.table.columns if described(name).quantity == "accuracy"]

    def add(self, candidates: Candidates) -> str:
        """Adds a column for each target; a sentence if the table does not hold all networks."""
        missing = 0
        for target in self.targets:
            values = [
                self.source.value(text, target) if space == self.source.space.name else Score.failed("of another space")
                for space, text in zip(candidates.spaces, candidates.archs, strict=True)
            ]
            missing = max(missing, sum(not score.ok for score in values))
            column = described(target)
            high = column.quantity in ("accuracy", "other")
            candidates.add(target, "truth" if high else "cost", high, [score.value for score in values])
        name = self.source.name.split()[0]
        return f"{name} lacks {missing:,} of the {len(candidates):,} networks." if missing else ""


def _table(path: Path, names: Sequence[str]) -> TableSource:
    """The table, read with the first of these spaces whose networks it holds."""
    wrong: UserError | None = None
    for name in names:
        space = _space(name)
        if space is None:
            continue
        try:
            return TableSource.read(path, space)
        except UserError as error:
            wrong = wrong or error
    if wrong is not None:
        raise wrong
    named = " and ".join(f"'{name}'" for name in names) or "a run without networks"
    raise UserError(f"The networks of {named} cannot be looked up in a table: report without --table.")
