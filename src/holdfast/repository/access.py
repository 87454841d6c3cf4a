"""Single records of one pipeline: read and kept, created, dropped, listed. What they mean is said elsewhere."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from holdfast.errors import DamagedRecord, ObjectMissing, OutcomeUnknown
from holdfast.layout import Named, PipelineKeys, Slot, parse
from holdfast.manifest import Head, Manifest
from holdfast.records import Record, seal, unseal
from holdfast.store import Store

__all__ = ["MAYBE_VOID", "RecordAccess", "each"]

MAYBE_VOID = 300
"""A void, or a decision to keep, is smaller than this, a manifest always larger: a listing tells what to read."""

FEW = 32

AnyRecord = TypeVar("AnyRecord", bound=Record)
Item = TypeVar("Item")
Result = TypeVar("Result")


def each(act: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Do the same with every item, several at a time when there are many: a long history has thousands."""
    if len(items) <= FEW:
        return [act(item) for item in items]
    with ThreadPoolExecutor(8, thread_name_prefix="holdfast-records") as pool:
        return list(pool.map(act, items))


class RecordAccess:
    """Reads and writes the records of one pipeline. Safe from several threads.

    Records are never rewritten, so what was read once is kept; whether a record still exists is always asked of the
    store.
    """

    def __init__(self, store: Store, name: str, repository_id: str) -> None:
        self.store = store
        self.keys = PipelineKeys(name)
        self.name = name
        self.repository_id = repository_id
        self._kept: dict[str, Record | Head] = {}
        self._manifests: dict[Slot, Manifest] = {}
        self._lock = threading.Lock()

    def reference(self, slot: Slot) -> str:
        """How a person refers to this checkpoint, also on the command line."""
        return f"{self.name}@slot:{slot}"

    def read(self, key: str, shape: type[AnyRecord]) -> AnyRecord:
        kept = self._kept.get(key)
        if isinstance(kept, shape):
            return kept
        record = self.fetched(key, lambda data: unseal(key, data, shape))
        with self._lock:
            self._kept[key] = record
        return record

    def fetched(self, key: str, parse: Callable[[bytes], Result], length: int | None = None) -> Result:
        """Fetch an object, or its beginning, and parse it; what does not verify is fetched once more.

        A bit can turn over on the way as well as in the store, and only the second is damage.
        """
        try:
            return parse(self._bytes(key, length))
        except DamagedRecord:
            return parse(self._bytes(key, length))

    def _bytes(self, key: str, length: int | None) -> bytes:
        return self.store.get(key) if length is None else self.store.get_ranges(key, [(0, length)])[0]

    def create(self, key: str, record: Record) -> bool:
        """Create a record; True if the key now holds it, False if it holds another. An unknown outcome raises."""
        return self.store.create(key, seal(record))

    def create_or_void(self, key: str, record: Record, void: Record) -> bool:
        """Create a record; if its fate stays unknown, give up by creating a void at that very key.

        What is there then decides: False also means that the void stands. Raises OutcomeUnknown if even that can't
        be told; the record may then still land.
        """
        try:
            return self.create(key, record)
        except OutcomeUnknown:
            self.create(key, void)
            return self.store.get(key) == seal(record)

    def drop(self, *keys: str) -> None:
        """Delete keys of this pipeline that are of our own making; anything else is a mistake of the caller's."""
        for key in keys:
            if self.parse(key) is None:
                raise DamagedRecord(key, "it is not a name of our own making and is never deleted")
        self.store.delete(keys)
        with self._lock:
            for key in keys:
                self._kept.pop(key, None)
                name = self.parse(key)
                if name is not None and name.what == "manifest" and name.slot is not None:
                    self._manifests.pop(name.slot, None)

    def parse(self, key: str) -> Named | None:
        return parse(key.removeprefix(self.keys.prefix)) if key.startswith(self.keys.prefix) else None

    def listed(self, prefix: str, *what: str, start_after: str = "") -> list[tuple[str, Named, int]]:
        """(key, name, size) of the objects below a prefix that are of the kinds asked for."""
        found = ((info.key, self.parse(info.key), info.size) for info in self.store.list(prefix, start_after))
        return [(key, name, size) for key, name, size in found if name is not None and name.what in what]

    def is_there(self, key: str) -> bool:
        """Whether a key holds something, readable or not. Asks the store, always."""
        try:
            self.store.get(key)
        except ObjectMissing:
            return False
        except DamagedRecord:
            return True
        return True
