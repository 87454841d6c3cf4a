"""The Spark sessions that state is read and made in: the caller's own is never changed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from holdfast.errors import StateUnreadable
from holdfast.spark.java import use_java
from holdfast.state.inventory import Inventory

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["as_pinned", "explained_by_spark", "failed_in_spark", "first_words", "some_session", "version_of"]

FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
ZONE = "spark.sql.session.timeZone"
OLDEST = (4, 0)
"""The first Spark with a reader of state."""
LONGEST = 400
CONNECT = "pyspark.sql.connect."


def some_session(spark: SparkSession | None = None, *, zone: str | None = None) -> SparkSession:
    """The caller's session, the one that is active, or a local one; `zone` is for one that is made here."""
    from pyspark.sql import SparkSession

    found = spark or SparkSession.getActiveSession()
    if found is not None:
        return found
    use_java()
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    quiet: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.appName("holdfast state").master("local[*]").config(map=quiet)
    return (builder.config(ZONE, zone) if zone else builder).getOrCreate()


def version_of(spark: SparkSession) -> tuple[int, ...]:
    return tuple(int(part) for part in spark.version.split(".")[:2])


def as_pinned(spark: SparkSession, inventory: Inventory, more: Mapping[str, str] | None = None) -> SparkSession:
    """A session beside this one with the settings that the checkpoint was made with: its state reads in no other way.

    Raises StateUnreadable with a Spark that has no reader of state, or that is not of this process.
    """
    if type(spark).__module__.startswith(CONNECT):
        raise StateUnreadable(
            inventory.checkpoint, "a Spark Connect server does not see the copy; give a session of here"
        )
    if version_of(spark) < OLDEST:
        raise StateUnreadable(inventory.checkpoint, f"Spark {spark.version} has no reader of state; 4.0 and later do")
    session = spark.newSession()
    settings = {
        ZONE: str(spark.conf.get(ZONE)),
        **inventory.settings,
        FORMAT: str(inventory.checkpoint_format),
        **(more or {}),
    }
    for name, value in settings.items():
        session.conf.set(name, value)
    return session


def failed_in_spark() -> tuple[type[Exception], ...]:
    """What PySpark raises when something fails in Spark."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    return (PySparkException, Py4JJavaError)


@contextmanager
def explained_by_spark(checkpoint: str) -> Iterator[None]:
    """What Spark fails with while it reads state becomes StateUnreadable, with Spark's own first words."""
    try:
        yield
    except failed_in_spark() as error:
        raise StateUnreadable(checkpoint, first_words(error)) from error


def first_words(error: BaseException) -> str:
    """What an error of Spark says first: the rest is stack traces."""
    java = getattr(error, "java_exception", None)
    text = str(java.toString()) if java is not None else str(error)
    return text.partition("\n")[0].strip()[:LONGEST]
