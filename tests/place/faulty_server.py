"""A server between a client and an S3 server, which fails a share of the requests.

Half of the failures are refused before they reach the store; of the other half the store did what was asked, and the
answer is lost.
"""

import random
import sys
import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that was killed."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


class FaultyServer:
    """The server, on an address of this machine; `url` names it, `failures` counts what it did."""

    def __init__(self, behind: str, *, share: float, seed: int = 0, host: str = "127.0.0.1") -> None:
        self.failures = {"refused": 0, "lost": 0}
        self.share = share
        self._random, self._lock = random.Random(seed), threading.Lock()
        self._behind = urlsplit(behind)
        outer = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                fate = outer.fate()
                if fate == "refused":
                    self.send(500, [], b"<Error><Code>InternalError</Code></Error>")
                    return
                store = HTTPConnection(str(outer._behind.hostname), outer._behind.port, timeout=600)
                store.request(self.command, self.path, body, dict(self.headers))
                came = store.getresponse()
                content, headers = came.read(), came.getheaders()
                store.close()
                if fate == "lost":
                    self.send(500, [], b"<Error><Code>InternalError</Code></Error>")
                    return
                self.send(came.status, headers, content)

            do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = answer

            def send(self, status: int, headers: list[tuple[str, str]], content: bytes) -> None:
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(name, value)
                length = dict((name.lower(), value) for name, value in headers).get("content-length")
                is_head = self.command == "HEAD"
                self.send_header("Content-Length", length if is_head and length else str(len(content)))
                self.end_headers()
                if not is_head:
                    self.wfile.write(content)

            def log_message(self, format: str, *args: object) -> None:
                """Say nothing."""

        self._server = _Server((host, 0), Handler)
        self.url = f"http://{host}:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def fate(self) -> str:
        """Decide what becomes of a request."""
        with self._lock:
            if self._random.random() >= self.share:
                return "answered"
            kind = self._random.choice(("refused", "lost"))
            self.failures[kind] += 1
            return kind

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
