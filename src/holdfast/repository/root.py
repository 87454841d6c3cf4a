"""The root of a repository: made once, proven fit, opened with its key, and the way to its pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

import msgspec

from holdfast.encryption.keeping import Keeper
from holdfast.encryption.keys import Key, has_key
from holdfast.encryption.ring import SCHEME, Ring
from holdfast.encryption.store import EncryptedStore
from holdfast.errors import (
    BadName,
    Damage,
    FormatTooNew,
    KeyMissing,
    MissingRecords,
    NotEncrypted,
    ObjectMissing,
    Refused,
    RepositoryMissing,
)
from holdfast.ids import new_id, new_token, now_ms
from holdfast.layout import PIPELINES, REPOSITORY
from holdfast.records import RepositoryRecord, seal
from holdfast.repository.pipeline import PipelineRecords
from holdfast.repository.presence import read_root
from holdfast.store import Address, Finding, RetryPolicy, Store, open_store, probe

__all__ = ["GivenKey", "RepositoryRecords", "init_repository", "open_repository"]

GivenKey: TypeAlias = Key | Literal["environment"] | None
"""A key, the one that the environment gives if there is one, or none whatever the environment says."""


@dataclass(frozen=True)
class EncryptedAddress(Address):
    """Where an encrypted repository lies, with its own keys: what an executor needs. The user's key stays behind."""

    ring: Ring = field(kw_only=True, repr=False)

    def store(self) -> Store:
        return EncryptedStore(super().store(), self.ring)


class RepositoryRecords:
    """A repository that is there: its store, its id, and the records of its pipelines.

    `keeper` keeps the keys of an encrypted one, and `key` is the one that it was opened with.
    """

    def __init__(
        self,
        store: Store,
        record: RepositoryRecord,
        address: Address | None = None,
        proven: Sequence[Finding] = (),
        keeper: Keeper | None = None,
        key: Key | None = None,
    ) -> None:
        self.store = store
        self.record = record
        self.address = address or Address(store.url)
        self.proven = proven
        self.keeper = keeper
        self.key = key

    def through(self, store: Store) -> RepositoryRecords:
        """The same repository, read through a store that stands above its own: an encrypted one stays opened."""
        return RepositoryRecords(store, self.record, self.address, self.proven, self.keeper, self.key)

    @property
    def id(self) -> str:
        return self.record.repository_id

    def pipeline(self, name: str) -> PipelineRecords:
        return PipelineRecords(self.store, name, self.id)

    def pipelines(self) -> list[str]:
        """The names of the pipelines here; one that can't be read is among them, one that was deleted whole is not."""
        return [name for name in self.store.folders(PIPELINES) if self._is_there(name)]

    def _is_there(self, name: str) -> bool:
        try:
            return self.pipeline(name).exists()
        except BadName:
            return False
        except (Damage, Refused):
            # Damaged, of a newer format, or sealed with a key that is not here: whoever turns to it is told, and this
            # one keeps nobody from the others.
            return True


def open_repository(
    place: str | Store,
    options: Mapping[str, str] | None = None,
    retry: RetryPolicy | None = None,
    key: GivenKey = "environment",
) -> RepositoryRecords:
    """Open a repository that is there. Raises RepositoryMissing, or MissingRecords if only its root record is gone.

    One that is encrypted needs its key: KeyMissing, WrongKey. With a key for one that is not: NotEncrypted, since its
    root record may have been changed so that what follows is written for all to read.
    """
    store = _store(place, options, retry)
    try:
        record = read_root(store)
    except ObjectMissing:
        if store.list(PIPELINES):
            raise MissingRecords(store.url, "there are pipelines, but holdfast.json is gone") from None
        raise RepositoryMissing(store.url) from None
    address = _address(place, options) or Address(store.url)
    scheme = record.encryption.get("scheme")
    if scheme == "none":
        if key is not None and (key != "environment" or has_key()):
            raise NotEncrypted(store.url)
        return RepositoryRecords(store, record, address)
    if scheme != SCHEME:
        raise FormatTooNew(store.url, f"with encryption scheme {scheme!r}")
    return _opened(store, record, address, Key.from_environment() if key == "environment" else key)


def _opened(store: Store, record: RepositoryRecord, address: Address, key: Key | None) -> RepositoryRecords:
    if key is None:
        raise KeyMissing(store.url)
    keeper = Keeper.of(store, record)
    ring = keeper.ring(key)
    return RepositoryRecords(
        EncryptedStore(store, ring, reread=lambda: keeper.ring(key)),
        record,
        EncryptedAddress(address.url, address.options, ring=ring),
        keeper=keeper,
        key=key,
    )


def init_repository(
    place: str | Store,
    options: Mapping[str, str] | None = None,
    retry: RetryPolicy | None = None,
    key: GivenKey = "environment",
) -> RepositoryRecords:
    """Make a repository, after proving that the store can hold one; one that is there already is opened.

    With a key it is encrypted. Raises UnsafeStore if the store ignores create-if-absent, or honours it only when nobody
    races.
    """
    store = _store(place, options, retry)
    given = Key.from_environment() if key == "environment" else key
    proven: Sequence[Finding] = ()
    try:
        found = open_repository(store, key=given)
    except RepositoryMissing:
        proven = probe(store)
        _make(store, given)
        found = open_repository(store, key=given)
    address = _address(place, options)
    if address is not None:
        found.address = replace(found.address, url=address.url, options=address.options)
    found.proven = proven
    return found


def _make(store: Store, key: Key | None) -> None:
    """Create the root record, unless somebody else does; the keys that it names stand before it does."""
    repository_id = new_id()
    keeper = Keeper.begin(store, repository_id, key) if key is not None else None
    record = RepositoryRecord(token=new_token(), repository_id=repository_id, created_ms=now_ms())
    if keeper is not None:
        record = msgspec.structs.replace(record, encryption=keeper.scheme)
    if not store.create(REPOSITORY, seal(record)) and keeper is not None:
        keeper.drop()


def _store(place: str | Store, options: Mapping[str, str] | None, retry: RetryPolicy | None) -> Store:
    if isinstance(place, EncryptedStore):
        # What is encrypted already would be encrypted twice, and nothing be found.
        return place.inner
    return place if isinstance(place, Store) else open_store(place, options, retry)


def _address(place: str | Store, options: Mapping[str, str] | None) -> Address | None:
    """Where a repository in a cloud lies. A local path may be a relative one: the store's own address is not."""
    address = None if isinstance(place, Store) else Address(place, options or {})
    return address if address and address.is_everywhere else None
