"""A Kafka cluster as its sink needs it: what a topic is like, the last record of a key, and transactions."""

from __future__ import annotations

import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (  # type: ignore[attr-defined] # they are exported, without a word of it
    AclOperation,
    AdminClient,
    ConfigResource,
    NewTopic,
    OffsetSpec,
)

from holdfast.sinks.kafka_records import Record

__all__ = ["Cluster", "ProducerLost", "Topic", "Transactions"]

PATIENCE_SECONDS = 60.0
"""How long a cluster that does not answer is waited for."""
ABORT_SECONDS = 10.0
"""How long a transaction that failed may take to be ended well; the next producer ends it anyhow."""
TAIL = 1_024
"""How many of the last records are read at first, to find the last of a key."""

NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""What brokers say that know no ids of topics."""

LOG = logging.getLogger("holdfast.sinks.kafka")
LOG.addHandler(logging.NullHandler())

_LATE = (KafkaError._TIMED_OUT, KafkaError._MSG_TIMED_OUT)
# A topic that was just made is not known to every broker yet, and one that has lost its leader gets another.
_PASSING = (
    KafkaError.FENCED_LEADER_EPOCH,
    KafkaError.KAFKA_STORAGE_ERROR,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.NETWORK_EXCEPTION,
    KafkaError.NOT_LEADER_FOR_PARTITION,
    KafkaError.OFFSET_NOT_AVAILABLE,
    KafkaError.REPLICA_NOT_AVAILABLE,
    KafkaError.UNKNOWN_LEADER_EPOCH,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._NOENT,
    KafkaError._TRANSPORT,
)


class Topic(NamedTuple):
    """A topic that is there."""

    partitions: int
    replicas: int
    config: dict[str, str]
    may_write: bool
    id: str
    """Another one for each topic of the name that ever was; "" from brokers that know none."""

    @property
    def max_bytes(self) -> int:
        """The largest record that it takes."""
        return int(self.config["max.message.bytes"])


class ProducerLost(Exception):
    """Kafka gave a transaction up: another producer has come, or this one must begin anew. What landed tells which."""


class Cluster:
    """A cluster that is looked at. Everything here raises KafkaException, and may be called from any thread."""

    def __init__(self, conf: Mapping[str, Any]) -> None:
        self._heard = heard = deque[str](maxlen=1)
        self._conf = {**conf, "error_cb": lambda error: heard.append(error.str())}

    @cached_property
    def _admin(self) -> AdminClient:
        return AdminClient(self._conf, logger=LOG)

    def close(self) -> None:
        """Let go of the connections; they are made again when they are needed."""
        self.__dict__.pop("_admin", None)

    def why(self, error: KafkaException) -> str:
        """What went wrong, and what the brokers said last if they did not answer."""
        text = _error(error).str()
        if _code(error) not in (*_LATE, *_PASSING):
            return text
        self._admin.poll(0)
        return f"{text} ({self._heard[-1]})" if self._heard else text

    def topic(self, name: str) -> Topic | None:
        """What a topic is like; None if there is none. Never makes one, whatever the brokers make by themselves."""
        described = self._admin.describe_topics(
            TopicCollection([name]), include_authorized_operations=True, request_timeout=PATIENCE_SECONDS
        )
        try:
            found = described[name].result()
        except KafkaException as error:
            if _code(error) == KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise
        resource = ConfigResource(ConfigResource.Type.TOPIC, name)
        config = self._admin.describe_configs([resource], request_timeout=PATIENCE_SECONDS)[resource].result()
        replicas = min(len(partition.replicas) for partition in found.partitions)
        rights = found.authorized_operations
        may_write = not rights or AclOperation.WRITE in rights
        settings = {key: entry.value for key, entry in config.items()}
        # As Kafka's own tools write it; this client has the other alphabet of base64.
        topic_id = str(found.topic_id).translate(str.maketrans("+/", "-_"))
        return Topic(len(found.partitions), replicas, settings, may_write, "" if topic_id == NO_ID else topic_id)

    def make_topic(self, name: str, replicas: int, config: dict[str, str]) -> None:
        """Make a topic of one partition; one that is there, or that another makes at the same time, stays as it is."""
        topic = NewTopic(name, 1, replicas, config=config)
        try:
            self._admin.create_topics([topic], request_timeout=PATIENCE_SECONDS)[name].result()
        except KafkaException as error:
            if _code(error) != KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def settle(self, topic: str, seconds: float | None = None) -> bool:
        """Wait until no transaction is open in a topic of one partition; gives whether that came to be.

        What is open hides all after it, and a commit is answered before it is shut everywhere.
        """
        patience = _Patience(PATIENCE_SECONDS if seconds is None else seconds)
        written = self._end(topic, IsolationLevel.READ_UNCOMMITTED)
        while self._end(topic, IsolationLevel.READ_COMMITTED) < written:
            if not patience.wait():
                return False
        return True

    def last(self, topic: str, key: bytes) -> bytes | None:
        """The last record of a key that can be seen in a topic of one partition."""
        end = self._end(topic, IsolationLevel.READ_COMMITTED)
        if end == 0:
            return None
        consumer = Consumer(
            {
                **self._conf,
                "group.id": topic,
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "earliest",
                # The end is told by an answer without records, which a broker holds back for so long.
                "fetch.wait.max.ms": 10,
                "isolation.level": "read_committed",
            },
            logger=LOG,
        )
        try:
            reach, begin = TAIL, end
            while begin > 0:
                begin = max(0, end - reach)
                found = _scan(consumer, TopicPartition(topic, 0, begin), end, key)
                if found is not None:
                    return found.value()
                reach *= 16
            return None
        finally:
            consumer.close()

    def _end(self, topic: str, level: IsolationLevel) -> int:
        partition, patience = TopicPartition(topic, 0), _Patience(PATIENCE_SECONDS)
        asked = {partition: OffsetSpec.latest()}  # type: ignore[no-untyped-call]
        while True:
            offsets = self._admin.list_offsets(asked, isolation_level=level, request_timeout=PATIENCE_SECONDS)
            try:
                return int(offsets[partition].result().offset)
            except KafkaException as error:
                if _code(error) not in _PASSING or not patience.wait():
                    raise
                # A client remembers for long what it once heard of a topic; another one asks anew.
                self.close()


class Transactions:
    """A producer under a transactional id, for one thread. Once it is made, all before it under that id are shut out.

    What they had open is undone, and what they had begun to commit is committed. A transaction that fails costs the
    producer: close it, and look what landed before another is made.
    """

    def __init__(self, conf: Mapping[str, Any], seconds: float) -> None:
        self._seconds = seconds
        self._failed: list[KafkaError] = []
        self._producer: Producer | None = Producer(
            {**conf, "on_delivery": self._note, "delivery.report.only.error": True}, logger=LOG
        )
        try:
            _retried(self._producer.init_transactions, time.monotonic() + PATIENCE_SECONDS)
        except BaseException:
            self._producer = None
            raise

    def write(self, records: Iterable[tuple[str, Record]]) -> None:
        """Write records to their topics, all or none. Raises ProducerLost, and KafkaException if nothing is known."""
        producer, deadline = self._producer, time.monotonic() + self._seconds
        assert producer is not None
        try:
            producer.begin_transaction()
            for topic, (key, value, partition, headers) in records:
                while True:
                    try:
                        producer.produce(topic, value, key, partition, headers=headers)
                        break
                    except BufferError:
                        producer.poll(0.1)
                        self._require_time(deadline)
            _retried(producer.commit_transaction, deadline)
        except KafkaException as failed:
            self._require_time(deadline)
            error = _error(failed)
            cause = self._cause(producer, error)
            gone = cause.fatal() or cause.txn_requires_abort() or cause is not error
            if gone and cause.code() not in _LATE:
                raise ProducerLost(cause.str()) from failed
            raise KafkaException(cause) from failed

    def close(self) -> None:
        """Let go of the producer, and of what it had open: those who read what is committed wait for that."""
        producer, self._producer = self._producer, None
        if producer is not None:
            with contextlib.suppress(KafkaException):
                producer.abort_transaction(ABORT_SECONDS)

    def _note(self, error: KafkaError | None, _: Message[Any, Any]) -> None:
        if error is not None:
            self._failed.append(error)

    def _require_time(self, deadline: float) -> None:
        if time.monotonic() >= deadline:
            limit = f"transaction.timeout.ms={self._seconds * 1000:.0f}, which can be raised"
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT, f"the transaction took longer than {limit}"))

    def _cause(self, producer: Producer, error: KafkaError) -> KafkaError:
        """What went wrong first; a call may say no more than that something did."""
        try:
            if error.code() == KafkaError._STATE:
                producer.poll(0)
            elif error.code() == KafkaError._FATAL:
                producer.begin_transaction()
        except KafkaException as told:
            return _error(told)
        return self._failed[0] if self._failed and error.code() == KafkaError._STATE else error


class _Patience:
    """Waits that grow, and end."""

    def __init__(self, seconds: float) -> None:
        self._deadline = time.monotonic() + seconds
        self._pause = 0.01

    def wait(self) -> bool:
        """Whether there was time to wait once more."""
        if time.monotonic() >= self._deadline:
            return False
        time.sleep(self._pause)
        self._pause = min(1.0, self._pause * 2)
        return True


def _scan(consumer: Consumer, begin: TopicPartition, end: int, key: bytes) -> Message[Any, Any] | None:
    """The last record of a key from a place on, up to where the partition ended."""
    found: Message[Any, Any] | None = None
    deadline = time.monotonic() + PATIENCE_SECONDS
    consumer.assign([begin])
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        error, offset = message.error(), message.offset() or 0
        if error is None and offset < end:
            deadline = time.monotonic() + PATIENCE_SECONDS
            found = message if message.key() == key else found
        elif error is None or (error.code() == KafkaError._PARTITION_EOF and offset >= end):
            return found
        elif error.code() not in (KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED, *_PASSING):
            # A consumer asks for its group even when it has no use for one.
            raise KafkaException(error)
    raise KafkaException(KafkaError(KafkaError._TIMED_OUT, "its records could not be read"))


def _retried(call: Callable[[float], None], deadline: float) -> None:
    """A call that may be made again after it took too long, for as long as there is time."""
    while True:
        try:
            return call(max(1.0, deadline - time.monotonic()))
        except KafkaException as error:
            if not _error(error).retriable() or time.monotonic() >= deadline:
                raise


def _error(exception: KafkaException) -> KafkaError:
    error = exception.args[0]
    assert isinstance(error, KafkaError)
    return error


def _code(exception: KafkaException) -> int:
    return _error(exception).code()
