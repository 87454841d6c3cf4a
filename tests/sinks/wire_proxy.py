"""A proxy before a database server that breaks a connection off at given words, and leaves the server in the dark."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

__all__ = ["WireProxy", "wire_proxy"]


class WireProxy:
    """Passes everything on. Words of a client, or of the server, that are set here are not, and end the connection.

    Only the client learns of it: the server goes on waiting, as it does when a machine or a network is gone.
    """

    def __init__(self, port: int) -> None:
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.request = b""
        self.reply = b""
        self._held: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        # An accept that is under way does not see that its socket was closed, but that it was shut down.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for held in self._held:
            with contextlib.suppress(OSError):
                held.shutdown(socket.SHUT_RDWR)
            held.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                self._held += [client, server]
                for words, source, target in (("request", client, server), ("reply", server, client)):
                    threading.Thread(target=self._pass_on, args=(words, source, target, client), daemon=True).start()

    def _pass_on(self, words: str, source: socket.socket, target: socket.socket, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if getattr(self, words) and getattr(self, words) in data:
                    setattr(self, words, b"")
                    break
                target.sendall(data)
            else:
                # Whoever ends a connection by itself is heard.
                target.shutdown(socket.SHUT_WR)
                return
        with contextlib.suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def wire_proxy(port: int) -> Iterator[WireProxy]:
    proxy = WireProxy(port)
    try:
        yield proxy
    finally:
        proxy.close()
