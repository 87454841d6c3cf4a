"""A program on a terminal of its own."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import threading
from collections.abc import Sequence
from types import TracebackType

__all__ = ["ESCAPE", "Terminal"]

ESCAPE = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")


class Terminal:
    """Runs a command on a terminal, whose side of it is read all the time; leaving a `with` ends it."""

    def __init__(self, command: Sequence[str], **environment: str) -> None:
        self._ours, theirs = pty.openpty()
        self.running = subprocess.Popen(
            command,
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env={**os.environ, "TERM": "xterm-256color", "COLUMNS": "120", **environment},
        )
        os.close(theirs)
        self._written = b""
        self._more = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Terminal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.running.kill()
        self.wait()
        os.close(self._ours)

    @property
    def text(self) -> str:
        """All that was written so far."""
        return self._written.decode(errors="replace")

    def await_text(self, pattern: str) -> re.Match[str]:
        """Wait until this was written, styles aside."""
        with self._more:
            while (found := re.search(pattern, ESCAPE.sub("", self.text))) is None:
                assert self._reader.is_alive(), self.text
                self._more.wait(0.5)
        return found

    def wait(self) -> int:
        """Wait until the program ends and all that it wrote is read."""
        code = self.running.wait()
        self._reader.join()
        return code

    def _read(self) -> None:
        while True:
            try:
                chunk = os.read(self._ours, 65536)
            except OSError:  # how Linux tells that the other side is closed
                return
            if not chunk:
                return
            with self._more:
                self._written += chunk
                self._more.notify_all()
