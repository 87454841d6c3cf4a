"""Records in a Kafka topic, one transaction for each epoch."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException

from holdfast.decide.chain import NOTHING, Holder, Link, Marker, Step, admit, go_back, raise_fence
from holdfast.errors import BadValue, DamagedRecord, SinkUnavailable, SinkUnfit
from holdfast.sinks.contract import Sink, Target
from holdfast.sinks.kafka_client import Cluster, ProducerLost, Topic, Transactions
from holdfast.sinks.kafka_records import ANY_PARTITION, JSON, Record, Shape
from holdfast.sinks.staged import StagedRows

__all__ = ["Kafka"]

ATTEMPTS = 5
"""How often a producer is made anew in one call."""

LOOK_SECONDS = 2.0
"""How long one who only looks waits for what is just being committed."""

DAY_MS = 24 * 3600 * 1000
TIMEOUT_MS = 5 * 60 * 1000
"""Of a transaction, unless the options say another; the brokers have a longest one of their own."""

# What the promises of the sink stand on.
_OURS = {
    "acks",
    "bootstrap.servers",
    "enable.auto.commit",
    "enable.idempotence",
    "error_cb",
    "group.id",
    "isolation.level",
    "message.max.bytes",
    "on_delivery",
    "transactional.id",
}
_SECRET = ("password", "secret", "pem", "oauthbearer.config", "token")


class _Noted(Marker, frozen=True):
    """A marker as its record holds it: also of which topic it speaks, since one that is made anew has the same name."""

    topic_id: str = ""


class Kafka(Sink):
    """Records in a topic that is there; who reads with isolation.level=read_committed sees each row exactly once.

    A row is one record. Its value is the row as a JSON object, or with `value="column"` what that column holds, a
    string or binary (null deletes, in a compacted topic). `key`, `headers` and `partition` name columns as well: a key
    that is no string or binary is written as JSON; headers are a map, or Spark's array of key and value. The JSON has
    every column but those of the headers and the partition; NaN and the infinities are null in it. Rows made for
    Spark's own Kafka sink are written by `key="key", value="value", headers="headers"`, and a key goes where it went.

    An epoch is one transaction of one producer, together with a marker in a compacted topic of its own
    (`TOPIC.holdfast`, made if it is not there). While it is written, read_committed readers see nothing new in the
    topic; one that takes longer than `transaction.timeout.ms` (5 minutes, unless the `options` say another) is undone.
    What is committed can't be taken back. A topic that was deleted and made anew has no marker, whatever its records
    in the other topic say: it is not gone on with as if its rows were still there.

    `options` are those of librdkafka, such as security.protocol, sasl.password, compression.type. The rights that it
    needs are Write and DescribeConfigs for the topic, the same with Read (and Create) for the marker's topic, and Write
    for the transactional id `MARKER_TOPIC:TOPIC`.
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        *,
        key: str | None = None,
        value: str = JSON,
        headers: str | None = None,
        partition: str | None = None,
        marker_topic: str | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__("append", ())
        self.bootstrap = bootstrap
        self.topic = topic
        self.marker_topic = marker_topic or f"{topic}.holdfast"
        self._shape = Shape(key, value, headers, partition)
        self._options = dict(options or {})
        if taken := sorted(_OURS & self._options.keys()):
            raise BadValue("options of a Kafka sink", f"{', '.join(taken)} is set by the sink itself")
        timeout = self._options.get("transaction.timeout.ms", TIMEOUT_MS)
        if not str(timeout).isdecimal():
            raise BadValue("options of a Kafka sink", f"transaction.timeout.ms is {timeout!r}, no number")
        self._timeout_ms = int(timeout)
        if self.marker_topic == topic:
            raise BadValue("marker_topic of a Kafka sink", "the rows and the marker can't share a topic")
        self._cluster = Cluster({**self._options, "bootstrap.servers": bootstrap})
        self._producer: Transactions | None = None
        self._marker: Marker | None = None
        self._topic_id = ""

    @property
    def target(self) -> str:
        return f"kafka:{self.bootstrap}/{self.topic}"

    def look(self) -> Marker | None:
        with self._asking("looking at the marker"):
            return self._seen(LOOK_SECONDS)

    def fence(self, holder: Holder, begin: Link) -> Marker:
        with self._asking("fencing"):
            self._require_marker_topic()
        raised = self._transact("fencing", holder, lambda marker: raise_fence(self.name, marker, holder, begin), None)
        assert raised is not None
        self._holder = holder
        return raised

    def check(self, schema: pa.Schema) -> None:
        self._checked(schema)

    def prepare(self, step: Step, rows: StagedRows) -> Any:
        """Look at every row as a record: Kafka can't prepare a transaction that another process commits."""
        topic, markers = self._checked(rows.schema)
        for record in self._records(rows):
            if record.size_bytes > topic.max_bytes:
                why = f"a record of {record.size_bytes} bytes; the topic takes {topic.max_bytes} (max.message.bytes)"
                raise SinkUnfit(self.name, f"a row makes {why}")
            if not ANY_PARTITION <= record.partition < topic.partitions:
                raise SinkUnfit(self.name, f"a row is for partition {record.partition} of {topic.partitions}")
        marker = self._marker_record(Marker(self._mine(), step.after, step.decided))
        if markers is not None and marker.size_bytes > markers.max_bytes:
            raise SinkUnfit(
                self.name, f"its marker has {marker.size_bytes} bytes; raise max.message.bytes of {self.marker_topic}"
            )
        return {}

    def commit(self, step: Step, token: Any, rows: StagedRows) -> Any:  # noqa: ARG002 - the rows are all there is
        holder = self._mine()
        self._transact("committing", holder, lambda marker: admit(self.name, marker, holder, step), rows)
        return {"epoch": step.epoch}

    def abort(self, token: Any) -> None:
        """There is nothing to take away."""

    def stand_at(self, target: Target) -> None:
        holder = self._mine()
        self._transact(
            "standing back", holder, lambda marker: go_back(self.name, marker, holder, target.at, target.decided), None
        )

    def close(self) -> None:
        self._drop()
        self._cluster.close()

    def _checked(self, schema: pa.Schema) -> tuple[Topic, Topic | None]:
        if why := self._shape.why_not(schema):
            raise SinkUnfit(self.name, why)
        with self._asking("looking at the topic"):
            topic, markers = self._require_topic(), self._cluster.topic(self.marker_topic)
        self._require_compact(markers)
        return topic, markers

    # ---- transactions ----

    def _transact(
        self, action: str, holder: Holder, decide: Callable[[Marker | None], Marker | None], rows: StagedRows | None
    ) -> Marker | None:
        """Write the rows, and the marker that `decide` makes of the one that is there, in one transaction.

        From the making of a producer on no other writes the marker without shutting this one out; so what was read once
        holds for as long as the producer does. If Kafka gives it up that says little: a transaction that took too long
        looks the same as a take-over. What decides is the marker.
        """
        for attempt in range(ATTEMPTS):
            if self._producer is None:
                time.sleep(random.uniform(0, 0.1) * attempt)
                with self._asking(action):
                    # What can be seen may be old, but one who is refused by it must not shut out the one at work.
                    raise_fence(self.name, self._seen(0), holder, NOTHING)
                    self._open()
            assert self._producer is not None
            after = decide(self._marker)
            if after is None:
                return None
            try:
                with self._asking(action):
                    self._producer.write(self._written(rows, after))
            except ProducerLost as lost:
                why = str(lost)
                self._drop()
            except BaseException:
                self._drop()
                raise
            else:
                self._marker = after
                return after
        raise SinkUnavailable(self.name, action, why)

    def _open(self) -> None:
        """Make a producer, then read the marker: what another was about to commit is committed by then, or never."""
        topic = self._require_topic()
        limit = min(topic.max_bytes, 1_000_000_000)
        conf = {
            # As Java does it: a key must not move when Spark's own sink is replaced by this one.
            "partitioner": "murmur2_random",
            "queue.buffering.max.kbytes": 64 << 10,
            **self._options,
            "bootstrap.servers": self.bootstrap,
            "enable.idempotence": True,
            "message.max.bytes": limit,
            "transaction.timeout.ms": self._timeout_ms,
            "transactional.id": f"{self.marker_topic}:{self.topic}",
        }
        producer = Transactions(conf, self._timeout_ms / 1000)
        try:
            if not self._cluster.settle(self.marker_topic):
                raise SinkUnavailable(
                    self.name, "reading the marker", "another sink has a transaction open in its topic"
                )
            self._marker = self._read_marker(topic)
        except BaseException:
            producer.close()
            raise
        self._producer, self._topic_id = producer, topic.id

    def _drop(self) -> None:
        producer, self._producer, self._marker = self._producer, None, None
        if producer is not None:
            producer.close()

    def _written(self, rows: StagedRows | None, marker: Marker) -> Iterator[tuple[str, Record]]:
        for record in self._records(rows) if rows is not None else ():
            yield self.topic, record
        yield self.marker_topic, self._marker_record(marker)

    def _records(self, rows: StagedRows) -> Iterator[Record]:
        for batch in rows.batches():
            try:
                yield from self._shape.records(batch)
            except (ValueError, TypeError) as error:
                raise SinkUnfit(self.name, f"a row can't be written: {error}") from error

    # ---- the marker ----

    def _marker_record(self, marker: Marker) -> Record:
        noted = _Noted(marker.holder, marker.at, marker.decided, self._topic_id)
        return Record(self.topic.encode(), msgspec.json.encode(noted), partition=0)

    def _seen(self, seconds: float) -> Marker | None:
        """The marker as anybody sees it, who waits so long for what is just being committed."""
        if self._cluster.topic(self.marker_topic) is None:
            return None
        self._cluster.settle(self.marker_topic, seconds)
        return self._read_marker(self._cluster.topic(self.topic))

    def _read_marker(self, topic: Topic | None) -> Marker | None:
        found = self._cluster.last(self.marker_topic, self.topic.encode())
        if found is None:
            return None
        try:
            noted = msgspec.json.decode(found, type=_Noted)
        except msgspec.DecodeError as error:
            raise DamagedRecord(f"kafka:{self.bootstrap}/{self.marker_topic}", str(error)) from error
        if topic is not None and topic.id and noted.topic_id not in ("", topic.id):
            return None
        return Marker(noted.holder, noted.at, noted.decided)

    def _require_marker_topic(self) -> None:
        topic, found = self._require_topic(), self._cluster.topic(self.marker_topic)
        self._require_compact(found)
        if found is None:
            durable = {"min.insync.replicas": topic.config["min.insync.replicas"]}
            config = {"cleanup.policy": "compact", "segment.ms": str(DAY_MS), **durable}
            self._cluster.make_topic(self.marker_topic, topic.replicas, config)

    def _require_compact(self, found: Topic | None) -> None:
        if found is not None and found.config["cleanup.policy"] != "compact":
            policy = found.config["cleanup.policy"]
            why = f"the topic {self.marker_topic} has cleanup.policy={policy}, so that the marker would be deleted"
            raise SinkUnfit(self.name, f"{why}; set it to compact")

    def _require_topic(self) -> Topic:
        found = self._cluster.topic(self.topic)
        if found is not None and not found.may_write:
            raise SinkUnfit(self.name, f"it has no right to write to the topic {self.topic}")
        if found is None:
            raise SinkUnfit(
                self.name, f"there is no topic {self.topic}; make it with the partitions that it is to have"
            )
        return found

    @contextmanager
    def _asking(self, action: str) -> Iterator[None]:
        """Our own names for what goes wrong, without any secret."""
        try:
            yield
        except KafkaException as error:
            code, why = error.args[0].code(), self._masked(self._cluster.why(error))
            if code in (KafkaError._INVALID_ARG, KafkaError.INVALID_TRANSACTION_TIMEOUT):
                raise BadValue("options of a Kafka sink", why) from None
            raise SinkUnavailable(self.name, action, why) from None

    def _masked(self, text: str) -> str:
        secrets = [v for k, v in self._options.items() if isinstance(v, str) and any(part in k for part in _SECRET)]
        for secret in filter(None, secrets):
            text = text.replace(secret, "***")
        return text
