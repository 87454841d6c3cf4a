"""Topics in a real broker, as another program sees them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import (
    Consumer,
    IsolationLevel,
    KafkaError,
    KafkaException,
    Message,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

__all__ = [
    "config_of",
    "delete_topic",
    "ends",
    "grow_topic",
    "make_topic",
    "records",
    "remake_topic",
    "set_retention",
    "topic_id",
    "trim_topic",
]

SECONDS = 60
SETTLING = 5


def make_topic(bootstrap: str, partitions: int = 2, **config: str) -> str:
    """A new topic; options with _ in place of the dot."""
    name = f"rows-{uuid.uuid4().hex}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    dotted = {key.replace("_", "."): value for key, value in config.items()}
    admin.create_topics([NewTopic(name, partitions, 1, config=dotted)])[name].result(SECONDS)
    _await(lambda: name in admin.list_topics(timeout=SECONDS).topics)
    return name


def remake_topic(bootstrap: str, name: str, partitions: int = 2) -> None:
    """Delete a topic, and make one of the same name."""
    delete_topic(bootstrap, name)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(SECONDS)
    _await(lambda: name in admin.list_topics(timeout=SECONDS).topics)


def set_retention(bootstrap: str, name: str, milliseconds: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    entry = ConfigEntry("retention.ms", str(milliseconds), incremental_operation=AlterConfigOpType.SET)
    [done] = admin.incremental_alter_configs(
        [ConfigResource(ConfigResource.Type.TOPIC, name, incremental_configs=[entry])]
    ).values()
    done.result(SECONDS)


def delete_topic(bootstrap: str, name: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name])[name].result(SECONDS)
    _await(lambda: name not in admin.list_topics(timeout=SECONDS).topics)


def grow_topic(bootstrap: str, name: str, partitions: int) -> None:
    """Have a topic have more partitions."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(name, partitions)])[name].result(SECONDS)
    _await(lambda: len(admin.list_topics(name, timeout=SECONDS).topics[name].partitions) == partitions)


def trim_topic(bootstrap: str, name: str, partition: int, before: int) -> None:
    """Have the records of a partition before an offset deleted."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.delete_records([TopicPartition(name, partition, before)]).values():
        future.result(SECONDS)


def topic_id(bootstrap: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    found = admin.describe_topics(TopicCollection([name]))[name].result(SECONDS).topic_id
    return str(found).translate(str.maketrans("+/", "-_"))


def _await(is_so: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_so():
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.01)


def config_of(bootstrap: str, topic: str) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found = admin.describe_configs([resource])[resource].result(SECONDS)
    return {name: entry.value for name, entry in found.items()}


def ends(bootstrap: str, topic: str, level: IsolationLevel = IsolationLevel.READ_COMMITTED) -> list[int]:
    """How far each partition can be read."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    partitions = [
        TopicPartition(topic, n) for n in sorted(admin.list_topics(topic, timeout=SECONDS).topics[topic].partitions)
    ]
    asked = admin.list_offsets({each: OffsetSpec.latest() for each in partitions}, isolation_level=level)
    return [asked[each].result(SECONDS).offset for each in partitions]


def records(bootstrap: str, topic: str, isolation: str = "read_committed") -> list[Message[Any, Any]]:
    """All that a reader of the topic gets now: a commit is answered a moment before it can be seen everywhere."""
    deadline = time.monotonic() + SETTLING
    while ends(bootstrap, topic) != ends(bootstrap, topic, IsolationLevel.READ_UNCOMMITTED):
        if time.monotonic() > deadline:
            break
        time.sleep(0.01)
    return [*_read(bootstrap, topic, isolation)]


def _read(bootstrap: str, topic: str, isolation: str) -> Iterator[Message[Any, Any]]:
    level = IsolationLevel.READ_COMMITTED if isolation == "read_committed" else IsolationLevel.READ_UNCOMMITTED
    left = {number: end for number, end in enumerate(ends(bootstrap, topic, level)) if end > 0}
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": uuid.uuid4().hex,
            "isolation.level": isolation,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        deadline = time.monotonic() + SECONDS
        while left:
            assert time.monotonic() < deadline, f"{topic} could not be read to its end: {left}"
            for message in consumer.consume(1000, timeout=0.5):
                error, number, offset = message.error(), message.partition(), message.offset()
                if error is None:
                    yield message
                elif error.code() != KafkaError._PARTITION_EOF:
                    raise KafkaException(error)
                elif offset >= left.get(number, 0):
                    left.pop(number, None)
    finally:
        consumer.close()
