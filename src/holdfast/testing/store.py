"""The contract of a store as a suite of tests: a backend that passes can hold a repository.

class TestMyStore(StoreContract):
    @pytest.fixture
    def store(self):
        return MyStore(...)          # an empty place, new for each test
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from holdfast.errors import BadName, ObjectMissing
from holdfast.store import Store

__all__ = ["StoreContract"]

T = TypeVar("T")

MIB = 1024 * 1024


class StoreContract:
    """One test for each promise of `holdfast.store.Store`; a subclass gives the `store` fixture.

    The fixture must give an empty place. Turn `many_keys` down for a store where a request takes long, and say
    `ghost_folders` for one that goes on listing a folder for a while after its last object is gone.
    """

    ghost_folders = False
    many_keys = 1507
    racers = 4
    races = 5

    def test_a_created_object_reads_back(self, store: Store) -> None:
        assert store.create("a/b.json", b"content") is True
        assert store.get("a/b.json") == b"content"

    def test_creating_the_same_bytes_again_is_success(self, store: Store) -> None:
        assert store.create("k", b"same") is True
        assert store.create("k", b"same") is True
        assert store.get("k") == b"same"

    def test_creating_other_bytes_is_refused_and_changes_nothing(self, store: Store) -> None:
        assert store.create("k", b"first") is True
        assert store.create("k", b"second") is False
        assert store.create("k", b"") is False
        assert store.get("k") == b"first"

    def test_a_deleted_key_can_be_created_anew(self, store: Store) -> None:
        assert store.create("k", b"first") is True
        store.delete(["k"])
        assert store.create("k", b"second") is True
        assert store.get("k") == b"second"

    def test_exactly_one_of_several_racing_creators_wins(self, store: Store) -> None:
        for race in range(self.races):
            bodies = [f"racer {n} of race {race}".encode() for n in range(self.racers)]
            won = _at_once([partial(store.create, f"race/{race}", body) for body in bodies])
            assert sum(won) == 1, f"{sum(won)} racers were told that they had created the object"
            assert store.get(f"race/{race}") == bodies[won.index(True)]

    def test_racing_creators_of_the_same_bytes_all_win(self, store: Store) -> None:
        won = _at_once([partial(store.create, "same", b"agreed")] * self.racers)
        assert won == [True] * self.racers

    def test_every_kind_of_buffer_can_be_written(self, store: Store) -> None:
        whole = b"0123456789"
        assert store.create("bytes", whole)
        assert store.create("bytearray", bytearray(whole))
        assert store.create("view", memoryview(whole)[2:5])
        assert store.create("bytes", memoryview(whole))
        store.put("hint", memoryview(whole)[5:])
        store.write("stream", [whole, bytearray(whole), memoryview(whole)[:1]])
        assert store.get("bytearray") == whole
        assert store.get("view") == b"234"
        assert store.get("hint") == b"56789"
        assert store.get("stream") == whole + whole + b"0"

    def test_an_empty_object_is_an_object(self, store: Store) -> None:
        assert store.create("empty/one", b"") is True
        assert store.get("empty/one") == b""
        assert store.list("empty/") == [("empty/one", 0)]
        assert store.write("empty/two", []) == 0
        assert b"".join(store.read("empty/two")) == b""

    def test_the_last_hint_counts(self, store: Store) -> None:
        store.put("latest", b"1")
        store.put("latest", b"2, and longer")
        assert store.get("latest") == b"2, and longer"
        store.put("latest", b"3")
        assert store.get("latest") == b"3"

    def test_a_missing_object_is_reported_as_missing(self, store: Store) -> None:
        store.create("there", b"1")
        _raises(ObjectMissing, lambda: store.get("absent"))
        _raises(ObjectMissing, lambda: store.get("there/not"))
        _raises(ObjectMissing, lambda: store.get_ranges("absent", [(0, 1)]))
        _raises(ObjectMissing, lambda: b"".join(store.read("absent")))
        _raises(ObjectMissing, lambda: store.copy("absent", "target"))
        assert [info.key for info in store.list("")] == ["there"]

    def test_ranges_come_back_in_the_order_asked(self, store: Store) -> None:
        data = bytes(range(256)) * 40
        store.create("k", data)
        asked = [(5000, 10), (0, 1), (10, 20), (15, 10), (len(data) - 3, 3), (7, 0), (0, len(data))]
        assert store.get_ranges("k", asked) == [data[start : start + size] for start, size in asked]
        assert store.get_ranges("k", []) == []

    def test_ranges_far_apart_come_back_too(self, store: Store) -> None:
        data = bytes(range(251)) * 12_000
        store.create("k", data)
        asked = [(2_900_000, 100), (5, 5), (1_500_000, 70_000)]
        assert store.get_ranges("k", asked) == [data[start : start + size] for start, size in asked]

    def test_a_range_past_the_end_comes_back_short(self, store: Store) -> None:
        store.create("k", b"0123456789")
        assert store.get_ranges("k", [(8, 5)]) == [b"89"]
        assert store.get_ranges("k", [(10, 5)]) == [b""]
        assert store.get_ranges("k", [(2, 3), (400, 5), (9, 9)]) == [b"234", b"", b"9"]
        assert store.get_ranges("k", [(2_000_000, 5), (0, 1)]) == [b"", b"0"]
        assert b"".join(store.read("k", 8, 100)) == b"89"
        assert b"".join(store.read("k", 10)) == b""

    def test_listing_is_sorted_and_keeps_to_its_prefix(self, store: Store) -> None:
        keys = ["b/2", "a/1", "b/10", "b/c/1", "bc/1", "b-x/1", "b.x/1", "top"]
        for key in keys:
            store.create(key, key.encode())
        assert [info.key for info in store.list("")] == sorted(keys)
        assert store.list("b/") == [("b/10", 4), ("b/2", 3), ("b/c/1", 5)]
        assert [info.key for info in store.list("b/c/")] == ["b/c/1"]
        assert store.list("nothing/") == []

    def test_listing_starts_after_a_key_that_need_not_exist(self, store: Store) -> None:
        keys = [f"n/{n:010d}.json" for n in range(8)] + ["n/sub-a/1", "n/sub/1", "n/sub/2"]
        for key in keys:
            store.create(key, b"1")

        def after(start: str, prefix: str = "n/") -> list[str]:
            return [info.key for info in store.list(prefix, start_after=start)]

        for start in [keys[3], "n/0000000003", "n/sub", "n/sub-a/1", "n/sub/1", "n/t", "a", "z", "n/", "n/0"]:
            assert after(start) == [key for key in sorted(keys) if key > start], start
        assert after("m", "n/sub/") == ["n/sub/1", "n/sub/2"]
        assert after("n/sub/1", "") == ["n/sub/2"]

    def test_folders_are_the_names_one_level_down(self, store: Store) -> None:
        for key in ["p/one/pipeline.json", "p/one/deep/x", "p/two/x", "p/two-b/x", "p/file", "q/x"]:
            store.create(key, b"1")
        assert store.folders("p/") == ["one", "two", "two-b"]
        assert store.folders("") == ["p", "q"]
        assert store.folders("p/one/") == ["deep"]
        assert store.folders("p/two/") == []
        assert store.folders("absent/") == []

    def test_a_folder_goes_with_its_last_object(self, store: Store) -> None:
        store.create("p/one/deep/x", b"1")
        store.create("p/two/x", b"1")
        store.delete(["p/one/deep/x"])
        assert "two" in store.folders("p/")
        assert self.ghost_folders or store.folders("p/") == ["two"]
        store.create("p/one/deep/x", b"2")
        assert store.folders("p/") == ["one", "two"]

    def test_deleting_removes_what_is_there_and_minds_nothing_else(self, store: Store) -> None:
        for key in ["a/1", "a/2", "b/1"]:
            store.create(key, b"1")
        store.delete(["a/1", "a/never", "b/1", "c/never"])
        assert [info.key for info in store.list("")] == ["a/2"]
        store.delete([])
        store.delete(iter(["a/2"]))
        assert store.list("") == []
        store.delete(["a/2"])

    def test_many_objects_are_listed_and_deleted(self, store: Store) -> None:
        keys = [f"many/{n % 7}/{n:05d}" for n in range(self.many_keys)]
        with ThreadPoolExecutor(8) as pool:
            assert all(pool.map(lambda key: store.create(key, key.encode()), keys))
        assert [info.key for info in store.list("many/")] == sorted(keys)
        store.delete([*keys, "many/0/absent"])
        assert store.list("many/") == []

    def test_a_copy_is_an_object_of_its_own(self, store: Store) -> None:
        store.create("source/a", b"content")
        store.copy("source/a", "target/deep/b")
        store.delete(["source/a"])
        assert store.get("target/deep/b") == b"content"

    def test_a_large_object_streams_in_and_out(self, store: Store) -> None:
        chunks = [bytes([n]) * (3 * MIB + n) for n in range(11)]
        whole = b"".join(chunks)
        assert store.write("big", iter(chunks)) == len(whole)
        assert store.list("") == [("big", len(whole))]
        parts = list(store.read("big"))
        assert b"".join(parts) == whole
        assert max(map(len, parts)) <= 16 * MIB, "a streamed object came back in one piece"
        assert b"".join(store.read("big", 10 * MIB, 15 * MIB)) == whole[10 * MIB : 25 * MIB]
        assert b"".join(store.read("big", len(whole) - 5)) == whole[-5:]
        assert b"".join(store.read("big", 5, 0)) == b""

    def test_an_object_of_whole_chunks_streams_out(self, store: Store) -> None:
        whole = bytes(16 * MIB)
        assert store.write("even", [whole]) == len(whole)
        assert sum(map(len, store.read("even"))) == len(whole)

    def test_a_small_object_streams_in_too(self, store: Store) -> None:
        assert store.write("small", [b"a", b"", b"bc"]) == 3
        assert store.get("small") == b"abc"

    def test_a_stream_that_breaks_leaves_nothing(self, store: Store) -> None:
        class Broken(Exception):
            pass

        def chunks(size: int) -> Iterator[bytes]:
            yield b"x" * size
            yield b"y" * size
            raise Broken

        _raises(Broken, lambda: store.write("broken/small", chunks(10)))
        _raises(Broken, lambda: store.write("broken/large", chunks(9 * MIB)))
        assert store.list("") == []
        assert store.create("broken/large", b"the key is free") is True

    def test_an_error_of_the_streams_own_is_not_the_stores(self, store: Store) -> None:
        def chunks() -> Iterator[bytes]:
            yield b"x"
            raise FileNotFoundError("the file that was to be streamed")

        _raises(FileNotFoundError, lambda: store.write("k", chunks()))

    def test_keys_of_every_kind_that_holdfast_makes_are_kept_apart(self, store: Store) -> None:
        keys = [
            "holdfast.json",
            "pipelines/a-b.c_D/generations/0000000001.json",
            "pipelines/a-b.c_D/generations/0000000001.base.json",
            "pipelines/a-b.c_D/data/0000000001-" + "0f" * 16 + "/pack-0.index",
            "pipelines/" + "n" * 200 + "/latest",
            "state/0/1/.1.delta.crc",
        ]
        for key in keys:
            assert store.create(key, key.encode()) is True
        assert [info.key for info in store.list("")] == sorted(keys)
        assert all(store.get(key) == key.encode() for key in keys)

    def test_a_key_that_leaves_the_root_is_refused(self, store: Store) -> None:
        for key in ["", "/a", "a/", "../a", "a/../../b", "a//b", "./a", "a/.", "a\nb", "a\0b"]:
            _raises(BadName, partial(store.create, key, b"1"))
            _raises(BadName, partial(store.get, key))
            _raises(BadName, partial(store.delete, [key]))
        _raises(BadName, lambda: store.list("../"))
        _raises(BadName, lambda: store.list("in-the-middle-of-a-na"))

    def test_threads_do_not_disturb_each_other(self, store: Store) -> None:
        def work(n: int) -> bool:
            keys = [f"t{n}/{k}" for k in range(10)]
            created = all(store.create(key, key.encode()) for key in keys)
            same = all(store.get(key) == key.encode() for key in keys)
            listed = [info.key for info in store.list(f"t{n}/")] == keys
            store.delete(keys)
            return created and same and listed and store.list(f"t{n}/") == []

        with ThreadPoolExecutor(4) as pool:
            assert all(pool.map(work, range(8)))

    def test_the_address_is_told(self, store: Store) -> None:
        assert "://" in store.url


def _at_once(actions: list[Callable[[], T]]) -> list[T]:
    barrier = threading.Barrier(len(actions))

    def start(action: Callable[[], T]) -> T:
        barrier.wait()
        return action()

    with ThreadPoolExecutor(len(actions)) as pool:
        return list(pool.map(start, actions))


def _raises(kind: type[Exception], call: Callable[[], object]) -> None:
    try:
        call()
    except kind:
        return
    raise AssertionError(f"{kind.__name__} was not raised")
