"""The sources of a query, each as what it can be asked about."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import DataFrame

from holdfast.pipeline.sources.contract import OtherSource, Source
from holdfast.pipeline.sources.files import FileSource
from holdfast.pipeline.sources.kafka import KafkaSource
from holdfast.pipeline.sources.relations import Jvm, Relation, relations_of

__all__ = ["sources_of"]

KAFKA = ("kafka", "org.apache.spark.sql.kafka010")
FILES = "FileSource["


def sources_of(frame: DataFrame, named: Mapping[str, DataFrame]) -> list[Source]:
    """The sources of a query, in the order of Spark's offset log, by the names that the pipeline gave them."""
    relations = relations_of(frame)
    if isinstance(relations, str):
        return [OtherSource(name, relations) for name in named]
    jvm = Jvm(frame)
    return [_source(_name(relation, number, named), relation, jvm) for number, relation in enumerate(relations)]


def _name(relation: Relation, number: int, named: Mapping[str, DataFrame]) -> str:
    if len(named) == 1:
        return next(iter(named))
    return next((name for name, source in named.items() if relation.is_in(source)), str(number))


def _source(name: str, relation: Relation, jvm: Jvm) -> Source:
    if relation.kind.lower().startswith(KAFKA):
        return KafkaSource(name, relation.options, jvm)
    if relation.kind.startswith(FILES):
        return FileSource(name, relation.options, jvm)
    return OtherSource(name, f"a source of the kind {relation.kind} does not tell")
