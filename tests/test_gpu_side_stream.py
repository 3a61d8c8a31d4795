"""Results that are read ahead of a GPU's queue; skipped where there is no GPU.

Written for `unittest`, so that a bare GPU image can run it too:

    PYTHONPATH=src python -m unittest tests.test_gpu_side_stream
"""

from __future__ import annotations

import unittest

import torch

from epochzero.engine.gpu.side_stream import HostCopy, mark, on_side_stream

CUDA = torch.device("cuda")


@unittest.skipUnless(torch.cuda.is_available(), "no GPU here")
class AsideOnAGPU(unittest.TestCase):
    def setUp(self) -> None:
        """A tensor, a mark behind it, and a second or so of work behind that."""
        self.found = 2 * torch.ones(1000, device=CUDA)
        with on_side_stream([mark(CUDA)]):
            self.found.sum().item()  # loading a kernel waits for everything
        self.flags = HostCopy(self.found > 1)
        self.at = mark(CUDA)
        work = torch.randn(8192, 8192, device=CUDA)
        for _ in range(100):
            work = torch.tanh(work @ work)
        self.end = mark(CUDA)

    def busy(self) -> bool:
        assert self.end is not None
        return not self.end.event.query()  # type: ignore[no-untyped-call]

    def test_it_does_not_wait_for_what_was_launched_later(self) -> None:
        with on_side_stream([self.at]):
            self.assertEqual(self.found.sum().item(), 2000)
        self.assertTrue(self.busy())

    def test_without_a_mark_it_queues(self) -> None:
        with on_side_stream([self.at, None]):
            self.assertEqual(self.found.sum().item(), 2000)
        self.assertFalse(self.busy())

    def test_numbers_arrive_before_what_was_launched_later(self) -> None:
        self.assertTrue(self.flags.wait().all() and not self.flags.wait().is_cuda)
        self.assertTrue(self.busy())


if __name__ == "__main__":
    unittest.main()
