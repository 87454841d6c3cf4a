"""What is Kafka's own: records, one transaction an epoch, and a marker in a compacted topic."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import IsolationLevel, KafkaError, KafkaException, Producer, murmur2
from confluent_kafka.admin import AdminClient

from holdfast.decide.chain import NOTHING
from holdfast.epochs import Holder, Link, Marker
from holdfast.errors import (
    BadValue,
    ChainBroken,
    DamagedRecord,
    Fenced,
    HoldfastError,
    SinkTaken,
    SinkUnavailable,
    SinkUnfit,
)
from holdfast.sinks import kafka_client
from holdfast.sinks.contract import Sink, Target, WriteMode
from holdfast.sinks.kafka import Kafka
from holdfast.sinks.kafka_records import FRAME_BYTES
from holdfast.sinks.staged import StagedRows
from holdfast.testing.sinks import SCHEMA, SinkContract, holder, stage, step, words
from servers import KafkaServer
from sinks.kafka_topics import config_of, ends, make_topic, records, remake_topic, topic_id


class TestKafka(SinkContract):
    rolls_back = False
    has_columns = False
    races = 2

    @pytest.fixture(autouse=True)
    def _place(self, kafka_server: KafkaServer) -> None:
        self.bootstrap = kafka_server.bootstrap
        self.topic = make_topic(self.bootstrap)

    def open(self, mode: WriteMode, key: Sequence[str]) -> Sink:
        assert mode == "append"
        return Kafka(self.bootstrap, self.topic, key="id")

    def read(self) -> Iterable[dict[str, Any]]:
        return [json.loads(record.value()) for record in records(self.bootstrap, self.topic)]


Opened = Callable[..., Kafka]


@pytest.fixture
def bootstrap(kafka_server: KafkaServer) -> str:
    return kafka_server.bootstrap


@pytest.fixture
def topic(bootstrap: str) -> str:
    return make_topic(bootstrap)


@pytest.fixture
def opened(bootstrap: str, topic: str) -> Iterator[Opened]:
    """Sinks of the topic, or of another, fenced unless there is no generation, that are closed in the end."""
    sinks: list[Kafka] = []

    def make(generation: int | None = 0, into: str = topic, **options: Any) -> Kafka:
        sinks.append(Kafka(bootstrap, into, **options))
        if generation is not None:
            sinks[-1].fence(holder(generation), NOTHING)
        return sinks[-1]

    yield make
    for sink in sinks:
        sink.close()


def put(sink: Sink, epoch: int, rows: StagedRows) -> Target:
    position = sink.commit(step(epoch), sink.prepare(step(epoch), rows), rows)
    return Target(step(epoch).after, 0, position)


def ids(bootstrap: str, topic: str) -> list[int]:
    return sorted(json.loads(record.value())["id"] for record in records(bootstrap, topic))


# ---- records ----


def test_a_row_is_one_json_object_and_a_column_can_be_its_key(
    bootstrap: str, topic: str, opened: Opened, tmp_path: Path
) -> None:
    put(opened(key="id"), 0, stage(tmp_path, [*words(1), {"id": None, "word": "none", "seen": None}], files=1))
    found = {record.key(): json.loads(record.value()) for record in records(bootstrap, topic)}
    assert found == {
        b"1": {"id": 1, "word": "w1", "seen": "2026-11-15T10:30:00.250000Z"},
        None: {"id": None, "word": "none", "seen": None},
    }


def test_rows_made_for_sparks_own_sink_are_written_as_they_are(
    bootstrap: str, topic: str, opened: Opened, tmp_path: Path
) -> None:
    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    schema = pa.schema(
        [("key", pa.binary()), ("value", pa.string()), ("headers", pa.list_(header)), ("partition", pa.int32())]
    )
    rows = [
        {"key": b"\xff\x00", "value": "one", "headers": [{"key": "a", "value": b"\xfe"}], "partition": 1},
        {"key": None, "value": None, "headers": None, "partition": 0},
    ]
    sink = opened(key="key", value="value", headers="headers", partition="partition")
    put(sink, 0, stage(tmp_path, rows, schema))
    found = {
        record.partition(): (record.key(), record.value(), record.headers()) for record in records(bootstrap, topic)
    }
    assert found == {1: (b"\xff\x00", b"one", [("a", b"\xfe")]), 0: (None, None, None)}


def test_headers_can_be_a_map_and_are_no_part_of_the_json(
    bootstrap: str, topic: str, opened: Opened, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64()), ("from", pa.map_(pa.string(), pa.string())), ("to", pa.int64())])
    rows = [{"id": 1, "from": [("trace", "ü"), ("empty", None)], "to": 1}]
    put(opened(headers="from", partition="to"), 0, stage(tmp_path, rows, schema, files=1))
    [record] = records(bootstrap, topic)
    assert json.loads(record.value()) == {"id": 1}
    assert (record.partition(), record.headers()) == (1, [("trace", "ü".encode()), ("empty", None)])


def test_a_key_goes_where_java_puts_it(bootstrap: str, opened: Opened, tmp_path: Path) -> None:
    topic = make_topic(bootstrap, partitions=7)
    put(opened(into=topic, key="word"), 0, stage(tmp_path, words(*range(100))))
    found = {record.key(): record.partition() for record in records(bootstrap, topic)}
    assert found == {key: murmur2(key, 7) for key in found}
    assert len(found) == 100


@pytest.mark.parametrize(
    ("columns", "kinds", "why"),
    [
        ({"key": "nowhere"}, {"id": pa.int64()}, "its key is the column nowhere, and the rows have id"),
        ({"value": "id"}, {"id": pa.int64()}, "not a string or binary"),
        ({"headers": "id"}, {"id": pa.string()}, "not a map"),
        ({"headers": "id"}, {"id": pa.map_(pa.int64(), pa.binary())}, "not a map"),
        ({"partition": "id"}, {"id": pa.string()}, "not an integer"),
    ],
)
def test_columns_that_make_no_record_are_refused(
    opened: Opened, columns: dict[str, str], kinds: dict[str, pa.DataType], why: str
) -> None:
    with pytest.raises(SinkUnfit, match=why):
        opened(None, **columns).check(pa.schema(kinds))


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.string())]))


@pytest.mark.parametrize(
    ("column", "why"),
    [
        (pa.array([10**18]).cast(pa.timestamp("us")), "too far away"),
        (pa.array([b"\xff"]).cast(pa.string(), safe=False), "UTF8"),
        (pa.array([[{"key": None, "value": "x"}]], HEADERS), "a header has no name"),
    ],
    ids=["time", "text", "header"],
)
def test_a_value_that_can_not_be_written_is_refused_before_the_decision(
    bootstrap: str, topic: str, opened: Opened, tmp_path: Path, column: pa.Array, why: str
) -> None:
    table, rows = pa.table({"v": column}), stage(tmp_path, [], pa.schema([("v", column.type)]))
    sink = opened(headers="v" if column.type == HEADERS else None)
    with pytest.raises(SinkUnfit, match=why):
        sink.prepare(step(0), StagedRows(rows.staged, rows.place, table))
    assert records(bootstrap, topic) == []


def test_a_partition_that_the_topic_does_not_have_is_refused_before_the_decision(
    opened: Opened, tmp_path: Path
) -> None:
    schema = pa.schema([("id", pa.int64()), ("to", pa.int64())])
    for number in (2, -2):
        with pytest.raises(SinkUnfit, match=f"for partition {number} of 2"):
            opened(partition="to").prepare(step(0), stage(tmp_path, [{"id": 1, "to": number}], schema))


# ---- sizes ----


def test_a_row_that_is_too_large_is_refused_before_the_decision_and_the_largest_goes_through(
    bootstrap: str, opened: Opened, tmp_path: Path
) -> None:
    topic = make_topic(bootstrap, max_message_bytes="3000000")
    schema = pa.schema([("text", pa.string()), ("h", pa.map_(pa.string(), pa.string()))])
    headers = [("name", "x" * 50)] * 100
    room = 3_000_000 - FRAME_BYTES - sum(len(name) + len(value) + 16 for name, value in headers)
    sink = opened(into=topic, value="text", headers="h")
    with pytest.raises(SinkUnfit, match="3000001 bytes; the topic takes 3000000"):
        sink.prepare(step(0), stage(tmp_path, [{"text": "x" * (room + 1), "h": headers}], schema))
    put(sink, 0, stage(tmp_path, [{"text": "x" * room, "h": headers}] * 3, schema))
    assert [len(record.value()) for record in records(bootstrap, topic)] == [room] * 3


def test_many_rows_go_into_a_topic_that_takes_only_small_batches(
    bootstrap: str, opened: Opened, tmp_path: Path
) -> None:
    topic = make_topic(bootstrap, max_message_bytes="1500")
    put(opened(into=topic), 0, stage(tmp_path, words(*range(2_000))))
    assert ids(bootstrap, topic) == [*range(2_000)]


def test_an_epoch_goes_through_a_queue_that_it_does_not_fit_into(
    bootstrap: str, topic: str, opened: Opened, tmp_path: Path
) -> None:
    sink = opened(options={"queue.buffering.max.messages": 50})
    put(sink, 0, stage(tmp_path, words(*range(5_000))))
    assert ids(bootstrap, topic) == [*range(5_000)]


def test_a_marker_that_is_too_large_is_refused_before_the_decision(
    bootstrap: str, topic: str, opened: Opened, tmp_path: Path
) -> None:
    markers = make_topic(bootstrap, partitions=1, cleanup_policy="compact", max_message_bytes="1000")
    sink = opened(marker_topic=markers)
    with pytest.raises(SinkUnfit, match=r"raise max\.message"):
        sink.prepare(step(0, offsets="x" * 1000), stage(tmp_path, words(1)))


# ---- the marker ----


def test_the_marker_is_kept_in_a_compacted_topic_that_is_as_safe_as_the_rows(
    bootstrap: str, topic: str, opened: Opened, tmp_path: Path
) -> None:
    put(opened(), 0, stage(tmp_path, words(1)))
    config = config_of(bootstrap, f"{topic}.holdfast")
    assert (config["cleanup.policy"], config["min.insync.replicas"]) == ("compact", "1")
    found = records(bootstrap, f"{topic}.holdfast")
    assert {(record.partition(), record.key()) for record in found} == {(0, topic.encode())}
    assert json.loads(found[-1].value()) == {
        "holder": {"pipeline_id": "pipeline-1", "generation": 0, "token": "0" * 32},
        "at": {"epoch": 0, "offsets": "at 0"},
        "decided": 0,
        "topic_id": topic_id(bootstrap, topic),
    }


def test_a_marker_of_the_first_version_is_read_and_one_that_makes_no_sense_is_damage(
    bootstrap: str, topic: str, opened: Opened
) -> None:
    markers = make_topic(bootstrap, partitions=1, cleanup_policy="compact")
    sink = opened(None, marker_topic=markers)
    producer = Producer({"bootstrap.servers": bootstrap})
    first = b'{"holder":{"pipeline_id":"p","generation":3,"token":"t"},"at":{"epoch":7,"offsets":"o"},"decided":2}'
    producer.produce(markers, first, topic.encode())
    producer.flush(30)
    assert sink.look() == Marker(Holder("p", 3, "t"), Link(7, "o"), 2)
    producer.produce(markers, b"{}", topic.encode())
    producer.flush(30)
    with pytest.raises(DamagedRecord, match=markers):
        sink.look()


def test_a_topic_that_was_made_anew_is_not_taken_for_the_one_that_had_the_rows(
    bootstrap: str, topic: str, opened: Opened, tmp_path: Path
) -> None:
    sink = opened()
    put(sink, 0, stage(tmp_path, words(1)))
    assert opened(None).look() is not None
    remake_topic(bootstrap, topic)
    assert opened(None).look() is None
    sink.close()
    rows = stage(tmp_path, words(2))
    with pytest.raises(ChainBroken, match="made anew"):
        sink.commit(step(1), {}, rows)
    assert ids(bootstrap, topic) == []


def test_a_topic_that_would_delete_the_marker_is_refused(bootstrap: str, opened: Opened) -> None:
    markers = make_topic(bootstrap, partitions=1)
    with pytest.raises(SinkUnfit, match="policy=delete"):
        opened(None, marker_topic=markers).check(SCHEMA)
    with pytest.raises(SinkUnfit, match="policy=delete"):
        opened(0, marker_topic=markers)


def test_a_marker_is_found_behind_thousands_of_others(bootstrap: str, topic: str, opened: Opened) -> None:
    markers = make_topic(bootstrap, partitions=1, cleanup_policy="compact")
    opened(2, marker_topic=markers)
    other = Producer({"bootstrap.servers": bootstrap})
    for number in range(3 * kafka_client.TAIL):
        other.produce(markers, b"{}", f"another-{number}")
    other.flush(30)
    marker = opened(None, marker_topic=markers).look()
    assert marker is not None
    assert marker.holder == holder(2)
    with pytest.raises(Fenced):
        opened(1, marker_topic=markers)


def test_a_topic_that_is_not_there_is_refused_and_nothing_is_made(bootstrap: str, opened: Opened) -> None:
    sink = opened(None, into="rows-that-are-nowhere")
    assert sink.look() is None
    with pytest.raises(SinkUnfit, match="there is no topic rows-that-are-nowhere"):
        sink.check(SCHEMA)
    with pytest.raises(SinkUnfit, match="there is no topic rows-that-are-nowhere"):
        sink.fence(holder(0), NOTHING)
    topics = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=30).topics
    assert [name for name in topics if name.startswith("rows-that-are-nowhere")] == []


# ---- those beside it ----


def test_two_sinks_of_one_pipeline_do_not_disturb_each_other(bootstrap: str, opened: Opened, tmp_path: Path) -> None:
    shared = make_topic(bootstrap, partitions=1, cleanup_policy="compact")
    topics = [make_topic(bootstrap) for _ in range(4)]
    sinks = [opened(into=topics[0]), opened(into=topics[1])]
    sinks += [opened(into=topic, marker_topic=shared) for topic in topics[2:]]
    before = [sink._producer for sink in sinks]
    for epoch in range(3):
        for sink in sinks:
            put(sink, epoch, stage(tmp_path, words(epoch)))
    assert [ids(bootstrap, topic) for topic in topics] == [[0, 1, 2]] * 4
    assert [sink._producer for sink in sinks] == before


def test_two_pipelines_write_to_one_topic_with_a_marker_each(
    bootstrap: str, topic: str, opened: Opened, tmp_path: Path
) -> None:
    first = opened()
    with pytest.raises(SinkTaken):
        opened(None).fence(holder(0, "pipeline-2"), NOTHING)
    second = opened(None, marker_topic=f"{topic}.second")
    second.fence(holder(0, "pipeline-2"), NOTHING)
    put(first, 0, stage(tmp_path, words(1)))
    put(second, 0, stage(tmp_path, words(2)))
    assert ids(bootstrap, topic) == [1, 2]


def test_one_who_is_refused_does_not_shut_out_the_one_at_work(
    bootstrap: str, topic: str, opened: Opened, tmp_path: Path
) -> None:
    working = opened(1)
    producer = working._producer
    with pytest.raises(Fenced):
        opened(0)
    with pytest.raises(SinkTaken):
        opened(None).fence(holder(9, "pipeline-2"), NOTHING)
    assert opened(None).look() == Marker(holder(1), NOTHING, 1)
    put(working, 0, stage(tmp_path, words(1)))
    assert working._producer is producer
    assert ids(bootstrap, topic) == [1]


def test_a_taker_that_died_before_it_wrote_the_marker_has_taken_nothing(
    bootstrap: str, topic: str, opened: Opened, tmp_path: Path
) -> None:
    sink = opened()
    put(sink, 0, stage(tmp_path, words(1)))
    taker = Producer({"bootstrap.servers": bootstrap, "transactional.id": f"{topic}.holdfast:{topic}"})
    taker.init_transactions(30)
    put(sink, 1, stage(tmp_path, words(2)))
    assert ids(bootstrap, topic) == [1, 2]


@pytest.mark.parametrize("seed", range(5))
def test_a_take_over_amid_commits_ends_them_and_misses_none(
    bootstrap: str, topic: str, opened: Opened, tmp_path: Path, seed: int
) -> None:
    old, taker, rows = opened(0), opened(None), stage(tmp_path, words(1), files=1)
    old.commit(step(0), {}, rows)
    ended: list[type[HoldfastError]] = []

    def go_on() -> None:
        epoch = 1
        try:
            while True:
                old.commit(step(epoch), {}, rows)
                epoch += 1
        except HoldfastError as error:
            ended.append(type(error))

    thread = threading.Thread(target=go_on)
    thread.start()
    time.sleep(random.Random(seed).uniform(0, 0.1))
    epoch = taker.fence(holder(1), NOTHING).at.epoch + 1
    thread.join()
    taker.commit(step(epoch, 1), {}, rows)
    assert ended == [Fenced]
    assert ids(bootstrap, topic) == [1] * (epoch + 1)


# ---- what goes wrong ----


class Breaking(StagedRows):
    """Rows whose files are damaged, behind a first batch that is not."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        yield from super().batches()
        raise DamagedRecord("part-00001.parquet", "as a test wants it")


def test_an_epoch_that_fails_in_the_middle_leaves_nothing_and_holds_no_reader_back(
    bootstrap: str, topic: str, opened: Opened, tmp_path: Path
) -> None:
    sink, rows = opened(), stage(tmp_path, words(1, 2, 3))
    token = sink.prepare(step(0), rows)
    with pytest.raises(DamagedRecord):
        sink.commit(step(0), token, Breaking(rows.staged, rows.place))
    assert ends(bootstrap, topic) == ends(bootstrap, topic, IsolationLevel.READ_UNCOMMITTED)
    assert records(bootstrap, topic) == []
    sink.commit(step(0), token, rows)
    assert ids(bootstrap, topic) == [1, 2, 3]


class Deaf(Producer):
    """Commits, and does not hear the answer."""

    def commit_transaction(self, timeout: float = -1) -> None:
        super().commit_transaction(timeout)
        raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "as a test wants it"))


@pytest.mark.parametrize("generation", [0, 1])
def test_a_commit_whose_answer_was_lost_is_found_by_the_next_who_comes(
    bootstrap: str, topic: str, opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, generation: int
) -> None:
    sink, rows = opened(), stage(tmp_path, words(1, 2))
    token = sink.prepare(step(0), rows)
    sink.close()
    with monkeypatch.context() as patched:
        patched.setattr(kafka_client, "Producer", Deaf)
        with pytest.raises(SinkUnavailable, match="as a test wants it") as told:
            sink.commit(step(0), token, rows)
    assert "whole or not at all" in told.value.hint
    if generation:
        sink = opened(generation)
    sink.commit(step(0), token, rows)
    assert ids(bootstrap, topic) == [1, 2]
    rows = stage(tmp_path, words(3))
    sink.commit(step(1, generation), sink.prepare(step(1, generation), rows), rows)
    assert ids(bootstrap, topic) == [1, 2, 3]


def test_a_marker_is_not_overlooked_behind_a_transaction_that_another_has_open(
    bootstrap: str, topic: str, opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    markers = make_topic(bootstrap, partitions=1, cleanup_policy="compact")
    sink = opened(marker_topic=markers)
    other = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic})
    other.init_transactions(30)
    other.begin_transaction()
    other.produce(markers, b"{}", b"another")
    other.flush(30)
    put(sink, 0, stage(tmp_path, words(1)))
    sink.close()
    rows = stage(tmp_path, words(2))
    with monkeypatch.context() as patched:
        patched.setattr(kafka_client, "PATIENCE_SECONDS", 3.0)
        with pytest.raises(SinkUnavailable, match="another sink has a transaction open"):
            sink.commit(step(1), {}, rows)
        with pytest.raises(SinkUnavailable, match="another sink has a transaction open"):
            opened(1, marker_topic=markers)
    other.abort_transaction(30)
    sink.commit(step(1), {}, rows)
    assert opened(None, marker_topic=markers).fence(holder(1), NOTHING).at == step(1).after
    assert ids(bootstrap, topic) == [1, 2]


def test_what_is_committed_can_not_be_taken_back_and_the_sink_says_so(opened: Opened, tmp_path: Path) -> None:
    sink = opened()
    target = put(sink, 0, stage(tmp_path, words(1)))
    assert "can't take back" in (sink.why_not_back(target) or "")
    with pytest.raises(SinkUnfit, match="can't take back"):
        sink.roll_back(target)


def test_a_sink_that_was_not_fenced_writes_nothing(opened: Opened, tmp_path: Path) -> None:
    with pytest.raises(SinkUnfit, match="not fenced"):
        opened(None).commit(step(0), {}, stage(tmp_path, words(1)))


def test_options_that_the_promises_stand_on_are_refused(topic: str) -> None:
    with pytest.raises(BadValue, match=r"transactional\.id"):
        Kafka("127.0.0.1:1", topic, options={"transactional.id": "mine"})
    with pytest.raises(BadValue, match="no number"):
        Kafka("127.0.0.1:1", topic, options={"transaction.timeout.ms": "5 minutes"})
    with pytest.raises(BadValue, match="share a topic"):
        Kafka("127.0.0.1:1", topic, marker_topic=topic)


def test_a_longer_transaction_than_the_brokers_take_is_refused(opened: Opened) -> None:
    with pytest.raises(BadValue, match="larger than the maximum"):
        opened(options={"transaction.timeout.ms": 3_600_000})


def test_an_option_that_there_is_not_is_told(opened: Opened) -> None:
    with pytest.raises(BadValue, match=r"No such configuration property: .sasl\.pass"):
        opened(options={"sasl.pass": "hunter2"})


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is waited for long."""
    monkeypatch.setattr(kafka_client, "PATIENCE_SECONDS", 2.0)


@pytest.mark.usefixtures("soon")
def test_a_cluster_that_can_not_be_reached_is_told(topic: str) -> None:
    sink = Kafka("127.0.0.1:1", topic)
    with pytest.raises(SinkUnavailable, match=r"127\.0\.0\.1:1"):
        sink.look()
    with pytest.raises(SinkUnavailable, match=r"127\.0\.0\.1:1"):
        sink.fence(holder(0), NOTHING)
    sink.close()


def test_a_sink_that_may_get_rows_twice_stands_at_an_earlier_epoch_and_keeps_what_it_has(
    opened: Opened, bootstrap: str, topic: str, tmp_path: Path
) -> None:
    sink = opened()
    rows = [stage(tmp_path, words(epoch)) for epoch in range(3)]
    targets = [put(sink, epoch, each) for epoch, each in enumerate(rows)]
    other = opened(1)
    with pytest.raises(Fenced):
        sink.stand_at(targets[0])
    other.stand_at(targets[0])
    other.stand_at(targets[0])
    assert other.look() == Marker(holder(1), targets[0].at, 0)
    put(other, 1, rows[1])
    found = [json.loads(record.value())["id"] for record in records(bootstrap, topic)]
    assert sorted(found) == [0, 1, 1, 2]
