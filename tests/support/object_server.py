"""A web server on loopback that stores objects, counts requests, and fails where a test says so."""

from __future__ import annotations

import hashlib
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

# Answers a request in place of the server. Returns False to let the server answer.
Fault = Callable[["Handler"], bool]


class ObjectServer:
    """Objects by their paths, such as "/train/a.tfrecord". A path that ends with a slash is a listing.

    Attributes:
      url: of the server, without a slash at the end.
      requests: the method and path of each request.
      sent: bytes of content in all answers.
      delay_secs: before each answer.
      fault: see `Fault`.
    """

    def __init__(self) -> None:
        self.url = ""
        self.objects: dict[str, bytes] = {}
        self.etags: dict[str, str] = {}
        self.requests: list[tuple[str, str]] = []
        self.sent, self.delay_secs = 0, 0.0
        self.fault: Fault = lambda request: False
        self.connections: list[socket.socket] = []
        self.lock = threading.Lock()

    def put(self, path: str, content: bytes) -> None:
        self.objects[path] = content
        # Once, because it takes long.
        self.etags[path] = hashlib.md5(content).hexdigest()

    def count(self, method: str) -> int:
        return sum(each == method for each, _ in self.requests)

    def reset(self) -> None:
        self.requests.clear()
        self.sent = 0


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    store: ObjectServer

    def setup(self) -> None:
        super().setup()
        self.store.connections.append(self.connection)
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._handle()

    def do_GET(self) -> None:
        self._handle()

    def do_POST(self) -> None:
        content = self._body()
        if self.store.fault(self):
            return
        self.store.put(self.path, content)
        self.answer(201)

    def _body(self) -> bytes:
        if "chunked" not in self.headers.get("Transfer-Encoding", ""):
            return self.rfile.read(int(self.headers["Content-Length"]))
        parts = []
        while size := int(self.rfile.readline(), 16):
            parts.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return b"".join(parts)

    def _handle(self) -> None:
        store = self.store
        with store.lock:
            store.requests.append((self.command, self.path))
        if store.delay_secs:
            time.sleep(store.delay_secs)
        if store.fault(self):
            return
        if self.path.endswith("/"):
            names = [name.removeprefix(self.path) for name in sorted(store.objects) if name.startswith(self.path)]
            self.answer(200, "".join(f'<a href="{name}">{name}</a>\n' for name in names).encode(), kind="text/html")
            return
        content = store.objects.get(self.path)
        if content is None:
            self.answer(404)
            return
        wanted = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if wanted is None:
            self.answer(200, content, etag=store.etags[self.path])
        elif int(wanted[1]) >= len(content):
            self.answer(416)
        else:
            self.answer(206, content[int(wanted[1]) : int(wanted[2]) + 1], etag=store.etags[self.path])

    def answer(self, status: int, body: bytes = b"", *, kind: str = "", etag: str = "", cut: int = 0) -> None:
        """Answer with a body, less the last `cut` bytes of it."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Type", kind or "application/octet-stream")
        if etag:
            self.send_header("ETag", f'"{etag}"')
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: len(body) - cut])
            with self.store.lock:
                self.store.sent += len(body) - cut
        if cut:
            self.close_connection = True


class _Server(ThreadingHTTPServer):
    def handle_error(self, *connection: Any) -> None:
        if not isinstance(sys.exc_info()[1], ConnectionError):  # a client may hang up
            super().handle_error(*connection)


@contextmanager
def serving() -> Iterator[ObjectServer]:
    """Serve in threads of this process."""
    store = ObjectServer()
    server = _Server(("127.0.0.1", 0), type("OwnHandler", (Handler,), {"store": store}))
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    store.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield store
    finally:
        server.shutdown()
        thread.join()
        for connection in store.connections:
            with suppress(OSError):  # closed already
                connection.shutdown(socket.SHUT_RDWR)
        server.server_close()
