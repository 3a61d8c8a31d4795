r"""NASRec networks made of blocks, and the places of their weights in those of the supernet.

Block i has a dense output (a vector) and a sparse one (rows of 16 features). Input 0 are the dense features and the
embeddings of the categorical ones. With x the concatenated dense inputs of a block, S its rows of input, and l, r one
earlier dense output each, padded with zeros to the same width:

    linear-2d         relu(norm(W x))
    dot-product       norm(W pairs(norm(A x), norm(B S)))         B makes round(sqrt(2 width)) rows
    sigmoid-gating    norm(W (sigmoid(G l + g) * r) + b)
    sum               norm(W (l + r))
    linear-3d         relu(norm(W S)) along the rows
    transformer       T = norm(W S) along the rows; U = norm(T + attention(T)); norm(U + mlp(U)), with 8 heads
    FM                norm(W ((sum of rows)^2 - sum of rows^2)) of the block's own rows, added to its dense output
    merge             norm(W dense output before FM) as 8 rows, after the block's own

All norms are layer norms. W is left out if the width is right already, and so are A, B and merge's with their norms,
except in linear-2d, linear-3d and transformer. (The published code makes the norm of an FM of width 16, but does not
use it; here it is used.) One linear layer reads the concatenated outputs of the last block.

In the supernet each output has its largest width (1,024 features; 64 rows and 8 merged ones), and a smaller network
takes the first features, rows and pairs: the places here. Gating and sum, which pad, take the places of the wider of
their two inputs. NASRec itself runs the full width, layer norms included, and sets the rest to zero afterwards, so that
its sub-networks are other functions than the networks that it trains in the end; these are the same.

A form changes how an architecture becomes a network. The published networks are trained without layer norms and with
biases (`norms` false); the supernet has them. `intervals` and `wide` are ours: each dense feature also is a row, a
linear function of its place among intervals, and a linear model of all features is added to the output. Dense features
are standardised then.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from epochzero.plan import Builder, Plan
from epochzero.plan.ops.activation import ReLU, Sigmoid
from epochzero.plan.ops.attention import Attention
from epochzero.plan.ops.embedding import Embedding, Ids
from epochzero.plan.ops.linear import Linear
from epochzero.plan.ops.norm import LayerNorm
from epochzero.plan.ops.numeric import Piecewise, RowOfEach, Standardised, Total
from epochzero.plan.ops.recommender import AsRows, FactorMachine, FaintNorm, Padded, PairProducts, Turned
from epochzero.plan.ops.sliced import Places, Ranges, first, length
from epochzero.plan.ops.wiring import Add, Concat, Flatten, Multiply, Narrow

EMBEDDING = 16
"""features of each row"""
WIDTHS = (16, 32, 64, 128, 256, 512, 768, 1024)
ROWS = (16, 32, 48, 64)
MERGED = 8
HEADS = 8
FAINT = 0.17
"""initial scale of the norms of a transformer"""
WIDE = "wide"
"""prefix of the names of the linear model"""


class Form(NamedTuple):
    """The way architectures become networks; by default as in the supernet."""

    norms: bool = True
    """true with layer norms; false with biases instead"""
    intervals: int = 0
    """of each dense feature, which then is a row too; 0: none"""
    wide: bool = False
    """true with a linear model of all features beside the blocks"""
    width: int = EMBEDDING
    """features of each row"""

    @property
    def standardised(self) -> bool:
        return self.wide or self.intervals > 0


class Block(NamedTuple):
    """The choices of one block. An architecture has one op of each kind, one left and one right input."""

    dense_ops: tuple[str, ...]
    sparse_ops: tuple[str, ...]
    width: int
    """of the dense output"""
    rows: int
    """of the sparse output, without merged ones"""
    merge: bool
    fm: bool
    dense: tuple[int, ...]
    """its inputs: 0 for the features, i for the outputs of block i, counted from 1"""
    sparse: tuple[int, ...]
    left: tuple[int, ...]
    right: tuple[int, ...]


class Value(NamedTuple):
    """A node of the plan, and the places of its features or rows in the supernet."""

    node: int
    places: Ranges


class Largest(NamedTuple):
    """The largest dense and sparse output of a block of the supernet."""

    width: int
    rows: int


class Network(NamedTuple):
    """A plan, and the places of its parameters in those of the supernet."""

    plan: Plan
    places: dict[str, Places]


def network(
    blocks: Sequence[Block],
    dense: int,
    tables: tuple[int, ...],
    largest: Largest = Largest(max(WIDTHS), max(ROWS)),
    outputs: int = 1,
    packed: bool = False,
    bare: bool = True,
    form: Form = Form(),
) -> Network:
    """The network of these blocks for `dense` features and embedding tables of these rows; of none, its linear model.

    Its inputs are the features and the ids, or one table of both (`packed`). If it is not `bare`, no projection is left
    out: the plan then has every weight of its blocks.
    """
    return _Making(blocks, dense, tables, largest, bare, form).made(outputs, packed)


def pruned(plan: Plan) -> Plan:
    """The same function without dead ends, which are blocks that the last one does not depend on.

    NASRec counts their parameters, but not their multiply-accumulates.
    """
    nodes, needed = plan.nodes, {len(plan.nodes) - 1}
    for i in reversed(range(len(nodes))):
        if i in needed:
            needed.update(nodes[i].inputs)
    net, place = Builder(), dict[int, int]()
    for i in sorted(needed | set(plan.inputs)):
        place[i] = net.add(nodes[i].op, *(place[source] for source in nodes[i].inputs), name=nodes[i].name)
    return net.plan()


def pairs_rows(width: int) -> int:
    """The number of rows in the dot products of a block of this width."""
    return round(math.sqrt(2 * width))


class _Making:
    def __init__(
        self,
        blocks: Sequence[Block],
        dense: int,
        tables: tuple[int, ...],
        largest: Largest,
        bare: bool,
        form: Form,
    ) -> None:
        self.blocks, self.features, self.tables, self.largest, self.bare = blocks, dense, tables, largest, bare
        self.form, self.fields = form, len(tables) + (dense if form.intervals else 0)
        self.net = Builder()
        self.places: dict[str, Places] = {}
        self.dense: list[Value] = []
        self.sparse: list[Value] = []

    def made(self, outputs: int, packed: bool) -> Network:
        net, fields, form = self.net, len(self.tables), self.form
        if packed:
            table = net.input((self.features + fields,), "table")
            x, ids = net.add(Narrow(self.features), table, name="dense"), net.add(Ids(self.tables), table, name="ids")
        else:
            x, ids = net.input((self.features,), "dense"), net.input((fields,), "ids")
        rows, numbers = net.add(Embedding(self.tables, form.width), ids, name="embedding"), x
        if form.standardised:
            numbers = net.add(Standardised(), x, name="numbers.standardised")
        inputs = [numbers]
        if form.intervals:
            pieces = net.add(Piecewise(form.intervals), x, name="numbers.pieces")
            own = net.add(RowOfEach(form.width), pieces, name="numbers.rows")
            rows = net.add(Concat(), rows, own, name="features")
            inputs.append(net.add(Flatten(), pieces, name="numbers.flat"))
        self.dense.append(Value(numbers, ((0, self.features),)))
        self.sparse.append(Value(rows, ((0, self.fields),)))
        for number, block in enumerate(self.blocks, start=1):
            self.add(block, number)
        if form.wide:
            wide = self.wide(ids, inputs, outputs)
        if self.blocks:
            out = self.head(outputs)
            if form.wide:
                net.add(Add(), out, wide, name="output")
        plan = net.plan()
        return Network(plan, {name: self.places.get(name, first(param.shape)) for name, param in plan.weights.items()})

    def add(self, block: Block, number: int) -> None:
        name = f"block{number}"
        ways = [self.dense_op(op, block, f"{name}.{op.partition('-')[0]}") for op in block.dense_ops]
        dense = ways[0] if len(ways) == 1 else self.net.add(Add(), *ways, name=f"{name}.dense")
        ways = [self.sparse_op(op, block, f"{name}.{'rows' if op == 'linear-3d' else op}") for op in block.sparse_ops]
        sparse = ways[0] if len(ways) == 1 else self.net.add(Add(), *ways, name=f"{name}.sparse")
        at, start = self.starts(number)
        places: Ranges = ((start, start + block.rows),)
        merged = self.merged(dense, f"{name}.merge") if block.merge else None
        if block.fm:
            dense = self.net.add(Add(), dense, self.fm(sparse, block.width, f"{name}.fm"), name=f"{name}.with_fm")
        if merged is not None:
            sparse = self.net.add(Concat(), sparse, merged, name=f"{name}.merged")
            places = (*places, (start + self.largest.rows, start + self.largest.rows + MERGED))
        self.dense.append(Value(dense, ((at, at + block.width),)))
        self.sparse.append(Value(sparse, places))

    def starts(self, number: int) -> tuple[int, int]:
        """The first feature and the first row of a block's outputs, counted over all blocks."""
        return (
            self.features + self.largest.width * (number - 1),
            self.fields + (self.largest.rows + MERGED) * (number - 1),
        )

    def wide(self, ids: int, numbers: Sequence[int], outputs: int) -> int:
        """A linear model of the ids and of the numbers."""
        net = self.net
        single = net.add(Embedding(self.tables, outputs), ids, name=f"{WIDE}.embedding")
        total = net.add(Total(), net.add(Turned(), single, name=f"{WIDE}.turned"), name=f"{WIDE}.ids")
        both = net.add(Concat(), *numbers, name=f"{WIDE}.numbers") if len(numbers) > 1 else numbers[0]
        return net.add(Add(), total, net.add(Linear(outputs, False), both, name=f"{WIDE}.linear"), name=f"{WIDE}.sum")

    def head(self, outputs: int) -> int:
        net, dense, sparse = self.net, self.dense[-1], self.sparse[-1]
        rows = net.add(Flatten(), sparse.node, name="head.flat")
        both = net.add(Concat(), dense.node, rows, name="head.features")
        at, start = self.starts(len(self.blocks))
        width = self.form.width
        after = [(self.largest.width + width * (a - start), width * (b - a)) for a, b in sparse.places]
        places = (*((a - at, b - at) for a, b in dense.places), *((a, a + size) for a, size in after))
        return self.linear(Value(both, places), outputs, "head.linear", bias=True)

    # Ops

    def dense_op(self, op: str, block: Block, name: str) -> int:
        net, width = self.net, block.width
        match op:
            case "linear-2d":
                x = self.linear(self.joined(self.dense, block.dense, f"{name}.joined"), width, f"{name}.weigh")
                return net.add(ReLU(), self.norm(x, name), name=f"{name}.relu")
            case "dot-product":
                joined = self.joined(self.dense, block.dense, f"{name}.joined")
                vector, rows = self.sized(joined, self.form.width, f"{name}.vector"), self.pair_rows(block, name)
                pairs = net.add(PairProducts(), vector, rows, name=f"{name}.pairs")
                fitted = self.fitted(Value(pairs, ((0, net.shape(pairs)[0]),)), width, f"{name}.weigh")
            case "sigmoid-gating":
                left, right, places = self.pair(block, name)
                gate = net.add(Linear(length(places)), left, name=f"{name}.gate")
                self.places[f"{name}.gate.weight"] = (places, places)
                self.places[f"{name}.gate.bias"] = (places,)
                gate = net.add(Sigmoid(), gate, name=f"{name}.sigmoid")
                gated = net.add(Multiply(), gate, right, name=f"{name}.gated")
                fitted = self.fitted(Value(gated, places), width, f"{name}.weigh", bias=True)
            case _:
                left, right, places = self.pair(block, name)
                both = net.add(Add(), left, right, name=f"{name}.both")
                fitted = self.fitted(Value(both, places), width, f"{name}.weigh")
        return self.norm(fitted, name)

    def sparse_op(self, op: str, block: Block, name: str) -> int:
        net = self.net
        rows = self.joined(self.sparse, block.sparse, f"{name}.joined")
        turned = net.add(Turned(), rows.node, name=f"{name}.turned")
        x = self.norm(self.linear(Value(turned, rows.places), block.rows, f"{name}.weigh"), name)
        if op == "linear-3d":
            return net.add(Turned(), net.add(ReLU(), x, name=f"{name}.relu"), name=f"{name}.back")
        x = net.add(Turned(), x, name=f"{name}.back")
        width = self.form.width
        qkv = net.add(Linear(3 * width), x, name=f"{name}.attention.qkv")
        heads = net.add(Attention(HEADS), qkv, name=f"{name}.attention.heads")
        heads = net.add(Linear(width), heads, name=f"{name}.attention.project")
        x = net.add(Add(), heads, x, name=f"{name}.attended")
        x = net.add(FaintNorm(FAINT), x, name=f"{name}.attended_norm") if self.form.norms else x
        hidden = net.add(Linear(width), x, name=f"{name}.mlp.one")
        hidden = net.add(ReLU(), hidden, name=f"{name}.mlp.relu")
        hidden = net.add(Linear(width), hidden, name=f"{name}.mlp.two")
        x = net.add(Add(), x, hidden, name=f"{name}.added")
        return net.add(FaintNorm(FAINT), x, name=f"{name}.added_norm") if self.form.norms else x

    def pair_rows(self, block: Block, name: str) -> int:
        net, count = self.net, pairs_rows(block.width)
        rows = self.joined(self.sparse, block.sparse, f"{name}.rows_joined")
        if self.bare and net.shape(rows.node)[0] == count:
            return rows.node
        turned = net.add(Turned(), rows.node, name=f"{name}.rows.turned")
        x = self.norm(self.linear(Value(turned, rows.places), count, f"{name}.rows.weigh"), f"{name}.rows")
        return net.add(Turned(), x, name=f"{name}.rows.back")

    def pair(self, block: Block, name: str) -> tuple[int, int, Ranges]:
        """The left and the right input, padded to one width, and the places of the wider one."""
        sides = [
            self.joined(self.dense, block.left, f"{name}.left"),
            self.joined(self.dense, block.right, f"{name}.right"),
        ]
        wider = max(sides, key=lambda value: length(value.places))
        width = length(wider.places)
        left, right = (
            value.node
            if length(value.places) == width
            else self.net.add(Padded(width - length(value.places)), value.node, name=f"{name}.padded")
            for value in sides
        )
        return left, right, wider.places

    def fm(self, rows: int, width: int, name: str) -> int:
        squares = self.net.add(FactorMachine(), rows, name=f"{name}.machine")
        return self.norm(self.fitted(Value(squares, ((0, self.form.width),)), width, f"{name}.weigh"), name)

    def merged(self, dense: int, name: str) -> int:
        places = ((0, self.net.shape(dense)[0]),)
        vector = self.sized(Value(dense, places), MERGED * self.form.width, name)
        return self.net.add(AsRows(MERGED), vector, name=f"{name}.rows")

    # Layers

    def joined(self, values: Sequence[Value], which: Sequence[int], name: str) -> Value:
        some = [values[i] for i in which]
        if len(some) == 1:
            return some[0]
        node = self.net.add(Concat(), *(value.node for value in some), name=name)
        return Value(node, tuple(place for value in some for place in value.places))

    def linear(self, x: Value, width: int, name: str, bias: bool = False) -> int:
        self.places[f"{name}.weight"] = (((0, width),), x.places)
        return self.net.add(Linear(width, bias or not self.form.norms), x.node, name=name)

    def norm(self, x: int, name: str) -> int:
        return x if not self.form.norms else self.net.add(LayerNorm(), x, name=f"{name}.norm")

    def fitted(self, x: Value, width: int, name: str, bias: bool = False) -> int:
        """A value of this width, by a linear layer unless it has the width already."""
        fits = self.bare and self.net.shape(x.node) == (width,)
        return x.node if fits else self.linear(x, width, name, bias)

    def sized(self, x: Value, width: int, name: str) -> int:
        """The same with a norm after the linear layer."""
        node = self.fitted(x, width, f"{name}.weigh")
        return node if node == x.node else self.norm(node, name)
