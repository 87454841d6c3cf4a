"""Drivers that sleep in the middle of a step."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

__all__ = ["sleeping"]

PROGRAM = Path(__file__).with_name("database_sleeper.py")


@contextmanager
def sleeping(spec: dict[str, Any], folder: Path, where: str) -> Iterator[subprocess.Popen[str]]:
    """A driver of generation 0 that sleeps in the middle of a step."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(PROGRAM), json.dumps(spec), str(folder), where]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            _, status = os.waitpid(process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status)
            yield process
        finally:
            process.kill()
