"""Descriptions of a plan's blocks from which `code` prints source."""

from __future__ import annotations

import ast
import keyword
import unicodedata
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from torch import nn

from epochzero.errors import UserError
from epochzero.plan.blocks import Unit, boundary, input_shapes, is_chain, labels, members, shape_text, units
from epochzero.plan.ops.base import Op
from epochzero.plan.plan import Plan
from epochzero.types import Shape

Ref = tuple[int, int]
"""a value inside a block: (part, which of its outputs), or (-1, which of the block's inputs)"""


@dataclass(frozen=True)
class Part:
    """One step of a block: a call of a module or of a block within, or an expression."""

    path: str
    """the attribute that holds the module, or a name for the value of an expression"""
    args: tuple[Ref, ...]
    outputs: int
    note: str = field(compare=False)
    """the shape of its value"""
    op: Op | None = None
    """the op of an expression"""
    code: tuple[str, ...] = ()
    """the constructor call of a module, cut where its widths go"""
    widths: tuple[int, ...] = ()
    child: Block | None = None
    stateful: bool = False
    shared: bool = False
    """calls the module of another part, at the same path"""

    @cached_property
    def key(self) -> Hashable:
        """A key that is equal for parts that are equal up to their widths."""
        text = "" if self.op is None else self.op.expression(*placeholders(len(self.args)))
        child = self.child.key if self.child else None
        return self.path, self.args, self.outputs, text, self.code, child, self.stateful, self.shared

    @property
    def owns(self) -> bool:
        """True where it makes a module of its own."""
        return self.op is None and not self.shared

    def expression(self, args: Sequence[str]) -> str:
        return f"self.{self.path}({', '.join(args)})" if self.op is None else self.op.expression(*args)


@dataclass(frozen=True)
class Block:
    """A block of the plan."""

    name: str = field(compare=False)
    parts: tuple[Part, ...]
    inputs: int
    results: tuple[Ref, ...]
    labels: tuple[str, ...]
    widths: tuple[int, int]
    """the channels (or features) of its first input and its first output"""
    axis: str
    """channels or features"""
    tower: int = 0
    """the number of its last parts that run in training alone, for its second result"""

    @cached_property
    def key(self) -> Hashable:
        """A key that is equal for blocks that are equal up to their name and widths."""
        return tuple(part.key for part in self.parts), self.inputs, self.results

    @cached_property
    def straight(self) -> bool:
        """True where each part reads the one before it and nothing else."""
        flows = all(part.args == ((at - 1, 0),) and part.outputs == 1 for at, part in enumerate(self.parts))
        return flows and not self.tower and self.inputs == 1 and self.results == ((len(self.parts) - 1, 0),)

    @cached_property
    def chain(self) -> bool:
        """True where it can be an `nn.Sequential`."""
        fits = (part.owns and "." not in part.path and not hasattr(nn.Sequential(), part.path) for part in self.parts)
        return self.straight and all(fits)

    @property
    def bare(self) -> bool:
        """True for one module without parameters, which needs no block around it."""
        return self.chain and len(self.parts) == 1 and not self.parts[0].stateful


def placeholders(count: int) -> list[str]:
    return [f"v{i}" for i in range(count)]


def checked(name: str) -> str:
    """Returns a dotted name if it can be printed as code; raises UserError if not."""
    for step in name.split("."):
        plain = step.isidentifier() and unicodedata.normalize("NFKC", step) == step
        if not plain or keyword.iskeyword(step) or step.startswith("__"):
            raise UserError(
                f"The node name {name!r} cannot be printed as code: {step!r} is not a plain Python identifier; "
                "rename it in the space that makes the plan."
            )
    return name


def described(plan: Plan, name: str = "", home: str = "") -> Block:
    """Returns the block of this name (the whole network for none), with parameters under the name `home`."""
    nodes = members(plan, name)
    sources, outputs = boundary(plan, nodes) if name else (plan.inputs, plan.outputs)
    refs: dict[int, Ref] = {source: (-1, k) for k, source in enumerate(sources)}
    parts: list[Part] = []
    borrowed: dict[int, str] = {}
    direct = units(plan, name, opens=lambda unit: _expression_only(plan, unit))
    trunk, tower = _split(plan, direct) if not name else (direct, ())
    for at, unit in enumerate((*trunk, *tower)):
        here, expected = (f"{outer}.{unit.path}".lstrip(".") for outer in (name, home))
        owner = _owner(plan, unit, here, expected)
        if owner != expected:
            borrowed[at] = owner
        parts.append(_part(plan, checked(here), owner, unit, refs))
        refs.update({output: (at, k) for k, output in enumerate(unit.outputs)})
    for at, owner in borrowed.items():
        parts[at] = _sharing(parts, at, owner, home)
    unread = next(reversed(refs.values()))  # any value serves for a result that nothing reads
    shapes = plan.nodes[sources[0]].shape, plan.nodes[outputs[0]].shape
    return Block(
        name,
        _attributes(name, parts),
        len(sources),
        tuple(refs.get(output, unread) for output in outputs),
        tuple(labels(plan, nodes)),
        (_width(shapes[0]), _width(shapes[1])),
        "channels" if len(shapes[0]) == 3 else "features",
        len(tower),
    )


def _split(plan: Plan, direct: Sequence[Unit]) -> tuple[tuple[Unit, ...], tuple[Unit, ...]]:
    """Returns the parts of a network that always run, and those that run for its auxiliary output alone."""
    inside = [plan.tower.intersection(unit.nodes) for unit in direct]
    for unit, nodes in zip(direct, inside, strict=True):
        if nodes and len(nodes) < len(unit.nodes):
            raise UserError(
                f"{unit.path!r} cannot be printed as code: only a part of it leads to the auxiliary output alone; "
                "give the auxiliary tower a block of its own."
            )
    pairs = list(zip(direct, inside, strict=True))
    return tuple(unit for unit, nodes in pairs if not nodes), tuple(unit for unit, nodes in pairs if nodes)


def _expression_only(plan: Plan, unit: Unit) -> bool:
    return is_chain(plan, unit) and not any(_module(plan, i) for i in unit.nodes)


def _width(shape: Shape) -> int:
    return shape[0] if shape else 1


def _widths(shape: Shape) -> Shape:
    """Returns the sizes of one sample that modules depend on: not the height and width of an image."""
    return shape[:1] if len(shape) == 3 else shape[:1] + shape[-1:]


def _module(plan: Plan, node: int) -> str:
    """Returns the constructor call of a node's module; empty for an expression."""
    return plan.nodes[node].op.code(*input_shapes(plan, node))


def _part(plan: Plan, name: str, home: str, unit: Unit, refs: dict[int, Ref]) -> Part:
    note = " and ".join(shape_text(plan.nodes[i].shape, " x ") for i in unit.outputs)
    if unit.block:
        stateful = any(plan.nodes[i].params for i in unit.nodes)
        args = tuple(refs[s] for s in unit.sources)
        child = described(plan, name, home)
        return Part(unit.path, args, len(unit.outputs), note, child=child, stateful=stateful)
    node = plan.nodes[unit.nodes[0]]
    part = Part(unit.path, tuple(refs[s] for s in node.inputs), 1, note)
    if constructor := _module(plan, unit.nodes[0]):
        shapes = (*input_shapes(plan, unit.nodes[0]), node.shape)
        pieces, widths = _cut(constructor, {size for shape in shapes for size in _widths(shape)})
        return replace(part, code=pieces, widths=widths, stateful=bool(node.params))
    try:
        node.op.expression(*placeholders(len(node.inputs)))
    except NotImplementedError:
        raise UserError(f"{node.name!r} cannot be printed as code: its op {node.op} has none.") from None
    if node.params:
        raise UserError(f"{node.name!r} cannot be printed as code: its op {node.op} has parameters, but no module.")
    return replace(part, op=node.op)


def _cut(constructor: str, widths: set[int]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Cuts a constructor call at the whole numbers that are widths of the data: the rest, and the numbers."""
    numbers = sorted(
        (node.col_offset, node.end_col_offset or 0, node.value)
        for node in ast.walk(ast.parse(constructor, mode="eval"))
        if isinstance(node, ast.Constant) and type(node.value) is int and node.value in widths
    )
    starts, ends = [*(n[0] for n in numbers), len(constructor)], [0, *(n[1] for n in numbers)]
    pieces = tuple(constructor[a:b] for a, b in zip(ends, starts, strict=True))
    return pieces, tuple(n[2] for n in numbers)


def _owner(plan: Plan, unit: Unit, here: str, expected: str) -> str:
    """Returns the name of the unit whose parameters this one uses: its own, unless it shares those of another."""
    for i in unit.nodes:
        for param in plan.nodes[i].params:
            owner = param.rpartition(".")[0]
            if not f"{owner}.".startswith(f"{expected}."):
                return owner.removesuffix(plan.nodes[i].name[len(here) :])
    return expected


def _sharing(parts: Sequence[Part], at: int, owner: str, home: str) -> Part:
    """Returns a part that uses another's parameters as a call of that one's module."""
    part, path = parts[at], owner.removeprefix(f"{home}." if home else "")
    for other in parts:
        if other.path == path and other.owns and replace(part, path=path, args=other.args) == other:
            return replace(part, path=path, shared=True)
    name = f"{home}.{part.path}".lstrip(".")
    raise UserError(
        f"{name!r} uses the parameters of {owner!r}, which printed code can only do where both are equal "
        "and parts of the same block."
    )


def _attributes(block: str, parts: Sequence[Part]) -> tuple[Part, ...]:
    """Returns the parts with unique attribute names: those with parameters keep theirs, others may be renamed."""
    taken: list[str] = []

    def clashes(path: str) -> bool:
        inside = any(f"{path}.".startswith(f"{t}.") or f"{t}.".startswith(f"{path}.") for t in taken)
        return inside or hasattr(nn.Module(), path.partition(".")[0])

    named = list(parts)
    for at in sorted(range(len(parts)), key=lambda at: not parts[at].stateful):
        part = path = parts[at].path
        if not parts[at].owns:
            continue
        for counter in range(2, len(parts) + 3):
            if not clashes(path):
                break
            if parts[at].stateful:
                where = f"{block}.{path}".lstrip(".")
                raise UserError(f"{where!r} cannot be printed as code: that attribute is taken; rename it.")
            path = f"{part}_{counter}"
        taken.append(path)
        named[at] = replace(parts[at], path=path)
    return tuple(named)
