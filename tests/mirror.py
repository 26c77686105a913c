"""A server on this machine that behaves as told by the first part of the path: well, or badly in one of many ways."""

import re
import threading
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WAIT = 60
"""Seconds after which a server that was told to wait gives up, so that no test hangs."""


class Mirror:
    """Serves `content` under every name; a context manager."""

    def __init__(self, content: bytes):
        self.content = content
        self.asked: list[tuple[str, str | None]] = []
        """(behaviour, Range) of every request."""
        self.reached, self.go_on = threading.Event(), threading.Event()
        """Set when a waiting answer has sent its first half; to be set for it to send the rest."""
        handler = type("Handler", (_Handler,), {"mirror": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)

    def url(self, behaviour: str) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/{behaviour}/file"

    def __enter__(self) -> "Mirror":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.go_on.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Handler(BaseHTTPRequestHandler):
    mirror: Mirror

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        behaviour = self.path.split("/")[1]
        self.mirror.asked.append((behaviour, self.headers["Range"]))
        with suppress(ConnectionError):
            getattr(self, behaviour)()

    def _range(self, *, shift: int = 0, honoured: bool = True) -> bytes:
        """Sends the head of an answer and gives the body that belongs to it."""
        content = self.mirror.content
        match = re.fullmatch(r"bytes=(\d+)-", self.headers["Range"] or "")
        if not (match and honoured):
            self._head(200, len(content))
            return content
        start = int(match[1]) + shift
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        return content[start:]

    def _head(self, status: int, length: int | None = None) -> None:
        self.send_response(status)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def good(self) -> None:
        self.wfile.write(self._range())

    def without_ranges(self) -> None:
        self.wfile.write(self._range(honoured=False))

    def shifted(self) -> None:
        self.wfile.write(self._range(shift=7))

    def unlengthed(self) -> None:
        self._head(200)
        self.wfile.write(self.mirror.content)

    def truncated(self) -> None:
        body = self._range()
        self.wfile.write(body[: len(body) // 2])

    def wrong(self) -> None:
        self._head(200, len(self.mirror.content))
        self.wfile.write(bytes(len(self.mirror.content)))

    def too_long(self) -> None:
        self._head(200)
        self.wfile.write(self.mirror.content * 2)

    def portal(self) -> None:
        page = b"<html>Please log in.</html>"
        self._head(200, len(page))
        self.wfile.write(page)

    def missing(self) -> None:
        self.send_error(404)

    def unsatisfiable(self) -> None:
        if self.headers["Range"]:
            self.send_error(416)
        else:
            self.good()

    def waiting(self) -> None:
        """Half of what was asked for, the rest when the test says so."""
        body = self._range()
        half = len(body) // 2
        self.wfile.write(body[:half])
        self.wfile.flush()
        self.mirror.reached.set()
        if self.mirror.go_on.wait(WAIT):
            self.wfile.write(body[half:])
