"""The sources that a streaming DataFrame reads from, with their options, as Spark's analyzed plan has them.

All that is private to Spark is used in this file alone. Where it can't be (Spark Connect, a Spark that is not known
here, a plan of another shape) nothing is told: what is asked for here only helps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame

__all__ = ["Jvm", "Relation", "relations_of"]

AT_ONCE = 8


class Jvm:
    """The JVM of a session: for classes that its jars bring along."""

    def __init__(self, frame: DataFrame) -> None:
        self._session = frame.sparkSession
        self.classes: Any = self._session._jvm

    @cached_property
    def _hadoop(self) -> Any:
        return self._session._jsparkSession.sessionState().newHadoopConf()

    def missing(self, paths: Sequence[str]) -> list[str]:
        """Those of these files, in the encoded form of Spark's logs, that are not there; whatever store they lie in."""
        if not paths:
            return []
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="holdfast-files") as pool:
            there = list(pool.map(self._exists, paths))
        return [path for path, found in zip(paths, there, strict=True) if not found]

    def _exists(self, path: str) -> bool:
        place = self.classes.org.apache.hadoop.fs.Path(self.classes.java.net.URI(path))
        return bool(place.getFileSystem(self._hadoop).exists(place))


@dataclass(frozen=True)
class Relation:
    """One source in the order of Spark's offset log: what kind it is, its options, and its node in the plan."""

    kind: str
    options: Mapping[str, str]
    node: Any

    def is_in(self, frame: DataFrame) -> bool:
        """Whether a DataFrame reads from this very source too."""
        return any(bool(self.node.equals(leaf)) for leaf in _leaves(frame))


def relations_of(frame: DataFrame) -> list[Relation] | str:
    """The sources of a streaming DataFrame; or why they can't be told."""
    if not hasattr(frame, "_jdf"):
        return "Spark Connect does not tell what it reads from"
    try:
        return [_relation(frame, leaf) for leaf in _leaves(frame)]
    except (Py4JError, TypeError) as error:
        return f"its plan is not understood: {str(error).splitlines()[0]}"


def _leaves(frame: DataFrame) -> list[Any]:
    found: Any = frame._jdf.queryExecution().analyzed().collectLeaves()
    leaves = [found.apply(number) for number in range(found.size())]
    return [leaf for leaf in leaves if leaf.isStreaming()]


def _relation(frame: DataFrame, leaf: Any) -> Relation:
    kind = str(leaf.getClass().getSimpleName())
    if kind == "StreamingRelationV2":
        return Relation(str(leaf.sourceName()), _plain(leaf.extraOptions().asCaseSensitiveMap()), leaf)
    if kind == "StreamingRelation":
        converters: Any = frame.sparkSession._jvm.scala.jdk.javaapi.CollectionConverters  # type: ignore[union-attr]
        source = leaf.dataSource()
        return Relation(str(leaf.sourceName()), _plain(converters.asJava(source.options())), leaf)
    raise TypeError(f"a {kind}")


def _plain(options: Any) -> dict[str, str]:
    """A map of Java's as one of ours. Iterated, it would end with an exception, whose way here takes 30 ms."""
    return {str(name): str(options.get(name)) for name in options.keySet().toArray()}
