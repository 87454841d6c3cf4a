"""The key that a user keeps: 32 random bytes as one line of text, from a file, the environment or a command.

It opens the keys that a repository was encrypted with, and encrypts nothing else. It is never shown: `id` tells one
key from another.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path

from holdfast.encryption.ciphers import derive
from holdfast.errors import BadKey

__all__ = ["COMMAND", "FILE", "TEXT", "Key", "has_key"]

TEXT, FILE, COMMAND = "HOLDFAST_KEY", "HOLDFAST_KEY_FILE", "HOLDFAST_KEY_COMMAND"

MARK = "holdfast-key-1:"
SIZE = 32
CHECK = 4
"""Bytes of the digest that follow the key in its text: a letter that was mistyped or lost is noticed."""


class Key:
    """A key. Its text is given by `text()` alone: neither `repr` nor any message has it."""

    def __init__(self, secret: bytes) -> None:
        if len(secret) != SIZE:
            raise BadKey("the key", f"no key: it has {len(secret)} bytes where {SIZE} belong")
        self._secret = secret
        self.id = derive(secret, b"holdfast key id").hex()[:16]

    def __repr__(self) -> str:
        return f"<holdfast.Key {self.id}>"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Key) and secrets.compare_digest(self._secret, other._secret)

    def __hash__(self) -> int:
        return hash(self.id)

    def __reduce__(self) -> str:
        raise TypeError("a key is not pickled: it would be stored wherever the pickle goes")

    @classmethod
    def generate(cls) -> Key:
        """A new key, from the system's own randomness."""
        return cls(secrets.token_bytes(SIZE))

    @classmethod
    def from_text(cls, text: str, where: str = "the text") -> Key:
        """The key of a line of text; `where` only names it in errors, which never repeat the text."""
        line = text.strip()
        if not line.startswith(MARK):
            raise BadKey(where, f"no key: it does not begin with {MARK}" if line else "it is empty, and no key")
        try:
            data = base64.b64decode(line.removeprefix(MARK), altchars=b"-_", validate=True)
        except ValueError:
            data = b""
        if len(data) != SIZE + CHECK or _check(data[:SIZE]) != data[SIZE:]:
            raise BadKey(where, "no key: it is mistyped or cut short")
        return cls(data[:SIZE])

    @classmethod
    def from_file(cls, path: str | os.PathLike[str]) -> Key:
        """The key in a file."""
        file = Path(path).expanduser()
        try:
            text = file.read_text(encoding="utf-8")
        except OSError as error:
            raise BadKey(str(file), f"the key can't be read: {error.strerror}") from error
        except UnicodeDecodeError:
            # Not chained: the error would carry what was read.
            raise BadKey(str(file), "no key: it is not text") from None
        return cls.from_text(text, str(file))

    @classmethod
    def from_command(cls, command: str) -> Key:
        """The key that a command prints. It is run without a shell, and may ask on the terminal."""
        try:
            words = shlex.split(command)
            done = subprocess.run(words, stdout=subprocess.PIPE, check=False)
        except (OSError, ValueError, IndexError) as error:
            raise BadKey("the key command", f"it can't be run: {error}") from error
        if done.returncode:
            raise BadKey("the key command", f"it gave no key and ended with {done.returncode}")
        return cls.from_text(done.stdout.decode("utf-8", "replace"), "the key command")

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None) -> Key | None:
        """The key that HOLDFAST_KEY_FILE, HOLDFAST_KEY_COMMAND or HOLDFAST_KEY gives; None if none is set."""
        given = os.environ if environment is None else environment
        names = [name for name in (TEXT, FILE, COMMAND) if given.get(name)]
        if not names:
            return None
        if len(names) > 1:
            raise BadKey("the environment", f"{' and '.join(names)} are set: which one is meant?")
        makers = {TEXT: lambda text: cls.from_text(text, TEXT), FILE: cls.from_file, COMMAND: cls.from_command}
        return makers[names[0]](given[names[0]])

    def text(self) -> str:
        """The key as one line. Whoever has it can read all."""
        return MARK + base64.urlsafe_b64encode(self._secret + _check(self._secret)).decode()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a new file that only its owner can read. Raises BadKey if something is there already."""
        file = Path(path).expanduser()
        try:
            fd = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            with os.fdopen(fd, "w", encoding="utf-8") as out:
                out.write(f"{self.text()}\n")
                out.flush()
                os.fsync(fd)
        except OSError as error:
            raise BadKey(str(file), f"the key can't be written: {error.strerror}") from error

    def wrapping(self, salt: bytes) -> bytes:
        """The key for wrapping one set of a repository's keys."""
        return derive(self._secret, b"holdfast wrap", salt)


def has_key(environment: Mapping[str, str] | None = None) -> bool:
    """Whether the environment gives a key; runs and reads nothing."""
    given = os.environ if environment is None else environment
    return any(given.get(name) for name in (TEXT, FILE, COMMAND))


def _check(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()[:CHECK]
