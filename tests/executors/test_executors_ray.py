"""The Ray executor on a local cluster of two nodes: the same store as local, whatever is killed meanwhile."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from epochzero import data
from epochzero.cli.plugin import load_plugins
from epochzero.errors import MachineError, UserError
from epochzero.executors import ray as ray_
from epochzero.executors.local import Local
from epochzero.executors.ray import Ray
from tests.command import process, refusal
from tests.executors.test_executors import FOLDER, PLUGIN, SLOW, search, until
from tests.forgetting import plugins_forgotten
from tests.study.test_resume import content

pytestmark = [
    pytest.mark.skipif(find_spec("ray") is None, reason="needs Ray: pip install 'epochzero[ray]'"),
    pytest.mark.filterwarnings("default"),  # Ray's own
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    made = tmp_path_factory.mktemp("ray")
    with pytest.MonkeyPatch.context() as patch, plugins_forgotten():
        patch.setenv(FOLDER, str(made))
        patch.setenv("PYTHONPATH", str(PLUGIN.parents[1]))  # nodes import what they are sent by name
        for name, value in ray_.QUIET.items():
            patch.setenv(name, value)
        load_plugins([str(PLUGIN)])
        yield made


@pytest.fixture(scope="module")
def cluster(folder: Path) -> Iterator[Any]:
    from ray.cluster_utils import Cluster

    made: Any = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.add_node(wait=False, num_cpus=1)
    made.wait_for_nodes(timeout=120)  # a busy machine takes long to start one
    yield made
    made.shutdown()


@pytest.fixture(scope="module")
def executor(cluster: Any) -> Iterator[Ray]:
    with Ray(address=cluster.address, prepare=partial(load_plugins, [str(PLUGIN)])) as made:
        yield made


@pytest.fixture(autouse=True)
def clean(folder: Path) -> None:
    for file in folder.iterdir():
        file.unlink()


def test_a_search_is_the_same_on_two_nodes(tmp_path: Path, executor: Ray) -> None:
    assert executor.about() == {"name": "ray", "workers": 2, "threads": 1, "gpus": 0.0}
    calm = search(tmp_path / "local.db", Local(1), "rank(naswot,grad_norm)")
    spread = search(tmp_path / "ray.db", executor, "rank(naswot,grad_norm)")
    assert spread.best == calm.best and spread.run == calm.run
    assert content(tmp_path / "ray.db") == content(tmp_path / "local.db")


def test_a_killed_worker_loses_nothing(tmp_path: Path, folder: Path, executor: Ray) -> None:
    calm = search(tmp_path / "local.db", Local(1), "mortal")
    (folder / "deaths").write_text("once\n")
    killed = search(tmp_path / "killed.db", executor, "mortal")
    assert len((folder / "died").read_text().splitlines()) > 1, "nobody died"
    assert killed.best == calm.best
    assert content(tmp_path / "killed.db") == content(tmp_path / "local.db")


def test_what_a_slow_node_has_is_given_to_another(
    tmp_path: Path, folder: Path, cluster: Any, executor: Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One of the two nodes never answers."""
    for name, value in {"LOOK": 0.2, "SLOW_SECONDS": 1.0}.items():
        monkeypatch.setattr(ray_, name, value)
    calm = search(tmp_path / "local.db", Local(1), "slow", 12)
    (folder / "hold").write_text(cluster.head_node.node_id)
    spread = search(tmp_path / "slow.db", executor, "slow", 12)
    assert cluster.head_node.node_id in (folder / "begun").read_text(), "the slow node had nothing to do"
    (folder / "hold").unlink()
    assert spread.best == calm.best
    assert content(tmp_path / "slow.db") == content(tmp_path / "local.db")


def test_batches_in_advance_on_two_nodes(tmp_path: Path, executor: Ray) -> None:
    search(tmp_path / "local.db", Local(1), ahead=2)
    search(tmp_path / "ray.db", executor, ahead=2)
    assert content(tmp_path / "ray.db") == content(tmp_path / "local.db")


def test_a_full_object_store_is_a_sentence(tmp_path: Path, executor: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    def put(value: object) -> Any:
        raise ray.exceptions.ObjectStoreFullError("Failed to put object")

    monkeypatch.setattr(ray, "put", put)
    with pytest.raises(MachineError, match=r"^Ray's object store has no room for the batch .*: use a smaller batch"):
        search(tmp_path / "run.db", executor, data=data.pink((3, 8, 8), size=3))


@SLOW
def test_a_chunk_that_kills_every_worker_is_given_up(
    tmp_path: Path, folder: Path, executor: Ray, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_, "RETRIES", 1)
    (folder / "deaths").write_text("again\n" * 1000)
    with pytest.raises(MachineError, match=r"^2 workers died .*\(WorkerCrashedError\).* is safe"):
        search(tmp_path / "run.db", executor, "mortal")


def test_a_bug_in_a_worker_is_a_sentence(tmp_path: Path, folder: Path, executor: Ray) -> None:
    (folder / "bug").touch()
    with pytest.raises(MachineError, match=r"^A worker failed on one of 3 networks .*: KeyError: 'a bug'$") as raised:
        search(tmp_path / "run.db", executor, "buggy")
    assert 'executor_plugin.py", line' in str(raised.value.__cause__)


def test_nodes_with_other_versions_are_named(tmp_path: Path, executor: Ray, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = ray_.versions()
    monkeypatch.setattr(ray_, "versions", lambda: ours | {"torch": "2.0.1"})
    says = rf"^The machine [\d.]+ of the Ray cluster has torch {ours['torch']} instead of 2\.0\.1: install the same"
    with pytest.raises(UserError, match=says):
        search(tmp_path / "run.db", executor, budget=2)


def test_what_no_node_has_is_not_waited_for(tmp_path: Path, executor: Ray) -> None:
    with Ray(gpus=1) as greedy, pytest.raises(UserError, match=r"needs 1 GPU, but no machine .* has more than 0: try"):
        search(tmp_path / "run.db", greedy, device="cuda")
    with Ray(threads=3) as greedy, pytest.raises(UserError, match=r"needs 3 CPU, but no machine .* has more than 1"):
        search(tmp_path / "run.db", greedy)


def test_a_killed_node_loses_nothing(tmp_path: Path, folder: Path, cluster: Any, executor: Ray) -> None:
    """A third node joins and is killed in the middle of a chunk. Until then nobody gives a score; it never does."""
    calm = search(tmp_path / "local.db", Local(1), "slow", 6)
    begun, hold = folder / "begun", folder / "hold"
    begun.write_text("")
    hold.touch()
    third = cluster.add_node(wait=False, num_cpus=2)
    until(lambda: executor.workers == 4)

    def kill_at_work() -> None:
        try:
            until(lambda: third.node_id in begun.read_text())
            cluster.remove_node(third, allow_graceful=False)
        finally:
            hold.write_text(third.node_id)  # its worker outlives it by a moment, in which it could still answer

    killer = threading.Thread(target=kill_at_work)
    killer.start()
    killed = search(tmp_path / "killed.db", executor, "slow", 6)
    killer.join()
    assert len(begun.read_text().splitlines()) > 6, "the node was killed with nothing to do"
    assert killed.best == calm.best
    assert content(tmp_path / "killed.db") == content(tmp_path / "local.db")


# Addresses


def test_an_address_without_a_cluster_is_refused_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    assert ray_.PATIENCE <= 5
    monkeypatch.setattr(ray_, "PATIENCE", 0.5)

    def says(address: str) -> str:
        start = time.monotonic()
        found = refusal("search", "--budget", 1, "--executor", "ray", "--address", address)
        assert time.monotonic() - start < 60, "Ray's own patience was waited for"
        return found

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        silent = says(f"127.0.0.1:{port}")
        assert silent.startswith(f"No Ray cluster answers at '127.0.0.1:{port}' (timed out): start it with")
    assert says(f"127.0.0.1:{port}").startswith(f"No Ray cluster answers at '127.0.0.1:{port}' (Connection refused)")
    assert "No Ray cluster answers at 'no-such-host.invalid:6379'" in says("no-such-host.invalid:6379")
    for text in ("here", "here:", ":6379", "here:99999", "ray://here:10001"):
        assert says(text).startswith("--address takes the head's host:port")


def test_another_server_is_no_cluster() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def greet() -> None:
            line, _ = server.accept()
            with line:
                line.recv(100)
                line.sendall(b"SSH-2.0-OpenSSH\r\n")

        other = threading.Thread(target=greet)
        other.start()
        port = server.getsockname()[1]
        sentence = refusal("search", "--budget", 1, "--executor", "ray", "--address", f"127.0.0.1:{port}")
        other.join()
    assert sentence.startswith(f"What answers at '127.0.0.1:{port}' is no Ray cluster")


# A cluster of our own


@SLOW
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc/net")
def test_a_cluster_of_our_own_listens_on_loopback_alone_and_leaves_nothing(tmp_path: Path, folder: Path) -> None:
    def listening() -> set[str]:
        """Addresses, in hexadecimal, with their ports, on which anything of this machine listens."""
        tables = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
        rows = [line.split() for table in tables for line in table.read_text().splitlines()[1:]]
        return {row[1] for row in rows if row[3] == "0A"}

    before = listening()
    (folder / "pace").write_text("0.2")
    arguments = ["search", "--proxy", "slow", "--budget", "1000", "--plugin", str(PLUGIN), "--store", "run.db"]
    arguments += ["--executor", "ray", "--workers", "2", "--winner-scores", "none", "--json"]
    environment = {name: value for name, value in os.environ.items() if name not in ray_.LOOPBACK}
    command = subprocess.Popen(
        process(*arguments), cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    begun = folder / "begun"
    while not begun.exists() or len(begun.read_text().splitlines()) < 10:
        assert command.poll() is None
        time.sleep(0.05)
    new = {address.partition(":")[0] for address in listening() - before}
    assert new and new <= {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
    command.send_signal(signal.SIGINT)
    out, err = command.communicate(timeout=120)
    assert command.returncode == 130 and '"stopped": "it was interrupted"' in out and "Traceback" not in err
    give_up = time.monotonic() + 60
    while listening() - before:
        assert time.monotonic() < give_up, "Ray is still there"
        time.sleep(0.1)
