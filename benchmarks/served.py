"""The live report under attack: connections by the thousand, slow and huge requests; time of an honest one, and memory.

python benchmarks/served.py                       # 10,000 connections, a minute; on the loopback interface alone
"""

from __future__ import annotations

import argparse
import http.client
import re
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from epochzero.store import Evaluated, Store
from epochzero.types import Score, Setting

OPEN = 1000
"""connections that are held at a time"""
HONEST = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--connections", type=int, default=10_000)
    asked = parser.parse_args()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4 * OPEN, files[1]), files[1]))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.db"
        with Store.open(path) as store:
            run = store.begin_run("search", {"space": "nb201", "proxy": "dextr", "method": "random"}, {})
            score = {"dextr": (Score(1.0), 0.1)}
            run.record(Setting("nb201", "b", "o:0"), [Evaluated(i, f"arch{i}", score) for i in range(1000)])
        command = [sys.executable, "-c", "from epochzero.cli import main; main()", "report", str(path), "--serve"]
        with subprocess.Popen(
            [*command, "--port", "0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        ) as one:
            assert one.stdout is not None
            port = int(re.findall(r":(\d+)/", one.stdout.readline())[0])
            print("| attack | answers | honest request, ms: median, worst | MB of the server |\n|---|---|---|---|")
            told("none", port, one.pid, lambda: "")
            told(
                f"{asked.connections:,} connections that say nothing",
                port,
                one.pid,
                lambda: silent(port, asked.connections),
            )
            told(
                f"{asked.connections:,} requests for another host",
                port,
                one.pid,
                lambda: foreign(port, asked.connections),
            )
            told("200 requests of 1 MB", port, one.pid, lambda: huge(port, 200))
            told("64 requests, a byte a second", port, one.pid, lambda: slow(port, 64))
            one.terminate()


def told(what: str, port: int, process: int, attack: Callable[[], str]) -> None:
    """One row of the table: what was answered, and honest requests right after."""
    answers = attack()
    times: list[float] = []
    give_up = time.monotonic() + 60
    while len(times) < HONEST and time.monotonic() < give_up:
        start = time.perf_counter()
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
        try:
            line.request("GET", "/data")
            answer = line.getresponse()
            answer.read()
            if answer.status == 200:
                times.append(1e3 * (time.perf_counter() - start))
            else:
                time.sleep(0.05)
        finally:
            line.close()
    held = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    assert held is not None and times
    print(
        f"| {what} | {answers} | {statistics.median(times):.0f}, {max(times):.0f} | {int(held[1]) / 1024:.0f} |",
        flush=True,
    )


def silent(port: int, connections: int) -> str:
    """Holds a thousand at a time."""
    refused = held = 0
    for _ in range(connections // OPEN):
        lines = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(OPEN)]
        for line in lines:
            line.settimeout(0.01 if held + refused else 1)
            try:
                refused += line.recv(12) == b"HTTP/1.1 503"
            except (TimeoutError, ConnectionError):
                held += 1
        for line in lines:
            line.close()
    return f"{refused:,} told to come back, {held:,} waited for"


def foreign(port: int, requests: int) -> str:
    seen: dict[bytes, int] = {}
    for _ in range(requests):
        with socket.create_connection(("127.0.0.1", port), 30) as line:
            line.sendall(b"GET /data HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n")
            try:
                code = line.recv(4096)[9:12]
            except ConnectionError:
                code = b"cut"
            seen[code] = seen.get(code, 0) + 1
    return ", ".join(f"{count:,} x {code.decode()}" for code, count in seen.items())


def huge(port: int, requests: int) -> str:
    cut = 0
    for _ in range(requests):
        with socket.create_connection(("127.0.0.1", port), 30) as line:
            try:
                line.sendall(b"GET / HTTP/1.1\r\n" + b"A: " + b"x" * 2**20 + b"\r\n\r\n")
                cut += line.recv(100)[9:10] != b"2"
            except ConnectionError:
                cut += 1
    return f"{cut} refused or cut off"


def slow(port: int, requests: int) -> str:
    lines = [socket.create_connection(("127.0.0.1", port), 30) for _ in range(requests)]
    start, alive = time.monotonic(), list(lines)
    while alive and time.monotonic() < start + 30:
        for line in alive.copy():
            try:
                line.send(b"G")
                line.settimeout(0.001)
                if line.recv(10) == b"":
                    alive.remove(line)
            except TimeoutError:
                pass
            except OSError:
                alive.remove(line)
        time.sleep(1)
    for line in lines:
        line.close()
    return f"all cut off after {time.monotonic() - start:.0f} s" if not alive else f"{len(alive)} still open"


if __name__ == "__main__":
    main()
