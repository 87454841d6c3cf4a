"""What a change of a query does to the state of an old one: every kind of change has a verdict and a name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.decide.compatibility import Finding, judge, refused
from holdfast.decide.consent import check_names, duplicates_in, unknown_in
from holdfast.decide.fingerprint import JSON, fingerprint
from holdfast.decide.query_changes import CHANGES, VERDICTS
from holdfast.decide.query_identity import StatefulOperator, StreamingQuery, parts_of
from holdfast.errors import BadValue

SUMS = StatefulOperator(
    kind="aggregation",
    keys=["window(source 0.time)", "source 0.key"],
    key_types=["struct<start:timestamp,end:timestamp>", "string"],
    values=["Count('1':integer)", "Sum(source 0.value)"],
    value_types=["bigint", "bigint"],
    window=["15000000"],
    filters=["IsNotNull(source 0.key)"],
    moved=["GreaterThan(source 0.key, 'a':string)"],
    rows="source 0",
    watermark=["source 0.time 20 seconds"],
)
JOIN = StatefulOperator(
    kind="join",
    keys=["EqualTo(source 0.key, source 1.key)"],
    key_types=["string", "string"],
    values=["source 0.value", "source 1.value"],
    value_types=["bigint", "bigint"],
    rows=["source 0", "source 1"],
    modes=["inner"],
)
TALLY = StatefulOperator(
    kind="transformWithState",
    keys=["source 0.key"],
    key_types=["string"],
    rows="source 0",
    modes=["update", "EventTime"],
    code="abc",
    variables=["sums: value of n LONG", "seen: map of value LONG, times LONG"],
)
FILES, TOPIC = ("FileSource", "/data/in"), ("kafka", "orders")
SINKS: dict[str, dict[str, JSON]] = {"table": {"kind": "Delta", "mode": "upsert", "key": ["key"]}}


def parts(
    *operators: StatefulOperator,
    sources: tuple[tuple[str, str], ...] = (FILES,),
    names: tuple[str, ...] = (),
    output: JSON = "all",
    mode: str = "update",
    sinks: Mapping[str, Mapping[str, JSON]] = SINKS,
) -> Mapping[str, str]:
    query = StreamingQuery(sources, names, operators, output)
    return fingerprint(**parts_of(query, mode, sinks)).parts


def changed(operator: StatefulOperator, **changes: Any) -> list[Finding]:
    return judge(parts(operator), parts(replace(operator, **changes)))


def names(findings: list[Finding]) -> list[str]:
    return [finding.name for finding in findings]


@pytest.mark.parametrize("operator", [SUMS, JOIN, TALLY], ids=lambda operator: operator.kind)
def test_the_same_query_has_no_changes(operator: StatefulOperator) -> None:
    assert judge(parts(operator), parts(operator)) == []


@pytest.mark.parametrize(
    ("operator", "changes", "found"),
    [
        (SUMS, {"filters": ["IsNotNull(source 0.key)", "GreaterThan(source 0.value, '3':long)"]}, "filter-below-state"),
        (SUMS, {"filters": []}, "filter-below-state"),
        (SUMS, {"moved": []}, "filter-moved-below-state"),
        (SUMS, {"moved": ["x" * 300]}, "filter-moved-below-state"),
        (JOIN, {"moved": ["GreaterThan(source 0.value, '9':long)"]}, "filter-moved-below-state"),
        (SUMS, {"rows": ["union", "source 0", "source 0"]}, "rows-below-state"),
        (SUMS, {"values": ["Count('1':integer)", "Max(source 0.value)"]}, "aggregate-changed"),
        (SUMS, {"values": ["Count('1':integer)", "Sum(source 0.price)"]}, "aggregate-changed"),
        (SUMS, {"values": list(reversed(SUMS.values))}, "aggregate-order"),
        (SUMS, {"keys": ["window(source 0.time)", "source 0.sku"]}, "key-changed"),
        (SUMS, {"window": ["30000000"]}, "window-changed"),
        (SUMS, {"values": [*SUMS.values, "Max(a)"], "value_types": ["bigint"] * 3}, "aggregates-retyped"),
        (SUMS, {"keys": ["source 0.key"], "key_types": ["string"]}, "key-retyped"),
        (SUMS, {"watermark": ["source 0.time 1 minute"]}, "watermark"),
        (JOIN, {"keys": ["EqualTo(source 0.key, source 1.other)"]}, "join-changed"),
        (JOIN, {"modes": ["left outer"]}, "join-changed"),
        (JOIN, {"values": ["source 0.value", "source 1.price"]}, "join-column-changed"),
        (JOIN, {"values": [*JOIN.values, "source 1.at"], "value_types": ["bigint"] * 3}, "join-retyped"),
        (TALLY, {"code": "other"}, "state-function"),
        (TALLY, {"variables": ["totals: value of n LONG", TALLY.variables[1]]}, "variable-renamed"),
        (TALLY, {"variables": [TALLY.variables[0]]}, "variable-renamed"),
        (TALLY, {"variables": ["sums: value of n INT", TALLY.variables[1]]}, "variable-retyped"),
        (TALLY, {"variables": [*TALLY.variables, "last: value of at LONG"]}, "variable-added"),
        (TALLY, {"modes": ["update", "ProcessingTime"]}, "processor-mode"),
    ],
)
def test_a_change_of_an_operator_is_found_by_its_name_and_nothing_else(
    operator: StatefulOperator, changes: dict[str, Any], found: str
) -> None:
    assert names(changed(operator, **changes)) == [found]


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ((), (SUMS,), "operator-added"),
        ((SUMS,), (), "operator-removed"),
        ((SUMS,), (SUMS, SUMS), "operator-added"),
        ((SUMS, TALLY), (TALLY,), "operator-removed"),
        ((SUMS,), (TALLY,), "operator-replaced"),
        ((SUMS, TALLY), (TALLY, SUMS), "operator-replaced"),
        ((SUMS, TALLY), (JOIN,), "operator-replaced"),
    ],
)
def test_operators_that_come_or_go_need_a_reset(
    before: tuple[StatefulOperator, ...], after: tuple[StatefulOperator, ...], found: str
) -> None:
    assert [(f.name, f.verdict) for f in judge(parts(*before), parts(*after))] == [(found, "needs reset")]


@pytest.mark.parametrize(
    ("before", "after", "found"),
    [
        ((FILES,), (TOPIC,), "source-changed"),
        ((FILES,), (("FileSource", "/data/other"),), "source-changed"),
        ((FILES,), (FILES, TOPIC), "source-added"),
        ((FILES, TOPIC), (FILES,), "source-removed"),
        ((FILES, TOPIC), (TOPIC, FILES), "source-order"),
    ],
)
def test_sources_are_told_by_their_order(
    before: tuple[tuple[str, str], ...], after: tuple[tuple[str, str], ...], found: str
) -> None:
    findings = judge(parts(SUMS, sources=before), parts(SUMS, sources=after))
    assert [(f.name, f.verdict) for f in findings] == [(found, "needs reset")]


def test_names_on_the_sources_of_an_old_checkpoint_need_a_reset() -> None:
    assert names(judge(parts(SUMS), parts(SUMS, names=("events",)))) == ["source-names"]


def test_one_more_filter_on_keys_is_harmless_where_only_changed_keys_are_put_out() -> None:
    more = replace(SUMS, moved=[*SUMS.moved, "LessThan(source 0.key, 'z':string)"])
    assert judge(parts(SUMS), parts(more)) == []
    assert names(judge(parts(SUMS, mode="append"), parts(more, mode="append"))) == ["filter-moved-below-state"]


def test_what_comes_after_the_last_stateful_operator_is_free() -> None:
    findings = judge(parts(SUMS), parts(SUMS, output=["projected"], mode="complete"))
    assert {(f.name, f.verdict) for f in findings} == {("output-changed", "compatible"), ("output-mode", "compatible")}


@pytest.mark.parametrize(
    ("sinks", "found"),
    [
        ({}, "sink-removed"),
        ({**SINKS, "auth_log": {"kind": "SQLite", "mode": "append", "key": []}}, "sink-added"),
        ({"table": {"kind": "Iceberg", "mode": "upsert", "key": ["key"]}}, "sink-moved"),
        ({"table": {"kind": "Delta", "mode": "upsert", "key": ["other"]}}, "sink-key"),
        ({"table": {"kind": "Delta", "mode": "append", "key": []}}, "sink-key"),
    ],
)
def test_sinks_are_told_by_their_names(sinks: dict[str, dict[str, JSON]], found: str) -> None:
    assert names(judge(parts(SUMS), parts(SUMS, sinks=sinks))) == [found]


def test_settings_that_the_offset_log_pins_are_kept_and_told() -> None:
    pinned = {"spark.sql.shuffle.partitions": "3", "spark.sql.streaming.stateStore.compression.codec": "lz4"}
    (kept,) = judge({}, {}, pinned, {**pinned, "spark.sql.shuffle.partitions": "200"})
    assert (kept.name, kept.verdict, kept.before, kept.after) == ("setting", "kept from the checkpoint", "3", "200")


def test_a_setting_that_the_session_does_not_have_is_no_change() -> None:
    assert judge({}, {}, {"spark.sql.shuffle.partitions": "3"}, {}) == []


def test_source_evolution_is_no_setting_that_spark_keeps() -> None:
    evolution = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
    assert names(judge({}, {}, {evolution: "false"}, {evolution: "true"})) == ["source-names"]


def test_a_checkpoint_that_says_nothing_of_its_query_proves_nothing() -> None:
    assert judge({}, parts(SUMS)) == judge(parts(SUMS), {}) == []


def test_a_change_says_from_what_to_what_as_far_as_it_was_kept() -> None:
    (short,) = changed(SUMS, window=["30000000"])
    assert (short.before, short.after) == ("15000000", "30000000")
    assert str(short) == "operator 0 (aggregation), the window, in microseconds: 15000000 -> 30000000"
    (long,) = changed(SUMS, filters=["x" * 300])
    assert long.after is None
    assert str(long) == "operator 0 (aggregation), filters below it"


def test_long_lists_of_state_variables_are_told_apart_only_as_a_whole() -> None:
    many = replace(TALLY, variables=[f"variable_{n}: value of n LONG" for n in range(20)])
    findings = judge(parts(many), parts(replace(many, variables=[*many.variables, "last: value of n LONG"])))
    assert names(findings) == ["variable-renamed"]


def test_only_what_is_accepted_by_name_is_gone_past() -> None:
    findings = changed(SUMS, filters=[], window=["1"], watermark=[])
    assert names(refused(findings, ())) == ["filter-below-state", "window-changed"]
    assert names(refused(findings, ("window-changed",))) == ["filter-below-state"]
    assert refused(findings, ("window-changed", "filter-below-state")) == []


def test_a_name_that_no_change_has_is_refused() -> None:
    check_names(tuple(CHANGES))
    check_names(("source:events:trimmed", duplicates_in("db"), unknown_in("db"), "activated-elsewhere"))
    with pytest.raises(BadValue, match="filter-above"):
        check_names(("filter-above",))


def test_changes_come_the_refused_ones_first() -> None:
    order = [
        VERDICTS.index(finding.verdict) > 1 for finding in changed(SUMS, filters=[], watermark=[], keys=["a", "b"])
    ]
    assert order == sorted(order, reverse=True)


def retold(before: StatefulOperator, after: StatefulOperator) -> list[Finding]:
    """What is found if the first was told by a Holdfast from before there were numbers of schemes."""
    old = {name: part for name, part in parts(before).items() if name != "scheme"}
    return judge(old, parts(after))


def test_the_same_words_of_another_scheme_are_the_same_query() -> None:
    assert retold(SUMS, SUMS) == []


def test_other_words_of_another_scheme_are_not_called_a_change_and_not_let_through() -> None:
    (finding,) = retold(SUMS, replace(SUMS, keys=["window(source 0.time)", "Upper[zone=UTC](source 0.key)"]))
    assert (finding.name, finding.verdict, finding.refused) == ("query-retold", "can't be told", True)
    assert finding.where == "operator 0 (aggregation), the key"
    assert refused([finding], ("query-retold",)) == []


def test_what_every_scheme_tells_alike_is_compared_over_schemes() -> None:
    assert names(retold(SUMS, replace(SUMS, window=["1"]))) == ["window-changed"]
    assert names(retold(SUMS, replace(SUMS, key_types=["string"]))) == ["key-retyped"]
    assert names(retold(SUMS, TALLY)) == ["operator-replaced"]


def test_the_documentation_has_every_change_and_what_becomes_of_it() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "change-a-query.md"
    rows = re.findall(r"^\| (.*?) \| (.*?) \| (.*?) ?\| (.*?) \|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    accepted = {name: f"`{name}`" if VERDICTS.index(change.verdict) > 1 else "" for name, change in CHANGES.items()}
    assert rows[1:] == [(change.what, change.verdict, accepted[name], change.why) for name, change in CHANGES.items()]
