"""The events of a workload in a Kafka topic of its own; every batch takes as many of them from each partition."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from spark.events import events

if TYPE_CHECKING:
    from servers import KafkaServer

__all__ = ["find_topic", "make_topic", "send_events"]

PARTITIONS = 2
SECONDS = 30


def make_topic(folder: Path, server: KafkaServer) -> None:
    """Make a topic that the workload with this folder of inputs reads; what is in it is written down there."""
    topic = f"events-{uuid.uuid4().hex}"
    server.make_topic(topic, PARTITIONS)
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder, server.bootstrap, topic, 0)


def find_topic(folder: Path) -> tuple[str, str]:
    """The address of the broker, and the topic in it."""
    bootstrap, topic, _ = _read(folder)
    return bootstrap, topic


def send_events(folder: Path, batches: int) -> None:
    """Have the first n batches in the topic; call it again for more."""
    from confluent_kafka import Producer

    bootstrap, topic, sent = _read(folder)
    producer = Producer({"bootstrap.servers": bootstrap})
    for batch in range(sent, batches):
        for number, event in enumerate(events("events", batch)):
            producer.produce(topic, json.dumps(event._asdict()), partition=number % PARTITIONS)
    assert producer.flush(SECONDS) == 0
    _write(folder, bootstrap, topic, max(sent, batches))


def _read(folder: Path) -> tuple[str, str, int]:
    bootstrap, topic, sent = json.loads((folder / "topic.json").read_text())
    return bootstrap, topic, sent


def _write(folder: Path, bootstrap: str, topic: str, sent: int) -> None:
    (folder / "topic.json").write_text(json.dumps([bootstrap, topic, sent]))
