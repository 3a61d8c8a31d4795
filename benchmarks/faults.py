"""What a Ray cluster of three nodes can lose while it scores: each fault, and what the search made of it.

    python benchmarks/faults.py                  # all faults, ten minutes; Linux
    sudo python benchmarks/faults.py             # with a node in a network of its own, which can be cut off

Each fault is a search on a cluster that is started for it: a head and two nodes, one of which suffers. A search that
ends has to leave the store of a calm local one. One that cannot go on has to end with a sentence, and the same command
with the same store, on a cluster that works, has to end as the calm one.

The nodes are processes of this machine; with the right to make network namespaces, the second one is in a namespace of
its own, connected by a pair of virtual interfaces inside another one, so that nothing outside is touched.
"""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE, FAR = "10.99.0.1", "10.99.0.2"
PORT = 6390
BUDGET = 48
CALM = ["--executor", "processes", "--workers", "4", "--batch-size", "8"]
PROXY = '''
import os, time
from pathlib import Path
from epochzero.engine import Pass, need, proxy

@proxy(needs=[need(Pass(), "params")], higher_is_better=True)
def pause(trace) -> float:
    """Parameters, after half a second; a node that is named in the file `slow` takes a hundred times as long."""
    import ray
    place = Path(os.environ["FAULTS"])
    node = ray.util.get_node_ip_address() if ray.is_initialized() else ""
    with (place / "begun").open("a") as lines:
        lines.write(node + "\\n")
    slow = place / "slow"
    time.sleep(50 if slow.exists() and slow.read_text() == node else 0.5)
    return float(trace.params)
'''


def inside() -> int:
    """In a network of its own: a head, a node beside it, and one in a further network. Prints the outcome."""
    fault, place = sys.argv[2], Path(sys.argv[3])
    os.environ |= {"FAULTS": str(place), "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    far = _network()
    started = [
        _ray(None, "--head", f"--port={PORT}", f"--node-ip-address={HERE}", "--num-cpus=1", *_memory(fault)),
        _ray(far, f"--address={HERE}:{PORT}", f"--node-ip-address={FAR}", "--num-cpus=2"),
    ]
    if any(started):
        print("the cluster cannot be started")
        return 1
    begun = place / "begun"
    timer = threading.Thread(target=_strike, args=(fault, far, begun), daemon=True)
    timer.start()
    size = 2_000_000 if fault == "full object store" else 8
    code = _search(place, "run.db", ["--executor", "ray", "--address", f"{HERE}:{PORT}", "--batch-size", str(size)])
    with begun.open("a") as lines:
        lines.write("the end\n")
    timer.join(30)
    print(f"far: {begun.read_text().count(FAR)}")
    return code


def _network() -> list[str]:
    """A pair of interfaces, of which one end is in a network namespace; the prefix of commands that run there."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", "600"])
    time.sleep(0.5)
    there = ["nsenter", f"--net=/proc/{holder.pid}/ns/net"]
    for command in (
        ["ip", "link", "set", "lo", "up"],
        ["ip", "link", "add", "here", "type", "veth", "peer", "name", "far"],
        ["ip", "link", "set", "far", "netns", str(holder.pid)],
        ["ip", "addr", "add", f"{HERE}/24", "dev", "here"],
        ["ip", "link", "set", "here", "up"],
        [*there, "ip", "link", "set", "lo", "up"],
        [*there, "ip", "addr", "add", f"{FAR}/24", "dev", "far"],
        [*there, "ip", "link", "set", "far", "up"],
    ):
        subprocess.run(command, check=True)
    return there


def _memory(fault: str) -> list[str]:
    return ["--object-store-memory=80000000"] if fault == "full object store" else []


def _ray(where: list[str] | None, *arguments: str) -> int:
    own = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # sockets have short names
    command = [*(where or []), sys.executable, "-m", "ray.scripts.scripts", "start", *arguments]
    command += ["--include-dashboard=false", "--disable-usage-stats"]
    if where is None:
        command.append(f"--temp-dir={own}")
    return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False).returncode


def _strike(fault: str, far: list[str], begun: Path) -> None:
    """Does the fault when the far node is at work."""
    while not begun.exists() or FAR not in begun.read_text():
        time.sleep(0.05)
    time.sleep(1)
    if fault == "node killed":
        _kill(lambda line: "raylet" in line and FAR in line)
    elif fault == "worker killed":
        _kill(lambda line: line.startswith("ray::"), most=1)
    elif fault == "head killed":
        _kill(lambda line: "gcs_server" in line)
    elif fault == "slow node":
        (begun.parent / "slow").write_text(FAR)
    elif fault.startswith("network cut"):
        subprocess.run(["ip", "link", "set", "here", "down"], check=True)
        if "for" in fault:
            time.sleep(int(fault.split()[3]))
            subprocess.run(["ip", "link", "set", "here", "up"], check=True)


def _kill(fits: Callable[[str], bool], most: int = 9) -> None:
    """Kills processes of this network whose command lines fit."""
    ours = Path("/proc/self/ns/net").readlink()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            line = (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            net = (folder / "ns/net").readlink()
        except OSError:
            continue
        if most and fits(line) and (net == ours or FAR in line):
            os.kill(int(folder.name), signal.SIGKILL)
            most -= 1


def _search(place: Path, store: str, more: list[str]) -> int:
    command = [sys.executable, "-m", "epochzero", "search", "--proxy", "pause", "--plugin", str(place / "pause.py")]
    command += ["--data", "pink", "--input-shape", "3,8,8", "--budget", str(BUDGET), "--option", "batch=12"]
    command += ["--winner-scores", "none", "--store", str(place / store), *more]
    with (place / "said").open("w") as said:
        return subprocess.run(command, stdout=subprocess.DEVNULL, stderr=said, check=False, timeout=400).returncode


def content(path: Path) -> Any:
    from epochzero.store import Store

    with Store.open(path) as store:
        scores = sorted(row._replace(seconds=0.0, batch="") for row in store.all_scores())
        return scores, [[step.arch for steps in run.history().values() for step in steps] for run in store.runs()]


FAULTS = (
    "none",
    "worker killed",
    "node killed",
    "slow node",
    "head killed",
    "network cut for 20 s",
    "network cut for 60 s",
    "network cut",
    "full object store",
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="faults, separated by commas")
    asked = parser.parse_args()
    if subprocess.run(["unshare", "--net", "true"], check=False, stderr=subprocess.DEVNULL).returncode:
        raise SystemExit("Namespaces of networks are not allowed here: run this as root, in a container of its own.")
    print("| fault | seconds | outcome | store |\n|---|---|---|---|")
    bad = 0
    with tempfile.TemporaryDirectory() as name:
        whole = Path(name)
        (whole / "pause.py").write_text(PROXY)
        os.environ["FAULTS"] = name
        _search(whole, "calm.db", CALM)
        for number, fault in enumerate(FAULTS if asked.only is None else asked.only.split(",")):
            place = whole / f"fault{number}"
            place.mkdir()
            (place / "pause.py").write_text(PROXY)
            os.environ["FAULTS"] = str(place)
            bad += not _suffered(fault, place, whole / "calm.db")
    raise SystemExit(bool(bad))


def _suffered(fault: str, place: Path, calm: Path) -> bool:
    """Prints the row of a fault; False if its store is not that of the calm search."""
    start = time.monotonic()
    # a process namespace of its own: what is left of the cluster ends with it
    box = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "--kill-child"]
    run = [*box, sys.executable, __file__, "--inside", fault, str(place)]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    took = time.monotonic() - start
    said = " ".join((place / "said").read_text().split()) if (place / "said").exists() else "nothing"
    outcome, resumed = "ends", ""
    if done.returncode:
        outcome, resumed = f"exit code {done.returncode}: {said}", "resumed: "
        (place / "slow").unlink(missing_ok=True)
        _search(place, "run.db", CALM)
    same: bool = content(place / "run.db") == content(calm)
    print(f"| {fault} | {took:.0f} | {outcome} | {resumed}{'same' if same else 'DIFFERS'} |", flush=True)
    print(fault, done.stdout, done.stderr[-500:], said[-500:], sep="\n", file=sys.stderr, flush=True)
    return same


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        raise SystemExit(inside())
    main()
