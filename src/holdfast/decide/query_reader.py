"""From an analyzed plan to what the query is.

Everything is written in terms of the sources' own columns: projections, aliases and columns that nobody uses leave no
trace, since they change neither rows nor state. What is below a stateful operator decides what its state was made of.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from holdfast.decide.expressions import Node, attributes, identity_of, plain_fields, render, worded
from holdfast.decide.fingerprint import JSON
from holdfast.decide.query_identity import PythonCode, StatefulOperator, StreamingQuery

__all__ = ["describe_query", "is_stateful", "is_stream", "uses_python"]

STREAMS = frozenset(
    {"StreamingRelation", "StreamingRelationV2", "StreamingExecutionRelation", "StreamingDataSourceV2Relation"}
)
TRANSPARENT = frozenset(
    {
        *("SubqueryAlias", "View", "ResolvedHint", "LocalLimit", "CollectMetrics"),
        *("Repartition", "RepartitionByExpression", "RebalancePartitions"),
    }
)
"""These change no rows."""
GROUPED = {
    "Aggregate": "aggregation",
    "Distinct": "distinct",
    "Deduplicate": "deduplication",
    "DeduplicateWithinWatermark": "deduplication within the watermark",
    "GlobalLimit": "limit",
    "FlatMapGroupsWithState": "groups with state",
    "FlatMapGroupsInPandasWithState": "groups with state",
    "TransformWithState": "transformWithState",
    "TransformWithStateInPandas": "transformWithState",
    "TransformWithStateInPySpark": "transformWithState",
}
"""The nodes that keep state when they are over a stream; a join of two streams does too."""
OUTPUTS = ("output", "outputAttrs", "outAttrs", "generatorOutput")
MODES = ("outputMode", "timeMode", "timeout")
WINDOW = "PreciseTimestampConversion"
WINDOW_TIME = re.compile(WINDOW + r"\[fromType=timestamp\w* toType=long\]\(")
WINDOW_NUMBERS = re.compile(r"'(-?\d+)':long|Cast\[dataType=interval\]\('([^']*)'")
PLACE = re.compile(r"\b((?:source|table|operator) \d+)\.")


def is_stream(node: Node) -> bool:
    return node.kind in STREAMS or node.says.get("isStreaming") is True or any(is_stream(c) for c in node.children)


def uses_python(plan: Node) -> bool:
    """Whether a plan names functions whose bodies it does not hold."""
    return any(node.kind.startswith("PythonUD") for node in plan.walk_all())


def is_stateful(node: Node) -> bool:
    if node.kind == "Join":
        return all(is_stream(child) for child in node.children)
    return node.kind in GROUPED and is_stream(node)


def describe_query(plan: Node, code: PythonCode, names: Sequence[str]) -> StreamingQuery:
    """Cut an analyzed plan into its parts. `names` are those of its columns."""
    reader = _Reader(plan, code)
    rows = reader.read(plan)
    columns = [reader.text_of(column) for column in rows.columns]
    output: JSON = (rows.shape, tuple(sorted(rows.filters)), tuple(columns), tuple(names))
    return StreamingQuery(reader.sources, reader.source_names, reader.operators, output)


@dataclass(frozen=True)
class _Rows:
    """What a node puts out: its columns, and what became of rows since the sources or the last stateful operator."""

    columns: tuple[int, ...] = ()
    shape: JSON = None
    filters: tuple[str, ...] = ()
    watermark: tuple[str, ...] = ()
    operator: int | None = None
    """The operator that these rows come from, as long as a filter here could be moved below it."""
    sides: tuple[frozenset[str], ...] = ()
    """Of a join: the places that the columns of each side come from."""


class _Reader:
    def __init__(self, plan: Node, code: PythonCode) -> None:
        self.sources: list[tuple[str, str]] = []
        self.source_names: list[str] = []
        self.operators: list[StatefulOperator] = []
        self._tables = 0
        self._code = code
        self._columns: dict[int, str] = {}
        self._outputs: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._types = {identity_of(a): _type(a) for node in plan.walk() for a in _references(node)}
        self._plan = plan

    def text_of(self, column: int) -> str:
        return self._columns.get(column, "?")

    def read(self, node: Node) -> _Rows:
        rows = self._read(node)
        self._outputs[node.path] = rows.columns
        return rows

    def _read(self, node: Node) -> _Rows:
        if not node.children:
            return self._leaf(node)
        if is_stateful(node):
            return self._operator(node)
        match node.kind:
            case "Project":
                return self._project(node, self.read(node.children[0]))
            case "Filter":
                return self._filter(node, self.read(node.children[0]))
            case "EventTimeWatermark":
                rows = self.read(node.children[0])
                mark = f"{self._render(node.trees('eventTime')[0])} {node.facts.get('delay', '')}".strip()
                return replace(rows, watermark=(*rows.watermark, mark))
            case "Union":
                return self._union([self.read(child) for child in node.children])
            case "Expand":
                return self._expand(node, self.read(node.children[0]))
            case kind if kind in TRANSPARENT:
                return self.read(node.children[0])
        return self._other(node, [self.read(child) for child in node.children])

    def _render(self, node: Node) -> str:
        return render(node, self._columns, self._code.of)

    # ---- what keeps no state ----

    def _leaf(self, node: Node) -> _Rows:
        if is_stream(node):
            place = f"source {len(self.sources)}"
            self.sources.append((str(node.facts.get("kind", node.kind)), str(node.facts.get("place", ""))))
            self.source_names.append(str(node.facts.get("name", "")))
        else:
            place = f"table {self._tables}"
            self._tables += 1
        shape: JSON = place if is_stream(node) else [place, node.kind]
        found = _columns_in(node, "output")
        for column in found:
            self._columns[identity_of(column)] = f"{place}.{column.says.get('name')}"
        return _Rows(tuple(identity_of(column) for column in found), shape)

    def _project(self, node: Node, rows: _Rows) -> _Rows:
        return replace(rows, columns=tuple(self._define(each) for each in node.trees("projectList")))

    def _define(self, named: Node, prefix: str = "") -> int:
        identity = identity_of(named)
        if named.kind != "AttributeReference" or identity not in self._columns:
            self._columns[identity] = prefix + self._render(named)
        return identity

    def _filter(self, node: Node, rows: _Rows) -> _Rows:
        parts = [part for condition in node.trees("condition") for part in _conjuncts(condition)]
        texts = [self._render(part) for part in parts if not self._belongs_to_window(part)]
        if rows.operator is not None:
            moved = [text for text in texts if _goes_below(text, rows)]
            below = self.operators[rows.operator]
            self.operators[rows.operator] = replace(below, moved=sorted({*below.moved, *moved}))
        return replace(rows, filters=(*rows.filters, *texts))

    def _belongs_to_window(self, condition: Node) -> bool:
        """Whether Spark itself has put this filter there, to have each row in the windows that it belongs to."""
        texts = [self._render(child) for child in condition.children]
        windows = [_window_in(text) for text in texts]
        if len(texts) != 2 or not any(windows):
            return False
        return windows[0] == windows[1] or texts[0] == windows[1] or windows[0] == texts[1]

    def _union(self, branches: Sequence[_Rows]) -> _Rows:
        for together in zip(*(rows.columns for rows in branches), strict=False):
            texts = [self.text_of(column) for column in together]
            self._columns[together[0]] = f"union({', '.join(texts)})"
        shape: JSON = ["union", *(rows.shape for rows in branches)]
        return _joined(branches[0].columns, shape, branches)

    def _expand(self, node: Node, rows: _Rows) -> _Rows:
        found = _columns_in(node, "output")
        projections: Sequence[Sequence[Node]] = node.facts.get("projections", ())
        for position, column in enumerate(found):
            texts = dict.fromkeys(self._render(each[position]) for each in projections if position < len(each))
            identity = identity_of(column)
            if identity not in self._columns or len(texts) > 1:
                self._columns[identity] = f"expand({', '.join(texts)})" if texts else str(column.says.get("name"))
        columns = tuple(identity_of(column) for column in found)
        return replace(rows, columns=columns, shape=["expand", len(projections), rows.shape], operator=None)

    def _other(self, node: Node, below: Sequence[_Rows]) -> _Rows:
        """Whatever else changes rows: it is told by its name and by all that it says."""
        trees = {name: node.trees(name) for name in sorted(node.says) if name not in OUTPUTS}
        texts = {name: tuple(map(self._render, held)) for name, held in trees.items() if held}
        made = [column for name in OUTPUTS for column in _columns_in(node, name)]
        inherits = node.kind in {"Generate", "Join"} or not made
        columns = [column for rows in below for column in rows.columns] if inherits else []
        for column in made:
            inner = ", ".join(text for several in texts.values() for text in several)
            self._columns[identity_of(column)] = f"{node.kind}({inner}).{column.says.get('name')}"
        columns += [identity_of(column) for column in made]
        shape: JSON = [node.kind, plain_fields(node), texts, *(rows.shape for rows in below)]
        return _joined(tuple(columns), shape, below)

    # ---- what keeps state ----

    def _operator(self, node: Node) -> _Rows:
        below = [self.read(child) for child in node.children]
        number = len(self.operators)
        common = StatefulOperator(
            kind=_kind(node),
            filters=sorted({text for rows in below for text in rows.filters}),
            rows=[rows.shape for rows in below] if len(below) > 1 else below[0].shape,
            watermark=[mark for rows in below for mark in rows.watermark],
        )
        match node.kind:
            case "Aggregate":
                operator, columns = self._aggregation(node, common, number)
            case "Join":
                operator, columns = self._join(node, common, below)
            case "Deduplicate" | "DeduplicateWithinWatermark":
                operator, columns = self._deduplication(node, common), below[0].columns
            case "Distinct":
                keys = [self.text_of(column) for column in below[0].columns]
                types = [self._types.get(column, "?") for column in below[0].columns]
                operator, columns = replace(common, keys=keys, key_types=types), below[0].columns
            case "GlobalLimit":
                limit = [self._render(tree) for tree in node.trees("limitExpr")]
                operator, columns = replace(common, modes=limit), below[0].columns
            case _:
                operator, columns = self._processor(node, common, below[0], number)
        self.operators.append(operator)
        # Filters are moved below these alone.
        moves = node.kind in {"Aggregate", "Distinct", "Join"}
        sides = tuple(self._places(rows) for rows in below) if node.kind == "Join" else ()
        return _Rows(columns, f"operator {number}", operator=number if moves else None, sides=sides)

    def _places(self, rows: _Rows) -> frozenset[str]:
        return frozenset(place for column in rows.columns for place in PLACE.findall(self.text_of(column)))

    def _aggregation(
        self, node: Node, common: StatefulOperator, number: int
    ) -> tuple[StatefulOperator, tuple[int, ...]]:
        keys = [self._render(key) for key in node.trees("groupingExpressions")]
        outputs = node.trees("aggregateExpressions")
        functions = [inner for named in outputs for inner in named.walk() if inner.kind == "AggregateExpression"]
        values = list(dict.fromkeys(self._render(function) for function in functions))
        columns = []
        for named in outputs:
            makes = any(inner.kind == "AggregateExpression" for inner in named.walk())
            columns.append(self._define(named, f"operator {number}." if makes else ""))
        operator = replace(
            common,
            keys=[_shortened(key) for key in keys],
            key_types=node.facts.get("key types", ()),
            values=values,
            value_types=node.facts.get("value types", ()),
            window=[number for key in keys if WINDOW in key for number in _numbers(key)],
        )
        if any(WINDOW in key and "Remainder" not in key for key in keys):
            operator = replace(operator, kind="session windows")
        return operator, tuple(columns)

    def _deduplication(self, node: Node, common: StatefulOperator) -> StatefulOperator:
        keys = node.trees("keys")
        types = [_type(key) for key in keys]
        return replace(common, keys=[self._render(key) for key in keys], key_types=types)

    def _join(
        self, node: Node, common: StatefulOperator, below: Sequence[_Rows]
    ) -> tuple[StatefulOperator, tuple[int, ...]]:
        conditions = [part for tree in node.trees("condition") for part in _conjuncts(tree)]
        keep = self._used_above(node) | {identity_of(a) for part in conditions for a in attributes(part)}
        kept = [column for rows in below for column in rows.columns if column in keep]
        equal = [part for part in conditions if part.kind in {"EqualTo", "EqualNullSafe"}]
        columns = tuple(column for rows in below for column in rows.columns)
        operator = replace(
            common,
            keys=sorted(self._render(part) for part in conditions),
            key_types=sorted(self._types.get(identity_of(a), "?") for part in equal for a in attributes(part)),
            values=[self.text_of(column) for column in kept],
            value_types=[self._types.get(column, "?") for column in kept],
            modes=[worded(node.says.get("joinType"))],
        )
        return operator, columns

    def _processor(
        self, node: Node, common: StatefulOperator, below: _Rows, number: int
    ) -> tuple[StatefulOperator, tuple[int, ...]]:
        keys = [identity_of(key) for key in _columns_in(node, "groupingAttributes")]
        if not keys:
            keys = list(below.columns[: int(node.says.get("groupingAttributesLen") or 0)])
        makes = _kind(node) == "groups with state"
        functions = [inner for tree in node.trees("functionExpr") for inner in tree.walk()]
        names = [str(inner.says.get("name")) for inner in functions if inner.kind == "PythonUDF"]
        made = [column for name in OUTPUTS for column in _columns_in(node, name)]
        for column in made:
            self._columns[identity_of(column)] = f"operator {number}.{column.says.get('name')}"
        operator = replace(
            common,
            keys=[self.text_of(key) for key in keys],
            key_types=[self._types.get(key, "?") for key in keys],
            value_types=[worded(node.says["stateType"])] if "stateType" in node.says else (),
            modes=[worded(node.says[name]) for name in MODES if node.says.get(name) is not None],
            code=" ".join(map(self._code.of, names)) if makes else self._code.processors,
            variables=() if makes else tuple(self._code.variables),
        )
        return operator, tuple(identity_of(column) for column in made)

    # ---- which columns a join must keep ----

    def _used_above(self, join: Node) -> set[int]:
        """The columns of a join that anything above it looks at: Spark keeps no others in its state."""
        used: set[int] | None = None
        node = self._plan
        for step in join.path:
            if node.kind == "Project":
                wanted = [each for each in node.trees("projectList") if used is None or identity_of(each) in used]
                used = {identity_of(a) for each in wanted for a in attributes(each)}
            elif node.kind == "Aggregate":
                used = {identity_of(a) for a in _references(node)}
            elif node.kind == "Union":
                used = None
            elif used is not None:
                used |= {identity_of(a) for a in _references(node)}
            node = node.children[step]
        return used if used is not None else {c for child in join.children for c in self._outputs[child.path]}


def _kind(node: Node) -> str:
    return "join" if node.kind == "Join" else GROUPED[node.kind]


def _joined(columns: tuple[int, ...], shape: JSON, below: Sequence[_Rows]) -> _Rows:
    filters = tuple(text for rows in below for text in rows.filters)
    return _Rows(columns, shape, filters, tuple(mark for rows in below for mark in rows.watermark))


def _goes_below(text: str, rows: _Rows) -> bool:
    """Whether Spark moves a filter below the operator that rows come from: it looks only at keys, or at one side."""
    places = set(PLACE.findall(text))
    if rows.sides:
        return bool(places) and any(places <= side for side in rows.sides)
    return f"operator {rows.operator}" not in places


def _references(node: Node) -> Iterator[Node]:
    """Every reference to a column in what a node of a plan itself says."""
    for name in node.says:
        if node.children or name != "output":
            for tree in node.trees(name):
                yield from attributes(tree)


def _columns_in(node: Node, name: str) -> list[Node]:
    return [tree for tree in node.trees(name) if tree.kind == "AttributeReference"]


def _conjuncts(condition: Node) -> Iterator[Node]:
    if condition.kind == "And":
        for child in condition.children:
            yield from _conjuncts(child)
    else:
        yield condition


def _type(attribute: Node) -> str:
    return worded(attribute.says.get("dataType"))


def _shortened(key: str) -> str:
    """A key that is a time window as such: Spark writes it as a long calculation, whose numbers are told beside it."""
    time = _window_in(key) if key.startswith(("CreateNamedStruct(", "expand(CreateNamedStruct(")) else None
    return f"window({time})" if time else key


def _window_in(text: str) -> str | None:
    """The time that a window in an expression is made from; None if there is no window in it."""
    found = WINDOW_TIME.search(text)
    depth = 1
    for end in range(found.end(), len(text)) if found else ():
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        if found and depth == 0:
            return text[found.end() : end]
    return None


def _numbers(key: str) -> list[str]:
    found = dict.fromkeys(number or interval for number, interval in WINDOW_NUMBERS.findall(key))
    return [number for number in found if number != "0"]
