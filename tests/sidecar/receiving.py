"""A real HTTP server that receives alerts, and can be told to misbehave."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["Inbox", "receiving", "until"]


class Inbox:
    """What came in: `taken` was answered with 2xx, `asked` counts all attempts. `answer` is what the next get.

    `refused` has the answer to messages of one key, or of one status and key.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.answer: int | str = 204
        self.refused: dict[str, int] = {}
        self.asked = 0
        self.taken: list[dict[str, Any]] = []
        self.headers: dict[str, str] = {}
        self.over = threading.Event()

    def told(self) -> list[str]:
        return [f"{message['status']} {message['key']}" for message in self.taken]


@contextmanager
def receiving() -> Iterator[Inbox]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            inbox.asked += 1
            inbox.headers = dict(self.headers)
            message = json.loads(body)
            key = str(message["key"])
            answer = inbox.refused.get(key, inbox.refused.get(f"{message['status']} {key}", inbox.answer))
            if answer == "hang":
                inbox.over.wait(60)
                return
            if answer == "drip":
                self._drip()
                return
            assert isinstance(answer, int)
            if answer < 300:
                inbox.taken.append(message)
            self.send_response(answer)
            if answer == 302:
                self.send_header("Location", f"{inbox.url}/elsewhere")
            self.end_headers()

        def _drip(self) -> None:
            try:
                self.wfile.write(b"HTTP/1.1 204 No Content\r\n")
                for byte in b"X-Slow: yes\r\n" * 100:
                    self.wfile.write(bytes([byte]))
                    self.wfile.flush()
                    if inbox.over.wait(0.05):
                        return
            except OSError:
                return  # hung up on

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    inbox = Inbox(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, args=[0.05])
    thread.start()
    try:
        yield inbox
    finally:
        inbox.over.set()
        server.shutdown()
        thread.join()
        server.server_close()


def until(holds: Callable[[], object], what: object = "", seconds: float = 120.0) -> None:
    """Wait until something holds; fails with `what` if it never does."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.02)
