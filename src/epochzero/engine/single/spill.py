"""Graphs too large for memory: their maps are stored in a temporary file until a backward pass needs them.

A graph keeps the tensors that its backward pass reads, and the graph of the gradients as many again. Where batch norm
mixes the samples they cannot run separately, and large networks do not fit into memory. Torch lets a program store the
kept tensors itself (`saved_tensors_hooks`): here they are written to a file unchanged and read back when needed, so
scores stay the same to the last bit. A storage is written once, however many operations keep it or a view of it, and is
not written again after it was read back. Weights and small tensors stay in memory, and so do all maps of networks whose
maps take at most `IN_MEMORY` bytes.

The file has no name, is in the system's folder for temporary files (TMPDIR), and is deleted after the pass.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from io import FileIO
from typing import NamedTuple
from weakref import WeakValueDictionary

import torch
from torch import Tensor, UntypedStorage
from torch.autograd.graph import saved_tensors_hooks
from torch.multiprocessing.reductions import StorageWeakRef

from epochzero.engine.network import Network, PlanNetwork
from epochzero.engine.passes import Layer
from epochzero.errors import MachineError

IN_MEMORY = 3 * 2**30
"""the largest size in bytes of a batch's maps for which graphs stay in memory"""
SMALL = 2**20
"""the size in bytes below which a storage is not written to disk"""
TRIM_AFTER = 2**29
"""bytes read or written between two requests that the C library return freed memory to the system"""


@contextmanager
def spilling(network: Network, weights: Iterable[Tensor], x: Tensor) -> Iterator[Spill | None]:
    """Stores graphs made here in a file if they may not fit into memory: the plan decides, not free memory."""
    values = network.plan.activations if isinstance(network, PlanNetwork) and x.device.type == "cpu" else 0
    if values * len(x) * x.element_size() <= IN_MEMORY:
        yield None
        return
    spill = Spill(weights)
    try:
        with saved_tensors_hooks(spill.keep, spill.give_back):
            yield spill
    finally:
        spill.close()


class Spill:
    """A file for the tensors that graphs keep, except `weights`."""

    def __init__(self, weights: Iterable[Tensor]) -> None:
        self._weights = {_name(weight.untyped_storage()) for weight in weights}
        self._slots: WeakValueDictionary[tuple[StorageWeakRef | None, int], _Slot] = WeakValueDictionary()
        """by the storage in memory, and its version when it was written"""
        self._file: FileIO | None = None
        self._end = 0
        self._moved = 0
        self._failure: MachineError | None = None

    def close(self) -> None:
        """Removes the file; raises the error if the disk failed."""
        if self._file is not None:
            self._file.close()
        if self._failure is not None:
            raise self._failure

    def keep(self, tensor: Tensor) -> Tensor | _Kept:
        """Writes a tensor to the file and returns a reference to it."""
        storage = tensor.untyped_storage()
        name = _name(storage)
        if storage.nbytes() < SMALL or name in self._weights:
            return tensor.detach()
        slot = self._slots.get((name, tensor._version))
        if slot is None:
            slot = _Slot(self._end, storage.nbytes())
            self._write(storage)
            self._slots[name, tensor._version] = slot
        return _Kept(slot, tensor.dtype, int(tensor.storage_offset()), tensor.shape, tensor.stride())

    def give_back(self, kept: Tensor | _Kept) -> Tensor:
        """Returns the detached tensor: read from the file, or its last copy if that is still in memory."""
        if isinstance(kept, Tensor):
            return kept
        slot = kept.slot
        storage = None if slot.copy is None else UntypedStorage._new_with_weak_ptr(slot.copy.cdata)
        if storage is None:
            storage = self._read(slot)
            self._slots.pop((slot.copy, 0), None)
            slot.copy = _name(storage)
            self._slots[slot.copy, 0] = slot
        tensor = torch.empty(0, dtype=kept.dtype).set_(storage, kept.offset, kept.shape, kept.stride)
        return tensor.data  # its version is 0 again

    def remember(self, layer: Layer) -> Callable[[], Layer]:
        """Returns a function that restores the layer later, without keeping its tensors in memory."""
        inputs, output = [self.keep(x) for x in layer.inputs], self.keep(layer.output)
        rest = layer._replace(inputs=(), output=torch.empty(0))
        return lambda: rest._replace(inputs=tuple(map(self.give_back, inputs)), output=self.give_back(output))

    def _write(self, storage: UntypedStorage) -> None:
        left = _bytes(storage)
        try:
            if self._file is None:
                self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
            self._file.seek(self._end)
            while left:
                left = left[self._file.write(left) :]
        except OSError as error:
            self._failure = MachineError(
                "The maps of this network are too large for memory, and the disk for temporary files cannot take them "
                f"({error.strerror}): make room there, set TMPDIR to a larger disk, or use a smaller --batch-size."
            )
            raise self._failure from error
        self._end += storage.nbytes()
        self._count(storage)

    def _read(self, slot: _Slot) -> UntypedStorage:
        assert self._file is not None
        storage = torch.empty(slot.size, dtype=torch.uint8).untyped_storage()
        left = _bytes(storage)
        self._file.seek(slot.start)
        while left:
            left = left[self._file.readinto(left) :]
        self._count(storage)
        return storage

    def _count(self, storage: UntypedStorage) -> None:
        self._moved += storage.nbytes()
        if self._moved >= TRIM_AFTER:
            self._moved = 0
            _trim()


class _Slot:
    """A storage in the file, with the memory that it was last read into."""

    def __init__(self, start: int, size: int) -> None:
        self.start, self.size = start, size
        self.copy: StorageWeakRef | None = None


class _Kept(NamedTuple):
    """A tensor, as a view of a storage in the file."""

    slot: _Slot
    dtype: torch.dtype
    offset: int
    shape: torch.Size
    stride: tuple[int, ...]


def _name(storage: UntypedStorage) -> StorageWeakRef:
    """Returns a name that no other memory gets as long as the name is in use."""
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _bytes(storage: UntypedStorage) -> memoryview:
    return torch.empty(0, dtype=torch.uint8).set_(storage).numpy().data


def _trim() -> None:
    """Returns freed memory to the system, where the C library supports it."""
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        if hasattr(library, "malloc_trim"):
            library.malloc_trim(0)
