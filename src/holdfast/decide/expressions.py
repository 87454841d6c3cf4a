"""Spark's analyzed plans as trees, and expressions of them as text that is the same on every run and machine.

Spark writes a tree as a flat list of its nodes, parents first, each with the number of its children.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Node", "attributes", "identity_of", "is_plan", "parse_tree", "plain_fields", "render", "worded"]

NOISE = frozenset(
    {
        *("class", "num-children", "child", "left", "right", "children", "exprId", "resultId", "qualifier"),
        *("metadata", "explicitMetadata", "nonInheritableMetadataKeys", "nullable", "resultIds"),
        *("evalMode", "evalContext", "failOnError", "ansiEnabled", "nullOnOverflow", "timeZoneId", "mode"),
        *("func", "evalType", "udfDeterministic", "hideSeed", "seed", "randomSeed", "nodeId"),
        *(
            "desc",
            "catalogTable",
            "id",
            "cteId",
            "predicate",
            "trueValue",
            "falseValue",
            "mutableAggBufferOffset",
            "inputAggBufferOffset",
        ),
        *("outerAttrs", "numSlices"),
    }
)
"""What a node says beside its meaning: numbers that differ in each session, and what follows from its settings.

Every cast has a `timeZoneId`, most without a use for it: where it matters it is also said as `zone`.
"""
SEEDED = frozenset({"Rand", "Randn", "Uuid", "Shuffle", "Sample", "RandStr", "Uniform"})
"""Without a seed of the user's own they get a new one each time, and nothing tells the two apart."""
PLANS = ".plans."
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
KEYED = frozenset({"AesEncrypt", "AesDecrypt", "TryAesDecrypt"})


@dataclass(frozen=True)
class Node:
    """A node of a plan or an expression: its class without the package, what it says, and what it is made of.

    `path` leads to it from the root, as numbers of children; `facts` are what had to be asked for in other ways.
    """

    kind: str
    says: Mapping[str, Any]
    children: tuple[Node, ...] = ()
    path: tuple[int, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    def trees(self, name: str) -> tuple[Node, ...]:
        """The expressions that a field holds: one, or a list of them."""
        return tuple(_trees(self.says.get(name)))

    def walk(self) -> Iterator[Node]:
        yield self
        for child in self.children:
            yield from child.walk()

    def walk_all(self) -> Iterator[Node]:
        """Every node, with those in fields: the expressions of a plan, the plan of a subquery."""
        for node in self.walk():
            yield node
            for name in node.says:
                for tree in node.trees(name):
                    yield from tree.walk_all()


def parse_tree(flat: Sequence[Mapping[str, Any]], facts: Mapping[tuple[int, ...], Mapping[str, Any]]) -> Node:
    """The tree behind Spark's flat list; `facts` are added to the nodes at these paths."""
    rest = iter(flat)

    def take(path: tuple[int, ...]) -> Node:
        says = next(rest)
        children = tuple(take((*path, number)) for number in range(says.get("num-children", 0)))
        kind = str(says["class"]).rpartition(".")[2].rstrip("$").rpartition("$")[2]
        return Node(kind, says, children, path, facts.get(path, {}))

    return take(())


def _trees(value: object) -> Iterator[Node]:
    if _is_tree(value):
        yield parse_tree(value, {})  # type: ignore[arg-type]
    elif isinstance(value, list):
        for item in value:
            yield from _trees(item)


def _is_tree(value: object) -> bool:
    return isinstance(value, list) and bool(value) and isinstance(value[0], dict) and "num-children" in value[0]


def is_plan(node: Node) -> bool:
    """Whether a node is one of a plan: that of the query, or of a subquery in an expression."""
    return PLANS in str(node.says["class"])


def identity_of(node: Node) -> int:
    """The number by which Spark knows a column in this session; -1 for what is none."""
    found = node.says.get("exprId")
    return int(found["id"]) if isinstance(found, dict) else -1


def attributes(node: Node) -> Iterator[Node]:
    """Every reference to a column in an expression."""
    return (inner for inner in node.walk() if inner.kind == "AttributeReference")


def render(node: Node, columns: Mapping[int, str], function: Callable[[str], str] = lambda name: name) -> str:
    """An expression as text: columns as `columns` has them, by their names where it has none, and without aliases.

    `function` tells a Python function by its name: the plan does not hold its body.
    """
    # Spark gives the parameters of lambdas new names each time.
    parameters: dict[int, str] = {}
    # Tables in a subquery may have columns of one name.
    others: dict[str, list[int]] = {}

    def name_of(column: int, name: str) -> str:
        namesakes = others.setdefault(name, [])
        if column not in namesakes:
            namesakes.append(column)
        number = namesakes.index(column)
        return f"{name} {number + 1}" if number else name

    def text(node: Node) -> str:
        match node.kind:
            case "AttributeReference":
                column = identity_of(node)
                return columns[column] if column in columns else name_of(column, str(node.says.get("name")))
            case "NamedLambdaVariable":
                return parameters.setdefault(identity_of(node), f"parameter {len(parameters)}")
            case "Alias":
                return text(node.children[0])
            case "Literal":
                return f"{node.says.get('value')!r}:{worded(node.says.get('dataType'))}"
            case "AggregateExpression" if len(node.children) == 1 and not node.says.get("isDistinct"):
                return text(node.children[0])
            case kind if kind in SEEDED:
                return f"{kind}()"
        inner = [text(child) for child in node.children]
        if node.kind in KEYED:
            # A key that stands in the query itself is a secret all the same.
            inner = inner[:1] + ["…" if not any(attributes(child)) else text(child) for child in node.children[1:]]
        return f"{_head(node, text, function)}({', '.join(inner)})"

    return text(node)


def _head(node: Node, text: Callable[[Node], str], function: Callable[[str], str]) -> str:
    """What a node is, without its children."""
    if node.kind in {"PythonUDF", "PythonUDAF"}:
        return function(str(node.says.get("name")))
    said = [f"{name}={value}" for name, value in plain_fields(node).items()]
    # In an expression the trees in a field are the children once more, but for the plan of a subquery: the children of
    # that are the columns that it takes from outside.
    every = not node.children or is_plan(node)
    trees = {name: [tree for tree in node.trees(name) if every or is_plan(tree)] for name in sorted(node.says)}
    said += [f"{name}={' '.join(map(text, held))}" for name, held in trees.items() if held]
    return f"{node.kind}[{' '.join(said)}]" if said else node.kind


def plain_fields(node: Node) -> dict[str, str]:
    """What a node says in plain values, but for what says nothing of its meaning."""
    return {
        name: worded(value)
        for name, value in sorted(node.says.items())
        if name not in NOISE and value is not None and value is not False and value != [] and not _holds_trees(value)
    }


def _holds_trees(value: object) -> bool:
    if isinstance(value, dict):
        return "num-children" in value or any(map(_holds_trees, value.values()))
    return isinstance(value, list) and any(map(_holds_trees, value))


def worded(value: object) -> str:
    """A value that a node says as text: an object of Spark's by its name, a type as Spark writes it."""
    if isinstance(value, dict) and set(value) == {"object"}:
        return str(value["object"]).rpartition(".")[2].rstrip("$").rpartition("$")[2]
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))
    return UUID.sub("…", text)
