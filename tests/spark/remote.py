"""A Spark session in a process of its own, whose functions tests call by name; it reaches S3 and Kafka if asked to."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["RemoteSpark", "SparkFailed", "remote_spark"]

TESTS = Path(__file__).resolve().parents[1]


class SparkFailed(Exception):
    """A function failed in the other process; the text is its traceback."""


class RemoteSpark:
    """Calls functions of `spark.queries` with a session that lives as long as the process."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def __call__(self, function: str, **given: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([function, given], default=str) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"Spark has ended: {self._log.read_text()[-3000:]}"
        answer = json.loads(line)
        if "failed" in answer:
            raise SparkFailed(answer["failed"])
        return answer["gave"]


@contextlib.contextmanager
def remote_spark(folder: Path, conf: Mapping[str, str]) -> Iterator[RemoteSpark]:
    """Start a session with this configuration, which may name jars."""
    log = folder / "spark.log"
    with log.open("ab") as errors:
        process = subprocess.Popen(
            [sys.executable, "-m", "spark.remote", json.dumps(dict(conf))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, "PYTHONPATH": str(TESTS)},
            text=True,
        )
        try:
            yield RemoteSpark(process, log)
        finally:
            process.communicate()


def _serve() -> None:
    from spark import queries
    from spark.session import start_session

    spark = start_session(json.loads(sys.argv[1]))
    for line in sys.stdin:
        function, given = json.loads(line)
        try:
            answer = {"gave": getattr(queries, function)(spark, **given)}
        except Exception:  # noqa: BLE001 - the other side raises it
            answer = {"failed": traceback.format_exc()}
        print(json.dumps(answer), flush=True)
    spark.stop()


if __name__ == "__main__":
    _serve()
