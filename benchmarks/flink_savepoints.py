"""The same counts in Flink, for benchmarks.spark_checkpoint: native savepoints and incremental checkpoints on demand.

Runs under an interpreter that has apache-flink, and imports nothing else: no part of Holdfast needs Flink. It says
`{}` on its standard output once the state holds all keys, then answers each line `savepoint` or `checkpoint` on its
standard input with the seconds until Flink told that it is complete, and until its files were synced to the disk as
well: Flink does not do that.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

__all__ = ["serve"]

POLL_SECONDS = 0.002
SETTLE_SECONDS = 5.0
SOURCE = "CREATE TABLE {} (k BIGINT) WITH ('connector' = 'datagen', {})"
COUNT = """INSERT INTO nothing SELECT k, COUNT(*)
FROM (SELECT k FROM every_key UNION ALL SELECT k FROM any_key) GROUP BY k"""


def serve(keys: int, rows_per_second: int, folder: str) -> None:
    """Count rows by key until the standard input ends."""
    from pyflink.common import Configuration  # type: ignore[import-not-found]
    from pyflink.table import EnvironmentSettings, TableEnvironment  # type: ignore[import-not-found]

    port = _free_port()
    configuration = Configuration()
    for key, value in _settings(Path(folder), port).items():
        configuration.set_string(key, value)
    settings = EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(configuration).build()
    tables = TableEnvironment.create(settings)
    every = f"'fields.k.kind' = 'sequence', 'fields.k.start' = '0', 'fields.k.end' = '{keys - 1}'"
    some = f"'fields.k.min' = '0', 'fields.k.max' = '{keys - 1}', 'rows-per-second' = '{rows_per_second}'"
    tables.execute_sql(SOURCE.format("every_key", f"{every}, 'rows-per-second' = '{keys}'"))
    tables.execute_sql(SOURCE.format("any_key", some))
    tables.execute_sql("CREATE TABLE nothing (k BIGINT, n BIGINT) WITH ('connector' = 'blackhole')")
    client = tables.execute_sql(COUNT).get_job_client()
    job = _Job(port, str(client.get_job_id()), Path(folder))
    job.await_rows(keys)
    job.take("checkpoint")
    time.sleep(SETTLE_SECONDS)
    _say({})
    for line in sys.stdin:
        seconds, synced = job.take(line.strip())
        _say({"seconds": seconds, "synced": synced})
    client.cancel().result()


class _Job:
    """A running job, by Flink's REST interface."""

    def __init__(self, port: int, job: str, folder: Path) -> None:
        self._url = f"http://127.0.0.1:{port}/jobs/{job}"
        self._folder = folder

    def await_rows(self, rows: int) -> None:
        """Wait until so many rows have been counted."""
        while True:
            counting = [vertex for vertex in self._ask("")["vertices"] if "Aggregate" in vertex["name"]]
            if any(vertex["metrics"]["read-records"] >= rows for vertex in counting):
                return
            time.sleep(0.2)

    def take(self, kind: str) -> tuple[float, float]:
        """Take a savepoint or a checkpoint and give the seconds until it is told to be complete, and until it is safe.

        Syncing is made as cheap as it can be: only the files that are new, after all of them are written.
        """
        wanted: dict[str, Any] = {"checkpointType": "CONFIGURED"}
        if kind == "savepoint":
            wanted = {
                "formatType": "NATIVE",
                "target-directory": f"{self._folder.as_uri()}/savepoints",
                "cancel-job": False,
            }
        since, began = time.time(), time.perf_counter()
        request = self._ask(f"/{kind}s", wanted)["request-id"]
        while (answer := self._ask(f"/{kind}s/{request}"))["status"]["id"] != "COMPLETED":
            time.sleep(POLL_SECONDS)
        seconds = time.perf_counter() - began
        if "failure-cause" in answer["operation"]:
            raise RuntimeError(f"Flink's {kind} failed: {answer['operation']}")
        began = time.perf_counter()
        # Flink clears up behind a newer checkpoint, also while this looks; `walk` passes over what is gone.
        for folder, folders, files in os.walk(self._folder / f"{kind}s"):
            for path in (Path(folder, name) for name in folders + files):
                with contextlib.suppress(FileNotFoundError):
                    if path.stat().st_mtime >= since:
                        _sync(path)
        return seconds, seconds + time.perf_counter() - began

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._url + path, data, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)


def _settings(folder: Path, port: int) -> dict[str, str]:
    return {
        "state.backend.type": "rocksdb",
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.interval": "1 d",
        "execution.checkpointing.dir": f"{folder.as_uri()}/checkpoints",
        "io.tmp.dirs": str(folder / "local"),
        "parallelism.default": "2",
        "taskmanager.numberOfTaskSlots": "2",
        "taskmanager.memory.managed.size": "512m",
        "rest.bind-address": "127.0.0.1",
        "rest.address": "127.0.0.1",
        "rest.bind-port": str(port),
        "rest.port": str(port),
    }


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _say(what: dict[str, float]) -> None:
    print(json.dumps(what), flush=True)
