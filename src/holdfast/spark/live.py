"""A query that runs, as its own driver sees it. The only module below spark/ that imports pyspark.

Which batch is over is asked of the JVM when somebody wants to know: a question costs well under a millisecond and the
query takes no part in it. A listener would be called for every batch of every query, on a bus that all listeners share.
What is private to Spark or py4j is used in this file alone, in versions that it is known to work in.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Literal, TypeAlias

import pyspark
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from holdfast.errors import CannotAttach, NotCapturable

__all__ = ["LiveQuery", "State", "live_query"]

State: TypeAlias = Literal["running", "ended", "failed"]

OLDEST, NEWEST = (3, 5), (4, 3)
CONNECT = "pyspark.sql.connect."
EXECUTED = "addBatch"
"""A duration that only the progress of a batch has that was run; an idle query reports the batch to come."""
AT_WORK = ("Processing new data", "No new data but cleaning up state")
LOOK_SECONDS = 0.01
QUIET_SECONDS = 0.2
"""Without work for so long, a query waits for its trigger or for data. Between two batches it comes to the door."""


class LiveQuery(ABC):
    """A streaming query of this process or of a Spark Connect server. Safe from several threads."""

    id: str
    spark_version: str
    location: str | None
    """Where its checkpoint lies, as Spark writes it; None if the query can't tell."""
    costly: bool
    """Whether each question is a request to a server."""
    logs_first: bool
    """Whether a batch is in the offset log before it runs. In real-time mode it comes there at its end."""
    context: Any
    """The SparkContext that gives its executors work; None if there is none here."""

    @abstractmethod
    def last_batch(self) -> int | None:
        """The newest batch that is over: run, committed and found whole by Spark. None if none is known yet."""

    @abstractmethod
    def state(self) -> State:
        """Whether it runs. One that is being stopped runs until its last batch is committed or given up."""

    @abstractmethod
    def stop(self) -> bool:
        """Stop it and return once it has ended; True if no batch was cut off.

        That is certain only of a foreachBatch in this process, which is kept from beginning another batch. Whatever
        else is running is interrupted, as Spark does it.
        """


def live_query(query: object) -> LiveQuery:
    """The query behind PySpark's handle. Raises CannotAttach if it is none, or of a Spark that is not known here."""
    version = tuple(int(part) for part in pyspark.__version__.split(".")[:2])
    if not OLDEST <= version <= NEWEST:
        raise CannotAttach(f"Spark {pyspark.__version__} is not known to this Holdfast")
    if type(query).__module__.startswith(CONNECT):
        return _ConnectQuery(query)
    if not hasattr(query, "_jsq"):
        raise CannotAttach(f"a {type(query).__name__} is no streaming query")
    return _ClassicQuery(query)


class _ConnectQuery(LiveQuery):
    """A query on a Spark Connect server, through the public API alone."""

    location = None
    costly = True
    logs_first = True
    context = None

    def __init__(self, query: Any) -> None:
        self._query = query
        self.id = str(query.id)
        self.spark_version = str(query._session.version)

    def last_batch(self) -> int | None:
        progress = self._query.lastProgress
        return None if progress is None else _over(progress["batchId"], EXECUTED in progress["durationMs"])

    def state(self) -> State:
        if self._query.isActive:
            return "running"
        try:
            # It is inactive from the moment on that somebody stops it; this waits for the end of its last batch.
            self._query.awaitTermination()
        except PySparkException:
            return "failed"
        return "ended"

    def stop(self) -> bool:
        self._query.stop()
        return False


class _ClassicQuery(LiveQuery):
    """A query of this very process, through its object in the JVM."""

    costly = False

    def __init__(self, query: Any) -> None:
        self._jsq = query._jsq
        self._execution = self._jsq.streamingQuery()
        self._seen: int | None = None
        self.id = str(query.id)
        self.context = pyspark.SparkContext._active_spark_context
        self.location = str(self._execution.resolvedCheckpointRoot())
        self.spark_version = str(self._execution.sparkSession().version())
        self.logs_first = self._execution.trigger().getClass().getSimpleName() != "RealTimeTrigger"
        if self._execution.getClass().getSimpleName() == "ContinuousExecution":
            raise NotCapturable(self.location, "it runs in continuous mode, whose epochs have no state versions")
        if self._is_temporary():
            raise CannotAttach("its checkpoint is temporary, and Spark deletes it: start it with a checkpointLocation")

    def last_batch(self) -> int | None:
        try:
            progress = self._jsq.lastProgress()
            if progress is None:
                return None
            batch = int(progress.batchId())
            if batch != self._seen and EXECUTED in progress.durationMs():
                self._seen = batch
            return _over(batch, batch == self._seen)
        except (Py4JError, OSError):
            return self._seen

    def state(self) -> State:
        try:
            # It is inactive from the moment on that somebody stops it, though its last batch may still be committed.
            if self._jsq.isActive() or self._execution.queryExecutionThread().isAlive():
                return "running"
            return "failed" if self._jsq.exception().isDefined() else "ended"
        except (Py4JError, OSError):
            # The JVM does not answer any more, and the query is gone with it.
            return "failed"

    def stop(self) -> bool:
        function = self._foreach_batch()
        if function is None:
            self._jsq.stop()
            return False
        with _shut_door(function) as door:
            if not self._await_pause(door):
                self._jsq.stop()
                return False
            stopping = _Call(self._jsq.stop)
            while stopping.is_under_way(LOOK_SECONDS) and self._jsq.isActive():
                pass
            door.turn_away()
            stopping.result()
        return True

    def _await_pause(self, door: _Door) -> bool:
        """Wait until a batch has come to the door, or none comes; False if the query has ended before.

        One that has ended may have been stopped by somebody else, in the middle of a batch.
        """
        quiet_from = time.monotonic()
        while not door.arrived.wait(LOOK_SECONDS):
            if not self._jsq.isActive():
                return False
            if self._execution.status().message() in AT_WORK:
                quiet_from = time.monotonic()
            elif time.monotonic() > quiet_from + QUIET_SECONDS:
                return True
        return True

    def _is_temporary(self) -> bool:
        """Whether Spark has chosen the location by itself and removes it at the end."""
        kind = self._execution.getClass()
        while kind is not None and kind.getSimpleName() != "StreamExecution":
            kind = kind.getSuperclass()
        return kind is not None and bool(_read(kind.getDeclaredField("deleteCheckpointOnStop"), self._execution))

    def _foreach_batch(self) -> Any:
        """PySpark's holder of the function that the query calls for each batch; None if it has none here.

        Spark keeps it as a closure over a proxy, and py4j finds the Python object by the proxy's id.
        """
        sink = self._execution.sink()
        if sink.getClass().getSimpleName() != "ForeachBatchSink":
            return None
        gateway: Any = pyspark.SparkContext._gateway
        try:
            writer = _field(sink, "batchWriter")
            (proxy,) = (_read(field, writer) for field in writer.getClass().getDeclaredFields())
            handler = gateway.jvm.java.lang.reflect.Proxy.getInvocationHandler(proxy)
            holder = gateway.gateway_property.pool[_field(handler, "id")]
        except (Py4JError, KeyError, ValueError):
            return None
        return holder if callable(getattr(holder, "func", None)) else None


def _over(batch: int, executed: bool) -> int | None:
    """The newest batch that is over when the last progress is of this one. Idle, it is the next to come."""
    over = batch if executed else batch - 1
    return over if over >= 0 else None


def _field(owner: Any, name: str) -> Any:
    return _read(owner.getClass().getDeclaredField(name), owner)


def _read(field: Any, owner: Any) -> Any:
    field.setAccessible(True)
    return field.get(owner)


class _TurnedAway(Exception):
    """Ends a batch that did not begin, with the words by which Spark tells a stop from a failure: py4j's own.

    They stay few: Spark looks for them with a regular expression that overflows the stack on a long text.
    """

    def __str__(self) -> str:
        return "py4j.protocol.Py4JJavaError: An error occurred while calling stop.\n: java.lang.InterruptedException"


class _Door:
    """Stands before a foreachBatch function. Who comes waits until the query is stopped, and is then turned away."""

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self._open = threading.Event()

    def turn_away(self) -> None:
        self._open.set()

    def __call__(self, frame: object, batch_id: int) -> None:  # noqa: ARG002 - as PySpark calls the function
        self.arrived.set()
        self._open.wait()
        raise _TurnedAway


@contextmanager
def _shut_door(holder: Any) -> Iterator[_Door]:
    function, door = holder.func, _Door()
    holder.func = door
    try:
        yield door
    finally:
        holder.func = function
        # Whoever came while something here went wrong must not wait for ever.
        door.turn_away()


class _Call:
    """A call on a thread of its own, which may wait for this one."""

    def __init__(self, function: Callable[[], object]) -> None:
        self._function = function
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast-stop", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._function()
        except BaseException as error:  # noqa: BLE001 - raised again by who waits for the result
            self._error = error

    def is_under_way(self, wait_seconds: float) -> bool:
        self._thread.join(wait_seconds)
        return self._thread.is_alive()

    def result(self) -> None:
        self._thread.join()
        if self._error is not None:
            raise self._error
