"""Quiet: nothing in a directory has changed for so long, and its last committed batch may be taken though none follows.

Files alone can't tell that a query has stopped, and their times are another machine's: what is compared are the files
themselves, as seen twice, and the time between is measured here.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

from holdfast.spark.cut import Batches, Cut, batches_in, cut_at
from holdfast.spark.state import Snapshots
from holdfast.store.directory import Directory, FileStat, Look

__all__ = ["Logs", "Stillness", "logs_of"]

Signature: TypeAlias = tuple[Batches, object]

CALM = 5.0
"""So long the logs alone must stand still before all files are looked at: a running query is not listed each time."""


class Logs(NamedTuple):
    """The logs of a directory. `stamp` is the version of the last commit: another one may be another query's."""

    batches: Batches
    stamp: str | None


def logs_of(directory: Directory) -> Logs:
    """Which batches the logs know now, without a look at anything else. Commits come first, as in `batches_in`."""
    look = directory.look("commits")
    commits = _numbers(look, "commits")
    last = look.stat(f"commits/{commits[-1]}") if commits else None
    offsets = _numbers(directory.look("offsets"), "offsets")
    return Logs(Batches(offsets, commits), last.stamp if last else None)


def _numbers(look: Look, folder: str) -> tuple[int, ...]:
    return tuple(sorted(int(name) for name in look.files(folder) if name.isdecimal()))


class Stillness:
    """Finds out that nothing has changed for `seconds`. Whoever asks brings the clock, which must never go back.

    It compares the logs each time, and at the beginning and at the end of that time every file that a capture of the
    last committed batch would need.
    """

    def __init__(self, directory: Directory, seconds: float) -> None:
        self.seconds = seconds
        self._directory = directory
        self._calm = min(CALM, seconds / 10)
        self._logs: Logs | None = None
        self._since = 0.0
        self._signature: Signature | None = None
        self._known = Snapshots()

    def lasted(self, now: float) -> float:
        """For how long nothing was seen to change."""
        return now - self._since if self._signature else 0.0

    def is_over(self, logs: Logs, now: float) -> bool:
        """Whether nothing has changed for long enough, given the logs as they are now."""
        if logs != self._logs:
            self._logs, self._since, self._signature = logs, now, None
        if self._signature is None and now - self._since >= self._calm:
            self._signature, self._since = self._look(), now
        if self._signature is None or now - self._since < self.seconds:
            return False
        signature = self._look()
        if signature == self._signature:
            return True
        self._signature, self._since = signature, now
        return False

    def _look(self) -> Signature:
        look = self._directory.look()
        batches = batches_in(look)
        if not batches.commits:
            return batches, None
        found = cut_at(self._directory, look, batches.commits[-1], self._known)
        files: dict[str, FileStat] | object = dict(found.files) if isinstance(found, Cut) else found
        return batches, files
