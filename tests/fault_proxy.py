"""A proxy before a real server that fails on demand, in the ways that networks and servers do."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = [
    "FaultProxy",
    "Request",
    "answer",
    "cut_reply",
    "cut_request",
    "flip_byte",
    "flip_object",
    "lose_reply",
    "pass_on",
    "slow_reply",
    "stall",
]


@dataclass
class Request:
    """One HTTP request, as it came in."""

    method: str
    path: str
    head: bytes
    length: int


class Hang(Exception):
    """Break this connection off with a reset."""


Fault: TypeAlias = "Callable[[FaultProxy, Request, socket.socket], None]"


def cut_request(proxy: FaultProxy, request: Request, client: socket.socket) -> None:
    """Reset the connection in the middle of the request; the server never sees it."""
    receive(client, request.length // 2)
    raise Hang


def lose_reply(proxy: FaultProxy, request: Request, client: socket.socket) -> None:
    """Let the server do it, and reset the connection instead of passing its reply on."""
    proxy.forward(request, receive(client, request.length))
    raise Hang


def cut_reply(proxy: FaultProxy, request: Request, client: socket.socket) -> None:
    """Pass the head and half of the body on, then reset the connection."""
    head, body = proxy.forward(request, receive(client, request.length))
    client.sendall(head + body[: len(body) // 2])
    time.sleep(0.1)  # a reset overtakes what is still on its way
    raise Hang


def flip_byte(proxy: FaultProxy, request: Request, client: socket.socket) -> None:
    """Turn one bit in the middle of the reply's body."""
    head, body = proxy.forward(request, receive(client, request.length))
    middle = len(body) // 2
    client.sendall(head + body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :])


def flip_object(proxy: FaultProxy, request: Request, client: socket.socket) -> None:
    """The same in the next object that is fetched: nothing tells whether a listing is what the server said."""
    if "list-type" in request.path or request.method != "GET":
        proxy.order_next("GET", flip_object)
        pass_on(proxy, request, client)
        return
    head, body = proxy.forward(request, receive(client, request.length))
    if not head.startswith((b"HTTP/1.1 200", b"HTTP/1.1 206")) or not body:
        client.sendall(head + body)
        return
    middle = len(body) // 2
    client.sendall(head + body[:middle] + bytes([body[middle] ^ 1]) + body[middle + 1 :])


def slow_reply(proxy: FaultProxy, request: Request, client: socket.socket) -> None:
    """Pass the reply on in twenty pieces with pauses between."""
    reply = b"".join(proxy.forward(request, receive(client, request.length)))
    step = len(reply) // 20 + 1
    for start in range(0, len(reply), step):
        client.sendall(reply[start : start + step])
        time.sleep(0.02)


def stall(proxy: FaultProxy, request: Request, client: socket.socket) -> None:
    """Take the request and never answer, until the proxy ends."""
    receive(client, request.length)
    proxy.ended.wait()
    raise Hang


def answer(status: str) -> Fault:
    """Answer with an error, without asking the server."""

    def fault(proxy: FaultProxy, request: Request, client: socket.socket) -> None:
        receive(client, request.length)
        client.sendall(f"HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n".encode())

    return fault


@dataclass
class FaultProxy:
    """Passes requests on to `upstream`, except those for which a fault was ordered."""

    upstream: tuple[str, int]
    seen: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._orders: list[tuple[str, Fault]] = []
        self._lock = threading.Lock()
        self._listener = self._listen(0)
        self.port: int = self._listener.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{self.port}"
        self._serve()

    def order(self, method: str, fault: Fault, times: int = 1) -> None:
        """Have the next `times` requests of this method fail so."""
        with self._lock:
            self._orders += [(method, fault)] * times

    def order_next(self, method: str, fault: Fault) -> None:
        """The same, before all others that were ordered."""
        with self._lock:
            self._orders.insert(0, (method, fault))

    @property
    def left(self) -> int:
        """How many of the ordered faults have not come to pass yet."""
        return len(self._orders)

    @contextlib.contextmanager
    def down(self) -> Iterator[None]:
        """Refuse all connections."""
        self._close_listener()
        try:
            yield
        finally:
            self._listener = self._listen(self.port)
            self._serve()

    def end(self) -> None:
        self.ended.set()
        self._close_listener()

    def forward(self, request: Request, body: bytes) -> tuple[bytes, bytes]:
        """Send a whole request to the server; its reply, as head and body."""
        with socket.create_connection(self.upstream, timeout=30) as server:
            server.sendall(request.head + body)
            head = receive_head(server)
            length = header(head, b"content-length")
            if request.method == "HEAD" or head.startswith((b"HTTP/1.1 204", b"HTTP/1.1 304")):
                return head, b""
            if length is not None:
                return head, receive(server, int(length))
            return head, receive_chunked(server)

    def _listen(self, port: int) -> socket.socket:
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen(64)
        return listener

    def _close_listener(self) -> None:
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes the thread that accepts
        self._listener.close()

    def _serve(self) -> None:
        threading.Thread(target=self._accept, args=(self._listener,), daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = listener.accept()
                threading.Thread(target=self._talk, args=(client, listener), daemon=True).start()

    def _talk(self, client: socket.socket, listener: socket.socket) -> None:
        with client, contextlib.suppress(OSError, EOFError):
            try:
                while head := receive_head(client):
                    if listener.fileno() < 0:  # the connection is an old one of before `down`
                        raise Hang
                    method, path, _ = head.split(b" ", 2)
                    request = Request(method.decode(), path.decode(), head, int(header(head, b"content-length") or 0))
                    self._next_fault(request)(self, request, client)
            except Hang:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    def _next_fault(self, request: Request) -> Fault:
        with self._lock:
            self.seen.append(f"{request.method} {request.path}")
            for number, (method, fault) in enumerate(self._orders):
                if method == request.method:
                    del self._orders[number]
                    return fault
        return pass_on


def pass_on(proxy: FaultProxy, request: Request, client: socket.socket) -> None:
    client.sendall(b"".join(proxy.forward(request, receive(client, request.length))))


def receive(connection: socket.socket, length: int) -> bytes:
    parts = bytearray()
    while len(parts) < length:
        part = connection.recv(min(1 << 20, length - len(parts)))
        if not part:
            raise EOFError
        parts += part
    return bytes(parts)


def receive_head(connection: socket.socket) -> bytes:
    """Up to the empty line; b"" when the other side is done."""
    head = bytearray()
    while not head.endswith(b"\r\n\r\n"):
        part = connection.recv(1)
        if not part:
            return b""
        head += part
    return bytes(head)


def receive_chunked(connection: socket.socket) -> bytes:
    """A chunked body as it stands on the wire."""
    body = bytearray()
    while True:
        line = bytearray()
        while not line.endswith(b"\r\n"):
            line += receive(connection, 1)
        size = int(line.split(b";")[0], 16)
        body += line + receive(connection, size + 2)
        if size == 0:
            return bytes(body)


def header(head: bytes, name: bytes) -> bytes | None:
    for line in head.split(b"\r\n")[1:]:
        key, _, value = line.partition(b":")
        if key.strip().lower() == name:
            return value.strip()
    return None
