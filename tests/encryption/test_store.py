"""What the encrypted store adds to the contract: creates of the same bytes, names in errors, and copies of damage."""

from __future__ import annotations

import pytest

from builders import flip
from holdfast.encryption.ring import Ring
from holdfast.encryption.store import EncryptedStore
from holdfast.errors import DamagedRecord, ObjectMissing, OutcomeUnknown, StoreUnavailable
from holdfast.layout import REPOSITORY
from holdfast.store import Buffer, Store, open_store
from holdfast.store.file import FileStore
from holdfast.testing.faults import Around, CountingStore, LateStore

KEY = "pipelines/orders/generations/0000000000.json"


@pytest.fixture
def ring() -> Ring:
    return Ring.new()


def test_a_create_that_is_repeated_finds_its_own_bytes_though_no_two_envelopes_are_alike(
    any_store: Store, ring: Ring
) -> None:
    for store in (EncryptedStore(any_store, ring), EncryptedStore(any_store, ring)):
        assert store.create(KEY, b"mine") is True
        assert store.create(KEY, b"another's") is False


def test_a_create_whose_reply_was_lost_and_that_lands_before_its_repetition_is_ones_own(ring: Ring) -> None:
    late = LateStore(open_store("memory://"), lambda key: key.endswith(".json"))
    with pytest.raises(OutcomeUnknown) as unknown:
        EncryptedStore(late, ring).create(KEY, b"mine")
    assert unknown.value.key == KEY, "errors name objects as they are called here"
    late.land()
    again = EncryptedStore(late.inner, ring)
    assert again.create(KEY, b"mine") is True
    assert again.create(KEY, b"a void") is False


def test_a_create_whose_reply_was_lost_and_that_lands_after_its_repetition_comes_to_nothing(ring: Ring) -> None:
    late = LateStore(open_store("memory://"), lambda key: key.endswith(".json"))
    with pytest.raises(OutcomeUnknown):
        EncryptedStore(late, ring).create(KEY, b"mine")
    again = EncryptedStore(late.inner, ring)
    assert again.create(KEY, b"a void") is True
    assert late.land() == []
    assert again.get(KEY) == b"a void"


class Unread(Around):
    """Takes creates and gives nothing back."""

    def get(self, key: str) -> bytes:
        raise StoreUnavailable(self.url, f"get {key}", 1, "no answer")


def test_whether_a_key_holds_ones_own_bytes_is_unknown_as_long_as_it_cant_be_read(ring: Ring) -> None:
    inner = open_store("memory://")
    EncryptedStore(inner, ring).create(KEY, b"mine")
    with pytest.raises(OutcomeUnknown):
        EncryptedStore(Unread(inner), ring).create(KEY, b"mine")


class Vanishing(Around):
    """Somebody deletes the object between a create that was refused and the look at what is there."""

    def get(self, key: str) -> bytes:
        self.inner.delete([key])
        return super().get(key)


def test_an_object_that_goes_while_it_is_looked_at_is_created_after_all(ring: Ring) -> None:
    inner = open_store("memory://")
    EncryptedStore(inner, ring).create(KEY, b"another's")
    assert EncryptedStore(Vanishing(inner), ring).create(KEY, b"mine") is True
    assert EncryptedStore(inner, ring).get(KEY) == b"mine"


def test_bytes_that_another_writer_put_there_are_made_durable_before_they_count(
    file_store: FileStore, ring: Ring, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer that made the object may not have come to the sync of its folder yet."""
    EncryptedStore(file_store, ring).create(KEY, b"the same of two copiers")
    synced: list[str] = []
    monkeypatch.setattr(file_store, "_sync_folder", lambda folder: synced.append(folder))
    assert EncryptedStore(file_store, ring).create(KEY, b"the same of two copiers")
    assert synced


def test_damage_at_a_key_is_not_taken_for_ones_own_bytes(ring: Ring) -> None:
    inner = open_store("memory://")
    store = EncryptedStore(inner, ring)
    store.create("k", b"mine")
    flip(inner, "k")
    assert store.create("k", b"mine") is False


def test_errors_name_objects_as_they_are_called_here(memory_store: Store, ring: Ring) -> None:
    store = EncryptedStore(memory_store, ring)
    for read in (store.get, lambda key: store.get_ranges(key, [(0, 1)]), lambda key: list(store.read(key))):
        with pytest.raises(ObjectMissing) as missing:
            read(KEY)
        assert missing.value.key == KEY
    store.put(KEY, b"1")
    [(hidden, _)] = memory_store.list("")
    flip(memory_store, hidden)
    with pytest.raises(DamagedRecord) as damaged:
        store.get(KEY)
    assert damaged.value.key == KEY


def test_what_is_damaged_can_be_set_aside_and_stays_damaged(memory_store: Store, ring: Ring) -> None:
    store = EncryptedStore(memory_store, ring)
    store.create("k", b"1")
    flip(memory_store, "k")
    store.copy("k", "aside/k")
    assert memory_store.get("aside/k") == memory_store.get("k")
    with pytest.raises(DamagedRecord):
        store.get("aside/k")


def test_a_copy_opens_under_its_new_name_and_the_raw_bytes_do_not(memory_store: Store, ring: Ring) -> None:
    store = EncryptedStore(memory_store, ring)
    store.create("k", b"1")
    store.copy("k", "copy")
    assert store.get("copy") == b"1"
    memory_store.copy("k", "copy")
    with pytest.raises(DamagedRecord):
        store.get("copy")


def test_strange_objects_among_the_pipelines_are_left_alone_and_not_listed(memory_store: Store, ring: Ring) -> None:
    store = EncryptedStore(memory_store, ring)
    store.create(KEY, b"1")
    memory_store.create("pipelines/somebody-elses/file", b"1")
    assert store.folders("pipelines/") == ["orders"]
    assert [info.key for info in store.list("pipelines/")] == [KEY]


def test_names_are_listed_in_their_own_order(memory_store: Store, ring: Ring) -> None:
    store = EncryptedStore(memory_store, ring)
    names = [f"name-{n:02}" for n in range(20)]
    for name in reversed(names):
        store.create(f"pipelines/{name}/savepoints/s-{name}/0000000000.json", b"1")
        store.create(f"pipelines/a/savepoints/{name}/0000000000.json", b"1")
    assert store.folders("pipelines/") == ["a", *names]
    assert store.folders("pipelines/a/savepoints/") == names
    listed = [info.key.split("/")[3] for info in store.list("pipelines/a/savepoints/")]
    assert listed == names
    after = store.list("pipelines/a/savepoints/", start_after="pipelines/a/savepoints/name-05")
    assert [info.key.split("/")[3] for info in after] == [name for name in names if f"{name}/" > "name-05"]


def test_listing_after_a_number_costs_what_it_costs_in_a_plain_store(ring: Ring) -> None:
    class Asked(Around):
        starts: list[str] = []  # noqa: RUF012 - one test, one list

        def list(self, prefix: str, start_after: str = "") -> list:  # type: ignore[type-arg]
            self.starts.append(start_after)
            return super().list(prefix, start_after)

    asked = Asked(open_store("memory://"))
    store = EncryptedStore(asked, ring)
    for n in range(5):
        store.create(f"pipelines/orders/generations/{n:010}.json", b"1")
    prefix = "pipelines/orders/generations/"
    assert len(store.list(prefix, start_after=f"{prefix}0000000003")) == 2
    assert asked.starts[-1].endswith("/generations/0000000003"), "the store is told where to start"


def test_a_range_of_an_object_costs_one_request(ring: Ring) -> None:
    counting = CountingStore(open_store("memory://"))
    store = EncryptedStore(counting, ring)
    store.create("k", bytes(1_000_000))
    counting.reset()
    store.get_ranges("k", [(900_000, 10), (5, 5)])
    assert counting.counts == {"get_ranges": 1}


def test_the_root_and_its_keys_stay_as_they_are(memory_store: Store, ring: Ring) -> None:
    store = EncryptedStore(memory_store, ring)
    for key in (REPOSITORY, "keys/token/0000000000.json"):
        store.create(key, b"for all to read")
        assert memory_store.get(key) == store.get(key) == b"for all to read"
        assert store.get_ranges(key, [(4, 3)]) == [b"all"]


def test_what_a_stream_raises_is_its_own(memory_store: Store, ring: Ring) -> None:
    def chunks() -> list[Buffer]:
        raise ObjectMissing("elsewhere", "a file of Spark's")
        yield b""

    with pytest.raises(ObjectMissing, match="a file of Spark's"):
        EncryptedStore(memory_store, ring).write("k", chunks())
