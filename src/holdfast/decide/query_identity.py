"""What a streaming query is, in parts that can be explained: sources, each stateful operator, what comes after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from holdfast.decide.fingerprint import JSON

__all__ = ["SCHEME", "PythonCode", "StatefulOperator", "StreamingQuery", "has_operators", "parts_of"]

SCHEME = 2
"""How queries are told. Raise it with whatever gives an unchanged query other parts: without it the state of every such
query would count as another's. The first had no number.
"""


@dataclass(frozen=True)
class PythonCode:
    """The digests of Python functions by their names, and of all code that the query reaches; of state, see below.

    A function that can't be told by its name is stood for by everything. `variables` are the state variables that
    processors ask for, in their order, and `processors` is the digest of the processors' own code.
    """

    functions: Mapping[str, str] = field(default_factory=dict)
    everything: str = ""
    processors: str = ""
    variables: Sequence[str] = ()

    def of(self, name: str) -> str:
        return f"{name}@{self.functions.get(name, self.everything)[:12]}"


@dataclass(frozen=True)
class StatefulOperator:
    """A stateful operator: what it keeps, by which key, and what its state is made of.

    `keys` and `values` say what they mean, `key_types` and `value_types` what Spark compares with the state. `filters`
    are those that rows pass before they reach the state, and `moved` those that Spark moves there from above; `rows` is
    whatever else lies below, `window` the lengths of a time window.
    """

    kind: str
    keys: Sequence[str] = ()
    key_types: Sequence[str] = ()
    values: Sequence[str] = ()
    value_types: Sequence[str] = ()
    window: Sequence[str] = ()
    filters: Sequence[str] = ()
    moved: Sequence[str] = ()
    rows: JSON = None
    watermark: Sequence[str] = ()
    modes: Sequence[str] = ()
    code: str = ""
    variables: Sequence[str] = ()


@dataclass(frozen=True)
class StreamingQuery:
    """The sources in Spark's order, the stateful operators from the sources on, and what comes after the last."""

    sources: Sequence[tuple[str, str]]
    source_names: Sequence[str]
    operators: Sequence[StatefulOperator]
    output: JSON


def parts_of(query: StreamingQuery, output_mode: str, sinks: Mapping[str, Mapping[str, JSON]]) -> dict[str, JSON]:
    """What is recorded of a query with every checkpoint. `fingerprint` makes them short and takes secrets out."""
    parts: dict[str, JSON] = {"scheme": SCHEME, "output": query.output, "output mode": output_mode}
    parts |= {f"source {n}": list(source) for n, source in enumerate(query.sources)}
    parts |= {"source names": list(query.source_names)} if any(query.source_names) else {}
    # Numbered, since a part whose name looks like a secret's is left out.
    parts |= {f"sink {n}": {"name": name, **sinks[name]} for n, name in enumerate(sorted(sinks))}
    for n, operator in enumerate(query.operators):
        told: dict[str, JSON] = {
            "kind": operator.kind,
            "keys": list(operator.keys),
            "key types": list(operator.key_types),
            "values": list(operator.values),
            "values in any order": tuple(sorted(operator.values)),
            "value types": list(operator.value_types),
            "window": list(operator.window),
            "filters": list(operator.filters),
            "moved filters": list(operator.moved),
            "rows": operator.rows,
            "watermark": list(operator.watermark),
            "modes": list(operator.modes),
            "code": operator.code,
            "variables": list(operator.variables),
        }
        parts |= {f"operator {n} {name}": value for name, value in told.items() if value}
    return parts


def has_operators(parts: Mapping[str, str]) -> bool:
    """Whether a query of these parts is known to keep state."""
    return any(name.startswith("operator ") for name in parts)
