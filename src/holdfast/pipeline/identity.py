"""What a pipeline is, recorded with every checkpoint: small, the same on every run and machine, without secrets."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from pyspark.sql import DataFrame

from holdfast.decide.fingerprint import JSON, Fingerprint, fingerprint
from holdfast.decide.query_identity import PythonCode, parts_of
from holdfast.decide.query_reader import describe_query, uses_python
from holdfast.pipeline.analyzed import read_plan
from holdfast.pipeline.code import read_code
from holdfast.sinks.contract import Sink

__all__ = ["identify"]


def identify(
    frame: DataFrame, query: Callable[..., object], output_mode: str, sinks: Mapping[str, Sink]
) -> Fingerprint:
    """The fingerprint of a query whose rows are `frame`, made by `query`. Nothing is run."""
    plan = read_plan(frame)
    code = read_code(query) if uses_python(plan) else PythonCode()
    described = describe_query(plan, code, frame.columns)
    kinds: dict[str, dict[str, JSON]] = {
        name: {"kind": type(sink).__name__, "mode": sink.mode, "key": list(sink.key)} for name, sink in sinks.items()
    }
    return fingerprint(**parts_of(described, output_mode, kinds))
