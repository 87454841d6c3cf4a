"""An envelope gives back any range of what was put in, and nothing of what was changed, cut, moved or mixed."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.encryption import envelope
from holdfast.encryption.envelope import (
    FRAME,
    OVERHEAD,
    BrokenEnvelope,
    Opening,
    Stretch,
    enclose,
    enclosed,
    plain_size,
)
from holdfast.encryption.ring import Ring
from holdfast.encryption.store import EncryptedStore
from holdfast.errors import DamagedRecord
from holdfast.store import Buffer
from holdfast.store.memory import MemoryStore

RING = Ring.new()
SMALL = 32
"""Frames of this size let a few bytes be many frames."""


@pytest.fixture(autouse=True, scope="module")
def _small_frames() -> None:
    """Properties hold for any size of frame: small ones meet every edge sooner."""
    with pytest.MonkeyPatch.context() as patch:
        for module in ("holdfast.encryption.envelope", "holdfast.encryption.store"):
            patch.setattr(f"{module}.FRAME", SMALL)
            patch.setattr(f"{module}.SEALED", SMALL + OVERHEAD)
        patch.setattr("holdfast.encryption.envelope.PIECE", 2 * SMALL)
        yield


bodies = st.binary(max_size=5 * SMALL)
lengths = st.sampled_from([0, 1, SMALL - 1, SMALL, SMALL + 1, 2 * SMALL, 2 * SMALL + 1, 4 * SMALL])


def opened(data: Buffer, name: str = "k", ring: Ring = RING) -> bytes:
    return Stretch(Opening(lambda _: ring, name), 0, data, last=True).whole()


def stored(body: bytes, key: str = "k") -> tuple[EncryptedStore, MemoryStore]:
    inner = MemoryStore()
    store = EncryptedStore(inner, RING)
    store.create(key, body)
    return store, inner


@given(bodies | lengths.map(bytes))
def test_what_is_put_in_comes_out_and_its_size_is_told(body: bytes) -> None:
    sealed = enclose(RING, "k", body)
    assert opened(sealed) == body
    assert plain_size(len(sealed)) == len(body)


@given(st.lists(st.binary(max_size=3 * SMALL), max_size=5))
def test_an_object_that_passes_by_in_chunks_has_the_same_envelope(chunks: list[bytes]) -> None:
    sealed = b"".join(enclosed(RING, "k", chunks))
    body = b"".join(chunks)
    assert opened(sealed) == body
    assert len(sealed) == len(enclose(RING, "k", body))


def in_chunks(sealed: Buffer, sizes: list[int]) -> Iterator[bytes]:
    """An envelope as a store may give it out, in pieces of any size."""
    left = memoryview(sealed)
    for size in sizes:
        yield bytes(left[:size])
        left = left[size:]
    yield bytes(left)


chunk_sizes = st.lists(st.integers(0, 4 * (SMALL + OVERHEAD)), max_size=8)


@given(bodies | lengths.map(bytes), chunk_sizes)
def test_an_envelope_that_comes_in_any_chunks_gives_what_it_carries(body: bytes, sizes: list[int]) -> None:
    chunks = in_chunks(enclose(RING, "k", body), sizes)
    assert b"".join(envelope.opened(Opening(lambda _: RING, "k"), 0, chunks, None)) == body


@given(st.binary(min_size=1, max_size=5 * SMALL), chunk_sizes, st.data())
def test_nothing_of_a_changed_frame_leaves_before_it_is_found(
    body: bytes, sizes: list[int], data: st.DataObject
) -> None:
    sealed = enclose(RING, "k", body)
    at = data.draw(st.integers(0, len(sealed) - 1))
    sealed[at] ^= 1
    pieces = envelope.opened(Opening(lambda _: RING, "k"), 0, in_chunks(sealed, sizes), None)
    given_out: list[bytes] = []
    with pytest.raises(BrokenEnvelope):
        given_out.extend(pieces)
    whole = at // (SMALL + OVERHEAD) * SMALL
    assert body[:whole].startswith(b"".join(given_out))


@given(
    bodies | lengths.map(bytes), st.lists(st.tuples(st.integers(0, 6 * SMALL), st.integers(0, 6 * SMALL)), max_size=4)
)
def test_any_ranges_come_back(body: bytes, ranges: list[tuple[int, int]]) -> None:
    store, _ = stored(body)
    wanted = [body[offset : offset + length] for offset, length in ranges]
    assert store.get_ranges("k", ranges) == wanted
    assert [b"".join(store.read("k", *each)) for each in ranges] == wanted
    assert [b"".join(store.read("k", offset)) for offset, _ in ranges] == [body[offset:] for offset, _ in ranges]


@given(bodies | lengths.map(bytes), st.data())
def test_any_flipped_bit_is_found(body: bytes, data: st.DataObject) -> None:
    store, inner = stored(body)
    sealed = bytearray(inner.get("k"))
    at = data.draw(st.integers(0, len(sealed) - 1))
    sealed[at] ^= 1 << data.draw(st.integers(0, 7))
    inner.put("k", sealed)
    with pytest.raises(DamagedRecord):
        store.get("k")
    with pytest.raises(DamagedRecord):
        list(store.read("k"))
    # A range that has nothing of the frame in it is whole; one that has is never given out.
    start = at // (SMALL + OVERHEAD) * SMALL
    if start < len(body) or not body:
        with pytest.raises(DamagedRecord):
            store.get_ranges("k", [(start, 1)])
    elsewhere = [(at, 1) for at in range(len(body)) if at // SMALL != start // SMALL]
    assert store.get_ranges("k", elsewhere) == [body[at : at + 1] for at, _ in elsewhere]


@given(bodies | lengths.map(bytes), st.data())
def test_any_truncation_is_found_and_told_by_the_size_alone(body: bytes, data: st.DataObject) -> None:
    store, inner = stored(body)
    sealed = inner.get("k")
    cut = data.draw(st.integers(0, len(sealed) - 1))
    inner.put("k", sealed[:cut])
    with pytest.raises(DamagedRecord):
        store.get("k")
    with pytest.raises(DamagedRecord):
        list(store.read("k"))
    if body:
        [(_, size)] = store.list("")
        assert size < len(body)
        # What is asked for up to its end comes back short or not at all.
        try:
            [found] = store.get_ranges("k", [(0, len(body))])
        except DamagedRecord:
            return
        assert found == b""


@pytest.mark.parametrize("frames", [1, 2, 3])
@pytest.mark.parametrize("rest", [0, 1])
def test_an_object_cut_off_just_behind_a_frame_is_found(frames: int, rest: int) -> None:
    """Each frame that is left is whole: only that none of them is the last tells."""
    body = bytes(4 * SMALL + rest)
    store, inner = stored(body)
    inner.put("k", inner.get("k")[: frames * (SMALL + OVERHEAD)])
    for read in (store.get, lambda key: list(store.read(key)), lambda key: store.get_ranges(key, [(0, len(body))])):
        with pytest.raises(DamagedRecord):
            read("k")
    assert store.get_ranges("k", [(0, SMALL)]) == [body[:SMALL]], "what is asked for and there is whole"


@given(bodies | lengths.map(bytes), st.binary(min_size=1, max_size=3 * SMALL))
def test_whatever_is_added_at_the_end_is_found(body: bytes, more: bytes) -> None:
    store, inner = stored(body)
    inner.put("k", inner.get("k") + more)
    with pytest.raises(DamagedRecord):
        store.get("k")
    with pytest.raises(DamagedRecord):
        list(store.read("k"))


@given(st.binary(min_size=3 * SMALL, max_size=5 * SMALL), st.permutations(range(3)))
def test_frames_in_another_order_are_found(body: bytes, order: list[int]) -> None:
    size = SMALL + OVERHEAD
    sealed = bytes(enclose(RING, "k", body))
    moved = b"".join(sealed[n * size : (n + 1) * size] for n in order) + sealed[3 * size :]
    if moved == sealed:
        return
    with pytest.raises(BrokenEnvelope):
        opened(moved)


@given(st.binary(min_size=SMALL + 1, max_size=3 * SMALL), st.data())
def test_frames_of_two_writings_of_one_object_do_not_mix(body: bytes, data: st.DataObject) -> None:
    size = SMALL + OVERHEAD
    one, other = (bytes(enclose(RING, "k", body)) for _ in range(2))
    at = data.draw(st.integers(1, (len(one) - 1) // size)) * size
    with pytest.raises(BrokenEnvelope, match="written together"):
        opened(one[:at] + other[at:])


@given(bodies, st.text(min_size=1, max_size=9), st.text(min_size=1, max_size=9))
def test_an_object_opens_under_its_own_name_alone(body: bytes, name: str, other: str) -> None:
    if name != other:
        with pytest.raises(BrokenEnvelope):
            opened(enclose(RING, name, body), other)


@given(bodies)
def test_an_object_of_another_repository_does_not_open(body: bytes) -> None:
    with pytest.raises(BrokenEnvelope):
        opened(enclose(Ring.new(), "k", body))


@given(bodies)
def test_the_same_bytes_never_look_the_same(body: bytes) -> None:
    assert enclose(RING, "k", body) != enclose(RING, "k", body)


@given(st.binary(max_size=5 * SMALL))
def test_bytes_that_are_no_envelope_are_damage_and_nothing_else(data: bytes) -> None:
    with pytest.raises(BrokenEnvelope):
        opened(data)
    with pytest.raises(BrokenEnvelope):
        opened(b"HFE1" + data)


def test_a_key_number_that_is_not_known_is_told() -> None:
    later = RING.grown()
    with pytest.raises(BrokenEnvelope, match="key number 2"):
        opened(enclose(later, "k", b"body"))
    assert opened(enclose(later, "k", b"body"), ring=later) == b"body"
    assert opened(enclose(RING, "k", b"body"), ring=later) == b"body", "what was written before a rotation"


def test_the_format_is_as_the_page_says() -> None:
    """Opened by hand from the words of docs/format.md."""
    import hashlib
    import hmac

    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    body = bytes(range(70))
    sealed = bytes(enclose(RING, "pipelines/orders/latest", body))
    found = b""
    for number, start in enumerate(range(0, len(sealed), SMALL + 48)):
        frame = sealed[start : start + SMALL + 48]
        assert frame[:8] == b"HFE1\0\0\0\1"
        said = b"holdfast object\0" + frame[8:32] + b"pipelines/orders/latest"
        key = hmac.new(RING.keys[1], said, hashlib.sha256).digest()
        last = start + SMALL + 48 >= len(sealed)
        nonce = number.to_bytes(8, "big") + last.to_bytes(4, "big")
        found += AESGCM(key).decrypt(nonce, frame[32:], frame[:32])
    assert found == body


def test_the_frames_in_use_carry_64_kib() -> None:
    assert (FRAME, OVERHEAD) == (65_536, 48)
    assert envelope.__doc__ is not None
