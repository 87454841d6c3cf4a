"""`holdfast watch` as a process that a test can end or kill."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["WatchProcess"]


class WatchProcess:
    """Watches a directory as pipeline "p", every batch of it. Its events go to the end of a log, a line each.

    The end of a `with` kills what is left of it.
    """

    def __init__(
        self,
        directory: Path | str,
        repository: str,
        log: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        command = [sys.executable, "-m", "holdfast", "watch", str(directory), "-p", "p", "--every", "1 batch", "--json"]
        self._log = log
        self._begin = log.stat().st_size if log.exists() else 0
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [*command, *arguments],
                env={**os.environ, "HOLDFAST_REPO": repository, **(environment or {})},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def __enter__(self) -> WatchProcess:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        """What this process has told so far; only of these kinds, if some are given."""
        told = self._log.read_bytes()[self._begin :].decode()
        lines = [json.loads(line) for line in told.splitlines(keepends=True) if line.endswith("\n")]
        return [event for event in lines if not kinds or event["event"] in kinds]

    def end(self) -> None:
        """Have it finish the capture under way and end, which must go well."""
        self._process.terminate()
        assert self._process.wait(60) == 0, self._log.read_text()[-3000:]

    def kill(self) -> None:
        """SIGKILL; it must have run until now."""
        assert self._process.poll() is None, self._log.read_text()[-3000:]
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()
