"""An HTTP server on loopback, in a thread: the provider of keys or of tokens."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, ClassVar


class Handler(BaseHTTPRequestHandler):
    """Each subclass answers the requests of its `method`, and keeps what it has received."""

    method: ClassVar[str]

    @abstractmethod
    def answer(self) -> None: ...

    def do_GET(self) -> None:
        self._answer_own_method()

    def do_POST(self) -> None:
        self._answer_own_method()

    def _answer_own_method(self) -> None:
        assert self.command == self.method
        self.answer()

    def respond(self, body: bytes, status: int = 200, location: str | None = None) -> None:
        self.send_response(status)
        if location is not None:
            self.send_header("Location", location)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: the test's output is not for access logs."""


@contextmanager
def served(handler: type[Handler]) -> Iterator[str]:
    """The address of a server with this handler, without a path."""
    server = HTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
