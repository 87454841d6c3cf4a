"""A true standalone Spark cluster, and the Spark configurations that reach the other servers."""

from __future__ import annotations

import contextlib
import json
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from holdfast.spark.java import find_java

from .object_stores import S3Server
from .processes import SERVERS, free_ports, running

__all__ = ["SHORT_LIVED", "SparkCluster", "kafka_conf", "s3a_conf", "spark_cluster"]

SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""For a JVM that never earns back what the second compiler and a concurrent collector cost."""


@dataclass(frozen=True)
class SparkCluster:
    """A cluster of one-core workers: a session with this master and configuration has an executor on each."""

    master: str
    workers: int

    @property
    def conf(self) -> dict[str, str]:
        return {
            "spark.driver.host": "127.0.0.1",
            "spark.executor.cores": "1",
            "spark.executor.memory": "600m",
            "spark.executor.extraJavaOptions": SHORT_LIVED,
            # The first job waits until all of them have come.
            "spark.cores.max": str(self.workers),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        }


@contextlib.contextmanager
def spark_cluster(folder: Path, workers: int = 2) -> Iterator[SparkCluster]:
    """A master and its workers, each a Java process; executors end with their worker."""
    import pyspark

    port, page = free_ports(2)
    cluster = SparkCluster(f"spark://127.0.0.1:{port}", workers)
    home = Path(pyspark.__file__).parent
    environment = {
        "JAVA_HOME": str(find_java().home),
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_CONF_DIR": str(folder),
        "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
        "SPARK_DAEMON_MEMORY": "256m",
        # An application is never given up, however many executors it has lost.
        "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }

    def start(name: str, java_class: str, arguments: Sequence[str], then: int) -> AbstractContextManager[object]:
        command = [str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{java_class}", "--host", "127.0.0.1"]
        ready, scratch = partial(_has_workers, page, then), {"SPARK_LOCAL_DIRS": str(folder / name / "local")}
        return running([*command, *arguments], folder / name, ready, {**environment, **scratch})

    with contextlib.ExitStack() as stack:
        ports = ["--port", str(port), "--webui-port", str(page)]
        stack.enter_context(start("master", "master.Master", ports, 0))
        for number in range(workers):
            name = f"worker-{number}"
            room = ["--webui-port", "0", "--cores", "1", "--memory", "1g", "--work-dir", str(folder / name / "work")]
            stack.enter_context(start(name, "worker.Worker", [*room, cluster.master], number + 1))
        yield cluster


def _has_workers(page: int, count: int) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{page}/json/", timeout=5) as reply:
        return bool(json.load(reply)["aliveworkers"] == count)


def s3a_conf(server: S3Server) -> dict[str, str]:
    """What a Spark session needs for s3a:// paths in this server; must be there when the JVM starts."""
    jars = _jars("s3a")
    options = {
        "endpoint": server.endpoint,
        "endpoint.region": "us-east-1",
        "path.style.access": "true",
        "connection.ssl.enabled": "false",
        "access.key": server.access_key_id,
        "secret.key": server.secret_access_key,
        "aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    }
    return {
        "spark.driver.extraClassPath": f"{jars}/*",
        "spark.executor.extraClassPath": f"{jars}/*",
        **{f"spark.hadoop.fs.s3a.{name}": value for name, value in options.items()},
    }


def kafka_conf() -> dict[str, str]:
    """What a Spark session needs for Kafka sources and sinks; must be there when the JVM starts."""
    return {"spark.jars": ",".join(sorted(map(str, _jars("spark-kafka").glob("*.jar"))))}


def jdbc_conf() -> dict[str, str]:
    """What a Spark session needs for its JDBC writer to know PostgreSQL; must be there when the JVM starts."""
    return {"spark.driver.extraClassPath": f"{_jars('jdbc')}/*"}


def _jars(name: str) -> Path:
    folder = SERVERS / name / "lib"
    if not folder.is_dir():
        raise RuntimeError(f"the jars of {name} are not installed: run scripts/install_servers.py")
    return folder
