"""Several processes train one network: as one process would, and only the first writes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from epochzero.errors import UserError
from epochzero.train.checkpoint import Checkpoints
from epochzero.train.processes import Processes
from tests.train.train_images import write
from tests.train.training_process import run

ROOT = Path(__file__).parents[2]


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


def test_two_processes_train_as_one(tmp_path: Path) -> None:
    """With what `torchrun` says in the environment: weights and losses are those of one process, up to rounding."""
    file = write(tmp_path / "squares.npz", 64, 16, 8)
    alone, together = tmp_path / "alone", tmp_path / "together"
    alone.mkdir()
    together.mkdir()
    said = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-W", "ignore", "-m", "tests.train.training_process", str(file), str(together)]
    children = [
        subprocess.Popen(
            command,
            cwd=ROOT,
            env={**os.environ, **said, "RANK": rank, "LOCAL_RANK": rank},
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in ("0", "1")
    ]
    expected = run(file, alone)
    try:
        for child in children:
            _, problems = child.communicate(timeout=120)
            assert child.returncode == 0, problems
    finally:
        for child in children:
            child.kill()
    state = Checkpoints(together).last()
    assert state is not None and state["epoch"] == 2
    for name, weight in expected.module.state_dict().items():
        torch.testing.assert_close(state["weights"][name], weight, rtol=1e-4, atol=1e-5)
    for ours, theirs in zip(state["history"], expected.history, strict=True):
        assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-4)
        assert ours["accuracy"] == pytest.approx(theirs["accuracy"])


def test_a_batch_is_shared_evenly_or_not_at_all() -> None:
    shares = [Processes(4, rank).share(32) for rank in range(4)]
    assert [i for share in shares for i in range(32)[share]] == list(range(32))
    with pytest.raises(UserError, match="A batch of 30 cannot be shared by 4 processes"):
        Processes(4, 0).share(30)
