"""The analyzed plan of a streaming query, read out of Spark's JVM. What is private to Spark is used here alone.

Most of it is one question, which Spark answers in JSON, without the options of sources, where secrets are. The rest is
asked of the few nodes that are stateful or read from somewhere.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from pyspark.sql import DataFrame

from holdfast.decide.expressions import Node, parse_tree
from holdfast.decide.query_reader import is_stateful, is_stream
from holdfast.errors import BadValue

__all__ = ["read_plan"]

PLACES = ("path", "subscribe", "subscribePattern", "assign", "topic", "table")
"""The options of a source that say where it reads from; no other is looked at."""
FIELDS = "spark.sql.debug.maxToStringFields"
MANY = 1_000_000


def read_plan(frame: DataFrame) -> Node:
    """The analyzed plan of a streaming DataFrame. Raises BadValue on Spark Connect, where it can't be had."""
    jdf = getattr(frame, "_jdf", None)
    if jdf is None:
        raise BadValue("query", "a pipeline needs a Spark session of its own process, not Spark Connect")
    analyzed = jdf.queryExecution().analyzed()
    session = frame.sparkSession
    before = session.conf.get(FIELDS, None)
    session.conf.set(FIELDS, MANY)
    try:
        flat = json.loads(analyzed.toJSON())
    finally:
        session.conf.set(FIELDS, before) if before is not None else session.conf.unset(FIELDS)
    plain = parse_tree(flat, {})
    facts = {node.path: _facts(node, _at(analyzed, node.path)) for node in plain.walk() if _has_more(node)}
    return parse_tree(flat, facts)


def _has_more(node: Node) -> bool:
    if not node.children:
        return is_stream(node)
    return node.kind in {"EventTimeWatermark", "Expand"} or (node.kind == "Aggregate" and is_stateful(node))


def _at(plan: Any, path: tuple[int, ...]) -> Any:
    for step in path:
        plan = plan.children().apply(step)
    return plan


def _facts(node: Node, jvm: Any) -> dict[str, Any]:
    """What the JSON of a node leaves out."""
    match node.kind:
        case "EventTimeWatermark":
            return {"delay": str(jvm.delay().toString())}
        case "Expand":
            return {"projections": [[_tree(each) for each in _each(one)] for one in _each(jvm.projections())]}
        case "Aggregate":
            functions = {str(f.canonicalized().toString()): f for f in _functions(jvm.aggregateExpressions())}
            return {
                "key types": [_type(key) for key in _each(jvm.groupingExpressions())],
                "value types": [_state_of(function) for function in functions.values()],
            }
        case "StreamingRelation":
            return {"kind": _kind(node), "place": _of_first_version(jvm), "name": _name(node, jvm)}
    options = jvm.extraOptions() if node.kind == "StreamingRelationV2" else None
    place = ", ".join(str(options.get(name)) for name in PLACES if options.get(name)) if options is not None else ""
    return {"kind": _kind(node), "place": place, "name": _name(node, jvm)}


def _kind(node: Node) -> str:
    """`kafka`, or `FileSource` of FileSource[/data/in]."""
    return str(node.says.get("sourceName") or node.kind).partition("[")[0]


def _of_first_version(jvm: Any) -> str:
    options = jvm.dataSource().options()
    found = (options.get(name) for name in PLACES)
    return ", ".join(str(value.get()) for value in found if value.isDefined())


def _name(node: Node, jvm: Any) -> str:
    """The name that a source was given by `.name()`, where this Spark has that and the query uses it."""
    if "sourceIdentifyingName" not in node.says or node.says["sourceIdentifyingName"] is not None:
        return ""
    return str(jvm.sourceIdentifyingName().toString())


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(position) for position in range(sequence.size()))


def _functions(expressions: Any) -> Iterator[Any]:
    """The aggregate functions in these expressions, in the order in which Spark keeps their state."""
    for expression in _each(expressions):
        if expression.getClass().getSimpleName() == "AggregateExpression":
            yield expression
        else:
            yield from _functions(expression.children())


def _state_of(function: Any) -> str:
    buffer = function.aggregateFunction().aggBufferSchema()
    return ", ".join(str(field.dataType().catalogString()) for field in buffer.fields())


def _type(expression: Any) -> str:
    return str(expression.dataType().catalogString())


def _tree(expression: Any) -> Node:
    return parse_tree(json.loads(expression.toJSON()), {})
