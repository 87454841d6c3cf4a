"""What a sidecar must not forget when it is restarted: what it told whom, what is damaged, when it last checked.

One small file, replaced as a whole. Whoever holds the lock beside it is the one that tells, checks and prunes; a second
sidecar with the same file waits for it. It is no record of checkpoints: lost, everything that holds is told once more.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import msgspec

from holdfast.decide.alerts import Message, Standing, Told, after_telling
from holdfast.errors import StateUnusable

__all__ = ["Damaged", "Memory"]

VERSION = 1


class Damaged(msgspec.Struct, frozen=True):
    """What a check found, and the checkpoints that it hit: they are proven one by one before they pass for mended."""

    what: list[str]
    slots: list[str] = []


class _File(msgspec.Struct, kw_only=True):
    version: int = VERSION
    standing: dict[str, Standing] = {}
    told: dict[str, dict[str, Told]] = {}
    damaged: dict[str, Damaged] = {}
    hit: dict[str, str] = {}
    ran: dict[str, int] = {}
    seen: dict[str, int] = {}


class Memory:
    """The state file. Nothing is remembered before `acquire` gave True. Safe from several threads."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._held: int | None = None
        self._file = _File()
        self.problem = ""
        """Why the file could not be written the last time. All goes on, and the next change writes all of it."""

    def acquire(self) -> bool:
        """Become the one that may write, if nobody else is; then all is as the last one left it.

        Raises StateUnusable where the file can't be written or holds something else.
        """
        with self._lock:
            if self._held is not None:
                return True
            try:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                held = os.open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            except OSError as error:
                raise StateUnusable(str(self.path), error.strerror or str(error)) from error
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(held)
                return False
            self._held = held
            try:
                self._file = self._read()
                self._replace()
            except BaseException:
                self.close()
                raise
            return True

    def close(self) -> None:
        """Let go: nothing is written from here on, by whichever thread."""
        with self._lock:
            if self._held is not None:
                os.close(self._held)
                self._held = None

    # ---- alerts ----

    def standing(self) -> Mapping[str, Standing]:
        with self._lock:
            return MappingProxyType(self._file.standing)

    def keep_standing(self, standing: dict[str, Standing]) -> None:
        with self._lock:
            # Texts change all the time, with ages in them; what begins and ends is what has to last.
            lasting = _beginnings(standing) != _beginnings(self._file.standing)
            self._file.standing = standing
            if lasting:
                self._write()

    def told(self, receiver: str) -> Mapping[str, Told]:
        with self._lock:
            return MappingProxyType(self._file.told.get(receiver, {}))

    def record(self, receiver: str, message: Message, now_ms: int) -> None:
        """A receiver took a message."""
        with self._lock:
            self._file.told[receiver] = after_telling(self._file.told.get(receiver, {}), message, now_ms)
            self._write()

    def keep_receivers(self, names: set[str]) -> None:
        """Forget what others were told: one that comes back under its old name is a new one."""
        with self._lock:
            if self._file.told.keys() - names:
                self._file.told = {name: told for name, told in self._file.told.items() if name in names}
                self._write()

    # ---- upkeep ----

    def first_seen(self, pipeline: str, now_ms: int) -> int:
        """When a pipeline was first looked for, by this sidecar or one before it."""
        with self._lock:
            if pipeline not in self._file.seen:
                self._file.seen[pipeline] = now_ms
                self._write()
            return self._file.seen[pipeline]

    def damaged(self, pipeline: str) -> Damaged | None:
        """What the last check found, None if none was made."""
        with self._lock:
            return self._file.damaged.get(pipeline)

    def last_run(self, kind: str, pipeline: str) -> int | None:
        with self._lock:
            return self._file.ran.get(f"{kind}/{pipeline}")

    def ran(self, kind: str, pipeline: str, now_ms: int, damaged: Damaged | None = None) -> None:
        """A check or a prune was carried out."""
        with self._lock:
            self._file.ran[f"{kind}/{pipeline}"] = now_ms
            if damaged is not None:
                self._file.damaged[pipeline] = damaged
            self._write()

    def ran_into(self, kind: str, pipeline: str, damage: str | None) -> None:
        """Upkeep ran into damage, or with None it went well, which proves what it ran into before to be mended."""
        with self._lock:
            key = f"{kind}/{pipeline}"
            if self._file.hit.get(key) == damage:
                return
            if damage is None:
                del self._file.hit[key]
            else:
                self._file.hit[key] = damage
            self._write()

    def hit(self, kind: str, pipeline: str) -> str | None:
        """The damage that upkeep of a kind ran into and that it has not got past since, by whichever sidecar."""
        with self._lock:
            return self._file.hit.get(f"{kind}/{pipeline}")

    # ---- the file ----

    def _read(self) -> _File:
        try:
            data = self.path.read_bytes()
        except FileNotFoundError:
            return _File()
        except OSError as error:
            raise StateUnusable(str(self.path), error.strerror or str(error)) from error
        try:
            found = msgspec.json.decode(data, type=_File)
        except msgspec.MsgspecError as error:
            raise StateUnusable(str(self.path), f"it is no state of a sidecar: {error}") from error
        if found.version > VERSION:
            raise StateUnusable(str(self.path), "it was written by a newer Holdfast")
        return found

    def _write(self) -> None:
        """Write what has changed. A disk that is full must not keep anybody from being told, or from a capture."""
        if self._held is None:
            return
        try:
            self._replace()
        except StateUnusable as error:
            self.problem = error.message
        else:
            self.problem = ""

    def _replace(self) -> None:
        written = self.path.with_name(f".{self.path.name}.new")
        try:
            with written.open("wb") as file:
                file.write(msgspec.json.format(msgspec.json.encode(self._file), indent=1))
                file.flush()
                os.fsync(file.fileno())
            written.replace(self.path)
        except OSError as error:
            with contextlib.suppress(OSError):
                written.unlink()
            raise StateUnusable(str(self.path), error.strerror or str(error)) from error


def _beginnings(standing: Mapping[str, Standing]) -> dict[str, int]:
    return {key: each.since_ms for key, each in standing.items()}
