"""The analyzed plan of a streaming query, read out of Spark's JVM. What is private to Spark is used here alone.

Most of it is one question, which Spark answers in JSON, without the options of sources, where secrets are. The rest is
asked of the few nodes that are stateful or read from somewhere, and of expressions that are not told whole.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any, cast

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.sql import DataFrame

from holdfast.decide.expressions import Node, is_plan, parse_tree
from holdfast.decide.fingerprint import is_secret
from holdfast.decide.query_reader import is_stateful, is_stream
from holdfast.decide.zones import may_depend_on_zone, needs_zone, zone_name
from holdfast.errors import BadValue

__all__ = ["read_plan"]

PLACES = ("path", "subscribe", "subscribePattern", "assign", "topic", "table")
"""The options of a source that say where it reads from; no other is looked at."""
FIELDS = "spark.sql.debug.maxToStringFields"
MANY = 1_000_000
ZONE = "spark.sql.session.timeZone"


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
    completion = _Completion(str(session.conf.get(ZONE, "")))
    completion.of_plan(plain, analyzed)
    facts = {node.path: _facts(node, _at(analyzed, node.path), completion) for node in plain.walk() if _has_more(node)}
    return parse_tree(flat, facts)


def _has_more(node: Node) -> bool:
    if not node.children:
        return is_stream(node)
    return node.kind in {"EventTimeWatermark", "Expand"} or (node.kind == "Aggregate" and is_stateful(node))


class _Completion:
    """Adds to the expressions of a plan what JSON leaves out of them: options, and the zone where it matters.

    It is written into what the nodes say, so into Spark's own list, which whoever parses it again finds.
    """

    def __init__(self, zone: str) -> None:
        self._zone = zone

    def of_plan(self, plan: Node, jvm: Any) -> None:
        for node in plan.walk():
            trees = [tree for name in node.says for tree in node.trees(name) if not is_plan(tree)]
            if any(_lacks(inner) for tree in trees for inner in tree.walk()):
                expressions = _at(jvm, node.path).expressions()
                # Spark lists the expressions of a node in the order of its fields, as its JSON does.
                for position, tree in enumerate(trees[: expressions.size()]):
                    self.of_expression(tree, expressions.apply(position))

    def of_expression(self, tree: Node, jvm: Any) -> None:
        for node in tree.walk():
            if _lacks(node):
                self._complete(node, _at(jvm, node.path))

    def _complete(self, node: Node, jvm: Any) -> None:
        says = cast("dict[str, Any]", node.says)
        for subquery in node.trees("plan"):
            self.of_plan(subquery, jvm.plan())
        if "options" in says:
            says["options"] = _options(jvm)
        if node.kind == "Literal":
            # As text it stands in the session's zone: the same text is another instant in another zone.
            says["value"] = f"{jvm.value()} µs"
        elif node.kind == "CurrentTimeZone":
            says["zone"] = zone_name(self._zone)
        elif may_depend_on_zone(node):
            types = [_type(jvm), *(_type(child) for child in _each(jvm.children()))]
            if needs_zone(node, types):
                says["zone"] = zone_name(str(says["timeZoneId"]))


def _lacks(node: Node) -> bool:
    if node.kind == "Literal":
        return node.says.get("dataType") == "timestamp" and node.says.get("value") is not None
    said = node.says
    return "options" in said or "plan" in said or node.kind == "CurrentTimeZone" or may_depend_on_zone(node)


def _options(jvm: Any) -> str | None:
    """The options of a function by their names, each value as a digest; None if there are none, or if it hides them."""
    try:
        pairs = [(str(pair._1()), str(pair._2())) for pair in _each(jvm.options().toSeq())]
    except Py4JError:
        return None
    told = [(name.lower(), hashlib.sha256(value.encode()).hexdigest()) for name, value in pairs if not is_secret(name)]
    return ", ".join(f"{name}@{digest[:12]}" for name, digest in sorted(told)) or None


def _at(plan: Any, path: tuple[int, ...]) -> Any:
    for step in path:
        plan = plan.children().apply(step)
    return plan


def _facts(node: Node, jvm: Any, completion: _Completion) -> dict[str, Any]:
    """What the JSON of a node leaves out."""
    match node.kind:
        case "EventTimeWatermark":
            return {"delay": str(jvm.delay().toString())}
        case "Expand":
            projections = _each(jvm.projections())
            return {"projections": [[_tree(each, completion) for each in _each(one)] for one in projections]}
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


def _tree(expression: Any, completion: _Completion) -> Node:
    tree = parse_tree(json.loads(expression.toJSON()), {})
    completion.of_expression(tree, expression)
    return tree
