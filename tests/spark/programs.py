"""The programs of `attach_programs`, each in a process of its own that a test sees the end of, or kills."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

__all__ = ["Program", "ran", "running"]

TESTS = Path(__file__).resolve().parents[1]
ENVIRONMENT = {"PYTHONPATH": str(TESTS)}


def ran(name: str, **given: object) -> Any:
    """What a program told last, having ended well."""
    done = subprocess.run(
        _command(name, given),
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    lines = done.stdout.splitlines()
    return json.loads(lines[-1]) if lines else None


class Program:
    """A program that runs."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def told(self) -> Any:
        """The next that it tells; waits for it."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        assert line, self._log.read_text()[-4000:]
        return json.loads(line)

    def kill(self) -> None:
        """SIGKILL, to its JVM in the same instant: that would end in good order if only Python was killed."""
        assert self._process.poll() is None, self._log.read_text()[-4000:]
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()


@contextlib.contextmanager
def running(name: str, log: Path, environment: Mapping[str, str] | None = None, **given: object) -> Iterator[Program]:
    """Start a program, whose errors go to the end of a log. What is left of it at the end of the block is killed."""
    with log.open("ab") as errors:
        process = subprocess.Popen(
            _command(name, given),
            env={**os.environ, **ENVIRONMENT, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            start_new_session=True,
        )
    with process:
        try:
            yield Program(process, log)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def _command(name: str, given: Mapping[str, object]) -> list[str]:
    return [sys.executable, "-m", "spark.attach_programs", name, json.dumps(given, default=str)]
