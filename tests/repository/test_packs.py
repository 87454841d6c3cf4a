from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import flipped
from holdfast.errors import DamagedArtifact
from holdfast.repository.packs import FOOTER_SIZE, MAGIC, Member, PackBuilder, encode_index, index_span, read_index


def build(members: list[bytes]) -> tuple[bytes, list[int]]:
    pack = PackBuilder()
    offsets = [pack.add(data, hashlib.sha256(data).hexdigest()) for data in members]
    assert len(pack) == len(members)
    return b"".join(pack.build()), offsets


def read(pack: bytes) -> list[Member]:
    start, length = index_span("pack", len(pack), pack[-FOOTER_SIZE:])
    return read_index("pack", pack[start : start + length])


@given(st.lists(st.binary(max_size=50), max_size=20))
def test_every_member_lies_where_its_offset_says_and_the_index_agrees(members: list[bytes]) -> None:
    pack, offsets = build(members)
    assert pack.startswith(MAGIC)
    assert [pack[at : at + len(data)] for at, data in zip(offsets, members, strict=True)] == members
    assert sorted(read(pack)) == sorted(
        Member(at, len(data), hashlib.sha256(data).hexdigest()) for at, data in zip(offsets, members, strict=True)
    )


def test_the_same_members_give_the_same_pack() -> None:
    assert build([b"one", b"two"]) == build([b"one", b"two"])


def test_every_flip_in_the_index_is_found() -> None:
    pack, _ = build([b"one", b"two" * 10])
    start, _ = index_span("pack", len(pack), pack[-FOOTER_SIZE:])
    for at in range(start, len(pack)):
        with pytest.raises(DamagedArtifact):
            read(flipped(pack, at))


def test_every_truncation_of_a_pack_is_found_in_its_index() -> None:
    pack, _ = build([b"one", b"two" * 10])
    for length in range(len(pack)):
        with pytest.raises(DamagedArtifact):
            read(pack[:length])


def test_an_index_can_stand_by_itself() -> None:
    members = [Member(30, 4, "b" * 64), Member(8, 22, "a" * 64)]
    assert read_index("pack", encode_index(members)) == sorted(members)
