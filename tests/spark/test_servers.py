"""The servers of the Spark tests do what those tests lean on.

Every Spark here runs in a process of its own: jars and master are settled when its JVM starts.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from holdfast.store import open_store
from servers import KafkaServer, S3Server, SparkCluster, kafka_conf, s3a_conf

TESTS = Path(__file__).resolve().parents[1]

BEGIN = """
import json, sys
from holdfast.spark.java import use_java
from spark.session import start_session
use_java()
conf, master, given = json.loads(sys.argv[1])
spark = start_session(conf, master)
"""

END = """
spark.stop()
print(json.dumps(answer))
"""

COUNT_IN_BATCHES = """
from pyspark.sql.functions import col
rows = spark.readStream.schema("n LONG").option("maxFilesPerTrigger", 1).json(given["input"])
counted = rows.groupBy((col("n") % 2).alias("odd")).count()
counted.writeStream.outputMode("complete").format("memory").queryName("counted").option(
    "checkpointLocation", given["checkpoint"]).trigger(availableNow=True).start().awaitTermination()
answer = {row.odd: row["count"] for row in spark.table("counted").collect()}
"""

KAFKA_TO_KAFKA = """
kafka = {"kafka.bootstrap.servers": given["bootstrap"]}
rows = spark.readStream.format("kafka").options(**kafka, subscribe="numbers", startingOffsets="earliest").load()
doubled = rows.selectExpr("CAST(2 * CAST(CAST(value AS STRING) AS INT) AS STRING) AS value")
query = doubled.writeStream.format("kafka").options(**kafka, topic="doubled").option(
    "checkpointLocation", given["checkpoint"]).trigger(availableNow=True).start()
query.awaitTermination()
answer = json.loads(query.lastProgress["sources"][0]["endOffset"])
"""

WHO_COMPUTES = """
import os
ids = spark.sparkContext.parallelize(range(100), 8)
answer = ids.map(lambda n: (os.getppid(), n)).reduceByKey(int.__add__).collect()
"""


def in_spark(script: str, conf: dict[str, str], master: str = "local[2]", **given: str) -> object:
    """What the script left in `answer`, having run with `spark` and `given` in a process of its own."""
    script = f"{BEGIN}{script}{END}"
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps([conf, master, given])],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def consumer(kafka_server: KafkaServer, request: pytest.FixtureRequest) -> Consumer:
    """Reads topics from their first record on."""
    settings = {"bootstrap.servers": kafka_server.bootstrap, "group.id": request.node.name}
    return Consumer({**settings, "auto.offset.reset": "earliest"})


def produce(server: KafkaServer, topic: str, values: range) -> None:
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for value in values:
        producer.produce(topic, str(value))
    assert producer.flush(30) == 0


def consume(consumer: Consumer, topic: str, count: int) -> list[str]:
    consumer.subscribe([topic])
    messages = consumer.consume(count, timeout=60)
    consumer.close()
    return sorted((message.value() or b"").decode() for message in messages)


def three_files(folder: Path) -> str:
    place = folder / "input"
    place.mkdir()
    for number in range(3):
        (place / f"{number}.json").write_text("".join(f'{{"n": {n}}}\n' for n in range(10)))
    return str(place)


@pytest.mark.matrix
def test_spark_runs_a_stream(tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    given = {"input": three_files(tmp_path), "checkpoint": str(checkpoint)}
    assert in_spark(COUNT_IN_BATCHES, {}, **given) == {"0": 15, "1": 15}
    assert (checkpoint / "commits" / "2").is_file()


def test_the_broker_gives_back_what_it_was_given(kafka_server: KafkaServer, consumer: Consumer) -> None:
    kafka_server.make_topic("plain", partitions=2)
    produce(kafka_server, "plain", range(100))
    assert consume(consumer, "plain", 100) == sorted(map(str, range(100)))


@pytest.mark.soak
def test_spark_reads_and_writes_kafka(kafka_server: KafkaServer, consumer: Consumer, tmp_path: Path) -> None:
    kafka_server.make_topic("numbers", partitions=2)
    kafka_server.make_topic("doubled")
    produce(kafka_server, "numbers", range(50))
    given = {"bootstrap": kafka_server.bootstrap, "checkpoint": str(tmp_path / "checkpoint")}
    ends = in_spark(KAFKA_TO_KAFKA, kafka_conf(), **given)
    assert isinstance(ends, dict)
    assert sum(ends["numbers"].values()) == 50
    assert consume(consumer, "doubled", 50) == sorted(str(2 * n) for n in range(50))


@pytest.mark.soak
def test_spark_keeps_its_checkpoint_in_s3(s3_server: S3Server, s3_url: str, tmp_path: Path) -> None:
    given = {"input": three_files(tmp_path), "checkpoint": s3_url.replace("s3://", "s3a://")}
    assert in_spark(COUNT_IN_BATCHES, s3a_conf(s3_server), **given) == {"0": 15, "1": 15}
    keys = {entry.key for entry in open_store(s3_url, s3_server.options).list("")}
    assert {"metadata", "offsets/2", "commits/2"} <= keys
    assert any(key.startswith("state/0/") for key in keys)


@pytest.mark.soak
def test_both_workers_of_the_cluster_take_part(spark_cluster: SparkCluster) -> None:
    sums = in_spark(WHO_COMPUTES, spark_cluster.conf, spark_cluster.master)
    assert isinstance(sums, list)
    assert len(sums) == 2, "one process that starts Python workers on each executor"
    assert sum(each for _, each in sums) == sum(range(100))
