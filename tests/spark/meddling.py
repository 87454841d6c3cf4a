"""A directory in which something happens just before it is looked at or read: every race, at will."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from holdfast.store.directory import FileStat, Look
from holdfast.store.local_directory import LocalDirectory

__all__ = ["Meddling"]

Act = Callable[[], object]


class Meddling(LocalDirectory):
    """`before_read(ending, act)` acts once, before the first read of a name with this ending; so does `before_look`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.reads: list[str] = []
        self.looks = 0
        self._before_read: dict[str, Act] = {}
        self._before_look: dict[int, Act] = {}

    def before_read(self, ending: str, act: Act) -> None:
        self._before_read[ending] = act

    def before_look(self, number: int, act: Act) -> None:
        """Act before the look of this number, counted from now on: 1 is the next."""
        self._before_look[self.looks + number] = act

    def look(self, folder: str = "") -> Look:
        if not folder:
            self.looks += 1
            self._before_look.pop(self.looks, lambda: None)()
        return super().look(folder)

    def read(self, name: str) -> tuple[bytes, FileStat]:
        self._meddle(name)
        return super().read(name)

    def stream(self, name: str) -> tuple[FileStat, Iterator[bytes]]:
        self._meddle(name)
        return super().stream(name)

    def _meddle(self, name: str) -> None:
        self.reads.append(name)
        for ending in [ending for ending in self._before_read if name.endswith(ending)]:
            self._before_read.pop(ending)()
