"""A draft filled with the files of a cut: those that the last checkpoint holds are named, only the others are read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from holdfast.draft import Draft
from holdfast.spark.cut import Cut
from holdfast.store.directory import Directory, FileStat

__all__ = ["Mover", "fill"]

READERS = 16
HASHERS = 4
WORTH_A_THREAD = 1024 * 1024


class Mover(Protocol):
    """Moves files of the directory into a draft in a way of its own, where that is worth it."""

    def is_worth(self, files: Mapping[str, FileStat]) -> bool:
        """Whether these files are better moved by it than by threads of this process."""

    def send(self, draft: Draft, files: Mapping[str, FileStat]) -> dict[str, FileStat]:
        """Bring the files into the draft and give the versions that were read. Raises ObjectMissing for one that is
        gone, and ChangedWhileRead."""


def fill(draft: Draft, cut: Cut, directory: Directory, large: int, mover: Mover | None) -> dict[str, FileStat]:
    """Bring every file of a cut into a draft and give those that had to be read; from `large` on they are streamed."""
    new = {name: stat for name, stat in cut.files.items() if not draft.keep_file(name, stat.size, stat.stamp)}
    read: dict[str, FileStat] = {}
    unread = {name: stat for name, stat in new.items() if name not in cut.read}
    if mover is not None and unread and mover.is_worth(unread):
        read |= mover.send(draft, unread)

    def bring(name: str) -> tuple[str, FileStat]:
        if name in cut.read:
            data, stat = cut.read[name]
        elif new[name].size >= large:
            stat, chunks = directory.stream(name)
            draft.save_file_stream(name, chunks, stat.stamp)
            return name, stat
        else:
            data, stat = directory.read(name)
        draft.save_file(name, data, stat.stamp)
        return name, stat

    read.update(_each(bring, {name: new[name].size for name in sorted(new.keys() - read.keys())}, directory.costly))
    return read


def _each(
    bring: Callable[[str], tuple[str, FileStat]], sizes: Mapping[str, int], costly: bool
) -> list[tuple[str, FileStat]]:
    """Bring files in, each on a thread if a read is a request; else only those that take long to hash."""
    beside = [name for name, size in sizes.items() if costly or size >= WORTH_A_THREAD]
    here = [name for name, size in sizes.items() if not costly and size < WORTH_A_THREAD]
    with ThreadPoolExecutor(READERS if costly else HASHERS, thread_name_prefix="holdfast-capture") as pool:
        under_way = [pool.submit(bring, name) for name in beside]
        return [*map(bring, here), *(future.result() for future in under_way)]
