"""Serving the dashboard: where it listens, and what it refuses to do."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import closing

import uvicorn

from holdfast.dashboard.app import make_app
from holdfast.dashboard.fleet import Rules
from holdfast.dashboard.guard import Access, is_loopback
from holdfast.dashboard.site import Site
from holdfast.errors import BadValue
from holdfast.handles import Repository

__all__ = ["serve"]


def serve(
    repository: Repository,
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    token: str | None = None,
    names: Iterable[str] = (),
    rules: Rules | None = None,
    ready: Callable[[str], None] = lambda _url: None,
    stop: threading.Event | None = None,
) -> None:
    """Serve the dashboard of a repository until `stop` is set. `ready` is told its address once it listens.

    Port 0 takes one that is free. On an address that others can reach, a token is needed even to look. Nothing is
    encrypted: put a proxy that does in front of it, and name the host that it goes by in `names`.
    """
    access = Access(token, open_reads=is_loopback(host), names=frozenset(name.lower() for name in names))
    with closing(Site.of(repository, access, rules)) as site, closing(_listen(host, port)) as listening:
        shown = f"[{host}]" if ":" in host else host
        config = uvicorn.Config(
            make_app(site),
            log_config=None,
            access_log=False,
            http="h11",
            ws="none",
            server_header=False,
            lifespan="off",
            timeout_graceful_shutdown=3,
        )
        server = _Server(config, lambda: ready(f"http://{shown}:{listening.getsockname()[1]}/"))
        if stop is not None:
            threading.Thread(target=_stopper, args=(server, stop), name="holdfast-stop", daemon=True).start()
        server.run(sockets=[listening])


class _Server(uvicorn.Server):
    """uvicorn, which leaves signals to whoever called and says when it is ready."""

    def __init__(self, config: uvicorn.Config, ready: Callable[[], None]) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready()


def _stopper(server: uvicorn.Server, stop: threading.Event) -> None:
    stop.wait()
    server.should_exit = True


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        raise BadValue("address", f"{host}:{port}: {error.strerror or error}") from None
    return listening
