from __future__ import annotations

import hashlib
import json
import random
import zlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import flipped, plain_manifest
from holdfast.errors import BadValue, DamagedRecord, FormatTooNew
from holdfast.layout import Slot
from holdfast.manifest import (
    HEAD_LIMIT,
    Artifact,
    ConnectorOffset,
    Head,
    Manifest,
    Parent,
    SinkStatus,
    decode_head,
    decode_manifest,
    encode_manifest,
)
from holdfast.records import seal_line

UPLOAD = f"data/0000000000-{'a' * 32}/"

texts = st.text(st.characters(codec="utf-8"), max_size=12)
short = st.text('abcxyz-."\\\n\0é', min_size=1, max_size=8)
whole = st.integers(0, 2**62)
digests = st.text("0123456789abcdef", min_size=64, max_size=64)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**62), 2**62) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)
artifacts = st.builds(
    Artifact,
    sha256=digests,
    size_bytes=whole,
    is_delta=st.booleans(),
    after=st.none() | texts,
    path=st.none() | texts,
    offset=st.none() | whole,
    length=st.none() | whole,
    inline=st.none() | texts,
)
offsets = st.builds(
    ConnectorOffset,
    offsets=st.dictionaries(texts, texts, max_size=3),
    epoch=whole,
    metadata=st.dictionaries(texts, texts, max_size=2),
)
statuses = st.builds(
    SinkStatus, status=st.sampled_from(["pending", "committed", "failed"]), token=json_values, why=st.none() | texts
)


def mapping(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[str, Any]]:
    return st.dictionaries(texts, values, max_size=3)


manifests = st.builds(
    Manifest,
    checkpoint_id=texts,
    generation=whole,
    slot=whole,
    epoch=whole,
    timestamp_ms=whole,
    identifier=texts,
    pipeline_id=texts,
    parent=st.none() | st.builds(Parent, generation=whole, slot=whole, checkpoint_id=texts),
    upload=texts,
    engine=texts,
    source_offsets=mapping(offsets),
    table_offsets=mapping(offsets),
    sink_epochs=mapping(whole),
    sink_positions=mapping(json_values),
    sink_commit_statuses=mapping(statuses),
    watermark=st.none() | whole,
    source_watermarks=mapping(whole),
    source_names=st.lists(texts, max_size=3),
    sink_names=st.lists(texts, max_size=3),
    pipeline_hash=texts,
    fingerprint=mapping(texts),
    vnode_count=whole,
    operators=mapping(st.dictionaries(st.integers(0, 10**6), st.lists(artifacts, max_size=2), max_size=3)),
    driver_states=mapping(artifacts),
    files=mapping(artifacts),
    objects=mapping(whole),
    processed_records=whole,
    steps=whole,
    spark_version=st.none() | texts,
    metadata=mapping(texts),
    extra=st.dictionaries(st.text("XYZ", min_size=1, max_size=3), json_values, max_size=2),
)


def sample(**more: Any) -> Manifest:
    return plain_manifest(
        Slot(2, 5),
        parent=Parent(generation=2, slot=4, checkpoint_id="0193a5b0-0000-7000-8000-000000000009"),
        upload=UPLOAD,
        source_offsets={
            "kafka": ConnectorOffset(offsets={"partition-0": "1234"}, epoch=5, metadata={"topic": "orders"}),
            "postgres": ConnectorOffset(offsets={"lsn": "0/1234ABCD"}),
            "mysql": ConnectorOffset(offsets={"gtid_set": "3E11FA47:1-5", "binlog_file": "mysql-bin.000003"}),
        },
        table_offsets={"prices": ConnectorOffset(offsets={"version": "42"})},
        source_names=["kafka", "mysql", "postgres"],
        sink_names=["table"],
        sink_commit_statuses={"table": SinkStatus(status="pending", token={"txn": 7})},
        watermark=99,
        vnode_count=1,
        operators={"count": {0: [Artifact(sha256="a" * 64, size_bytes=9, path=f"{UPLOAD}pack-0", offset=8, length=9)]}},
        objects={f"{UPLOAD}pack-0": 200},
        **more,
    )


def large(partitions: int = 2000, packs: int = 4, deltas: int = 0) -> Manifest:
    """Many partitions that lie in a few packs, with digests that no compression shortens."""
    draw = random.Random(7)
    operators: dict[int, list[Artifact]] = {}
    objects: dict[str, int] = {}
    offset = 8
    for partition in range(partitions):
        path = f"data/0000000000-{partition * packs // partitions:032x}/pack-0"
        chain: list[Artifact] = []
        for _ in range(1 + deltas):
            size = draw.randrange(2_000, 60_000)
            sha256 = f"{draw.getrandbits(256):064x}"
            after = chain[-1].sha256[:16] if chain else None
            spot = {"path": path, "offset": offset, "length": size}
            chain.append(Artifact(sha256=sha256, size_bytes=size, is_delta=bool(after), after=after, **spot))
            offset += size
        operators[partition] = chain
        objects[path] = objects.get(path, 0) + offset
    return plain_manifest(vnode_count=partitions, operators={"count": operators}, objects=objects)


def rebuilt(encoded: bytes, change: Any) -> bytes:
    """A manifest whose body was changed and whose digests are right all the same, as another version would write it."""
    line, _, body = encoded.partition(b"\n")
    plain = json.loads(body)
    change(plain)
    body = json.dumps(plain).encode() + b"\n"
    head = msgspec.json.decode(line, type=Head)
    sha256 = hashlib.sha256(body).hexdigest()
    return seal_line("manifest", msgspec.structs.replace(head, body_size=len(body), body_sha256=sha256)) + body


@settings(max_examples=200, deadline=None)
@given(manifests)
def test_a_manifest_reads_back_as_it_was_written(manifest: Manifest) -> None:
    assert decode_manifest("key", encode_manifest(manifest)) == manifest


@settings(deadline=None)
@given(manifests)
def test_writing_what_was_read_gives_the_same_bytes(manifest: Manifest) -> None:
    encoded = encode_manifest(manifest)
    assert encode_manifest(decode_manifest("key", encoded)) == encoded


@settings(deadline=None)
@given(manifests)
def test_the_head_is_the_first_line_under_two_kib_and_agrees_with_the_rest(manifest: Manifest) -> None:
    encoded = encode_manifest(manifest)
    head = decode_head("key", encoded[:HEAD_LIMIT])
    assert encoded.index(b"\n") < HEAD_LIMIT
    assert (head.at, head.epoch, head.checkpoint_id) == (manifest.at, manifest.epoch, manifest.checkpoint_id)
    assert head.bytes_new + head.bytes_shared == sum(manifest.byte_counts())
    assert head.artifacts == len(list(manifest.artifacts()))


def test_the_order_in_which_mappings_were_filled_does_not_change_the_bytes() -> None:
    chain = [Artifact(sha256="b" * 64, size_bytes=1, inline="AA==")]
    forth = plain_manifest(operators={"a": {1: chain, 10: chain, 2: chain}, "b": {}}, metadata={"x": "1", "y": "2"})
    back = plain_manifest(operators={"b": {}, "a": {2: chain, 10: chain, 1: chain}}, metadata={"y": "2", "x": "1"})
    assert encode_manifest(forth) == encode_manifest(back)


def test_a_manifest_is_json_that_other_programs_can_read() -> None:
    line, body = encode_manifest(sample()).splitlines()
    assert json.loads(line)["body_sha256"] == hashlib.sha256(body + b"\n").hexdigest()
    plain = json.loads(body)
    assert plain["version"] == "1.0"
    assert plain["source_offsets"]["kafka"]["offsets"] == {"partition-0": "1234"}
    assert plain["sink_commit_statuses"]["table"] == {"status": "pending", "token": {"txn": 7}}


def test_the_summary_holds_what_lists_need() -> None:
    head = decode_head("key", encode_manifest(sample(processed_records=11)))
    assert (head.generation, head.slot, head.parent) == (2, 5, "2-4")
    assert (head.sinks, head.sinks_total) == ({"table": "pending"}, 1)
    assert (head.bytes_new, head.bytes_shared, head.artifacts) == (9, 0, 1)
    assert (head.watermark, head.processed_records, head.pipeline_hash) == (99, 11, "f" * 64)


@pytest.mark.parametrize(
    "name", ["sink-with-quite-a-long-name-{:04d}", '"' * 60 + "{}", "\0" * 100 + "{}", "é" * 90 + "{}"]
)
def test_the_head_stays_under_two_kib_with_five_hundred_sinks(name: str) -> None:
    sinks = {name.format(n): SinkStatus(status="committed") for n in range(500)}
    manifest = plain_manifest(sink_names=sorted(sinks), sink_commit_statuses=sinks)
    encoded = encode_manifest(manifest)
    head = decode_head("key", encoded[:HEAD_LIMIT])
    assert head.sinks_total == 500
    assert head.sinks.items() <= dict.fromkeys(sinks, "committed").items()
    assert decode_manifest("key", encoded) == manifest


def test_a_summary_that_can_not_fit_is_refused_before_anything_is_written() -> None:
    with pytest.raises(BadValue):
        encode_manifest(plain_manifest(pipeline_hash="x" * HEAD_LIMIT))


def test_every_flipped_byte_of_a_manifest_is_damage() -> None:
    encoded = encode_manifest(sample())
    for at in range(len(encoded)):
        for bit in (0, 6):
            with pytest.raises(DamagedRecord):
                decode_manifest("key", flipped(encoded, at, bit))


def test_every_truncation_of_a_manifest_is_damage() -> None:
    encoded = encode_manifest(sample())
    for length in range(len(encoded)):
        with pytest.raises(DamagedRecord):
            decode_manifest("key", encoded[:length])


@pytest.mark.parametrize("more", [b"\0", b"\n", b"{}"])
def test_bytes_after_the_end_of_a_manifest_are_damage(more: bytes) -> None:
    for manifest in (sample(), large(500)):
        with pytest.raises(DamagedRecord):
            decode_manifest("key", encode_manifest(manifest) + more)


def test_flips_in_a_compressed_manifest_are_damage_or_change_nothing() -> None:
    manifest = large(300)
    encoded = encode_manifest(manifest)
    assert decode_head("key", encoded).body == "zlib"
    draw, harmless = random.Random(1), 0
    places = [draw.randrange(len(encoded)) for _ in range(400)] + list(range(len(encoded) - 40, len(encoded)))
    for at in places:
        try:
            read = decode_manifest("key", flipped(encoded, at, draw.randrange(8)))
        except DamagedRecord:
            continue
        # The last bits of the compressed stream are padding and mean nothing.
        assert read == manifest
        harmless += 1
    assert harmless <= 8


def test_truncations_of_a_compressed_manifest_are_damage() -> None:
    encoded = encode_manifest(large(300))
    for length in [*range(0, len(encoded), 97), *range(len(encoded) - 20, len(encoded))]:
        with pytest.raises(DamagedRecord):
            decode_manifest("key", encoded[:length])


def test_the_head_of_one_manifest_on_the_body_of_another_is_damage() -> None:
    one, other = encode_manifest(sample()), encode_manifest(msgspec.structs.replace(sample(), epoch=6))
    with pytest.raises(DamagedRecord):
        decode_manifest("key", one[: one.index(b"\n") + 1] + other[other.index(b"\n") + 1 :])


def test_a_head_that_belongs_to_another_slot_is_damage_even_if_all_digests_fit() -> None:
    moved = rebuilt(encode_manifest(sample()), lambda plain: plain.update(slot=6))
    with pytest.raises(DamagedRecord, match="another checkpoint"):
        decode_manifest("key", moved)


def test_unknown_fields_are_kept_and_written_again() -> None:
    added = {"checksums": {"crc": [1, 2, {"deep": None}]}, "tenant": "a"}
    newer = rebuilt(encode_manifest(sample()), lambda plain: plain.update(added))
    manifest = decode_manifest("key", newer)
    assert manifest.extra == added
    again = decode_manifest("key", encode_manifest(manifest))
    assert again == manifest
    assert json.loads(encode_manifest(manifest).splitlines()[1])["checksums"] == added["checksums"]


def test_an_unknown_field_can_never_hide_a_known_one() -> None:
    manifest = sample(extra={"epoch": 999, "metadata": {"a": "b"}})
    assert json.loads(encode_manifest(manifest).splitlines()[1])["epoch"] == 5


def test_missing_fields_take_their_defaults() -> None:
    bare = ("version", "checkpoint_id", "generation", "slot", "epoch", "timestamp_ms", "identifier", "pipeline_id")

    def strip(plain: dict[str, Any]) -> None:
        for name in [name for name in plain if name not in bare]:
            del plain[name]

    manifest = decode_manifest("key", rebuilt(encode_manifest(sample()), strip))
    assert (manifest.operators, manifest.sink_names, manifest.watermark, manifest.engine) == ({}, [], None, "python")


def test_a_missing_field_without_a_default_is_damage() -> None:
    for name in ("epoch", "pipeline_id", "identifier"):
        with pytest.raises(DamagedRecord):
            decode_manifest("key", rebuilt(encode_manifest(sample()), lambda plain, name=name: plain.pop(name)))


def test_a_manifest_from_the_future_is_refused() -> None:
    newer = rebuilt(encode_manifest(sample()), lambda plain: plain.update(version="2.0"))
    with pytest.raises(FormatTooNew):
        decode_manifest("key", newer)
    minor = rebuilt(encode_manifest(sample()), lambda plain: plain.update(version="1.7"))
    assert decode_manifest("key", minor).version == "1.7"


def test_a_body_that_is_no_object_is_damage() -> None:
    body = b"[1,2]\n"
    head = msgspec.structs.replace(
        decode_head("key", encode_manifest(sample())), body_size=len(body), body_sha256=hashlib.sha256(body).hexdigest()
    )
    with pytest.raises(DamagedRecord):
        decode_manifest("key", seal_line("manifest", head) + body)


def test_a_body_that_does_not_decompress_is_damage() -> None:
    stored = zlib.compress(b"{}\n")[:-3] + b"abc"
    head = decode_head("key", encode_manifest(sample()))
    with pytest.raises(DamagedRecord, match="decompressed"):
        decode_manifest(
            "key", seal_line("manifest", msgspec.structs.replace(head, body="zlib", body_size=len(stored))) + stored
        )


@pytest.mark.parametrize(("partitions", "deltas"), [(2000, 0), (2000, 3)])
def test_a_large_manifest_takes_under_a_hundred_bytes_for_each_file_referred_to(partitions: int, deltas: int) -> None:
    manifest = large(partitions, deltas=deltas)
    encoded = encode_manifest(manifest)
    assert len(encoded) < 100 * partitions * (1 + deltas)
    assert decode_manifest("key", encoded) == manifest


def test_shared_bytes_are_told_from_new_ones_and_each_is_counted_once() -> None:
    own = Artifact(sha256="a" * 64, size_bytes=10, path=f"{UPLOAD}pack-0", offset=8, length=10)
    old = Artifact(sha256="b" * 64, size_bytes=7, path=f"data/0000000000-{'b' * 32}/pack-0", offset=8, length=7)
    tiny = Artifact(sha256="c" * 64, size_bytes=2, inline="AAA=")
    manifest = plain_manifest(
        upload=UPLOAD, operators={"count": {0: [own], 1: [own], 2: [old]}}, driver_states={"d": tiny}, files={"f": old}
    )
    assert manifest.byte_counts() == (12, 7)


def test_sinks_that_are_not_committed_are_pending_whether_they_failed_or_not() -> None:
    statuses = {name: SinkStatus(status=name) for name in ("pending", "committed", "failed")}
    assert plain_manifest(sink_commit_statuses=statuses).pending_sinks() == ["failed", "pending"]
