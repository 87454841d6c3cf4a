"""Executors of Spark as processes: which ones serve a driver, and what a local cluster needs to have them."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pyspark

from servers.spark import SHORT_LIVED

__all__ = ["LOCAL_CLUSTER", "LOCAL_CLUSTER_CONF", "executors_of", "make_home"]

LOCAL_CLUSTER = "local-cluster[2,1,1024]"
LOCAL_CLUSTER_CONF = {
    "spark.driver.host": "127.0.0.1",
    "spark.executor.memory": "600m",
    "spark.executor.extraJavaOptions": SHORT_LIVED,
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    # Never give an application up, however many executors it has lost.
    "spark.deploy.maxExecutorRetries": "-1",
}


def executors_of(driver_port: int) -> list[int]:
    """The ids of the processes that take tasks from the driver with this port."""
    driver = f"spark://CoarseGrainedScheduler@127.0.0.1:{driver_port}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            words = (process / "cmdline").read_bytes().split(b"\0")
            if b"org.apache.spark.executor.CoarseGrainedExecutorBackend" in words and driver in words:
                found.append(int(process.name))
    return sorted(found)


def make_home(folder: Path) -> Path:
    """A SPARK_HOME of links into the installed one: there a local cluster leaves the folders of its executors."""
    folder.mkdir()
    for path in Path(pyspark.__file__).parent.iterdir():
        (folder / path.name).symlink_to(path)
    return folder
