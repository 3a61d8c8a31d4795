"""A network of NASRec written out with plain torch functions, as slowly and plainly as can be."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor

from epochzero.recommend.spaces.nasrec import Choices
from epochzero.recommend.spaces.nasrec_network import Block


class ByHand:
    """Runs an architecture with the weights of its plan."""

    def __init__(self, weights: Mapping[str, Tensor]) -> None:
        self.weights = weights

    def __call__(self, arch: Choices, dense: Tensor, ids: Tensor) -> Tensor:
        w = self.weights
        vectors = [dense]
        tables = [torch.stack([w[f"embedding.table{f}"][i] for f, i in enumerate(row)]) for row in ids.tolist()]
        sparse = [torch.stack(tables)]
        for number, block in enumerate(arch, start=1):
            vector, rows = self.block(f"block{number}", block, vectors, sparse)
            vectors.append(vector)
            sparse.append(rows)
        features = torch.cat([vectors[-1], sparse[-1].reshape(len(dense), -1)], 1)
        return features @ w["head.linear.weight"].T + w["head.linear.bias"]

    def block(self, name: str, block: Block, vectors: list[Tensor], sparse: list[Tensor]) -> tuple[Tensor, Tensor]:
        x = torch.cat([vectors[i] for i in block.dense], 1)
        rows = torch.cat([sparse[i] for i in block.sparse], 1)
        left, right = vectors[block.left[0]], vectors[block.right[0]]
        wide = max(left.shape[1], right.shape[1])
        left, right = (torch.cat([side, side.new_zeros(len(side), wide - side.shape[1])], 1) for side in (left, right))
        match block.dense_ops[0]:
            case "linear-2d":
                vector = F.relu(self.norm(f"{name}.linear", x @ self.weights[f"{name}.linear.weigh.weight"].T))
            case "dot-product":
                vector = self.dots(f"{name}.dot", block.width, x, rows)
            case "sigmoid-gating":
                gate = left @ self.weights[f"{name}.sigmoid.gate.weight"].T + self.weights[f"{name}.sigmoid.gate.bias"]
                vector = right / (1 + torch.exp(-gate))
                if wide != block.width:
                    vector = self.matrix(f"{name}.sigmoid.weigh", vector) + self.weights[f"{name}.sigmoid.weigh.bias"]
                vector = self.norm(f"{name}.sigmoid", vector)
            case "sum":
                vector = left + right
                vector = self.norm(
                    f"{name}.sum", vector if wide == block.width else self.matrix(f"{name}.sum.weigh", vector)
                )
        made = self.transformer if block.sparse_ops[0] == "transformer" else self.linear_rows
        own = made(name, rows)
        merged = own
        if block.merge:
            flat = vector
            if block.width != 8 * 16:
                flat = self.norm(f"{name}.merge", self.matrix(f"{name}.merge.weigh", vector))
            merged = torch.cat([own, flat.reshape(len(flat), 8, 16)], 1)
        if block.fm:
            squares = own.sum(1) ** 2 - (own**2).sum(1)
            if block.width != 16:
                squares = self.matrix(f"{name}.fm.weigh", squares)
            vector = vector + self.norm(f"{name}.fm", squares)
        return vector, merged

    def dots(self, name: str, width: int, x: Tensor, rows: Tensor) -> Tensor:
        if x.shape[1] != 16:
            x = self.norm(f"{name}.vector", self.matrix(f"{name}.vector.weigh", x))
        if rows.shape[1] != round((2 * width) ** 0.5):
            rows = self.norm(f"{name}.rows", self.matrix(f"{name}.rows.weigh", rows.transpose(1, 2))).transpose(1, 2)
        every = [x, *rows.unbind(1)]
        pairs = torch.stack([(a * b).sum(1) for i, a in enumerate(every) for b in every[:i]], 1)
        return self.norm(name, pairs if pairs.shape[1] == width else self.matrix(f"{name}.weigh", pairs))

    def linear_rows(self, name: str, rows: Tensor) -> Tensor:
        mixed = self.norm(f"{name}.rows", self.matrix(f"{name}.rows.weigh", rows.transpose(1, 2)))
        return F.relu(mixed).transpose(1, 2)

    def transformer(self, name: str, rows: Tensor) -> Tensor:
        name, w = f"{name}.transformer", self.weights
        rows = self.norm(name, self.matrix(f"{name}.weigh", rows.transpose(1, 2))).transpose(1, 2)
        attention = torch.nn.MultiheadAttention(16, 8, batch_first=True).to(rows)
        attention.load_state_dict(
            {
                "in_proj_weight": w[f"{name}.attention.qkv.weight"],
                "in_proj_bias": w[f"{name}.attention.qkv.bias"],
                "out_proj.weight": w[f"{name}.attention.project.weight"],
                "out_proj.bias": w[f"{name}.attention.project.bias"],
            }
        )
        attended, _ = attention(rows, rows, rows, need_weights=False)
        rows = self.norm(name, attended + rows, "attended_norm", 0.17)
        hidden = F.relu(F.linear(rows, w[f"{name}.mlp.one.weight"], w[f"{name}.mlp.one.bias"]))
        hidden = F.linear(hidden, w[f"{name}.mlp.two.weight"], w[f"{name}.mlp.two.bias"])
        return self.norm(name, rows + hidden, "added_norm", 0.17)

    def matrix(self, name: str, x: Tensor) -> Tensor:
        return x @ self.weights[f"{name}.weight"].T

    def norm(self, name: str, x: Tensor, last: str = "norm", scale: float = 1.0) -> Tensor:
        centred = x - x.mean(-1, keepdim=True)
        standard = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return standard * scale * self.weights[f"{name}.{last}.weight"] + self.weights[f"{name}.{last}.bias"]
