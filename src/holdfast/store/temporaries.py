"""Temporary files whose names tell whose they are, so that those of dead processes, and no others, can be removed."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import itertools
import os
import socket
from pathlib import Path

__all__ = ["TemporaryFile", "remove_orphans"]

_numbers = itertools.count()


class TemporaryFile:
    """A new file open for writing, gone at the end of the `with` unless it was moved away.

    Its name holds this host, this process, the process's start and a number: no other writer has it.
    """

    __slots__ = ("fd", "path")

    def __init__(self, folder: str) -> None:
        self.path = f"{folder}/{_writer(os.getpid())}.{next(_numbers)}"
        self.fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)

    def __enter__(self) -> TemporaryFile:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self.fd)
        with contextlib.suppress(OSError):
            os.unlink(self.path)  # noqa: PTH108 (as in disk.py)


@functools.lru_cache(maxsize=2)
def _writer(pid: int) -> str:
    return f"{_host()}.{pid}.{_started(pid) or 0}"


def remove_orphans(folder: str) -> None:
    """Remove the temporary files of this host's dead processes; what cannot be told for sure stays."""
    with contextlib.suppress(OSError):
        for file in Path(folder).iterdir():
            if _is_orphan(file.name):
                with contextlib.suppress(OSError):
                    file.unlink()


def _is_orphan(name: str) -> bool:
    match name.split("."):
        case [host, pid, started, number] if (
            host == _host() and pid.isdigit() and started.isdigit() and number.isdigit()
        ):
            return not _lives(int(pid), int(started))
    return False


@functools.cache
def _host() -> str:
    # Containers may share a host name and number their processes from 1 each: the namespace tells them apart.
    try:
        namespace = str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        namespace = ""
    return hashlib.sha256(f"{socket.gethostname()} {namespace}".encode()).hexdigest()[:16]


def _lives(pid: int, started: int) -> bool:
    now = _started(pid)
    if now is not None:
        return now == started
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True


def _started(pid: int) -> int | None:
    """When a process began, in ticks since boot; None where the system does not say or there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    # The name of the program stands in brackets and may hold blanks and brackets itself.
    return int(stat.rpartition(")")[2].split()[19])
