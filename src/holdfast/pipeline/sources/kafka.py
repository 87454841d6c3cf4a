"""Kafka topics that a query reads, asked through the very client, and with the very options, that Spark uses."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from holdfast.decide.replayable import (
    KafkaFacts,
    Offsets,
    SourceFinding,
    TopicFacts,
    Until,
    judge_kafka,
    kept_until,
    unknown,
)
from holdfast.pipeline.sources.contract import Past, Source
from holdfast.pipeline.sources.relations import Jvm

__all__ = ["KafkaSource"]

PREFIX = "kafka."
TOPIC_ID = "topic-id:"
PATIENCE_MS = 20_000
"""How long brokers that do not answer are waited for."""
NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""What brokers say that know no ids."""
SECRET = re.compile(r"password|secret|jaas|token|key", re.IGNORECASE)
BYTES = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


class KafkaSource(Source):
    """The topics of one Kafka source. What Spark itself could not reach, or the brokers do not tell, is not known.

    One object is one look: what the brokers said of a topic is not asked again.
    """

    def __init__(self, name: str, options: Mapping[str, str], jvm: Jvm) -> None:
        super().__init__(name)
        self._jvm = jvm
        self._conf = {key[len(PREFIX) :]: value for key, value in options.items() if key.lower().startswith(PREFIX)}
        plain = {key.lower(): value for key, value in options.items()}
        self._topics: dict[str, TopicFacts | None] = {}
        self._fails_on_loss = plain.get("failondataloss", "true").lower() != "false"

    def judge(self, past: Past) -> list[SourceFinding]:
        begin = _offsets(past.begin)
        ids = {name[len(TOPIC_ID) :]: value for name, value in past.identity.items() if name.startswith(TOPIC_ID)}
        try:
            facts = self._facts(begin)
        except Py4JError as error:
            return [unknown(self.name, self._said(error))]
        return judge_kafka(self.name, begin, _offsets(past.furthest), ids, facts)

    def until(self, past: Past) -> Until:
        begin = _offsets(past.begin)
        try:
            facts = self._facts(begin)
            times = self._times(begin, facts)
        except Py4JError as error:
            return Until(why=self._said(error))
        return kept_until(begin, KafkaFacts(facts.topics, facts.fails_on_loss, times))

    def identity(self, offsets: Mapping[str, str], known: Mapping[str, str]) -> Mapping[str, str]:
        """The ids of the topics, each asked for once in a run: one that is made anew meanwhile must not pass for it."""
        new = {topic: at for topic, at in _offsets(offsets).items() if f"{TOPIC_ID}{topic}" not in known}
        try:
            found = self._facts(new).topics if new else {}
        except Py4JError:
            return known
        ids = {f"{TOPIC_ID}{name}": topic.id for name, topic in found.items() if topic is not None and topic.id}
        return {**known, **ids}

    # ---- asking ----

    def _facts(self, wanted: Offsets) -> KafkaFacts:
        new = wanted.keys() - self._topics.keys()
        if new:
            with self._admin() as admin:
                self._topics |= {name: self._topic(admin, name) for name in new}
        return KafkaFacts({name: self._topics[name] for name in wanted}, self._fails_on_loss)

    def _topic(self, admin: Any, name: str) -> TopicFacts | None:
        kafka = self._jvm.classes.org.apache.kafka
        described = admin.describeTopics(self._list([name])).topicNameValues().get(name)
        try:
            topic = described.get()
        except Py4JError as error:
            if "UnknownTopicOrPartitionException" in str(error):
                return None
            raise
        partitions = [kafka.common.TopicPartition(name, info.partition()) for info in topic.partitions()]
        spec = kafka.clients.admin.OffsetSpec
        first, end = (self._ends(admin, partitions, place) for place in (spec.earliest(), spec.latest()))
        topic_id = str(topic.topicId())
        config = self._config(admin, name)
        policy = config["cleanup.policy"]
        return TopicFacts(
            id="" if topic_id == NO_ID else topic_id,
            first=first,
            end=end,
            retention_ms=_limit(config["retention.ms"]) if "delete" in policy else None,
            retention_bytes=_limit(config["retention.bytes"]) if "delete" in policy else None,
            is_compacted="compact" in policy,
        )

    def _ends(self, admin: Any, partitions: list[Any], place: Any) -> dict[int, int]:
        asked = self._jvm.classes.java.util.HashMap()
        for partition in partitions:
            asked.put(partition, place)
        answers = admin.listOffsets(asked)
        return {int(each.partition()): int(answers.partitionResult(each).get().offset()) for each in partitions}

    def _config(self, admin: Any, topic: str) -> dict[str, str]:
        config = self._jvm.classes.org.apache.kafka.common.config
        resource = config.ConfigResource(config.ConfigResource.Type.TOPIC, topic)
        entries = admin.describeConfigs(self._list([resource])).all().get().get(resource)
        names = ("cleanup.policy", "retention.ms", "retention.bytes")
        return {name: str(entries.get(name).value()) for name in names}

    def _times(self, begin: Offsets, facts: KafkaFacts) -> dict[tuple[str, int], int]:
        """When the first record that would be read of each partition was written; none where none is waiting."""
        kafka, waiting = self._jvm.classes.org.apache.kafka, {}
        for name, partitions in begin.items():
            now = facts.topics.get(name)
            for partition, offset in partitions.items() if now else ():
                assert now is not None
                start = max(offset, now.first.get(partition, 0))
                if start < now.end.get(partition, 0):
                    waiting[name, partition] = kafka.common.TopicPartition(name, partition), start
        if not waiting:
            return {}
        found: dict[tuple[str, int], int] = {}
        with self._consumer() as consumer:
            for at, (partition, start) in waiting.items():
                consumer.assign(self._list([partition]))
                consumer.seek(partition, start)
                records = consumer.poll(self._jvm.classes.java.time.Duration.ofMillis(PATIENCE_MS)).records(partition)
                if not records.isEmpty():
                    found[at] = int(records.get(0).timestamp())
        return found

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        limits = {"request.timeout.ms": str(PATIENCE_MS), "default.api.timeout.ms": str(PATIENCE_MS)}
        client = self._jvm.classes.org.apache.kafka.clients.admin.AdminClient.create(
            self._map({**limits, **self._conf})
        )
        try:
            yield client
        finally:
            client.close()

    @contextmanager
    def _consumer(self) -> Iterator[Any]:
        # One record is all that is wanted, and no group is to see that somebody looked.
        ours = {"key.deserializer": BYTES, "value.deserializer": BYTES, "enable.auto.commit": "false"}
        ours |= {"max.poll.records": "1", "auto.offset.reset": "none"}
        conf = {**{name: value for name, value in self._conf.items() if name != "group.id"}, **ours}
        client = self._jvm.classes.org.apache.kafka.clients.consumer.KafkaConsumer(self._map(conf))
        try:
            yield client
        finally:
            client.close()

    def _said(self, error: Py4JError) -> str:
        """What Java said, without its trace and without any secret."""
        thrown = getattr(error, "java_exception", None)
        said = next(iter(str(thrown.toString() if thrown is not None else error).splitlines()), "nothing")
        secrets = [value for name, value in self._conf.items() if SECRET.search(name) and value]
        for secret in secrets:
            said = said.replace(secret, "***")
        return said

    def _map(self, values: Mapping[str, str]) -> Any:
        made = self._jvm.classes.java.util.HashMap()
        for name, value in values.items():
            made.put(name, value)
        return made

    def _list(self, values: list[Any]) -> Any:
        made = self._jvm.classes.java.util.ArrayList()
        for value in values:
            made.add(value)
        return made


def _offsets(flat: Mapping[str, str]) -> dict[str, dict[int, int]]:
    """Offsets by topic and partition, from how manifests have them: {"orders:0": "75"}."""
    found: dict[str, dict[int, int]] = {}
    for place, offset in flat.items():
        topic, _, partition = place.rpartition(":")
        if topic and partition.isdecimal() and offset.isdecimal():
            found.setdefault(topic, {})[int(partition)] = int(offset)
    return found


def _limit(value: str) -> int | None:
    return None if int(value) < 0 else int(value)
