"""A real Kafka broker, in KRaft mode: broker and controller in one process."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from holdfast.spark.java import find_java

from .processes import SERVERS, accepts, free_ports, running

__all__ = ["KafkaBroker", "KafkaServer", "kafka"]

# 16 bytes in base64. Not by chance: one in 64 would begin with a dash, and be taken for an option.
CLUSTER_ID = "holdfastKafkaForTestsQ"

PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:{broker},CONTROLLER://127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
"""


@dataclass(frozen=True)
class KafkaServer:
    """A broker: `bootstrap` is the address that clients ask for, `pid` its process."""

    bootstrap: str
    pid: int

    def make_topic(self, name: str, partitions: int = 1) -> None:
        client = AdminClient({"bootstrap.servers": self.bootstrap})
        client.create_topics([NewTopic(name, partitions, 1)])[name].result(30)


class KafkaBroker:
    """Kafka 4 on the jars that `scripts/install_servers.py` puts into `.servers/`, with its data in a folder.

    It can be run again and again, at the same address. Lines of `more` are added to its properties, with the ports in
    the places of {broker} and {controller}; `client` is what it takes to connect to it then.
    """

    def __init__(self, folder: Path, more: str = "", client: Mapping[str, str] | None = None) -> None:
        jars = SERVERS / "kafka" / "lib"
        if not jars.is_dir():
            raise RuntimeError("the jars of Kafka are not installed: run scripts/install_servers.py")
        self._folder = folder
        self._port, controller = free_ports(2)
        folder.mkdir(parents=True, exist_ok=True)
        properties = folder / "server.properties"
        text = (PROPERTIES + more).format(broker=self._port, controller=controller, data=folder / "data")
        properties.write_text(text)
        self._client = {"bootstrap.servers": f"127.0.0.1:{self._port}", **(client or {})}
        java = [str(find_java().home / "bin" / "java"), "-Xmx256m", "-Xms64m", "-XX:+UseSerialGC"]
        java += ["-XX:TieredStopAtLevel=1", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}/*"]
        prepare = [*java, "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c", str(properties)]
        subprocess.run(prepare, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        self._command = [*java, "kafka.Kafka", str(properties)]

    @contextlib.contextmanager
    def running(self) -> Iterator[KafkaServer]:
        with running(self._command, self._folder / "run", accepts(self._port), {}) as process:
            AdminClient({**self._client}).list_topics(timeout=30)
            yield KafkaServer(self._client["bootstrap.servers"], process.pid)


@contextlib.contextmanager
def kafka(folder: Path, more: str = "", client: Mapping[str, str] | None = None) -> Iterator[KafkaServer]:
    """A broker for as long as the block takes; its folder goes with it."""
    try:
        with KafkaBroker(folder, more, client).running() as server:
            yield server
    finally:
        shutil.rmtree(folder, ignore_errors=True)
