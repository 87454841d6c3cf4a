"""Who can open an encrypted repository, and how that changes without anything being written anew."""

from __future__ import annotations

import sys
import threading

import msgspec
import pytest

import holdfast
from builders import dump, epochs, flip, keys, look, save, start
from holdfast import Key, Repository
from holdfast.encryption.keys import TEXT
from holdfast.encryption.ring import RingRecord
from holdfast.errors import (
    BadValue,
    DamagedRecord,
    FormatTooNew,
    KeyInUse,
    KeyMissing,
    KeysChanged,
    LibraryMissing,
    MissingRecords,
    NotEncrypted,
    WrongKey,
)
from holdfast.layout import REPOSITORY, RINGS, Slot, ring_key
from holdfast.names import ask
from holdfast.records import RepositoryRecord, seal, unseal
from holdfast.repository.root import init_repository
from holdfast.store import Buffer, Store, open_store
from holdfast.testing.faults import Around, CrashingStore

KEY, OTHER = Key.generate(), Key.generate()


@pytest.fixture
def store() -> Store:
    return open_store("memory://")


@pytest.fixture
def repo(store: Store) -> Repository:
    """An encrypted repository with three checkpoints."""
    made = holdfast.open(store, create=True, key=KEY)
    with start(made) as run:
        for epoch in range(3):
            save(run, epoch)
    return made


def opened(store: Store, key: Key = KEY) -> Repository:
    return holdfast.open(store, key=key)


def ring_records(store: Store) -> list[str]:
    return keys(store, RINGS)


# ---- opening ----


def test_a_repository_is_made_with_a_key_and_opened_with_it(repo: Repository, store: Store) -> None:
    assert opened(store).id == repo.id
    assert epochs(look(opened(store))) == [0, 1, 2]
    assert repo.keys is not None
    assert repo.keys.used == KEY.id
    assert repo.keys.look().keys == [KEY.id]


def test_without_a_key_it_is_refused_with_what_to_do(repo: Repository, store: Store) -> None:
    for enter in (holdfast.open, lambda store: holdfast.open(store, create=True), lambda s: holdfast.open(s, key=None)):
        with pytest.raises(KeyMissing) as refused:
            enter(store)
        assert "HOLDFAST_KEY_FILE" in refused.value.hint


def test_with_another_key_it_is_refused_and_told_which_one_is_needed(repo: Repository, store: Store) -> None:
    with pytest.raises(WrongKey) as refused:
        opened(store, OTHER)
    assert (refused.value.key, list(refused.value.known)) == (OTHER.id, [KEY.id])
    assert OTHER.text()[20:40] not in str(refused.value)


def test_the_environment_gives_the_key(repo: Repository, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TEXT, KEY.text())
    assert holdfast.open(store).id == repo.id
    with pytest.raises(KeyMissing):
        holdfast.open(store, key=None)


def test_a_key_for_a_repository_that_is_not_encrypted_is_refused(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else whoever can change holdfast.json could have all that follows written in plain."""
    holdfast.open(store, create=True)
    with pytest.raises(NotEncrypted):
        opened(store)
    monkeypatch.setenv(TEXT, KEY.text())
    for enter in (holdfast.open, lambda store: holdfast.open(store, create=True)):
        with pytest.raises(NotEncrypted):
            enter(store)
    assert holdfast.open(store, key=None).keys is None


def test_a_root_record_that_was_made_plain_again_is_noticed_by_whoever_has_a_key(
    repo: Repository, store: Store
) -> None:
    record = unseal(REPOSITORY, store.get(REPOSITORY), RepositoryRecord)
    store.put(REPOSITORY, seal(msgspec.structs.replace(record, encryption={"scheme": "none"})))
    with pytest.raises(NotEncrypted):
        opened(store)


def test_a_scheme_that_is_not_known_is_refused_as_newer(repo: Repository, store: Store) -> None:
    record = unseal(REPOSITORY, store.get(REPOSITORY), RepositoryRecord)
    store.put(REPOSITORY, seal(msgspec.structs.replace(record, encryption={"scheme": "hfe2-better"})))
    with pytest.raises(FormatTooNew, match="hfe2-better"):
        opened(store)


def test_keys_that_are_gone_are_told_as_a_loss(repo: Repository, store: Store) -> None:
    store.delete(ring_records(store))
    with pytest.raises(MissingRecords, match="keys"):
        opened(store)


def test_the_keys_of_another_repository_do_not_open_this_one(repo: Repository, store: Store) -> None:
    """Both were made with the same key of the user's."""
    other = open_store("memory://")
    holdfast.open(other, create=True, key=KEY)
    store.put(ring_records(store)[0], other.get(ring_records(other)[0]))
    with pytest.raises(DamagedRecord, match="another repository"):
        opened(store)


def test_any_flipped_byte_of_the_root_and_of_the_keys_is_damage(repo: Repository, store: Store) -> None:
    for key in (REPOSITORY, *ring_records(store)):
        whole = store.get(key)
        for at in range(len(whole)):
            flip(store, key, at)
            with pytest.raises(DamagedRecord):
                opened(store)
            store.put(key, whole)


def test_without_the_library_it_is_refused_with_what_to_install(
    repo: Repository, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(LibraryMissing) as missing:
        opened(store)
    assert "pip install holdfast[encryption]" in missing.value.hint


def test_without_the_library_nothing_is_made(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(LibraryMissing):
        holdfast.open(store, create=True, key=KEY)
    assert keys(store) == []


def test_a_plain_repository_needs_no_library(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    assert holdfast.open(store, create=True).keys is None


# ---- making ----


def test_of_two_that_make_it_at_once_one_counts_and_leaves_no_keys_of_the_other(file_store: Store) -> None:
    class Raced(Around):
        """Somebody else makes the repository between our keys and our root record."""

        def create(self, key: str, data: Buffer) -> bool:
            if key == REPOSITORY:
                init_repository(self.inner, key=KEY)
            return super().create(key, data)

    made = init_repository(Raced(file_store), key=KEY)
    assert made.id == opened(file_store).id
    assert len(ring_records(file_store)) == 1


def test_made_by_many_at_once_it_is_one(store: Store) -> None:
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(init_repository(store, key=KEY).id)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 6
    assert len(set(found)) == 1
    assert opened(store).id == found[0]


@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_while_it_is_made_it_can_be_made_again(when: str) -> None:
    for at in range(10_000):
        inner = open_store("memory://")
        crashing = CrashingStore(inner, at, when)  # type: ignore[arg-type]
        try:
            init_repository(crashing, key=KEY)
        except BaseException:  # noqa: BLE001 - Crash is none that may be caught by accident
            assert crashing.crashed
        assert init_repository(inner, key=KEY).id == opened(inner).id
        if not crashing.crashed:
            return


# ---- adding, removing, rotating ----


def unchanged(before: dict[str, bytes], store: Store) -> bool:
    """Whether all but the keys is as it was."""
    after = dump(store)
    return {k: v for k, v in before.items() if RINGS not in k} == {k: v for k, v in after.items() if RINGS not in k}


def test_another_key_can_be_added_and_both_open_it(repo: Repository, store: Store) -> None:
    before = dump(store)
    assert repo.keys is not None
    repo.keys.add(OTHER)
    for key in (KEY, OTHER):
        assert epochs(look(opened(store, key))) == [0, 1, 2]
    assert repo.keys.look().keys == sorted([KEY.id, OTHER.id])
    assert unchanged(before, store)
    with pytest.raises(BadValue, match="already"):
        repo.keys.add(OTHER)


def test_a_key_that_was_removed_opens_it_no_more(repo: Repository, store: Store) -> None:
    before = dump(store)
    assert repo.keys is not None
    repo.keys.add(OTHER)
    by_other = opened(store, OTHER).keys
    assert by_other is not None
    by_other.remove(KEY.id)
    with pytest.raises(WrongKey):
        opened(store)
    assert epochs(look(opened(store, OTHER))) == [0, 1, 2]
    assert len(ring_records(store)) == 1, "no older record is left that it would open"
    assert unchanged(before, store)


def test_the_key_in_use_is_not_removed_and_neither_is_one_that_is_none(repo: Repository) -> None:
    assert repo.keys is not None
    with pytest.raises(KeyInUse):
        repo.keys.remove(KEY.id)
    with pytest.raises(BadValue, match="none that opens"):
        repo.keys.remove("0123456789abcdef")


def test_a_rotation_rewrites_nothing_and_the_old_key_is_of_no_use(repo: Repository, store: Store) -> None:
    before = dump(store)
    assert repo.keys is not None
    repo.keys.rotate(OTHER)
    assert unchanged(before, store)
    with pytest.raises(WrongKey):
        opened(store)
    after = opened(store, OTHER)
    assert epochs(look(after)) == [0, 1, 2]
    assert look(after).check(read_percent=100).damaged == []
    assert len(ring_records(store)) == 1


def test_what_is_written_after_a_rotation_does_not_open_with_what_the_old_key_gave(
    repo: Repository, store: Store
) -> None:
    assert repo.keys is not None
    [first] = ring_records(store)
    record = store.get(first)
    repo.keys.rotate(OTHER)
    with start(opened(store, OTHER)) as run:
        save(run, 3)
    # A thief with the old key, a copy of the record that it opened, and a store of their own to lay it out in:
    store.delete(ring_records(store))
    store.create(first, record)
    thief = opened(store)
    assert look(thief).records.manifest(Slot(0, 1)).epoch == 1
    with pytest.raises(DamagedRecord, match="key number 2"):
        look(thief).records.manifest(Slot(1, 0))


@pytest.mark.parametrize("number", [1, 2, 7])
def test_an_older_record_in_the_place_of_the_newest_is_damage_also_to_a_key_that_was_kept(
    number: int, repo: Repository, store: Store
) -> None:
    assert repo.keys is not None
    [first] = ring_records(store)
    record = store.get(first)
    repo.keys.rotate(OTHER, KEY)
    store.put(ring_key(first.split("/")[1], number), record)
    with pytest.raises(DamagedRecord, match="the keys of record 0"):
        opened(store)
    with pytest.raises(DamagedRecord):
        repo.keys.add(Key.generate())


def test_wrapped_keys_of_before_a_rotation_in_the_newest_record_are_damage(repo: Repository, store: Store) -> None:
    """They are bound to the repository and to the user's key alone, and would open."""
    assert repo.keys is not None
    [first] = ring_records(store)
    older = unseal(first, store.get(first), RingRecord)
    repo.keys.rotate(OTHER, KEY)
    [newest] = ring_records(store)
    record = unseal(newest, store.get(newest), RingRecord)
    store.put(newest, seal(msgspec.structs.replace(record, wrapped=older.wrapped)))
    with pytest.raises(DamagedRecord, match="up to number 1, and says 2"):
        opened(store)


def test_all_keys_as_they_were_are_noticed_by_what_was_written_since_and_by_nothing_else(
    repo: Repository, store: Store
) -> None:
    assert repo.keys is not None
    before = {key: store.get(key) for key in ring_records(store)}
    repo.keys.rotate(OTHER, KEY)
    rotated = {key: store.get(key) for key in ring_records(store)}

    def lay(records: dict[str, bytes]) -> None:
        store.delete(ring_records(store))
        for key, data in records.items():
            store.create(key, data)

    lay(before)
    assert epochs(look(opened(store))) == [0, 1, 2], "nothing was written since: it is the repository as it was"
    lay(rotated)
    with start(opened(store)) as run:
        save(run, 3)
    lay(before)
    with pytest.raises(DamagedRecord, match="key number 2, which this repository does not have"):
        epochs(look(opened(store)))


def test_several_keys_can_be_kept_through_a_rotation(repo: Repository, store: Store) -> None:
    assert repo.keys is not None
    repo.keys.rotate(OTHER, KEY)
    for key in (KEY, OTHER):
        assert epochs(look(opened(store, key))) == [0, 1, 2]
    assert repo.keys.look().newest == 2


def test_whoever_has_it_open_through_a_rotation_that_keeps_their_key_reads_what_is_new(
    repo: Repository, store: Store
) -> None:
    assert repo.keys is not None
    reader = opened(store)
    repo.keys.rotate(OTHER, KEY)
    with start(opened(store, OTHER)) as run:
        save(run, 3)
    assert epochs(look(reader)) == [0, 1, 2, 3]


def test_whoever_has_it_open_through_a_rotation_without_their_key_is_told_so(repo: Repository, store: Store) -> None:
    assert repo.keys is not None
    reader = opened(store)
    repo.keys.rotate(OTHER)
    assert epochs(look(reader)) == [0, 1, 2], "what was there can still be read"
    with start(opened(store, OTHER)) as run:
        save(run, 3)
    with pytest.raises(WrongKey, match=OTHER.id):
        epochs(look(reader))


def test_a_run_that_goes_on_through_a_rotation_publishes_what_everybody_reads(repo: Repository, store: Store) -> None:
    with start(opened(store)) as run:
        save(run, 3)
        assert repo.keys is not None
        repo.keys.rotate(OTHER)
        save(run, 4)
    assert epochs(look(opened(store, OTHER))) == [0, 1, 2, 3, 4]
    assert look(opened(store, OTHER)).check(read_percent=100).damaged == []


def test_a_request_that_a_run_can_not_read_after_a_rotation_stops_no_checkpoint(repo: Repository, store: Store) -> None:
    with start(opened(store)) as run:
        assert repo.keys is not None
        repo.keys.rotate(OTHER)
        ask(look(opened(store, OTHER)).records, "asked")
        save(run, 3)
        save(run, 4)
    assert epochs(look(opened(store, OTHER))) == [0, 1, 2, 3, 4]
    assert look(opened(store, OTHER)).savepoints() == {}


def test_of_two_who_change_the_keys_at_once_one_is_told(repo: Repository, store: Store) -> None:
    class Raced(Around):
        def create(self, key: str, data: Buffer) -> bool:
            if key.startswith(RINGS) and (theirs := opened(self.inner).keys):
                theirs.add(Key.generate())
            return super().create(key, data)

    mine = holdfast.open(Raced(store), key=KEY).keys
    assert mine is not None
    with pytest.raises(KeysChanged):
        mine.rotate(OTHER)
    assert opened(store).id == repo.id


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_rotation_killed_at_any_request_leaves_the_old_key_or_the_new_one(when: str) -> None:
    for at in range(100):
        inner = open_store("memory://")
        holdfast.open(inner, create=True, key=KEY)
        crashing = CrashingStore(inner, at, when)  # type: ignore[arg-type]
        try:
            keys_of = holdfast.open(crashing, key=KEY).keys
            assert keys_of is not None
            keys_of.rotate(OTHER)
        except BaseException:  # noqa: BLE001 - as above
            assert crashing.crashed
        opening = [key for key in (KEY, OTHER) if opens(inner, key)]
        assert len(opening) == 1
        # The next change takes away what this one left.
        changed = opened(inner, opening[0]).keys
        assert changed is not None
        changed.rotate(OTHER)
        assert len(ring_records(inner)) == 1
        if not crashing.crashed:
            return


def opens(store: Store, key: Key) -> bool:
    try:
        opened(store, key)
    except WrongKey:
        return False
    return True


# ---- nothing is shown ----


def test_nothing_that_shows_itself_shows_a_key(repo: Repository, store: Store) -> None:
    ring = repo.address.ring  # type: ignore[attr-defined]
    for thing in (repo, repo.keys, repo.address, ring, repo.store, KEY):
        for secret in (*ring.keys.values(), KEY._secret):
            assert secret.hex() not in repr(thing)
            assert repr(secret)[2:-1] not in repr(thing)
    assert unseal("keys", store.get(ring_records(store)[0]), RingRecord).wrapped.keys() == {KEY.id}
