"""Tensors in safetensors files, which cannot run code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from epochzero.errors import DataError, needed


def as_bytes(tensors: Mapping[str, Tensor]) -> bytes:
    """The content of a safetensors file."""
    save = needed("safetensors.torch", "Writing weights", "export").save
    return bytes(save({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; DataError if it is damaged."""
    load_file = needed("safetensors.torch", "Reading .safetensors", "export").load_file
    try:
        return dict(load_file(path))
    except Exception:
        raise DataError(f"The weights '{path}' are damaged, cut short or not a safetensors file.") from None
