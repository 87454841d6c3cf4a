"""Whether sources still have what would be read again: every answer, from facts alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from holdfast.decide.replayable import (
    KafkaFacts,
    SourceFinding,
    TopicFacts,
    Until,
    judge_files,
    judge_kafka,
    kept_until,
    soonest,
    unknown,
)

ROOT = Path(__file__).resolve().parents[2]
HOUR = 3_600_000
BEGIN = {"orders": {0: 100, 1: 200}}
READ = {"orders": {0: 150, 1: 250}}


def topic(topic_id: str = "A", first: int = 0, end: int = 1000, partitions: int = 2, **more: object) -> TopicFacts:
    numbers = range(partitions)
    return TopicFacts(topic_id, dict.fromkeys(numbers, first), dict.fromkeys(numbers, end), **more)  # type: ignore[arg-type]


def judged(now: TopicFacts | None, *, fails_on_loss: bool = True) -> list[tuple[str, str]]:
    facts = KafkaFacts({"orders": now}, fails_on_loss)
    return [(each.what, each.severity) for each in judge_kafka("events", BEGIN, READ, {"orders": "A"}, facts)]


def test_a_topic_that_has_it_all_is_fine() -> None:
    assert judged(topic()) == []
    assert judged(topic(first=100)) == []
    assert judged(topic(end=250)) == []


@pytest.mark.parametrize(
    ("now", "what"),
    [
        (None, ["topic-gone"]),
        (topic(topic_id="B"), ["topic-remade"]),
        (topic(partitions=1), ["partition-gone"]),
        (topic(first=101), ["trimmed"]),
        (topic(end=150), ["records-lost"]),
        (topic(end=120), ["records-lost", "records-lost"]),
    ],
    ids=["no topic", "another id", "fewer partitions", "trimmed", "one shorter than it was read", "both shorter"],
)
def test_what_is_gone_is_refused(now: TopicFacts | None, what: list[str]) -> None:
    assert judged(now) == [(each, "refuse") for each in what]


def test_a_topic_that_was_made_anew_with_more_records_is_known_by_its_id_alone() -> None:
    assert judged(topic(topic_id="B", end=10_000)) == [("topic-remade", "refuse")]
    facts = KafkaFacts({"orders": topic(topic_id="B", end=10_000)})
    assert judge_kafka("events", BEGIN, READ, {}, facts) == []
    assert judged(topic(topic_id="")) == []


def test_what_only_needs_to_be_known_refuses_nothing() -> None:
    assert judged(topic(partitions=3)) == [("partition-new", "note")]
    assert judged(topic(is_compacted=True)) == [("compacted", "warn")]
    assert judged(topic(), fails_on_loss=False) == [("loss-allowed", "warn")]


def test_a_finding_is_accepted_by_a_name_that_stays_and_says_how_much_is_gone() -> None:
    facts = KafkaFacts({"orders": topic(first=130, end=1000)})
    [finding] = judge_kafka("events", BEGIN, READ, {}, facts)
    assert finding.slug == "source:events:trimmed"
    assert str(finding) == (
        "source events: 30 records of partition 0 of orders are gone: it begins at 130, and is read from 100"
    )


def test_records_are_kept_for_as_long_as_the_first_of_them() -> None:
    times = {("orders", 0): 7 * HOUR, ("orders", 1): 5 * HOUR}
    facts = KafkaFacts({"orders": topic(retention_ms=24 * HOUR)}, times=times)
    assert kept_until(BEGIN, facts) == Until(29 * HOUR)
    assert kept_until(BEGIN, KafkaFacts({"orders": topic(retention_ms=24 * HOUR)})) == Until(None)
    assert kept_until(BEGIN, KafkaFacts({"orders": topic()}, times=times)) == Until(None)


def test_for_how_long_can_not_be_told_of_a_topic_that_keeps_so_many_bytes() -> None:
    assert "keeps 500 bytes" in kept_until(BEGIN, KafkaFacts({"orders": topic(retention_bytes=500)})).why
    assert "no topic" in kept_until(BEGIN, KafkaFacts({"orders": None})).why


def test_of_several_sources_the_one_that_ends_first_counts_and_one_unknown_makes_all_so() -> None:
    assert soonest([Until(), Until(5), Until(9)]) == Until(5)
    assert soonest([Until(5), Until(why="who knows")]) == Until(why="who knows")
    assert soonest([]) == Until()


def test_files_that_are_gone_are_refused_and_clean_up_is_warned_of() -> None:
    assert judge_files("events", 3, [], None) == judge_files("events", 3, [], "off") == []
    [finding] = judge_files("events", 3, ["file:///in/a"], None)
    assert (finding.slug, finding.severity) == ("source:events:files-gone", "refuse")
    assert "1 of 3 files" in finding.why
    assert [each.severity for each in judge_files("events", 0, [], "delete")] == ["warn"]


def test_of_what_can_not_be_asked_nothing_is_claimed() -> None:
    assert unknown("ticks", "a rate source does not tell") == SourceFinding(
        "ticks", "unknown", "note", "whether it can be read again can't be told: a rate source does not tell"
    )


def test_every_finding_stands_in_the_documentation() -> None:
    page = (ROOT / "docs" / "how-to" / "sources-and-retention.md").read_text(encoding="utf-8")
    documented = dict(re.findall(r"^\| `source:NAME:([a-z-]+)` \|.*\| (refused|told) \|$", page, re.MULTILINE))
    source = (ROOT / "src" / "holdfast" / "decide" / "replayable.py").read_text(encoding="utf-8")
    made = dict(re.findall(r'SourceFinding\(source, "([a-z-]+)", "(refuse|warn|note)"', source))
    assert documented == {what: "refused" if severity == "refuse" else "told" for what, severity in made.items()}
