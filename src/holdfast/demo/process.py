"""A driver as the play handles it: started, told what to do, listened to, and killed."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from typing import TypeVar

import msgspec

from holdfast.demo.messages import Command, Failed, News, decode_news, encode
from holdfast.demo.place import Place
from holdfast.errors import DemoFailed, DemoUnready
from holdfast.spark.java import Java, use_java

__all__ = ["DriverProcess", "require_libraries"]

SILENCE_SECONDS = 300
"""A driver that has said nothing for so long will say nothing more."""
NEEDED = ("deltalake", "duckdb", "jinja2", "pyarrow", "pyspark", "starlette", "uvicorn")

N = TypeVar("N", bound=News)


def require_libraries() -> Java:
    """See that all is there that the demo needs, before anything is written; gives the Java that Spark will run on."""
    missing = [name for name in NEEDED if find_spec(name) is None]
    if missing:
        raise DemoUnready(missing)
    return use_java()


class DriverProcess:
    """A driver with its JVM, in a process group of its own; whoever starts one kills it.

    Every piece of news goes to `tell`, whatever is waited for.
    """

    def __init__(self, place: Place, tell: Callable[[News], None]) -> None:
        self._place = place
        self._tell = tell
        self._killed = False
        with place.log.open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "holdfast.demo.driver", str(place.root)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"},
                start_new_session=True,
            )
        self._heard: queue.Queue[News | None] = queue.Queue()
        self._listener = threading.Thread(target=self._listen, name="holdfast-demo", daemon=True)
        self._listener.start()

    def do(self, command: Command) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(encode(command))
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None

    def news(self) -> Iterator[News]:
        """What it says, as it says it. Raises DemoFailed once it fails, falls silent, or ends."""
        while True:
            try:
                heard = self._heard.get(timeout=SILENCE_SECONDS)
            except queue.Empty:
                raise DemoFailed("its driver", f"it has said nothing for {SILENCE_SECONDS} s; {self._look}") from None
            if heard is None:
                raise self._ended()
            if isinstance(heard, Failed):
                raise DemoFailed("its driver", f"{heard.why}; {self._look}")
            self._tell(heard)
            yield heard

    def pass_on(self) -> None:
        """Pass on what it has said by now."""
        waiting = self.news()
        while not self._heard.empty():
            next(waiting)

    def until(self, kind: type[N], meets: Callable[[N], bool] = lambda _news: True) -> N:
        """Listen until there is news of this kind."""
        for heard in self.news():
            if isinstance(heard, kind) and meets(heard):
                return heard
        raise AssertionError

    def kill(self) -> None:
        """SIGKILL for the driver and its JVM, which would otherwise finish the batch; gone once this returns."""
        if self._killed:
            return  # Its number may be another's by now.
        self._killed = True
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with suppress(ProcessLookupError):
            while True:
                os.killpg(self._process.pid, 0)
                time.sleep(0.01)
        self._listener.join()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()

    def _listen(self) -> None:
        for line in self._process.stdout or ():
            # Java may have something to say as well.
            with suppress(msgspec.DecodeError):
                self._heard.put(decode_news(line))
        self._heard.put(None)

    def _ended(self) -> DemoFailed:
        return DemoFailed("its driver", f"it ended with {self._process.wait()}; {self._look}")

    @property
    def _look(self) -> str:
        return f"see {self._place.log}"
