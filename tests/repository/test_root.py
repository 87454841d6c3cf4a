from __future__ import annotations

import msgspec
import pytest

from builders import dump, filled, flip, flipped, keys
from holdfast.encryption.keys import Key
from holdfast.errors import DamagedRecord, FormatTooNew, MissingRecords, RepositoryMissing, UnsafeStore, WrongKey
from holdfast.handles import Repository
from holdfast.layout import REPOSITORY
from holdfast.records import RepositoryRecord, seal, unseal
from holdfast.repository.presence import require_repository
from holdfast.repository.root import init_repository, open_repository
from holdfast.store import Buffer, Store, open_store
from holdfast.testing.faults import Around


class BlindStore(Around):
    """Takes every create, whatever is there: as servers do that ignore If-None-Match."""

    def create(self, key: str, data: Buffer) -> bool:
        self.inner.put(key, data)
        return True


def test_a_repository_is_made_once_and_opened_ever_after(any_store: Store) -> None:
    made = init_repository(any_store)
    assert init_repository(any_store).id == open_repository(any_store).id == made.id
    assert keys(any_store) == [REPOSITORY]


def test_a_place_without_a_repository_is_not_one(memory_store: Store) -> None:
    with pytest.raises(RepositoryMissing):
        open_repository(memory_store)


def test_a_missing_root_record_with_pipelines_present_is_damage_and_never_a_new_repository() -> None:
    repo = filled(1)
    repo.store.delete([REPOSITORY])
    before = dump(repo.store)
    for enter in (open_repository, init_repository):
        with pytest.raises(MissingRecords):
            enter(repo.store)
    assert dump(repo.store) == before


def test_a_damaged_root_record_is_damage_and_is_not_written_over() -> None:
    repo = filled(1)
    flip(repo.store, REPOSITORY)
    before = dump(repo.store)
    for enter in (open_repository, init_repository):
        with pytest.raises(DamagedRecord):
            enter(repo.store)
    assert dump(repo.store) == before


def test_a_store_that_ignores_create_if_absent_is_refused_and_nothing_is_made(memory_store: Store) -> None:
    with pytest.raises(UnsafeStore):
        init_repository(BlindStore(memory_store))
    assert REPOSITORY not in keys(memory_store)


def test_an_encryption_scheme_that_is_not_known_here_is_refused(memory_store: Store) -> None:
    record = unseal(REPOSITORY, init_repository(memory_store).store.get(REPOSITORY), RepositoryRecord)
    sealed = seal(msgspec.structs.replace(record, encryption={"scheme": "aes-256-gcm", "keys": ["wrapped"]}))
    memory_store.put(REPOSITORY, sealed)
    with pytest.raises(FormatTooNew, match="aes-256-gcm"):
        open_repository(memory_store)


def test_pipelines_are_found_by_their_folders_alone() -> None:
    store = open_store("memory://")
    repo = init_repository(store)
    for name in ("b", "a", "a.b"):
        repo.pipeline(name).ensure_identity()
    store.put("pipelines/stray.txt", b"")
    assert repo.pipelines() == ["a", "a.b", "b"]


def test_a_pipeline_that_can_not_be_read_is_listed_and_keeps_no_other_from_it(monkeypatch: pytest.MonkeyPatch) -> None:
    repo = filled(1)
    repo.pipeline("aged").recover().close()
    identity = repo.pipeline("aged").records.identity()
    with monkeypatch.context() as newer:
        newer.setattr("holdfast.records.FORMAT", "99.0")
        repo.store.put(repo.pipeline("aged").records.keys.identity, seal(identity))
    assert open_repository(repo.store).pipelines() == ["aged", "orders"]


def test_a_pipeline_that_another_key_has_sealed_is_listed_too(memory_store: Store) -> None:
    mine, theirs = Key.generate(), Key.generate()
    repo = Repository(init_repository(memory_store, key=mine))
    repo.pipeline("orders").recover().close()
    assert repo.keys is not None
    repo.keys.rotate(theirs)
    Repository(open_repository(memory_store, key=theirs)).pipeline("aged").recover().close()
    with pytest.raises(WrongKey):
        repo.pipeline("aged").exists()
    assert [pipeline.name for pipeline in repo.pipelines()] == ["aged", "orders"]


def test_a_bit_of_the_root_record_that_turns_over_on_the_way_is_not_damage() -> None:
    repo, turned = filled(1), list[str]()

    class Turning(Around):
        def get(self, key: str) -> bytes:
            data = super().get(key)
            if turned:
                return data
            turned.append(key)
            return flipped(data, 40)

    assert open_repository(Turning(repo.store)).id == repo.id
    turned.clear()
    require_repository(Turning(repo.store), repo.id)
    assert turned == [REPOSITORY]
