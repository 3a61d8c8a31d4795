r"""NASRec: networks for click-through rates, of seven blocks that each have a dense and a sparse output.

    dot-product:512@0,1/linear-3d:48@0/1,0/merge,fm|...

is a block: its dense op, width and inputs; its sparse op, number of rows and inputs; the left and right input of
sigmoid-gating and sum; `merge` if its dense output is merged into its rows, and `fm` if FM of its rows is added to its
dense output (`plain` for neither). Inputs are earlier outputs; output 0 are the features. `parse` also takes the JSON
of the published choices, {"micro": [...], "macro": [...]}, and `choice` writes it. nasrec_network.py describes the ops.

    space           dense ops                                      sparse ops                architectures
    nasrec_small    linear-2d, dot-product                         linear-3d                 4.9e39
    nasrec_full     linear-2d, dot-product, sigmoid-gating, sum    transformer, linear-3d    8.1e43

A width is 16, 32, 64, 128, 256, 512, 768 or 1,024, rows are 16, 32, 48 or 64, and a block has one to four inputs. The
registered spaces are for Criteo's 13 dense and 26 categorical features with embeddings of at most 10,000 rows;
`on` makes one for another table. A plan takes dense features and ids, or both as one table [13 + 26 columns].

Zhang, Cheng, et al. NASRec: weight sharing neural architecture search for recommender systems. WWW 2023.
arXiv:2207.07187
"""

from __future__ import annotations

import itertools
import json
import math
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random
from typing import Any, NoReturn

from epochzero.data.batch import shape_text
from epochzero.errors import UserError
from epochzero.plan import Plan
from epochzero.recommend.data.schema import CRITEO_ROWS
from epochzero.recommend.spaces.nasrec_network import HEADS, ROWS, WIDTHS, Block, Form, Largest, Network, network
from epochzero.registry import spaces
from epochzero.spaces.base import check_classes, quoted, replaced
from epochzero.spaces.budget import Budget
from epochzero.types import Shape

BLOCKS = 7
MOST = 4
"""the most inputs of a block"""
FLOAT_BYTES = 4

BLOCK = re.compile(
    r"([a-z0-9-]{1,20}):([0-9]{1,5})@([0-9,]{1,20})/([a-z0-9-]{1,20}):([0-9]{1,5})@([0-9,]{1,20})"
    r"/([0-9]),([0-9])/(plain|merge|fm|merge,fm)"
)
Choices = tuple[Block, ...]
"""an architecture: its blocks from first to last"""
MACRO = {"dense": "dense_idx", "sparse": "sparse_idx", "left": "dense_left_idx", "right": "dense_right_idx"}
"""the inputs of a block, and their names in the published format"""
MICRO = {"width": "dense_in_dims", "rows": "sparse_in_dims", "merge": "dense_sparse_interact", "fm": "deep_fm"}
"""the sizes and switches of a block, and their names in the published format"""


@dataclass(eq=False)
class Nasrec:
    """A space of seven blocks of these ops, for one table of features."""

    name: str
    config: str
    """name in the published choices"""
    dense_ops: tuple[str, ...]
    sparse_ops: tuple[str, ...]
    dense: int = 13
    """dense features"""
    tables: tuple[int, ...] = tuple(min(rows, 10_000) for rows in CRITEO_ROWS)
    """rows of each embedding table"""
    widths: tuple[int, ...] = WIDTHS
    """of dense outputs"""
    rows: tuple[int, ...] = ROWS
    """of sparse outputs"""
    form: Form = Form()
    """of its networks"""

    cell_block = ""

    @property
    def about(self) -> str:
        ops = ", ".join((*self.dense_ops, *self.sparse_ops))
        return f"NASRec: recommenders of seven blocks on a table of features ({ops})"

    # The table of features

    def on(
        self,
        dense: int,
        tables: Sequence[int],
        max_rows: int | None = None,
        max_bytes: int | None = None,
        width: int | None = None,
    ) -> Nasrec:
        """The same space for `dense` features, and categorical ones with embedding `tables` of these rows.

        `max_rows` and `max_bytes` (in single precision) limit all embeddings together: the largest tables are cut to
        one size that fits, and `CtrTable.capped` folds ids into them. `width` is that of embeddings, by default 16.
        """
        form = self.form if width is None else self.form._replace(width=width)
        if form.width < 1 or form.width % HEADS:
            raise UserError(f"The embedding_width has to be a multiple of {HEADS}, not {form.width}.")
        if dense < 1 or not tables or min(tables) < 1:
            raise UserError(
                f"{self.name} needs at least 1 dense feature (a column of zeros will do) and 1 categorical one, each "
                f"with at least 1 value, not {dense} and {quoted(tuple(tables))}."
            )
        limits = [max_rows] if max_rows is not None else []
        limits += [max_bytes // (form.width * FLOAT_BYTES)] if max_bytes is not None else []
        most = min(limits, default=sum(tables))
        if most < len(tables):
            raise UserError(
                f"Embeddings of {len(tables)} features need at least {len(tables)} rows, or "
                f"{len(tables) * form.width * FLOAT_BYTES} bytes, and {most} rows are allowed: raise the limit."
            )
        return replace(self, dense=dense, tables=_capped(tables, most), form=form)

    def reduced(self, widest: int, most_rows: int = max(ROWS)) -> Nasrec:
        """The part of the space with widths up to `widest` and at most `most_rows` rows, for small machines."""
        widths, rows = (
            tuple(size for size in sizes if size <= most)
            for sizes, most in ((self.widths, widest), (self.rows, most_rows))
        )
        if not widths or not rows:
            raise UserError(f"{self.name} has no width up to {widest}, or no outputs of up to {most_rows} rows.")
        return replace(self, widths=widths, rows=rows)

    @property
    def embedding_rows(self) -> int:
        return sum(self.tables)

    @property
    def embedding_params(self) -> int:
        """Parameters of the embeddings, the same for every architecture; part of `plan.params`."""
        return self.embedding_rows * (self.form.width + self.form.wide)

    def formed(self, form: Form) -> Nasrec:
        """The same architectures as networks of this form, with embeddings of the same width."""
        return replace(self, form=form._replace(width=self.form.width))

    def budget(self, max_params: int | None = None, max_flops: int | None = None) -> Budget:
        """A budget of parameters outside the embeddings, as NASRec counts them."""
        return Budget(None if max_params is None else max_params + self.embedding_params, max_flops)

    # Text

    def parse(self, text: str) -> Choices:
        """The architecture of a text, or of the JSON of the published code."""
        text = text.strip()
        if text.startswith("{"):
            return self._from_choice(text)
        blocks = []
        for number, written in enumerate(text.split("|"), start=1):
            match = BLOCK.fullmatch(written)
            if match is None:
                example = self.text(self.smallest()).partition("|")[0]
                self._refuse(text, f"writes blocks as {example}, and block {number} is {quoted(written)}")
            one, width, dense, two, rows, sparse, left, right, extras = match.groups()
            inputs = [[int(part or -1) for part in side.split(",")] for side in (dense, sparse, left, right)]
            blocks.append(((one, two), int(width), int(rows), "merge" in extras, "fm" in extras, *inputs))
        return self._checked(blocks)

    def text(self, arch: Choices) -> str:
        return "|".join(map(_written, arch))

    def choice(self, arch: Choices) -> str:
        """The architecture as JSON in the published format."""
        ops = (*self.dense_ops, *self.sparse_ops)
        micro = [
            {"active_nodes": [ops.index(block.dense_ops[0]), ops.index(block.sparse_ops[0])]}
            | {published: int(getattr(block, ours)) for ours, published in MICRO.items()}
            for block in arch
        ]
        macro = [{published: list(getattr(block, ours)) for ours, published in MACRO.items()} for block in arch]
        whole = {
            "micro": micro,
            "macro": macro,
            "num_blocks": BLOCKS,
            "use_layernorm": int(self.form.norms),
            "config": self.config,
        }
        return json.dumps(whole)

    def _from_choice(self, text: str) -> Choices:
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            self._refuse(text, "reads choices as JSON, and this is not JSON")
        if given.get("config", self.config) != self.config or given.get("use_layernorm", 1) not in (0, 1):
            self._refuse(text, f"reads choices of the config {self.config!r}, with or without layer norms")
        ops, blocks = (*self.dense_ops, *self.sparse_ops), []
        try:
            for micro, macro in zip(given["micro"], given["macro"], strict=True):
                named = tuple(
                    ops[node] if node in range(len(ops)) else str(node) for node in sorted(micro["active_nodes"])
                )
                blocks.append((named, *(micro[key] for key in MICRO.values()), *(macro[key] for key in MACRO.values())))
        except (KeyError, TypeError, ValueError) as error:
            self._refuse(text, f"needs micro and macro, seven blocks each with the published keys ({error!r})")
        return self._checked(blocks)

    def _checked(self, blocks: Sequence[tuple[Any, ...]]) -> Choices:
        """The architecture of these values; UserError for one outside the space."""
        if len(blocks) != BLOCKS:
            raise UserError(f"{self.name} has {BLOCKS} blocks, not {len(blocks)}.")
        ops = list(itertools.product(self.dense_ops, self.sparse_ops))
        switch = (False, True)
        options = ("ops", ops), ("width", self.widths), ("rows", self.rows), ("merging", switch), ("FM", switch)
        arch = []
        for number, values in enumerate(blocks, start=1):
            pairs = zip(options, values, strict=False)
            (dense_op, sparse_op), *sizes = (self._member(value, known, word, number) for (word, known), value in pairs)
            inputs = (
                self._inputs(value, side, number) for side, value in zip(MACRO, values[len(options) :], strict=True)
            )
            arch.append(Block((dense_op,), (sparse_op,), *sizes, *inputs))
        return tuple(arch)

    def _member(self, value: Any, choices: Sequence[Any], words: str, number: int) -> Any:
        for choice in choices:
            if value == choice:
                return choice
        said = ", ".join("+".join(choice) if isinstance(choice, tuple) else str(choice) for choice in choices)
        raise UserError(f"The {words} of block {number} cannot be {quoted(value)}: {self.name} has {said}.")

    def _inputs(self, given: Any, side: str, number: int) -> tuple[int, ...]:
        most, name = 1 if side in ("left", "right") else MOST, MACRO[side]
        fits = isinstance(given, list) and 1 <= len(given) <= most
        if not fits or any(type(i) is not int or not 0 <= i < number for i in given) or len(set(given)) < len(given):
            raise UserError(
                f"The {name} of block {number} should be 1 to {most} different earlier outputs, 0 to {number - 1}, "
                f"not {quoted(given)}."
            )
        return tuple(sorted(given))

    def _refuse(self, text: str, why: str) -> NoReturn:
        raise UserError(f"{quoted(text)} cannot be read: {self.name} {why}.")

    # Architectures

    @cached_property
    def options(self) -> tuple[dict[str, list[Any]], ...]:
        """By block, the options of each choice."""
        return tuple(self._options(number) for number in range(1, BLOCKS + 1))

    def _options(self, number: int) -> dict[str, list[Any]]:
        sets, single = _subsets(number), [(i,) for i in range(number)]
        ops = [((one,), (two,)) for one, two in itertools.product(self.dense_ops, self.sparse_ops)]
        micro: tuple[list[Any], ...] = (ops, list(self.widths), list(self.rows), [False, True], [False, True])
        return dict(zip(("ops", *MICRO, *MACRO), (*micro, sets, sets, single, single), strict=True))

    def count(self) -> int:
        return math.prod(len(values) for block in self.options for values in block.values())

    def sample(self, rng: Random) -> Choices:
        """Uniform over all architectures."""
        return tuple(self._block(number, rng) for number in range(1, BLOCKS + 1))

    def _block(self, number: int, rng: Random, counts_first: bool = False) -> Block:
        """A block; with `counts_first`, as in NASRec, the number of inputs is uniform, and then which they are."""
        drawn: dict[str, Any] = {
            key: _inputs(number, rng) if counts_first and key in ("dense", "sparse") else rng.choice(values)
            for key, values in self.options[number - 1].items()
        }
        dense_ops, sparse_ops = drawn.pop("ops")
        return Block(dense_ops, sparse_ops, **drawn)

    def mutate(self, arch: Choices, rng: Random) -> Choices:
        """NASRec's mutation: a choice of a block, among its ops and sizes or its inputs with equal odds, is drawn anew.

        The draw is repeated until something changes.
        """
        while True:
            number, keys = rng.randrange(BLOCKS), list(MACRO) if rng.random() < 0.5 else ["ops", *MICRO]
            key, fresh = rng.choice(keys), self._block(number + 1, rng, counts_first=True)
            fields = ("dense_ops", "sparse_ops") if key == "ops" else (key,)
            child = arch[number]._replace(**{field: getattr(fresh, field) for field in fields})
            if child != arch[number]:
                return replaced(arch, number, child)

    def neighbours(self, arch: Choices) -> list[Choices]:
        """All architectures that differ in one choice of one block."""
        return [replaced(arch, i, other) for i, block in enumerate(arch) for other in self._others(block, i + 1)]

    def _others(self, block: Block, number: int) -> Iterator[Block]:
        for key, values in self.options[number - 1].items():
            for value in values:
                changed = dict(zip(("dense_ops", "sparse_ops"), value, strict=True)) if key == "ops" else {key: value}
                if (other := block._replace(**changed)) != block:
                    yield other

    def smallest(self) -> Choices:
        op = "sum" if "sum" in self.dense_ops else "linear-2d"
        arch = []
        for number in range(1, BLOCKS + 1):
            narrow = int(number > 1 and (op == "sum" or self.dense > min(self.widths)))
            few = int(number > 1 and len(self.tables) > min(self.rows))
            ops = (op,), ("linear-3d",)
            arch.append(
                Block(*ops, min(self.widths), min(self.rows), False, False, (narrow,), (few,), (narrow,), (narrow,))
            )
        return tuple(arch)

    # Networks

    def plan(self, arch: Choices, num_classes: int = 1, input_shape: Shape | None = None) -> Plan:
        """The network, with one logit for labels 0 and 1.

        Its inputs are dense features [B, D] and ids [B, F], or one table of both for an input of shape (D + F,).
        """
        return self.network(arch, num_classes, input_shape).plan

    def network(
        self, arch: Choices, num_classes: int = 1, input_shape: Shape | None = None, bare: bool = True
    ) -> Network:
        """The plan and the places of its weights in the supernet; with all projections if not `bare`."""
        check_classes(self.name, num_classes)
        columns = self.dense + len(self.tables)
        if input_shape is not None and input_shape != (columns,):
            given = shape_text(input_shape)
            raise UserError(
                f"{self.name} reads a table of {columns} columns here ({self.dense} dense features and "
                f"{len(self.tables)} ids), not inputs of {given}: give such data, or fit the space to yours with `on`."
            )
        outputs = num_classes if num_classes > 2 else 1
        largest = Largest(max(self.widths), max(self.rows))
        return network(arch, self.dense, self.tables, largest, outputs, input_shape is not None, bare, self.form)


def nasrec(name: str) -> Nasrec:
    """The space of this name; UserError for one of other networks."""
    space = spaces[name]
    if not isinstance(space, Nasrec):
        raise UserError(f"The space {name} has no networks for tables of clicks: give --space nasrec_small, or _full.")
    return space


def _capped(rows: Sequence[int], most: int) -> tuple[int, ...]:
    """The rows, cut to the largest size with which they sum up to at most `most`."""
    sizes = range(1, max(rows) + 1)
    size = bisect_right(sizes, most, key=lambda size: sum(min(r, size) for r in rows))
    return tuple(min(r, size) for r in rows)


def _subsets(number: int) -> list[tuple[int, ...]]:
    """All sets of one to four of `number` outputs."""
    sizes = range(1, min(MOST, number) + 1)
    return [some for size in sizes for some in itertools.combinations(range(number), size)]


def _inputs(number: int, rng: Random) -> tuple[int, ...]:
    """Inputs from NASRec's distribution."""
    return tuple(sorted(rng.sample(range(number), rng.randint(1, min(MOST, number)))))


def _written(block: Block) -> str:
    dense, sparse = (",".join(map(str, inputs)) for inputs in (block.dense, block.sparse))
    extras = ",".join(word for word, on in (("merge", block.merge), ("fm", block.fm)) if on) or "plain"
    return (
        f"{block.dense_ops[0]}:{block.width}@{dense}/{block.sparse_ops[0]}:{block.rows}@{sparse}"
        f"/{block.left[0]},{block.right[0]}/{extras}"
    )


spaces.register("nasrec_small", Nasrec("nasrec_small", "autoctr", ("linear-2d", "dot-product"), ("linear-3d",)))
spaces.register(
    "nasrec_full",
    Nasrec(
        "nasrec_full", "xlarge", ("linear-2d", "dot-product", "sigmoid-gating", "sum"), ("transformer", "linear-3d")
    ),
)
