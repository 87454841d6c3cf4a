from __future__ import annotations

import hashlib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import artifact, flip, truncate
from holdfast.errors import DamagedArtifact
from holdfast.layout import PipelineKeys
from holdfast.manifest import Artifact
from holdfast.repository import artifacts
from holdfast.repository.artifacts import damaged_artifacts, load_artifact, load_artifacts, stream_artifact
from holdfast.store import Store, open_store
from holdfast.testing.faults import CountingStore

KEYS = PipelineKeys("orders")
PATH = f"data/0000000000-{'0' * 32}/pack-0"
KEY = KEYS.prefix + PATH


def put(store: Store, members: Sequence[bytes], gap: int = 0) -> list[Artifact]:
    """Members one after the other in one object, with a gap before each."""
    found, at, parts = [], 0, []
    for data in members:
        parts += [b"-" * gap, data]
        found.append(artifact(data, PATH, offset=at + gap, length=len(data)))
        at += gap + len(data)
    store.put(KEY, b"".join(parts))
    return found


def inline(text: str, data: bytes) -> Artifact:
    return Artifact(sha256=hashlib.sha256(data).hexdigest(), size_bytes=len(data), inline=text)


@given(st.lists(st.binary(max_size=40), max_size=12), st.integers(0, 60), st.data())
def test_any_choice_of_members_loads_as_it_was_saved(members: list[bytes], gap: int, data: st.DataObject) -> None:
    store = open_store("memory://")
    saved = list(zip(put(store, members, gap), members, strict=True))
    chosen = [pair for pair in saved if data.draw(st.booleans())]
    loaded = load_artifacts(store, KEYS, [a for a, _ in chosen])
    assert sorted(loaded, key=lambda pair: (pair[0].offset or 0, pair[1])) == sorted(
        chosen, key=lambda pair: (pair[0].offset or 0, pair[1])
    )


def test_members_that_lie_together_are_fetched_together() -> None:
    store = CountingStore(open_store("memory://"))
    saved = put(store, [bytes([n]) * 100 for n in range(50)])
    store.reset()
    assert len(list(load_artifacts(store, KEYS, saved))) == 50
    assert store.counts == {"get_ranges": 1}


def test_members_far_apart_are_fetched_apart() -> None:
    store = CountingStore(open_store("memory://"))
    saved = put(store, [b"a" * 100, b"b" * 5000, b"c" * 100])
    store.reset()
    list(load_artifacts(store, KEYS, [saved[0], saved[2]]))
    assert store.counts == {"get_ranges": 2}


def test_no_fetch_is_larger_than_a_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(artifacts, "SPAN", 250)
    asked: list[int] = []

    class Watching(CountingStore):
        def get_ranges(self, key: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            asked.append(sum(length for _, length in ranges))
            return super().get_ranges(key, ranges)

    store = Watching(open_store("memory://"))
    saved = put(store, [bytes([n]) * 100 for n in range(10)])
    assert len(list(load_artifacts(store, KEYS, saved))) == 10
    assert asked == [200] * 5


@settings(deadline=None)
@given(st.integers(1, 30))
def test_on_a_pool_nothing_is_lost_and_nothing_comes_twice(objects: int) -> None:
    store = open_store("memory://")
    saved = []
    for n in range(objects):
        path = f"data/0000000000-{n:032x}/artifact-0"
        store.put(KEYS.prefix + path, bytes([n]) * (n + 1))
        saved.append(artifact(bytes([n]) * (n + 1), path))
    with ThreadPoolExecutor(3) as pool:
        loaded = list(load_artifacts(store, KEYS, saved, pool))
    assert {a.path: data for a, data in loaded} == {a.path: bytes([n]) * (n + 1) for n, a in enumerate(saved)}
    assert len(loaded) == objects


def test_a_flipped_bit_in_a_download_is_noticed(memory_store: Store) -> None:
    [first, second] = put(memory_store, [b"first" * 5, b"second" * 5])
    flip(memory_store, KEY, at=3)
    with pytest.raises(DamagedArtifact, match="digest"):
        load_artifact(memory_store, KEYS, first)
    assert load_artifact(memory_store, KEYS, second) == b"second" * 5
    assert [a for a, _ in damaged_artifacts(memory_store, KEYS, [first, second])] == [first]


def test_an_object_cut_short_is_noticed(memory_store: Store) -> None:
    [first, second] = put(memory_store, [b"first" * 5, b"second" * 5])
    truncate(memory_store, KEY)
    with pytest.raises(DamagedArtifact, match="29 bytes where 30"):
        load_artifact(memory_store, KEYS, second)
    assert load_artifact(memory_store, KEYS, first) == b"first" * 5


def test_a_missing_object_is_damage_of_all_its_members(memory_store: Store) -> None:
    saved = put(memory_store, [b"first", b"second"])
    memory_store.delete([KEY])
    with pytest.raises(DamagedArtifact, match="gone"):
        load_artifact(memory_store, KEYS, saved[0])
    assert [a for a, _ in damaged_artifacts(memory_store, KEYS, saved)] == saved


def test_bytes_of_the_right_length_from_elsewhere_are_noticed(memory_store: Store) -> None:
    [first, second] = put(memory_store, [b"aaaa", b"bbbb"])
    moved = Artifact(sha256=first.sha256, size_bytes=4, path=PATH, offset=second.offset, length=4)
    with pytest.raises(DamagedArtifact):
        load_artifact(memory_store, KEYS, moved)


@pytest.mark.parametrize("text", ["", "AAAA", "YWJj!", "YWJ", "é", "YWJj\n"])
def test_corrupt_inline_state_is_damage_and_never_empty(memory_store: Store, text: str) -> None:
    assert load_artifact(memory_store, KEYS, inline("YWJj", b"abc")) == b"abc"
    with pytest.raises(DamagedArtifact):
        load_artifact(memory_store, KEYS, inline(text, b"abc"))


def test_a_large_artifact_streams_in_chunks_and_its_end_proves_it(memory_store: Store) -> None:
    data = bytes(range(256)) * 4 * 10_000
    memory_store.put(KEY, data)
    large = artifact(data, PATH)
    chunks = list(stream_artifact(memory_store, KEYS, large))
    assert len(chunks) > 1
    assert b"".join(chunks) == data
    flip(memory_store, KEY, at=len(data) - 1)
    with pytest.raises(DamagedArtifact, match="digest"):
        list(stream_artifact(memory_store, KEYS, large))
    truncate(memory_store, KEY)
    with pytest.raises(DamagedArtifact, match="were saved"):
        list(stream_artifact(memory_store, KEYS, large))
    memory_store.delete([KEY])
    with pytest.raises(DamagedArtifact, match="gone"):
        list(stream_artifact(memory_store, KEYS, large))


def test_the_search_for_damage_reads_what_is_larger_than_a_span_too(
    memory_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "SPAN", 100)
    memory_store.put(KEY, b"x" * 500)
    large = artifact(b"x" * 500, PATH)
    assert list(damaged_artifacts(memory_store, KEYS, [large])) == []
    flip(memory_store, KEY, at=499)
    assert [a for a, _ in damaged_artifacts(memory_store, KEYS, [large])] == [large]
