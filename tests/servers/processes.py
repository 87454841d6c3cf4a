"""Server processes: each on a free port of this machine, with its own folder, ended by its process id."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

__all__ = ["BIN", "SERVERS", "ServerFailed", "accepts", "answers_http", "free_ports", "running"]

SERVERS = Path(__file__).resolve().parents[2] / ".servers"
BIN = Path(sys.executable).parent
READY_SECONDS = 60


class ServerFailed(Exception):
    """A server did not start; its log is told."""


@contextlib.contextmanager
def running(
    command: Sequence[str],
    folder: Path,
    ready: Callable[[], bool],
    environment: Mapping[str, str],
    *,
    killed: bool = False,
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server until the block ends; it begins when the server is ready. The folder goes with it.

    With `killed` it is killed then, in the middle of whatever it does, and the folder stays.
    """
    folder.mkdir(parents=True, exist_ok=True)
    log = folder.parent / f"{folder.name}.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            cwd=folder,
            stdout=output,
            stderr=output,
            stdin=subprocess.DEVNULL,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    try:
        _wait_until(ready, process, log)
        yield process
    finally:
        if killed:
            _kill(process)
        _end(process)
        if not killed:
            shutil.rmtree(folder, ignore_errors=True)


def answers_http(port: int) -> Callable[[], bool]:
    """Whether a server has begun to talk HTTP: an answer of any kind, even an error, says so."""

    def ready() -> bool:
        with socket.create_connection(("127.0.0.1", port), timeout=5) as connection:
            connection.settimeout(5)
            connection.sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
            return connection.recv(5) == b"HTTP/"

    return ready


def accepts(port: int) -> Callable[[], bool]:
    """Whether a server takes connections, whatever it speaks."""

    def ready() -> bool:
        socket.create_connection(("127.0.0.1", port), timeout=5).close()
        return True

    return ready


def free_ports(count: int) -> list[int]:
    """Ports that were free a moment ago; kept below 22768, since SeaweedFS adds 10000 to its ports for gRPC.

    Processes with neighbouring ids, which run tests side by side, look for them far from each other.
    """
    found: list[int] = []
    with contextlib.ExitStack() as held:
        for port in range(12000 + os.getpid() * 3989 % 9000, 22000):
            if len(found) == count:
                return found
            with contextlib.suppress(OSError):
                for number in (port, port + 10000):
                    listener = held.enter_context(socket.socket())
                    listener.bind(("127.0.0.1", number))
                found.append(port)
    raise RuntimeError("no free ports")


def _wait_until(ready: Callable[[], bool], process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + READY_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(OSError):
            if ready():
                return
        time.sleep(0.1)
    raise ServerFailed(f"{process.args!r} did not start:\n{log.read_text(errors='replace')[-2000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End it politely, then whatever it left behind in the session that was made for it."""
    process.terminate()
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(20)
    _kill(process)
    process.wait()


def _kill(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
