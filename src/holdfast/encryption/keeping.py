"""Where the keys of an encrypted repository are kept: wrapped, in records of which the highest counts.

`holdfast.json` names the folder, `keys/<token>/`. A change creates the next record and deletes the older ones, so that
a key which was taken out opens nothing any more. No other object is touched.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from holdfast.encryption.keys import Key
from holdfast.encryption.ring import SCHEME, Ring, RingRecord, unwrap, wrap
from holdfast.errors import BadValue, DamagedRecord, KeyInUse, KeysChanged, MissingRecords, ObjectMissing, WrongKey
from holdfast.ids import new_token, now_ms
from holdfast.layout import ring_folder, ring_key
from holdfast.records import RepositoryRecord, seal, unseal
from holdfast.store.contract import Store

__all__ = ["Keeper", "Rings"]

LOOKS = 20
"""How often the records are listed anew because the keys were changed meanwhile."""


class Rings(NamedTuple):
    """What the newest record says without being opened: the ids of the keys that open it, and how it came about."""

    keys: list[str]
    number: int
    created_ms: int
    newest: int
    """The number of the repository's own key that new objects are encrypted with."""


class Keeper:
    """The keys of one repository, in its store as it is, below the encryption."""

    def __init__(self, store: Store, repository_id: str, token: str) -> None:
        self._store = store
        self._repository_id = repository_id
        self._token = token

    @classmethod
    def of(cls, store: Store, record: RepositoryRecord) -> Keeper:
        """Those that the root record of an encrypted repository names."""
        return cls(store, record.repository_id, str(record.encryption.get("keys", "")))

    @classmethod
    def begin(cls, store: Store, repository_id: str, key: Key) -> Keeper:
        """Keys for a repository that is about to be made. They count once its root record names them."""
        keeper = cls(store, repository_id, new_token())
        ring = Ring.new()
        keeper._create(0, ring, wrap(ring, [key], repository_id))
        return keeper

    @property
    def scheme(self) -> dict[str, str]:
        """What the root record says of the encryption."""
        return {"scheme": SCHEME, "keys": self._token}

    def ring(self, key: Key) -> Ring:
        """The repository's own keys. Raises WrongKey if they are not wrapped for this one."""
        record = self._newest()
        if key.id not in record.wrapped:
            raise WrongKey(self._store.url, key.id, sorted(record.wrapped))
        return unwrap(ring_key(self._token, record.number), record, key, self._repository_id)

    def look(self) -> Rings:
        """Which keys open the repository; needs none of them."""
        record = self._newest()
        return Rings(sorted(record.wrapped), record.number, record.created_ms, record.newest)

    def add(self, key: Key, new: Key) -> None:
        """Let another key open the repository too."""
        record, ring = self._newest(), self.ring(key)
        if new.id in record.wrapped:
            raise BadValue("key", f"{new.id} opens the repository already")
        self._replace(record, ring, {**record.wrapped, **wrap(ring, [new], self._repository_id)})

    def remove(self, key: Key, key_id: str) -> None:
        """Let a key open the repository no more. Raises KeyInUse for the one that it is opened with here."""
        record, ring = self._newest(), self.ring(key)
        if key_id not in record.wrapped:
            raise BadValue("key", f"{key_id} is none that opens the repository: {', '.join(sorted(record.wrapped))}")
        if key_id == key.id:
            raise KeyInUse(key_id, "it is the one that the repository was opened with here")
        self._replace(record, ring, {id_: text for id_, text in record.wrapped.items() if id_ != key_id})

    def rotate(self, key: Key, keys: Iterable[Key]) -> None:
        """Let these keys alone open the repository, and encrypt with a new key of its own from now on."""
        record, ring = self._newest(), self.ring(key).grown()
        self._replace(record, ring, wrap(ring, keys, self._repository_id))

    def drop(self) -> None:
        """Delete them all: they belong to a repository that was not made after all."""
        self._store.delete([info.key for info in self._store.list(ring_folder(self._token))])

    def _newest(self) -> RingRecord:
        for _ in range(LOOKS):
            there = self._store.list(ring_folder(self._token))
            if not there:
                break
            key = there[-1].key
            try:
                record = unseal(key, self._store.get(key), RingRecord)
            except ObjectMissing:
                continue  # A newer one has taken its place.
            if key != ring_key(self._token, record.number):
                # An older one under a higher name would bring back keys that a rotation has replaced.
                raise DamagedRecord(key, f"it holds the keys of record {record.number}")
            return record
        raise MissingRecords(self._store.url, f"the repository's own keys, below {ring_folder(self._token)}")

    def _create(self, number: int, ring: Ring, wrapped: Mapping[str, str]) -> bool:
        record = RingRecord(
            token=new_token(), number=number, created_ms=now_ms(), wrapped=dict(wrapped), newest=ring.newest
        )
        return self._store.create(ring_key(self._token, number), seal(record))

    def _replace(self, record: RingRecord, ring: Ring, wrapped: Mapping[str, str]) -> None:
        if not self._create(record.number + 1, ring, wrapped):
            raise KeysChanged(self._store.url)
        # Older ones that a change which was cut off has left behind go as well.
        last = ring_key(self._token, record.number)
        self._store.delete([info.key for info in self._store.list(ring_folder(self._token)) if info.key <= last])
