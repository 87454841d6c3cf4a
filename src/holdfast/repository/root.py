"""The root of a repository: made once, proven fit, and the way to its pipelines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from holdfast.errors import BadName, Damage, FormatTooNew, MissingRecords, ObjectMissing, RepositoryMissing
from holdfast.ids import new_id, new_token, now_ms
from holdfast.layout import PIPELINES, REPOSITORY
from holdfast.records import RepositoryRecord, seal, unseal
from holdfast.repository.pipeline import PipelineRecords
from holdfast.store import Address, Finding, RetryPolicy, Store, open_store, probe

__all__ = ["RepositoryRecords", "init_repository", "open_repository"]


class RepositoryRecords:
    """A repository that is there: its store, its id, and the records of its pipelines."""

    def __init__(
        self, store: Store, record: RepositoryRecord, address: Address | None = None, proven: Sequence[Finding] = ()
    ) -> None:
        self.store = store
        self.record = record
        self.address = address or Address(store.url)
        self.proven = proven

    @property
    def id(self) -> str:
        return self.record.repository_id

    def pipeline(self, name: str) -> PipelineRecords:
        return PipelineRecords(self.store, name, self.id)

    def pipelines(self) -> list[str]:
        """The names of the pipelines here; a damaged one is among them, one that was deleted whole is not."""
        return [name for name in self.store.folders(PIPELINES) if self._is_there(name)]

    def _is_there(self, name: str) -> bool:
        try:
            return self.pipeline(name).exists()
        except BadName:
            return False
        except Damage:
            return True


def open_repository(
    place: str | Store, options: Mapping[str, str] | None = None, retry: RetryPolicy | None = None
) -> RepositoryRecords:
    """Open a repository that is there. Raises RepositoryMissing, or MissingRecords if only its root record is gone."""
    store = _store(place, options, retry)
    try:
        record = unseal(REPOSITORY, store.get(REPOSITORY), RepositoryRecord)
    except ObjectMissing:
        if store.list(PIPELINES):
            raise MissingRecords(store.url, "there are pipelines, but holdfast.json is gone") from None
        raise RepositoryMissing(store.url) from None
    if record.encryption.get("scheme") != "none":
        raise FormatTooNew(store.url, f"with encryption scheme {record.encryption.get('scheme')!r}")
    return RepositoryRecords(store, record, _address(place, options))


def init_repository(
    place: str | Store, options: Mapping[str, str] | None = None, retry: RetryPolicy | None = None
) -> RepositoryRecords:
    """Make a repository, after proving that the store can hold one; one that is there already is opened.

    Raises UnsafeStore if the store ignores create-if-absent, or honours it only when nobody races.
    """
    store = _store(place, options, retry)
    try:
        return RepositoryRecords(store, open_repository(store).record, _address(place, options))
    except RepositoryMissing:
        proven = probe(store)
    record = RepositoryRecord(token=new_token(), repository_id=new_id(), created_ms=now_ms())
    store.create(REPOSITORY, seal(record))
    return RepositoryRecords(store, open_repository(store).record, _address(place, options), proven)


def _store(place: str | Store, options: Mapping[str, str] | None, retry: RetryPolicy | None) -> Store:
    return place if isinstance(place, Store) else open_store(place, options, retry)


def _address(place: str | Store, options: Mapping[str, str] | None) -> Address | None:
    """Where a repository in a cloud lies. A local path may be a relative one: the store's own address is not."""
    address = None if isinstance(place, Store) else Address(place, options or {})
    return address if address and address.is_everywhere else None
