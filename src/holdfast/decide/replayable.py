"""Whether what a start would read again is still in its sources, and for how long: a judgement of facts, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

__all__ = [
    "KafkaFacts",
    "Offsets",
    "SourceFinding",
    "TopicFacts",
    "Until",
    "judge_files",
    "judge_kafka",
    "kept_until",
    "soonest",
    "unknown",
]

Offsets: TypeAlias = Mapping[str, Mapping[int, int]]
"""The next offset to be read of each partition of each topic."""

Severity: TypeAlias = Literal["refuse", "warn", "note"]


@dataclass(frozen=True)
class SourceFinding:
    """One thing that was found out about a source. A start with one to refuse needs it accepted by its `slug`."""

    source: str
    what: str
    severity: Severity
    why: str

    @property
    def slug(self) -> str:
        return f"source:{self.source}:{self.what}"

    def __str__(self) -> str:
        return f"source {self.source}: {self.why}"


@dataclass(frozen=True)
class Until:
    """For how long something can be read again: up to a time, for ever (None), or as nobody can tell (`why`)."""

    ms: int | None = None
    why: str = ""


@dataclass(frozen=True)
class TopicFacts:
    """A topic as the brokers have it: the first offset of each partition that is there, and the one after the last."""

    id: str
    first: Mapping[int, int]
    end: Mapping[int, int]
    retention_ms: int | None = None
    """How long a record is kept at least; None for ever."""
    retention_bytes: int | None = None
    is_compacted: bool = False


@dataclass(frozen=True)
class KafkaFacts:
    """The topics that are asked about, None for one that is not there; does Spark stop where records are gone?"""

    topics: Mapping[str, TopicFacts | None]
    fails_on_loss: bool = True
    times: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """When the first record that is to be read was written, for each partition that has one."""


def judge_kafka(
    source: str, begin: Offsets, furthest: Offsets, ids: Mapping[str, str], facts: KafkaFacts
) -> list[SourceFinding]:
    """What stands in the way of reading topics again from `begin`.

    `furthest` is how far they were ever read, `ids` are those that the topics had then, as far as they were recorded:
    a topic that was made anew may have more records than the old one, and then only the id tells.
    """
    found = [finding for topic in sorted(begin) for finding in _judge_topic(source, topic, begin, furthest, ids, facts)]
    if not facts.fails_on_loss:
        why = "failOnDataLoss is false: where records are gone Spark goes on without them, and without a word"
        found.append(SourceFinding(source, "loss-allowed", "warn", why))
    return found


def _judge_topic(
    source: str, topic: str, begin: Offsets, furthest: Offsets, ids: Mapping[str, str], facts: KafkaFacts
) -> Iterator[SourceFinding]:
    now = facts.topics.get(topic)
    if now is None:
        yield SourceFinding(source, "topic-gone", "refuse", f"there is no topic {topic} any more")
        return
    if ids.get(topic) and now.id and ids[topic] != now.id:
        yield SourceFinding(source, "topic-remade", "refuse", f"the topic {topic} was deleted and made anew")
        return
    wanted = begin[topic]
    gone = sorted(partition for partition in wanted if partition not in now.end)
    if gone:
        shown = ", ".join(map(str, gone))
        yield SourceFinding(source, "partition-gone", "refuse", f"the topic {topic} has no partition {shown} any more")
    for partition in sorted(wanted.keys() - gone):
        first, end = now.first[partition], now.end[partition]
        read = max(wanted[partition], furthest.get(topic, {}).get(partition, 0))
        where = f"partition {partition} of {topic}"
        if end < read:
            why = f"{where} ends at {end}, and was read up to {read}: it was made anew, or has lost records"
            yield SourceFinding(source, "records-lost", "refuse", why)
        elif first > wanted[partition]:
            why = f"{first - wanted[partition]} records of {where} are gone: it begins at {first}, and is read from "
            yield SourceFinding(source, "trimmed", "refuse", f"{why}{wanted[partition]}")
    new = sorted(now.end.keys() - wanted.keys())
    if new:
        shown = ", ".join(map(str, new))
        yield SourceFinding(source, "partition-new", "note", f"partition {shown} of {topic} is read from its beginning")
    if now.is_compacted:
        why = f"the topic {topic} is compacted: what is read again may be fewer records than there were"
        yield SourceFinding(source, "compacted", "warn", why)


def kept_until(begin: Offsets, facts: KafkaFacts) -> Until:
    """Until when all records from `begin` on are there. What was not written yet needs no keeping."""
    limits = []
    for topic, partitions in sorted(begin.items()):
        now = facts.topics.get(topic)
        if now is None:
            return Until(why=f"there is no topic {topic}")
        if now.retention_bytes is not None:
            return Until(why=f"{topic} keeps {now.retention_bytes} bytes of each partition, however old")
        written = [facts.times[topic, partition] for partition in partitions if (topic, partition) in facts.times]
        if now.retention_ms is not None and written:
            limits.append(min(written) + now.retention_ms)
    return Until(min(limits, default=None))


def judge_files(source: str, needed: int, gone: Sequence[str], clean_source: str | None) -> list[SourceFinding]:
    """What stands in the way of reading files again, given how many are needed and which of them are not there."""
    found = []
    if gone:
        why = f"{len(gone)} of {needed} files that are to be read again are gone, such as {gone[0]}"
        found.append(SourceFinding(source, "files-gone", "refuse", why))
    if clean_source and clean_source.lower() != "off":
        why = f"cleanSource is {clean_source}: files are taken away once they are read, and can't be read again"
        found.append(SourceFinding(source, "cleaned", "warn", why))
    return found


def unknown(source: str, why: str) -> SourceFinding:
    """Nothing can be told of a source: that bars no start, since Spark itself may know more."""
    return SourceFinding(source, "unknown", "note", f"whether it can be read again can't be told: {why}")


def soonest(several: Iterable[Until]) -> Until:
    """For how long all of them hold: as long as the first that ends, and unknown if one is."""
    found = list(several)
    for each in found:
        if each.why:
            return each
    return Until(min((each.ms for each in found if each.ms is not None), default=None))
