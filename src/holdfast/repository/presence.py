"""Whether a repository still lies where it was opened, and whether what was written to it has arrived there.

A folder on a disk that is not mounted looks like an empty store, and takes writes. Absent is not empty: whoever goes by
what is not there looks here first. Decision 0013 has the interleavings.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.errors import DamagedRecord, ObjectMissing, RepositoryGone
from holdfast.layout import REPOSITORY
from holdfast.records import RepositoryRecord, unseal
from holdfast.repository.access import RecordAccess
from holdfast.store import Store

__all__ = ["read_root", "require_arrived", "require_repository"]


def read_root(store: Store) -> RepositoryRecord:
    """The root record of a repository; what does not verify is fetched once more, as every other record is."""
    try:
        return unseal(REPOSITORY, store.get(REPOSITORY), RepositoryRecord)
    except DamagedRecord:
        return unseal(REPOSITORY, store.get(REPOSITORY), RepositoryRecord)


def require_repository(store: Store, repository_id: str) -> None:
    """Raise RepositoryGone unless this very repository lies in the store now. Asks the store, always."""
    try:
        record = read_root(store)
    except ObjectMissing:
        raise RepositoryGone(store.url, f"{REPOSITORY} is not there") from None
    if record.repository_id != repository_id:
        raise RepositoryGone(store.url, f"another one lies there, {record.repository_id}")


def require_arrived(records: RecordAccess, written: Mapping[str, int]) -> None:
    """Raise RepositoryGone unless the repository is there and holds all that was written, keys with their sizes.

    Costs requests only where a store can vanish: any other one says so when it does not take a write.
    """
    store = records.store
    if not store.can_vanish:
        return
    # The look comes first. Bytes that went into an empty folder are not in a listing after the repository was seen.
    require_repository(store, records.repository_id)
    folders: dict[str, list[str]] = {}
    for key in sorted(written):
        folders.setdefault(f"{key.rpartition('/')[0]}/", []).append(key)
    for folder, keys in folders.items():
        there = {info.key: info.size for info in store.list(folder, start_after=keys[0][:-1])}
        for key in keys:
            if there.get(key) != written[key]:
                raise RepositoryGone(store.url, f"it was away while {key} was written")
