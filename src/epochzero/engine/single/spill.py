"""Graphs too large for memory: the maps that they keep lie in a temporary file until a backward pass asks for them.

A graph keeps what its backward pass reads, and the graph of the gradients as much again. Where batch norm mixes the
samples, they cannot run apart, and large networks outgrow the memory. Torch lets us say how kept tensors are stored
(`saved_tensors_hooks`): here they are written to a file as they are and read back when needed, so scores stay the same
to the last bit. A storage is written once, however many operations keep it or a view of it, and what was read back is
not written again. Weights and small tensors stay in memory. Networks whose maps take no more than `ROOM` keep theirs in
memory as ever.

The file has no name, lies where the system keeps temporary files (TMPDIR says where), and is gone after the pass.
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

ROOM = 3 * 2**30
"""bytes of a whole batch's maps up to which graphs stay in memory"""
SMALL = 2**20
"""bytes below which a storage is not worth the way to the disk"""
TRIM_AFTER = 2**29
"""bytes read or written after which freed memory is handed back, which the C library may keep in pieces"""


@contextmanager
def spilling(network: Network, weights: Iterable[Tensor], x: Tensor) -> Iterator[Spill | None]:
    """Graphs made in here lie in a file where memory may not do: the plan decides, never the free memory."""
    if not _too_large(network, x):
        yield None
        return
    spill = Spill(weights)
    try:
        with saved_tensors_hooks(spill.keep, spill.give_back):
            yield spill
    finally:
        spill.close()


def _too_large(network: Network, x: Tensor) -> bool:
    if not isinstance(network, PlanNetwork) or x.device.type != "cpu":
        return False
    return network.plan.activations * len(x) * x.element_size() > ROOM


class Spill:
    """A file for what graphs keep. `weights` stay out of it."""

    def __init__(self, weights: Iterable[Tensor]) -> None:
        self._weights = {_name(weight.untyped_storage()) for weight in weights}
        self._slots: WeakValueDictionary[tuple[StorageWeakRef | None, int], _Slot] = WeakValueDictionary()
        """by the storage in memory, and how often it had been changed when it was written"""
        self._file: FileIO | None = None
        self._end = 0
        self._moved = 0
        self._failure: MachineError | None = None

    def close(self) -> None:
        """Remove the file; say now if the disk failed, whatever has become of that in between."""
        if self._file is not None:
            self._file.close()
        if self._failure is not None:
            raise self._failure

    def keep(self, tensor: Tensor) -> Tensor | _Kept:
        """Write a tensor down, and give what stands for it."""
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
        """The tensor again, off the graph: read, or as it was read last if something still holds that."""
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
        return tensor.data  # whose version is 0 again

    def remember(self, layer: Layer) -> Callable[[], Layer]:
        """A layer for later, without its tensors in memory."""
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
                f"({error.strerror}): make room there, set TMPDIR to a folder with room, or use a smaller --batch-size."
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
    """A storage in the file, and the memory that it was last read into."""

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
    """Equal for the same memory only, and no other memory is called the same as long as this is around."""
    return StorageWeakRef(storage)  # type: ignore[no-untyped-call]


def _bytes(storage: UntypedStorage) -> memoryview:
    return torch.empty(0, dtype=torch.uint8).set_(storage).numpy().data


def _trim() -> None:
    """Hand freed memory back to the system, where the C library can be asked to."""
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        if hasattr(library, "malloc_trim"):
            library.malloc_trim(0)
