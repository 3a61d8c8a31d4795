"""A plan as stand-alone PyTorch source, which imports torch alone.

    Network().load_state_dict(plan.module().state_dict())

A block of the plan becomes a chain of modules (`nn.Sequential`) where it is one, else a small class. Blocks
that are equal up to their name and widths share a class, and what differs becomes an argument: `Cell(16)` and
`Cell(32)`.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence, Set
from typing import NamedTuple

from epochzero.plan.blocks import TIMES, shape_text
from epochzero.plan.plan import Plan
from epochzero.plan.printing.parts import Block, Part, Ref, checked, described

LINE = 110
INDENT = " " * 8
LONG_CHAIN = 4
"""a network that is a longer chain of modules than this runs them in a loop"""


def code(plan: Plan) -> str:
    """Returns Python source of a class `Network` that is equal to `plan.module()`, with the same parameter names."""
    names: list[str] = []
    for i in plan.inputs:
        names.append("x" if len(plan.inputs) == 1 else _local(checked(plan.nodes[i].name), names))
    ours = dict.fromkeys(part for node in plan.nodes for part in node.op.prints)
    sources = "".join(f"\n\n{inspect.getsource(part)}" for part in ours)
    body = sources + Classes(described(plan), {part.__name__ for part in ours}).source(names)
    shapes = " and ".join(shape_text(plan.nodes[i].shape, " x ") for i in plan.inputs)
    return (
        f"# {plan.params:,} parameters; {plan.flops:,} multiply-accumulates for an input of {shapes}.\n"
        "# Printed by EpochZero.\n\n"
        + ("from collections import OrderedDict\n\n" if "OrderedDict(" in body else "")
        + ("import torch\n" if "torch." in body else "")
        + f"from torch import Tensor, nn\n{body}"
    )


class Call(NamedTuple):
    """A call with its arguments, each with a prefix: nothing, or `name=`; or a list."""

    head: str
    args: list[tuple[str, Doc]]
    brackets: str = "()"

    def __str__(self) -> str:
        inside = ", ".join(f"{before}{arg}" for before, arg in self.args)
        return f"{self.head}{self.brackets[0]}{inside}{self.brackets[1]}"


Doc = str | Call


def printed(doc: Doc, before: str, after: str = "") -> list[str]:
    """Returns a call on as many lines as it needs, formatted as by ruff and black; `before` starts with the indent."""
    flat = f"{before}{doc}{after}"
    if len(flat) <= LINE or isinstance(doc, str):
        return [flat]
    indent = " " * (len(before) - len(before.lstrip()) + 4)
    together = indent + ", ".join(f"{key}{arg}" for key, arg in doc.args)
    is_list = doc.brackets == "[]"
    if len(together) <= LINE and not is_list:
        inner = [together]
    else:
        comma = "," if len(doc.args) > 1 or is_list else ""
        inner = [row for key, arg in doc.args for row in printed(arg, indent + key, comma)]
    return [f"{before}{doc.head}{doc.brackets[0]}", *inner, f"{indent[4:]}{doc.brackets[1]}{after}"]


def _broken(line: str) -> list[str]:
    """Breaks a line that is a call, or assigns or returns one, into as many lines as it needs."""
    before, value = re.findall(r"^(\s*(?:return |[\w, ]+ = )?)(.*)", line)[0]

    def doc(node: ast.AST) -> Doc:
        if isinstance(node, ast.Call) and not node.keywords:
            return Call(text(node.func), [("", doc(arg)) for arg in node.args])
        return Call("", [("", doc(item)) for item in node.elts], "[]") if isinstance(node, ast.List) else text(node)

    def text(node: ast.AST) -> str:
        return ast.get_source_segment(value, node) or ""

    return [line] if len(line) <= LINE else printed(doc(ast.parse(value, mode="eval").body), before)


class Classes:
    """The classes that a network's blocks need, each once, and their source."""

    def __init__(self, network: Block, taken: Set[str]) -> None:
        self.network = network
        self.taken = taken
        self.blocks: dict[Hashable, list[Block]] = {}
        """the blocks of each class, inner blocks first"""
        self._collect(network)
        places = Counter(
            part.child.key for alike in self.blocks.values() for part in alike[0].parts if part.child and part.owns
        )
        self.names: dict[Hashable, str] = {}
        """the names of blocks that get a class; the others are written where they are used"""
        self.numbers: dict[Hashable, list[tuple[int, ...]]] = {}
        """for each width in the constructor, its value in each block of the class"""
        self.arguments: dict[Hashable, dict[tuple[int, ...], str]] = {}
        """the widths that differ between the blocks of the class, and their names as arguments"""
        for key, alike in self.blocks.items():
            block = alike[0]
            if block is network or not (block.bare or (block.chain and places[key] == 1)):
                self.names[key] = self._name(block)
            self.numbers[key] = list(zip(*map(self._widths, alike), strict=True))
            self.arguments[key] = _arguments(alike, self.numbers[key])

    def _collect(self, block: Block) -> None:
        for part in block.parts:
            if part.child and part.owns:
                self._collect(part.child)
        self.blocks.setdefault(block.key, []).append(block)

    def _name(self, block: Block) -> str:
        if block is self.network:
            return "Network"
        said = " ".join(block.labels).replace(TIMES, "x").replace("/", "down") if block.chain else ""
        name = _camel(said) if said and len(block.labels) <= 2 else ""
        if not name.isidentifier():
            name = _camel(re.sub(r"[\d_]", " ", block.name.rpartition(".")[2])) or "Block"
        reserved = {*self.names.values(), *self.taken, *dir(builtins), "Network", "Tensor", "OrderedDict"}
        return _free(name, "", reserved)

    def _widths(self, block: Block) -> list[int]:
        """Returns the numbers in the block's constructor that could be arguments of its class."""
        widths: list[int] = []
        for part in block.parts:
            if part.child and part.owns:
                inner, key = self._widths(part.child), part.child.key
                widths += [inner[at] for at in self._handed(key)] if key in self.names else inner
            elif part.owns:
                widths += part.widths
        return widths

    def _handed(self, key: Hashable) -> list[int]:
        """Returns the indices of the numbers that a class gets as arguments."""
        return [self.numbers[key].index(values) for values in self.arguments[key]]

    def source(self, inputs: Sequence[str]) -> str:
        classes = [self._class(self.blocks[key][0], inputs) for key in self.names]
        return "".join("\n\n" + "\n".join(lines) + "\n" for lines in classes)

    def _class(self, block: Block, inputs: Sequence[str]) -> list[str]:
        alike, arguments = self.blocks[block.key], self.arguments[block.key]
        numbers = iter([arguments.get(values, str(values[0])) for values in self.numbers[block.key]])
        whole = block is self.network
        chain = block.chain and not whole
        head = [f"class {self.names[block.key]}(nn.{'Sequential' if chain else 'Module'}):"]
        head += [] if whole else [f'    """Used as {_listed([like.name for like in alike])}."""', ""]
        expected = ", ".join(["self", *(f"{name}: int" for name in arguments.values())])
        init = f"    def __init__({expected}) -> None:"
        if chain:
            return [*head, init, *printed(Call("super().__init__", [("", self._ordered(block, numbers))]), INDENT)]
        if modules := self._modules(block, numbers):
            head += [init, f"{INDENT}super().__init__()", *modules, ""]
        if not whole:
            inputs = ["x"] if block.inputs == 1 else [f"x{i}" for i in range(block.inputs)]
        tensors = ", ".join(["Tensor"] * len(block.results))
        result = "Tensor" if len(block.results) == 1 else f"tuple[{tensors}]"
        result = f"Tensor | {result}" if block.tower else result
        given = ", ".join(["self", *(f"{name}: Tensor" for name in inputs)])
        body = [row for line in _forward(block, inputs) for row in _broken(INDENT + line)]
        return [*head, f"    def forward({given}) -> {result}:", *body]

    def _modules(self, block: Block, numbers: Iterator[str]) -> list[str]:
        lines: list[str] = []
        holders: set[str] = set()
        for part in block.parts:
            if part.owns:
                for holder in (part.path[:at] for at, c in enumerate(part.path) if c == "."):
                    if holder not in holders:
                        lines.append(f"{INDENT}self.{holder} = nn.Module()")
                        holders.add(holder)
                note = f"  # {part.note}" if block is self.network else ""
                lines += printed(self._constructor(part, numbers), f"{INDENT}self.{part.path} = ", note)
        return lines

    def _constructor(self, part: Part, numbers: Iterator[str]) -> Doc:
        block = part.child
        if block is None:
            return part.code[0] + "".join(next(numbers) + piece for piece in part.code[1:])
        if block.key in self.names:
            given = ", ".join(next(numbers) for _ in self.arguments[block.key])
            return f"{self.names[block.key]}({given})"
        if block.bare:
            return self._constructor(block.parts[0], numbers)
        return Call("nn.Sequential", [("", self._ordered(block, numbers))])

    def _ordered(self, block: Block, numbers: Iterator[str]) -> Call:
        return Call("OrderedDict", [(f"{part.path}=", self._constructor(part, numbers)) for part in block.parts])


def _arguments(alike: Sequence[Block], numbers: list[tuple[int, ...]]) -> dict[tuple[int, ...], str]:
    into, out = (tuple(block.widths[side] for block in alike) for side in (0, 1))
    axis = alike[0].axis
    known = {out: f"out_{axis}", into: f"in_{axis}"} if into != out else {into: axis}
    named: dict[tuple[int, ...], str] = {}
    for values in numbers:
        if len(set(values)) > 1 and values not in named:
            named[values] = _local(known.get(values, "width"), list(named.values()))
    return named


def _camel(words: str) -> str:
    return "".join(word[0].upper() + word[1:] for word in re.findall(r"[^\W_]+", words))


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) if len(names) <= 3 else f"{names[0]}, {names[1]}, ..., {names[-1]}"


def _free(wanted: str, joint: str, taken: set[str]) -> str:
    """Returns the name itself, or with a counter where it is taken."""
    tries = (wanted, *(f"{wanted}{joint}{i}" for i in range(2, len(taken) + 3)))
    return next(name for name in tries if name not in taken)


def _local(wanted: str, taken: Sequence[str]) -> str:
    """Returns a free name for a variable."""
    return _free(wanted.replace(".", "_"), "_", {*taken, "self", "torch", "nn"})


def _forward(block: Block, inputs: Sequence[str]) -> list[str]:
    if block.straight and block.parts:
        x = inputs[0]
        if block.chain and len(block.parts) > LONG_CHAIN:
            return ["for block in self.children():", f"    {x} = block({x})", f"return {x}"]
        *steps, last = [part.expression([x]) for part in block.parts]
        return [*(f"{x} = {step}" for step in steps), f"return {last}"]
    short = _statements(block, inputs, nested=True)
    if all(len(INDENT + line) <= LINE for line in short):
        return short
    return _statements(block, inputs, nested=False)


def _statements(block: Block, inputs: Sequence[str], nested: bool) -> list[str]:
    """Returns one statement for each part; with `nested`, calls that are read once move to where they are read."""
    readers: dict[Ref, list[Part | None]] = {result: [None] for result in block.results}
    for part in block.parts:
        for ref in part.args:
            readers.setdefault(ref, []).append(part)
    text: dict[Ref, str] = {(-1, k): name for k, name in enumerate(inputs)}
    taken = [*inputs]
    lines: list[str] = []
    last = len(block.parts) - 1 if len(block.results) == 1 else None
    always = lines
    for at, part in enumerate(block.parts):
        if block.tower and at == len(block.parts) - block.tower:
            lines = []
        values = [text[ref] for ref in part.args]
        value = part.expression(values)
        refs = [(at, k) for k in range(part.outputs)]
        reading = [reader for ref in refs for reader in readers.get(ref, [])]
        if not reading:
            lines += [value] if "self." in value else []
        elif len(refs) == len(reading) == 1 and (at == last or _moves(reading[0], value, values, nested)):
            text[refs[0]] = value
        else:
            for ref in refs:
                text[ref] = _local(part.path, taken)
                taken.append(text[ref])
            lines.append(f"{', '.join(text[ref] for ref in refs)} = {value}")
    results = [text[ref] for ref in block.results]
    end = f"return {', '.join(results)}"
    if not block.tower:
        return [*lines, end]
    return [*always, "if self.training:", *("    " + line for line in [*lines, end]), f"return {results[0]}"]


def _moves(reader: Part | None, value: str, values: Sequence[str], nested: bool) -> bool:
    """Returns True where a value moves into the expression that reads it: it is a call, and of plain names."""
    into_expression = nested and reader is not None and reader.op is not None
    simple = all(name.isidentifier() for name in values)
    return into_expression and simple and isinstance(ast.parse(value, mode="eval").body, ast.Call)
