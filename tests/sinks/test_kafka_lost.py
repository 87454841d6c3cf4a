"""Drivers and brokers that are killed, paused and started again: a Kafka sink has each row once."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyarrow as pa
import pytest
from confluent_kafka import IsolationLevel, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from holdfast.decide.chain import NOTHING
from holdfast.errors import SinkUnavailable
from holdfast.sinks import kafka_client
from holdfast.sinks.kafka import Kafka
from holdfast.sinks.staged import StagedRows
from holdfast.testing.sinks import holder, stage, step, words
from servers import KafkaBroker, KafkaServer, kafka
from sinks.kafka_topics import ends, make_topic, records
from sinks.killing import kill_at_each_step, kill_at_random, overtake_at_each_step
from sinks.table_driver import truth

SLEEPER = Path(__file__).with_name("kafka_sleeper.py")
UNCOMMITTED = IsolationLevel.READ_UNCOMMITTED


def rows_in(bootstrap: str, topic: str) -> list[tuple[int, str]]:
    found = [json.loads(record.value()) for record in records(bootstrap, topic)]
    return sorted((row["id"], row["word"]) for row in found)


@contextmanager
def sleeper(bootstrap: str, topic: str, folder: Path, where: str) -> Iterator[subprocess.Popen[str]]:
    """A driver that has stopped itself somewhere."""
    command = [sys.executable, str(SLEEPER), bootstrap, topic, str(folder), where]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            yield process
        finally:
            process.kill()


def wake(process: subprocess.Popen[str]) -> list[str]:
    """What came of its attempts."""
    process.send_signal(signal.SIGCONT)
    output, _ = process.communicate(timeout=120)
    return output.split("\n")[:-1]


# ---- drivers ----


@pytest.mark.parametrize("where", ["prepared", "produced"])
def test_one_that_is_paused_and_wakes_after_a_take_over_commits_nothing(
    kafka_server: KafkaServer, tmp_path: Path, where: str
) -> None:
    bootstrap = kafka_server.bootstrap
    topic = make_topic(bootstrap)
    with sleeper(bootstrap, topic, tmp_path, where) as zombie:
        taker = Kafka(bootstrap, topic)
        assert taker.fence(holder(1), NOTHING).at == NOTHING
        rows = stage(tmp_path, words(1))
        taker.commit(step(0, 1), taker.prepare(step(0, 1), rows), rows)
        assert wake(zombie) == ["Fenced", "Fenced"]
    rows = stage(tmp_path, words(2))
    taker.commit(step(1, 1), taker.prepare(step(1, 1), rows), rows)
    taker.close()
    assert rows_in(bootstrap, topic) == [(1, "w1"), (2, "w2")]


def test_one_that_is_paused_in_its_fence_and_wakes_after_a_take_over_has_taken_nothing(
    kafka_server: KafkaServer, tmp_path: Path
) -> None:
    bootstrap = kafka_server.bootstrap
    topic = make_topic(bootstrap)
    with sleeper(bootstrap, topic, tmp_path, "fence") as zombie:
        taker = Kafka(bootstrap, topic)
        taker.fence(holder(1), NOTHING)
        assert wake(zombie) == ["Fenced", "Fenced"]
    rows = stage(tmp_path, words(1))
    taker.commit(step(0, 1), taker.prepare(step(0, 1), rows), rows)
    taker.close()
    assert rows_in(bootstrap, topic) == [(1, "w1")]


def test_one_that_is_paused_and_wakes_before_anybody_came_goes_on(kafka_server: KafkaServer, tmp_path: Path) -> None:
    topic = make_topic(kafka_server.bootstrap)
    with sleeper(kafka_server.bootstrap, topic, tmp_path, "produced") as process:
        assert wake(process) == ["went through", "went through"]
    assert rows_in(kafka_server.bootstrap, topic) == [(7, "w7"), (8, "w8"), (9, "w9")]


def test_what_one_had_open_when_it_was_killed_is_undone_by_the_next_fence_and_holds_no_reader_back(
    kafka_server: KafkaServer, tmp_path: Path
) -> None:
    bootstrap = kafka_server.bootstrap
    topic = make_topic(bootstrap)
    with sleeper(bootstrap, topic, tmp_path, "produced") as process:
        process.kill()
    other = Producer({"bootstrap.servers": bootstrap})
    for partition in range(2):
        other.produce(topic, b'{"id": 0, "word": "other"}', partition=partition)
    other.flush(30)
    written = ends(bootstrap, topic, UNCOMMITTED)
    assert sum(written) == 5
    assert sum(ends(bootstrap, topic)) < 5
    taker = Kafka(bootstrap, topic)
    assert taker.fence(holder(1), NOTHING).at == NOTHING
    assert ends(bootstrap, topic) == ends(bootstrap, topic, UNCOMMITTED)
    assert rows_in(bootstrap, topic) == [(0, "other")] * 2
    taker.close()


@pytest.fixture
def spec(kafka_server: KafkaServer) -> dict[str, str]:
    return {"kind": "kafka", "bootstrap": kafka_server.bootstrap, "topic": make_topic(kafka_server.bootstrap)}


def test_a_driver_that_is_killed_at_each_step_loses_and_doubles_nothing(spec: dict[str, str], tmp_path: Path) -> None:
    kill_at_each_step(spec, tmp_path)
    assert rows_in(spec["bootstrap"], spec["topic"]) == truth(5, "append")


def test_drivers_that_are_killed_at_random_lose_and_double_nothing(spec: dict[str, str], tmp_path: Path) -> None:
    kill_at_random(spec, tmp_path, seed=5, epochs=60)
    assert rows_in(spec["bootstrap"], spec["topic"]) == truth(60, "append")


def test_a_driver_that_wakes_after_it_was_overtaken_commits_nothing(spec: dict[str, str], tmp_path: Path) -> None:
    overtake_at_each_step(spec, tmp_path)
    assert rows_in(spec["bootstrap"], spec["topic"]) == truth(6, "append")


# ---- brokers ----


def test_a_broker_that_is_started_again_between_prepare_and_commit_takes_the_epoch_once(tmp_path: Path) -> None:
    broker = KafkaBroker(tmp_path / "kafka")
    with broker.running() as server:
        topic = make_topic(server.bootstrap)
        sink = Kafka(server.bootstrap, topic)
        sink.fence(holder(0), NOTHING)
        rows = stage(tmp_path, words(1, 2, 3))
        token = sink.prepare(step(0), rows)
    with broker.running() as server:
        sink.commit(step(0), token, rows)
        sink.commit(step(0), token, rows)
        assert rows_in(server.bootstrap, topic) == [(1, "w1"), (2, "w2"), (3, "w3")]
        sink.close()


def until_it_works(bootstrap: str) -> None:
    """A broker that stood still has lost its place, and comes back to it by and by."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        with suppress(KafkaException):
            make_topic(bootstrap)
            return
    raise AssertionError("the broker did not come back")


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A broker to be paused; it looks often for what can be compacted, and for what took too long."""
    often = "log.cleaner.backoff.ms=200\ntransaction.abort.timed.out.transaction.cleanup.interval.ms=200\n"
    with kafka(tmp_path_factory.mktemp("own-kafka"), often) as server:
        yield server


def test_a_commit_whose_answer_did_not_come_is_found_out_by_the_next(
    own: KafkaServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker stands still for longer than it is waited for, and then does what it was asked for."""
    monkeypatch.setattr(kafka_client, "ABORT_SECONDS", 1.0)
    monkeypatch.setattr(kafka_client, "PATIENCE_SECONDS", 20.0)
    chance, freezes = random.Random(3), 1
    topic = make_topic(own.bootstrap)
    sink = Kafka(own.bootstrap, topic, options={"transaction.timeout.ms": 3_000})
    sink.fence(holder(0), NOTHING)
    rows = stage(tmp_path, words(1))
    token = sink.prepare(step(0), rows)
    epoch, told = 0, 0
    while told < freezes:
        freeze = threading.Timer(chance.uniform(0.2, 0.4), os.kill, (own.pid, signal.SIGSTOP))
        freeze.start()
        try:
            while told < freezes:
                sink.commit(step(epoch), token, rows)
                epoch += 1
        except SinkUnavailable:
            told += 1
        finally:
            freeze.join()
            os.kill(own.pid, signal.SIGCONT)
        until_it_works(own.bootstrap)
    sink.commit(step(epoch), token, rows)
    assert len(rows_in(own.bootstrap, topic)) == epoch + 1
    sink.close()


class Slow(StagedRows):
    """Rows that take longer to read than a transaction may."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in super().batches():
            yield batch
            time.sleep(2)


def test_an_epoch_that_takes_longer_than_a_transaction_may_is_undone_and_told(own: KafkaServer, tmp_path: Path) -> None:
    topic = make_topic(own.bootstrap)
    sink = Kafka(own.bootstrap, topic, options={"transaction.timeout.ms": 1_500})
    sink.fence(holder(0), NOTHING)
    rows = stage(tmp_path, words(1, 2))
    token = sink.prepare(step(0), rows)
    with pytest.raises(SinkUnavailable, match=r"longer than transaction\.timeout\.ms=1500"):
        sink.commit(step(0), token, Slow(rows.staged, rows.place))
    assert records(own.bootstrap, topic) == []
    sink.commit(step(0), token, rows)
    assert rows_in(own.bootstrap, topic) == [(1, "w1"), (2, "w2")]
    sink.close()


def test_the_marker_outlives_compaction(own: KafkaServer, tmp_path: Path) -> None:
    topic = make_topic(own.bootstrap)
    sink = Kafka(own.bootstrap, topic)
    sink.fence(holder(0), NOTHING)
    admin = AdminClient({"bootstrap.servers": own.bootstrap})
    soon = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "delete.retention.ms": "0"}
    entries = [ConfigEntry(n, v, incremental_operation=AlterConfigOpType.SET) for n, v in soon.items()]
    resource = ConfigResource(ConfigResource.Type.TOPIC, sink.marker_topic, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(30)
    epoch = 0
    while epoch < 10 or len(records(own.bootstrap, sink.marker_topic)) > epoch - 5:
        rows = stage(tmp_path, words(epoch))
        sink.commit(step(epoch), sink.prepare(step(epoch), rows), rows)
        time.sleep(0.15)
        epoch += 1
    sink.close()
    taker = Kafka(own.bootstrap, topic)
    marker = taker.fence(holder(1), NOTHING)
    assert marker.at == step(epoch - 1).after
    rows = stage(tmp_path, words(epoch))
    taker.commit(step(epoch, 1), taker.prepare(step(epoch, 1), rows), rows)
    assert [number for number, _ in rows_in(own.bootstrap, topic)] == [*range(epoch + 1)]
    taker.close()
