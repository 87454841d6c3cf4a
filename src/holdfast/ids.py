"""Names that nobody else has: writer tokens and checkpoint ids. The only place that asks for randomness."""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import time
import uuid

__all__ = ["new_id", "new_token", "now_ms", "whoami"]


def new_token() -> str:
    """128 random bits as 32 hex digits: what tells one writer's record from another's."""
    return secrets.token_hex(16)


def now_ms() -> int:
    """The wall clock, for people to read; nothing is ever ordered by it."""
    return time.time_ns() // 1_000_000


def new_id() -> str:
    """A UUIDv7: sorts roughly by time, which is for people's eyes only and never decides an order."""
    bits = (now_ms() & (1 << 48) - 1) << 80 | secrets.randbits(80)
    bits = bits & ~(0xF << 76) | 0x7 << 76
    bits = bits & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=bits))


def whoami() -> str:
    """user@host/pid of this process, for claims and messages."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}/{os.getpid()}"
