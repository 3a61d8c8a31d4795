"""A small local server for a live report of a run.

It serves two paths, the page and its data, and only reads the store: if a run is killed, the report stays as it is, and
grows again when the run resumes. Requests for another host name, which a foreign web page could send, are refused.
"""

from __future__ import annotations

import ipaddress
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from email.utils import formatdate
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Lock
from types import MappingProxyType
from typing import Any

from epochzero.errors import MachineError, UserError
from epochzero.report.content import Subject
from epochzero.report.page import page
from epochzero.report.reading import reading

SAFE = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""headers of every answer"""
CONNECTIONS = 64
"""answered at a time; more are told to come back"""
REQUEST_SECONDS, REQUEST_BYTES = 10, 2**14
"""in which a request has to be complete; a longer or slower one is cut off"""
BUSY = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def serve(
    subject: Subject,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    force: bool = False,
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serves the report until interrupted, and calls `ready` with its address. Port 0: any free port."""
    with server(subject, host, port, force=force) as made:
        ready(made.address)
        made.serve_forever()


def server(subject: Subject, host: str = "127.0.0.1", port: int = 0, *, force: bool = False) -> Server:
    """The server, bound and not yet serving; UserError for a host that others could reach, unless forced."""
    try:
        family, *_, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError as error:
        raise UserError(f"There is no host '{host}' ({error.strerror}): use 127.0.0.1.") from None
    if not ipaddress.ip_address(str(address[0]).partition("%")[0]).is_loopback and not force:
        raise UserError(
            f"'{host}' can be reached from other machines, whose users could read the report: use 127.0.0.1, or "
            "--force to allow that."
        )
    try:
        return Server(subject, host, (str(address[0]), port), family, force)
    except OSError as error:
        raise UserError(
            f"The report cannot be served at {host}:{port} ({error.strerror}): choose another --port."
        ) from None


class Server(ThreadingHTTPServer):
    """Holds the subject and its latest content."""

    daemon_threads = True
    request_queue_size = 2 * CONNECTIONS

    def __init__(self, subject: Subject, host: str, place: tuple[str, int], family: int, open_to_all: bool) -> None:
        self.address_family = family
        self.subject, self.host, self.open_to_all = subject, host, open_to_all
        self._lock = Lock()
        self._version, self._content = "", b""
        self._connections = BoundedSemaphore(CONNECTIONS)
        self.awaited: dict[socket.socket, float] = {}
        """connections with a request that is not complete, and the time until which it has to be"""
        super().__init__(place, Handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._connections.acquire(blocking=False):
            super().process_request(request, client_address)
            return
        with suppress(OSError):
            request.setblocking(False)
            request.send(BUSY)
        self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._connections.release()

    def service_actions(self) -> None:
        """Cuts off requests that take too long; called several times a second."""
        now = time.monotonic()
        for connection, until in self.awaited.copy().items():
            if now > until:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Says nothing of a browser that went away in the middle of an answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    def server_bind(self) -> None:
        """Binds without a lookup of the host's own name, which may take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = self.host, self.server_address[1]

    @property
    def address(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.server_port}/"

    def content(self, known: str) -> tuple[str, bytes, float]:
        """The content's version, the content unless that version is `known`, and the time of the last write."""
        with self._lock, reading(self.subject.store) as reader:
            version = f'"{reader.version()}"'
            if version not in (self._version, known):
                self._version, self._content = version, self.subject.packed(reader)
            return version, b"" if version == known else self._content, reader.written

    def own(self, host: str) -> bool:
        """True if a request's host name is that of this server."""
        return self.open_to_all or host in {
            f"{name}:{self.server_port}" for name in ("localhost", "127.0.0.1", "[::1]", self.host)
        }


class _Limited:
    """The lines of a request, up to a number of bytes; ConnectionError beyond."""

    def __init__(self, file: Any) -> None:
        self._file, self.left = file, REQUEST_BYTES

    def readline(self, limit: int) -> bytes:
        line: bytes = self._file.readline(min(limit, self.left + 1))
        self.left -= len(line)
        if self.left < 0:
            raise ConnectionError("A request is too long.")
        return line

    def close(self) -> None:
        self._file.close()


class Handler(BaseHTTPRequestHandler):
    """Answers GET for the page and for its data."""

    server: Server
    server_version, sys_version = "EpochZero", ""
    protocol_version, default_request_version = "HTTP/1.1", "HTTP/1.0"
    timeout = 30

    def handle_one_request(self) -> None:
        self.server.awaited[self.connection] = time.monotonic() + REQUEST_SECONDS
        self.rfile: Any = _Limited(self._read)
        try:
            super().handle_one_request()
        finally:
            self.server.awaited.pop(self.connection, None)

    def setup(self) -> None:
        super().setup()
        self._read = self.rfile

    def parse_request(self) -> bool:
        """Reads the head; the connection of a request with a body, which none needs, ends with the answer."""
        complete = super().parse_request()
        self.server.awaited.pop(self.connection, None)
        if complete and {"content-length", "transfer-encoding"} & {name.lower() for name in self.headers}:
            self.close_connection = True
        return complete

    def do_GET(self) -> None:
        if not self.server.own(self.headers.get("Host", "")):
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, b"This server answers for its own address alone.")
        elif self.path == "/":
            self._answer(HTTPStatus.OK, page(None).encode(), "text/html; charset=utf-8")
        elif self.path == "/data":
            self._answer_data()
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"There is nothing here but the report.")

    def _answer_data(self) -> None:
        known = self.headers.get("If-None-Match", "")
        try:
            version, content, written = self.server.content(known)
        except (UserError, MachineError) as error:
            self._answer(HTTPStatus.SERVICE_UNAVAILABLE, str(error).encode())
            return
        more = {"ETag": version, "Last-Modified": formatdate(written, usegmt=True)}
        if content:
            self._answer(HTTPStatus.OK, content, "application/octet-stream", more)
        else:
            self._answer(HTTPStatus.NOT_MODIFIED, b"", more=more)

    def _answer(
        self,
        status: HTTPStatus,
        body: bytes,
        kind: str = "text/plain; charset=utf-8",
        more: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **SAFE, **more}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the library's name
        """Say nothing: the page asks every two seconds."""
