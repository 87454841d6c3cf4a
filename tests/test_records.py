from __future__ import annotations

import hashlib
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import flipped
from holdfast import records
from holdfast.errors import DamagedRecord, FormatTooNew
from holdfast.layout import Slot
from holdfast.records import (
    Answer,
    Base,
    Claim,
    Decision,
    Hint,
    Intent,
    Joined,
    Kept,
    Outcome,
    Owner,
    Pin,
    PipelineRecord,
    Record,
    RepositoryRecord,
    Request,
    Savepoint,
    Settled,
    VoidSlot,
    is_a,
    seal,
    unseal,
)

SAMPLES: list[Record] = [
    RepositoryRecord(token="t", repository_id="r", created_ms=1),
    PipelineRecord(token="t", pipeline_id="p", name="orders", created_ms=1),
    Claim(token="t", generation=3, why="start", who="me@here/1", repository_id="r", created_ms=1, query_id="q"),
    Base(token="t", generation=3, from_generation=2, from_slot=7, adopted_epoch=41),
    VoidSlot(token="t", generation=3, slot=1),
    Savepoint(token="t", name="v1", generation=3, slot=1, checkpoint_id="c", created_ms=1),
    Pin(token="t", generation=3, slot=1, why="audit", who="me", created_ms=1, claim=4),
    Intent(token="t", generation=3, slot=1),
    Decision(token="t", generation=3, slot=1, objects=["data/x/pack-0"]),
    Joined(token="t", generation=3, ranges=[(0, 4), (7, 7)]),
    Kept(token="t", generation=3, slot=4),
    Request(token="t", savepoint="now", who="me", created_ms=1),
    Answer(token="t", generation=3, slot=1, checkpoint_id="c"),
    Settled(token="t", generation=3, slot=1, outcomes={"table": Outcome(status="committed", position={"version": 4})}),
    Owner(
        token="t",
        pipeline_id="p",
        pipeline="orders",
        repository="s3://bucket",
        generation=3,
        slot=1,
        epoch=41,
        checkpoint_id="c",
        query_id="q",
        created_ms=1,
        fork=True,
        edits=["0:orders:3=7"],
    ),
    Hint(token="t", generation=3, slot=1),
]
KINDS = sorted(
    (value for value in vars(records).values() if isinstance(value, type) and issubclass(value, Record) and value.kind),
    key=lambda kind: kind.__name__,
)
every_sample = pytest.mark.parametrize("record", SAMPLES, ids=lambda r: r.kind)

wire_text = st.text(st.characters(codec="utf-8"), max_size=20)
whole = st.integers(-(2**63), 2**63 - 1)


def strategy(kind: type[Record]) -> st.SearchStrategy[Record]:
    by_type: dict[Any, st.SearchStrategy[Any]] = {
        str: wire_text,
        int: whole,
        bool: st.booleans(),
        str | None: st.none() | wire_text,
        int | None: st.none() | whole,
        list[str]: st.lists(wire_text, max_size=4),
        list[tuple[int, int]]: st.lists(st.tuples(whole, whole), max_size=4),
        dict[str, Any]: st.dictionaries(wire_text, wire_text | whole, max_size=3),
        dict[str, Outcome]: st.dictionaries(
            wire_text, st.builds(Outcome, status=wire_text, position=wire_text | whole | st.none()), max_size=3
        ),
    }
    hints = msgspec.structs.fields(kind)
    return st.builds(kind, **{hint.name: by_type[hint.type] for hint in hints})


def with_seal(line: bytes) -> bytes:
    return line + f',"sha256":"{hashlib.sha256(line).hexdigest()}"}}\n'.encode()


def reworded(record: Record, old: str, new: str) -> bytes:
    """The record as another version would have sealed it."""
    line = seal(record)[: -records._SEAL_LENGTH]
    assert old.encode() in line
    return with_seal(line.replace(old.encode(), new.encode(), 1))


def test_every_kind_of_record_has_a_sample_and_a_name_of_its_own() -> None:
    assert {type(record) for record in SAMPLES} == set(KINDS)
    assert len({kind.kind for kind in KINDS}) == len(KINDS)


@given(st.one_of([strategy(kind) for kind in KINDS]))
def test_what_is_sealed_reads_back_as_it_was(record: Record) -> None:
    assert unseal("key", seal(record), type(record)) == record


@given(st.one_of([strategy(kind) for kind in KINDS]))
def test_the_same_fields_give_the_same_bytes(record: Record) -> None:
    assert seal(msgspec.structs.replace(record)) == seal(record)


def test_the_order_in_which_a_mapping_was_filled_does_not_change_the_bytes() -> None:
    one = {name: Outcome(status="committed", position={"a": 1, "b": 2}) for name in ("x", "y")}
    other = {name: Outcome(status="committed", position={"b": 2, "a": 1}) for name in ("y", "x")}
    sealed = [seal(Settled(token="t", generation=0, slot=0, outcomes=outcomes)) for outcomes in (one, other)]
    assert sealed[0] == sealed[1]


@every_sample
def test_a_record_is_one_line_of_json_that_names_its_kind_and_format(record: Record) -> None:
    sealed = seal(record)
    assert sealed.count(b"\n") == 1
    plain = msgspec.json.decode(sealed)
    assert (plain["holdfast"], plain["format"], plain["token"]) == (record.kind, "1.0", "t")


@every_sample
def test_every_flipped_byte_is_damage(record: Record) -> None:
    sealed = seal(record)
    for at in range(len(sealed)):
        for bit in (0, 5, 7):
            with pytest.raises(DamagedRecord):
                unseal("key", flipped(sealed, at, bit), type(record))


@every_sample
def test_every_truncation_is_damage(record: Record) -> None:
    sealed = seal(record)
    for length in range(len(sealed)):
        with pytest.raises(DamagedRecord):
            unseal("key", sealed[:length], type(record))


@every_sample
@pytest.mark.parametrize("more", [b"\n", b" ", b"{}", b"\0"])
def test_bytes_after_the_end_are_damage(record: Record, more: bytes) -> None:
    with pytest.raises(DamagedRecord):
        unseal("key", seal(record) + more, type(record))


@pytest.mark.parametrize("bytes_there", [b"", b"\n", b"{}\n", b"null", b"latest: 0-1\n", b"\xff" * 100])
def test_what_is_no_record_at_all_is_damage_and_never_empty(bytes_there: bytes) -> None:
    with pytest.raises(DamagedRecord):
        unseal("key", bytes_there, Hint)


@every_sample
def test_fields_that_a_newer_minor_version_added_are_passed_over(record: Record) -> None:
    newer = reworded(record, '"format":"1.0"', '"format":"1.9","colour":{"deep":[1,2]}')
    assert unseal("key", newer, type(record)) == record


@every_sample
def test_a_newer_major_format_is_refused_by_name(record: Record) -> None:
    newer = reworded(record, '"format":"1.0"', '"format":"2.0"')
    with pytest.raises(FormatTooNew) as refused:
        unseal("the-key", newer, type(record))
    assert refused.value.fields == {"what": "the-key", "version": "2.0"}


@pytest.mark.parametrize("version", ["", "1", "one", "1.x", "-1.0", "1.0.0", "²·1", "².0"])
def test_what_is_no_version_is_damage(version: str) -> None:
    with pytest.raises(DamagedRecord):
        unseal("key", reworded(SAMPLES[0], '"format":"1.0"', f'"format":"{version}"'), RepositoryRecord)


def test_a_record_of_another_kind_is_damage_even_if_its_seal_is_whole() -> None:
    with pytest.raises(DamagedRecord, match="'intent' where a 'pin'"):
        unseal("key", seal(Intent(token="t", generation=0, slot=0)), Pin)


def test_a_missing_field_is_damage_and_one_with_a_default_is_not() -> None:
    with pytest.raises(DamagedRecord):
        unseal("key", reworded(SAMPLES[7], '"slot":1', '"slat":1'), Intent)
    assert unseal("key", reworded(SAMPLES[8], ',"objects"', ',"why":"damaged","objects"'), Decision).why == "damaged"
    assert unseal("key", seal(SAMPLES[8]), Decision).why == "pruned"


def test_a_field_of_the_wrong_type_is_damage() -> None:
    with pytest.raises(DamagedRecord):
        unseal("key", reworded(SAMPLES[7], '"slot":1', '"slot":"1"'), Intent)


def test_a_void_slot_is_told_from_its_first_bytes() -> None:
    assert [is_a(VoidSlot, seal(record)) for record in SAMPLES] == [isinstance(r, VoidSlot) for r in SAMPLES]


def test_joined_decisions_speak_of_every_slot_in_their_ranges_and_no_other() -> None:
    joined = Joined(token="t", generation=3, ranges=[(0, 2), (7, 7)])
    assert joined.slots() == {Slot(3, n) for n in (0, 1, 2, 7)}
    assert joined.slots(2) == {Slot(3, 2), Slot(3, 7)}
    assert {n for n in range(10) if joined.covers(Slot(3, n))} == {0, 1, 2, 7}
    assert not joined.covers(Slot(2, 0))


def test_a_base_names_a_slot_or_nothing() -> None:
    assert Base(token="t", generation=1, from_generation=0, from_slot=0).slot == Slot(0, 0)
    assert Base(token="t", generation=1).slot is None
    assert Base(token="t", generation=1, void=True).slot is None
