"""The contents of a drawing before its layout: items, and links between them."""

from __future__ import annotations

import re
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

from epochzero.plan.blocks import (
    MINOR,
    TIMES,
    Called,
    Size,
    Unit,
    alive,
    boundary,
    is_chain,
    labels,
    members,
    shape_text,
    size,
    units,
)
from epochzero.plan.plan import Plan
from epochzero.types import Shape

LOOKS = ("zero", "attention", "conv", "linear", "pool", "identity", "activation", "norm")
"""a chain is drawn as the first of these kinds that it contains"""
LONGEST = 28
MOST_LABELS = 3

Run = list[Unit]
"""equal consecutive blocks, which are drawn once"""


@dataclass(frozen=True)
class Item:
    """An input or output, a sum, an op, or a block folded to one box."""

    look: str
    """end, sum, block, other or one of LOOKS"""
    name: str
    lines: tuple[str, ...]
    """its lines of text"""
    notes: tuple[str, ...] = ()
    """shape and size, where they are shown"""
    about: str = ""
    """the text of its tooltip"""
    round: bool = False
    times: int = 1
    dead: bool = False
    caption: str = ""
    inside: tuple[str, ...] = ()
    """the ops of a block that is a chain of blocks"""


@dataclass(frozen=True)
class Link:
    """An arrow between two items."""

    start: int
    end: int
    dead: bool


@dataclass(frozen=True)
class Sketch:
    """Items in topological order, an output last."""

    title: str
    facts: tuple[str, ...]
    items: tuple[Item, ...]
    links: tuple[Link, ...]


def sketch(plan: Plan, block: str) -> Sketch:
    """Returns the direct parts of a block, or of the whole network for an empty name, each folded to one item."""
    nodes = members(plan, block)
    sources, outputs = boundary(plan, nodes) if block else (plan.inputs, plan.outputs)
    live = alive(plan, nodes)
    runs = _runs(plan, units(plan, block), outputs)
    numbered = _numbered(plan, runs)
    items = [_input(plan, block, source, sources, numbered) for source in sources]
    home = {source: k for k, source in enumerate(sources)}
    links: dict[tuple[int, int], bool] = {}
    used: set[str] = set()
    for run in runs:
        for source in run[0].sources:
            readers = [i for i in run[0].nodes if source in plan.nodes[i].inputs]
            dead = not live.intersection(readers) or (source not in live and source not in sources)
            link = home[source], len(items)
            links[link] = links.get(link, True) and dead
        home.update(dict.fromkeys(run[-1].nodes, len(items)))
        weights = {name for unit in run for i in unit.nodes for name in plan.nodes[i].params}
        shared = bool(weights) and weights <= used
        used |= weights
        items.append(_item(plan, run, live, numbered, shared, whole=not block))
    if len(outputs) == 1 and items[-1].round and home[outputs[0]] == len(items) - 1 > 0:
        items[-1] = replace(items[-1], caption="output")
    else:
        for k, output in enumerate(outputs):
            links[home[output], len(items)] = output not in live and output not in sources
            several = "auxiliary" if output == plan.auxiliary else f"output {k + 1}" if block else "output"
            items.append(_end(plan, block, "output" if len(outputs) == 1 else several, output))
    cost = size(plan, nodes) if block else Size(plan.params, plan.flops)
    flow = " → ".join(", ".join(shape_text(plan.nodes[i].shape) for i in ends) for ends in (sources, outputs))
    facts = (flow, f"{short(cost.params)} parameters", f"{short(cost.macs)} multiply-accumulates")
    title = f"{clean(block.words)} ({clean(block)})" if isinstance(block, Called) else clean(block) or "network"
    return Sketch(title, facts, tuple(items), tuple(Link(a, b, dead) for (a, b), dead in links.items()))


def _runs(plan: Plan, parts: Sequence[Unit], outputs: Sequence[int]) -> list[Run]:
    """Joins equal consecutive blocks that nothing else reads."""
    read = [*outputs, *(source for part in parts for source in part.sources)]
    runs: list[Run] = []
    for part in parts:
        for run in runs:
            last = run[-1]
            follows = part.block and last.block and part.sources == last.outputs and len(last.outputs) == 1
            if follows and read.count(last.outputs[0]) == 1 and _signature(plan, part) == _signature(plan, last):
                run.append(part)
                break
        else:
            runs.append([part])
    return runs


def _signature(plan: Plan, unit: Unit) -> Hashable:
    """Returns a key that is equal for units that do the same to inputs of the same shape."""
    place = {i: k for k, i in enumerate((*unit.sources, *unit.nodes))}
    shapes = tuple(plan.nodes[source].shape for source in unit.sources)
    inner = tuple((plan.nodes[i].op, tuple(place[s] for s in plan.nodes[i].inputs)) for i in unit.nodes)
    return shapes, inner, tuple(place[i] for i in unit.outputs)


def _is_sum(plan: Plan, unit: Unit) -> bool:
    return not unit.block and len(plan.nodes[unit.nodes[0]].op.label()) == 1


def _numbered(plan: Plan, runs: Sequence[Run]) -> bool:
    """Returns True where the sums of the block are numbered from 1, so that its one input can be 0."""
    sums = [run[0].path for run in runs if _is_sum(plan, run[0])]
    return bool(sums) and [_number(path) for path in sums] == [str(k + 1) for k in range(len(sums))]


def _number(path: str) -> str:
    match = re.search(r"\d+$", path, re.ASCII)
    return match[0] if match else ""


def _input(plan: Plan, block: str, source: int, sources: Sequence[int], numbered: bool) -> Item:
    if len(sources) == 1:
        item = _end(plan, block, "input", source)
        return replace(item, lines=("0",), round=True, caption="input") if numbered and block else item
    name = f"input {sources.index(source) + 1}" if block else clean(plan.nodes[source].name)
    return _end(plan, block, name, source)


def _end(plan: Plan, block: str, name: str, node: int) -> Item:
    shape = shape_text(plan.nodes[node].shape)
    return Item("end", name, (name,), () if block else (shape,), f"{name}: {shape}")


def _item(plan: Plan, run: Run, live: set[int], numbered: bool, shared: bool, whole: bool) -> Item:
    first = run[0]
    name = clean(first.path) if len(run) == 1 else _range(run)
    shape = shape_text(plan.nodes[run[-1].outputs[0]].shape)
    params = size(plan, first.nodes).params
    sized = f"{short(params)} params" if len(run) == 1 else f"{len(run)} {TIMES} {short(params)} params"
    sized = "shared weights" if shared else sized
    dead = all(not live.intersection(unit.nodes) for unit in run)
    ops = [plan.nodes[i].op for i in first.nodes]
    about = f"{name}: {', '.join(clean(op.label()) for op in ops[:12])}{', ...' if len(ops) > 12 else ''}"
    item = Item("block", name, (name,), (shape, sized), f"{about}; {shape}; {sized}", times=len(run), dead=dead)
    if _is_sum(plan, first):
        text = _number(first.path) if numbered else clean(ops[0].label())
        return replace(item, look="sum", lines=(text,), notes=(), round=True)
    shown = _counted(labels(plan, first.nodes))
    plain = is_chain(plan, first) or not first.block or (len(shown) == 1 and _splits(plan, first))
    if plain:
        kinds = {op.kind for op in ops}
        item = replace(item, look=next((look for look in LOOKS if look in kinds), "other"))
    if whole and first.block:
        inside = _counted(_row(plan, first.path)) or _named_parts(plan, first.path)
        return replace(item, inside=tuple(clean(label) for label in inside))
    if not plain or len(shown) > MOST_LABELS:
        return item
    return replace(item, lines=tuple(clean(label) for label in shown), notes=item.notes if whole else ())


def _splits(plan: Plan, unit: Unit) -> bool:
    """Returns True where its one input takes several paths that are concatenated and not summed."""
    sums = any(len(plan.nodes[i].op.label()) == 1 for i in unit.nodes)
    return len(unit.sources) == 1 == len(unit.outputs) and not sums


def _row(plan: Plan, block: str) -> list[str]:
    """Returns the ops of a chain of blocks, those of each block itself, with the channels of their outputs.

    Nothing for a block of another kind. A shortcut or a gate, a block within a block of the row, is left out.
    """
    parts, said = units(plan, block), []
    if not all(part.block for part in parts) or any(b.sources != a.outputs for a, b in pairwise(parts)):
        return []
    for part in parts:
        prefix, reached, width = f"{block}.{part.path}.", set(part.sources), 0
        for i in part.nodes:
            node = plan.nodes[i]
            layer = node.op.kind not in MINOR and "." not in node.name.removeprefix(prefix)
            if reached.isdisjoint(node.inputs):
                if layer:
                    return []
            elif layer:
                before, width, reached = width, _channels(node.shape), {i}
                said.append(node.op.label() + (f" → {width}" if width != before else ""))
            else:
                reached.add(i)
        if not width:
            return []
    return said


def _named_parts(plan: Plan, block: str) -> list[str]:
    """Returns the blocks within a block by name, with heads, the ratio of the widest layer, or the shape they give.

    Nothing if some of them are numbered, such as the edges of a cell.
    """
    said = []
    for part in units(plan, block):
        if not part.block:
            continue
        if any(letter.isdigit() for letter in part.path):
            return []
        shape, heads = plan.nodes[part.outputs[0]].shape, {getattr(plan.nodes[i].op, "heads", 0) for i in part.nodes}
        widest = max(_channels(plan.nodes[i].shape) for i in part.nodes) / max(1, _channels(shape))
        if max(heads):
            said.append(f"{part.path}, {max(heads)} heads")
        elif is_chain(plan, part) and shape == plan.nodes[part.sources[0]].shape:
            said.append(f"{part.path} {TIMES}{widest:.3g}" if widest > 1 else part.path)
        else:
            said.append(f"{part.path} → {shape_text(shape)}")
    return said if len(said) > 1 else []


def _channels(shape: Shape) -> int:
    """Returns the first size of a map or a vector, the second of a row of tokens."""
    return (*shape, 1)[len(shape) == 2]


def _counted(said: list[str]) -> list[str]:
    """Returns labels with repetitions counted; the first of them may have a stride that the others lack."""
    bare = [label.replace(" /2", "") for label in said]
    period = next((p for p in range(1, len(said) + 1) if bare == bare[:p] * (len(said) // p)), 0)
    if 1 < period < len(said) and said[period:] in (bare[period:], said[:-period]):
        return [*said[:period], f"{TIMES}{len(said) // period}"]
    runs = ((label, len(list(same))) for label, same in groupby(said))
    return [label if count == 1 else f"{count} {TIMES} {label}" for label, count in runs]


def _range(run: Run) -> str:
    """Returns `cell 0-4` for cell0 to cell4."""
    first, last = clean(run[0].path), clean(run[-1].path)
    stem = first.removesuffix(_number(first))
    if stem and _number(first) and last == stem + _number(last):
        return f"{stem} {_number(first)}\N{EN DASH}{_number(last)}"
    return f"{first} ... {last}"


def short(number: int) -> str:
    """Returns a count with three digits and a unit: 14.2M."""
    for unit, factor in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("k", 10**3)):
        value = number / factor
        if value >= 0.9995:
            return f"{value:.{2 if value < 9.995 else 1 if value < 99.95 else 0}f}{unit}"
    return str(number)


def clean(text: str) -> str:
    """Returns text for one line of a drawing: printable, and not too long."""
    printable = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
    return printable if len(printable) <= LONGEST else printable[: LONGEST - 1] + "…"
