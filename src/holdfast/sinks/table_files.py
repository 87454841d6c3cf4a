"""The data files of a table: each attempt's in a folder of its own, adopted where they were staged below the root.

A folder is named `hf-<generation>-<epoch>-<token>`, without a leading `_` or `.`: those names other tools pass over,
and never clean up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterable, Sequence
from typing import NamedTuple

import msgspec

from holdfast.epochs import Holder, Step
from holdfast.errors import DamagedArtifact, MissingRecords
from holdfast.ids import new_token
from holdfast.sinks.staged import StagedRows
from holdfast.store import Address, ObjectInfo, Store
from holdfast.store.address import CloudAddress, read_address
from holdfast.store.between import copy_files, key_within
from holdfast.store.probe import probe

__all__ = ["Brought", "DataFile", "Named", "TableFiles", "folder_of", "new_folder"]

FOLDER = re.compile(r"hf-(\d+)-(\d+)-[0-9a-f]+")


class DataFile(msgspec.Struct, frozen=True, array_like=True):
    """A file by its key below the root."""

    key: str
    size_bytes: int
    rows: int


class Brought(msgspec.Struct, frozen=True):
    """Files of one epoch below the root: copies in a folder that was made for them, or those that were staged there."""

    files: list[DataFile]
    folder: str = ""
    """Of the copies; "" if there are none."""

    @property
    def is_adopted(self) -> bool:
        return bool(self.files) and not self.folder


def new_folder(holder: Holder, epoch: int) -> str:
    """A name for the files of one attempt, never used before."""
    return f"hf-{holder.generation}-{epoch}-{new_token()[:16]}"


def folder_of(key: str) -> str:
    return key.partition("/")[0]


class Named(NamedTuple):
    """The generations of which it is known what versions name, and the folders that they do name."""

    generations: Container[int]
    folders: Container[str]


class TableFiles:
    """The files below the root of one table. What a version names is the table's own affair."""

    def __init__(self, root: Address) -> None:
        self.root = root
        self.store: Store = root.store()
        self._dead: dict[str, int] | None = None

    def bring_in(self, holder: Holder, step: Step, rows: StagedRows) -> Brought:
        """Have the rows below the root: where they were staged, or as a copy. A copy that fails leaves nothing."""
        files = [file for file in rows.staged.files if file.rows]
        within = key_within(self.root, rows.place)
        if within is not None and FOLDER.fullmatch(folder_of(within)):
            return Brought([DataFile(f"{within}/{file.name}", file.size_bytes, file.rows) for file in files])
        if not files:
            return Brought([])
        folder = new_folder(holder, step.epoch)
        # Numbered: a name from elsewhere may hold what means something here, such as a value of a partition.
        names = {file.name: f"{folder}/part-{number:05}.parquet" for number, file in enumerate(files)}
        try:
            copy_files(rows.place, self.root, names)
        except BaseException:
            self.discard(folder)
            raise
        return Brought([DataFile(names[file.name], file.size_bytes, file.rows) for file in files], folder)

    def are_there(self, files: Iterable[DataFile]) -> bool:
        """Whether each file is there in its size; asks once for each folder."""
        wanted = {file.key: file.size_bytes for file in files}
        found = self.sizes(wanted)
        return all(found.get(key) == size for key, size in wanted.items())

    def sizes(self, keys: Iterable[str]) -> dict[str, int]:
        """The sizes of those files that are there."""
        wanted = set(keys)
        folders = {key.rpartition("/")[0] for key in wanted}
        listed = (info for folder in sorted(folders) for info in self.store.list(f"{folder}/" if folder else ""))
        return {info.key: info.size for info in listed if info.key in wanted}

    def require(self, files: Sequence[DataFile]) -> None:
        """Raise DamagedArtifact unless all are there."""
        if not self.are_there(files):
            gone = [file.key for file in files if self.sizes([file.key]).get(file.key) != file.size_bytes]
            raise DamagedArtifact(f"{self.store.url.rstrip('/')}/{gone[0]}", "it is gone, or is not what was staged")

    def objects(self, files: Sequence[DataFile]) -> list[ObjectInfo]:
        return [ObjectInfo(file.key, file.size_bytes) for file in files]

    def discard(self, folder: str) -> None:
        """Remove the folder of one attempt and all that is in it."""
        if not FOLDER.fullmatch(folder):
            raise ValueError(f"{folder!r} is no folder of an attempt")
        self.store.delete([info.key for info in self.store.list(f"{folder}/")])

    def folders(self) -> list[str]:
        """The folders of all attempts."""
        return [name for name in self.store.folders("") if FOLDER.fullmatch(name)]

    def sweep(self, holder: Holder, step: Step, committed: Iterable[DataFile], named: Callable[[], Named]) -> None:
        """Remove what dead attempts of older generations have left; asked after each commit.

        Only once an epoch was committed that this very generation has decided, and only what is of no later epoch:
        others may have been decided and still have to be committed, and what was staged is all that there is of them.
        """
        if step.decided == holder.generation and self._dead is None:
            generations, folders = named()
            found = ((name, FOLDER.fullmatch(name)) for name in self.folders() if name not in folders)
            self._dead = {name: int(parts[2]) for name, parts in found if parts and int(parts[1]) in generations}
        dead = self._dead or {}
        for folder in {folder_of(file.key) for file in committed}:
            dead.pop(folder, None)
        if step.decided == holder.generation:
            for folder in [folder for folder, epoch in dead.items() if epoch <= step.epoch]:
                self.discard(folder)
                del dead[folder]

    def begin(self) -> None:
        """Another holder: what is dead is to be found anew."""
        self._dead = None

    def refuse_orphans(self, target: str) -> None:
        """Raise MissingRecords where there are files and no table: what is absent is not empty."""
        if found := self.folders():
            raise MissingRecords(target, f"{found[0]} holds files of a sink, and its log is gone")

    def prove_safe(self) -> None:
        """Raise UnsafeStore for a cloud that lets two writers create one object; asked once, for a new table."""
        if isinstance(read_address(self.root.url, self.root.options), CloudAddress):
            probe(self.store, rounds=2, threads=3)
