"""The live report under attack: slow, huge, broken and very many requests."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from random import Random
from threading import Thread, active_count

import pytest

from epochzero.report import Subject
from epochzero.report import server as served
from epochzero.report.page import page
from epochzero.report.server import Server, server
from epochzero.store import Store
from tests.report.test_report_page import _asked
from tests.store.test_store import begin


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Server]:
    with Store.open(tmp_path / "run.db") as store:
        begin(store)
    with serving(tmp_path / "run.db") as made:
        yield made


@contextmanager
def serving(store: Path) -> Iterator[Server]:
    with server(Subject(store)) as made:
        thread = Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield made
        finally:
            made.shutdown()
            thread.join()


def sent(made: Server, content: bytes, patience: float = 10) -> bytes:
    """Sends these bytes and returns all that comes back until the server closes, or says no more."""
    with socket.create_connection(("127.0.0.1", made.server_port), patience) as line:
        answer = b""
        try:
            line.sendall(content)
            line.shutdown(socket.SHUT_WR)
            while part := line.recv(65536):
                answer += part
        except OSError:  # cut off
            pass
        return answer


def test_more_connections_than_threads_are_told_to_come_back(made: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "REQUEST_SECONDS", 60)
    before = active_count()
    with ExitStack() as lines:
        idle = [
            lines.enter_context(socket.create_connection(("127.0.0.1", made.server_port), 10))
            for _ in range(served.CONNECTIONS + 40)
        ]
        answers = [line.recv(100) for line in idle[served.CONNECTIONS :]]
        assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in answers)
        assert active_count() - before <= served.CONNECTIONS
    give_up = time.monotonic() + 10
    while _asked(made, "/data")[0] != 200:  # threads of closed connections end
        assert time.monotonic() < give_up
    assert _asked(made, "/")[0] == 200


def test_slow_requests_are_cut_off(made: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served, "REQUEST_SECONDS", 0.2)
    with socket.create_connection(("127.0.0.1", made.server_port), 10) as line:
        line.sendall(b"GET / HTTP/1.1\r\nHost: 127")
        assert line.recv(100) == b"", "cut off"


def test_long_requests_are_cut_off(made: Server) -> None:
    for long in (b"GET /" + b"x" * 70_000, b"GET / HTTP/1.1\r\n" + b"A: " + b"x" * 20_000, b"A: b\r\n" * 50_000):
        assert sent(made, long + b" HTTP/1.1\r\n\r\n")[:12] in (b"", b"HTTP/1.1 414", b"HTTP/1.1 431", b"HTTP/1.1 400")


def test_a_body_is_no_second_request(made: Server) -> None:
    host = f"Host: 127.0.0.1:{made.server_port}\r\n".encode()
    second = b"GET /data HTTP/1.1\r\n" + host + b"\r\n"
    asked = b"GET / HTTP/1.1\r\n" + host + b"Content-Length: %d\r\n\r\n" % len(second)
    assert sent(made, asked + second).count(b"HTTP/1.1 ") == 1


def test_broken_requests_get_an_error_or_nothing(made: Server, capfd: pytest.CaptureFixture[str]) -> None:
    host = f"127.0.0.1:{made.server_port}".encode()
    whole = b"GET /data HTTP/1.1\r\nHost: " + host + b"\r\nIf-None-Match: x\r\n\r\n"
    odd = (b"\0", b"\xff", b"\r", b"\n", b" ", b"..", b"/", b"%2e", b"GET ", b"HTTP/9.9", b": ", b"\r\n\r\n")
    for seed in range(150):
        rng, content = Random(seed), bytearray(whole)
        for _ in range(rng.choice((1, 2, 6))):
            at = rng.randrange(len(content))
            content[at : at + rng.randrange(3)] = rng.choice(odd)
        answer = sent(made, bytes(content))
        first = answer.partition(b"\r\n")[0]
        assert not answer or first[:9] == b"HTTP/1.1 ", (seed, answer[:100])
        if first[9:12] == b"200":  # the page or its data, and nothing else
            assert made.content("")[1] in answer or page(None).encode() in answer, seed
    assert "Traceback" not in capfd.readouterr().err
    assert _asked(made, "/")[0] == 200
