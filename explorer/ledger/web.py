"""HTTP for ledgers, from the standard library: a bounded client, and a server on loopback.

The client uses https, with verified certificates; http only for this machine unless `plain`. It follows no redirect,
reads no more than a given number of bytes, and gives up after its timeout, however slowly the answer arrives.

The server listens on 127.0.0.1 only: a reverse proxy in front of it does TLS and limits rates. It reads bodies of a
known and bounded length, answers every request, and never sends a traceback.
"""

import http.client
import ipaddress
import re
import ssl
import sys
import time
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import SplitResult, urlsplit

from explorer.errors import ExplorerError, LedgerError

TIMEOUT = 30.0  # seconds for one request, from connecting to the last byte
IDLE = 30.0  # seconds that the server waits for the next bytes of a connection
CHUNK = 2**16
LOOPBACK = "127.0.0.1"
_DIGITS = re.compile(r"[0-9]{1,9}", re.ASCII)

TEXT = "text/plain; charset=utf-8"
BYTES = "application/octet-stream"


class UnreachableError(LedgerError):
    """A request without a usable answer; another attempt may succeed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """Answer to a request: status, headers in lower case, body."""

    status: int
    body: bytes = b""
    content_type: str = TEXT
    headers: Mapping[str, str] = field(default_factory=dict)


class Client:
    """A client for the paths below one URL, with one connection that is kept open between requests.

    Raises `LedgerError` on construction for a URL that cannot be used.
    """

    def __init__(self, url: str, *, plain: bool = False, timeout: float = TIMEOUT) -> None:
        """`plain`: allow http for other machines too."""
        self.url = url.rstrip("/")
        self._parts = _split(self.url, plain)
        self._timeout = timeout
        self._connection: http.client.HTTPConnection | None = None

    def ask(self, method: str, path: str, body: bytes = b"", *, max_bytes: int) -> Answer:
        """Make one request.

        Raises `UnreachableError` where no whole answer came, `LedgerError` for one that is too long.
        """
        deadline = time.monotonic() + self._timeout
        try:
            return self._ask(method, path, body, max_bytes, deadline)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            why = str(error) or type(error).__name__
            raise UnreachableError(f"{self.url}/{path}: no answer: {why}") from error

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _ask(self, method: str, path: str, body: bytes, max_bytes: int, deadline: float) -> Answer:
        if self._connection is None:
            self._connection = _connect(self._parts, self._timeout)
        headers = {"Accept-Encoding": "gzip, identity"}
        self._connection.request(method, f"{self._parts.path}/{path}", body or None, headers)
        response = self._connection.getresponse()
        # Bounded while it arrives: a length in the headers is only a claim, and so is its absence.
        read = bytearray()
        while chunk := response.read1(CHUNK):
            read += chunk
            # Gzip enlarges content that does not compress, by less than 1% and 100 bytes.
            if len(read) > max_bytes + len(read) // 100 + 100:
                self.close()
                raise self._too_long(path, max_bytes)
            if time.monotonic() > deadline:
                raise TimeoutError(f"not finished after {self._timeout:.0f} seconds")
        if response.length:
            raise http.client.IncompleteRead(bytes(read), response.length)
        response.close()
        if response.will_close:
            self.close()
        content = _unpacked(bytes(read), response.headers.get("Content-Encoding", "identity"), max_bytes)
        if len(content) > max_bytes:
            raise self._too_long(path, max_bytes)
        content_type = response.headers.get("Content-Type", "")
        return Answer(status=response.status, body=content, content_type=content_type)

    def _too_long(self, path: str, max_bytes: int) -> LedgerError:
        return LedgerError(f"{self.url}/{path}: the answer is too long: expected at most {max_bytes} bytes")


def serve(port: int, respond: Callable[[str, str, bytes], Answer], *, max_body: int = 0) -> ThreadingHTTPServer:
    """Return a server on 127.0.0.1 that answers each request with `respond(method, path, body)`.

    Call its `serve_forever`. Requests are answered concurrently, each in a thread of its own. Port 0 takes a free port.
    Raises `LedgerError` if the port is not available.
    """

    class Handler(_Handler):
        limit = max_body

        def respond(self, method: str, path: str, body: bytes) -> Answer:
            return respond(method, path, body)

    try:
        return _Server((LOOPBACK, port), Handler)
    except (OSError, OverflowError) as error:
        raise LedgerError(f"cannot listen on {LOOPBACK}:{port}: {error}") from error


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a client that went away in the middle; report anything else."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler, ABC):
    """A handler that reads one bounded request and leaves the answer to `respond`."""

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "explorer", ""
    timeout = IDLE
    limit = 0

    @abstractmethod
    def respond(self, method: str, path: str, body: bytes) -> Answer:
        """Answer one request."""

    def do_GET(self) -> None:
        self._get(body=True)

    def do_HEAD(self) -> None:
        self._get(body=False)

    def _get(self, *, body: bool) -> None:
        """Answer a GET or HEAD."""
        # A body is refused: unread, it would be taken for the next request on this connection.
        if self.headers.get("Transfer-Encoding") is not None or self.headers.get("Content-Length", "0") != "0":
            self.close_connection = True
            self._send(Answer(status=400, body=b"a body was not expected\n"), body=body)
        else:
            self._send(self._answer("GET", b""), body=body)

    def do_POST(self) -> None:
        length = self.headers.get("Content-Length", "")
        if self.headers.get("Transfer-Encoding") is not None or not _DIGITS.fullmatch(length):
            self.close_connection = True
            self._send(Answer(status=411, body=b"a body of a stated length is needed\n"))
        elif int(length) > self.limit:
            self.close_connection = True
            self._send(Answer(status=413, body=f"at most {self.limit} bytes are read\n".encode()))
        else:
            body = self.rfile.read(int(length))
            if len(body) < int(length):
                self.close_connection = True
                return  # the client went away
            self._send(self._answer("POST", body))

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the proxy in front keeps the log of requests."""

    def _answer(self, method: str, body: bytes) -> Answer:
        try:
            return self.respond(method, self.path.partition("?")[0], body)
        except (ExplorerError, OSError) as error:
            return Answer(status=500, body=f"{error}\n".encode(errors="backslashreplace"))

    def _send(self, answer: Answer, *, body: bool = True) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in answer.headers.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if body:
            self.wfile.write(answer.body)


def _unpacked(content: bytes, encoding: str, max_bytes: int) -> bytes:
    """Unpack at most `max_bytes` + 1 bytes, enough to notice more. Raises `OSError` for content that is not gzip."""
    if encoding.lower() not in ("identity", "gzip"):
        raise OSError(f"an answer in the encoding {encoding[:40]!r}; expected gzip or none")
    if encoding.lower() == "identity":
        return content
    unpacking = zlib.decompressobj(wbits=31)
    try:
        unpacked = unpacking.decompress(content, max_bytes + 1)
    except zlib.error as error:
        raise OSError(f"an answer that is not gzip: {error}") from error
    if not unpacking.eof and len(unpacked) <= max_bytes:
        raise OSError("an answer in gzip that ends too early")
    return unpacked


def _split(url: str, plain: bool) -> SplitResult:
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise LedgerError(f"not a URL: {url[:200]!r} ({error})") from error
    odd = parts.query or parts.fragment or parts.username is not None or not url.isascii() or not url.isprintable()
    if parts.scheme not in ("http", "https") or not parts.hostname or odd or " " in url:
        raise LedgerError(f"not a URL: {url[:200]!r}; expected https://host[:port][/path]")
    if parts.scheme == "http" and not plain and not _is_loopback(parts.hostname):
        raise LedgerError(f"{url}: http to another machine; expected https (--http allows it)")
    return parts


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _connect(parts: SplitResult, timeout: float) -> http.client.HTTPConnection:
    assert parts.hostname is not None
    if parts.scheme == "https":
        context = ssl.create_default_context()
        return http.client.HTTPSConnection(parts.hostname, parts.port, timeout=timeout, context=context)
    return http.client.HTTPConnection(parts.hostname, parts.port, timeout=timeout)
