"""Which alerts hold, and what a receiver is still to be told: pure functions of facts, never of a clock or a network.

`judge` says what holds now, `stand` since when, `due` what a receiver has not been told yet. What it was told is
compared with what holds each time anew: nothing is queued, so a receiver that is away for a day costs no memory, and
hears of what still holds when it is back.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

from holdfast.decide.schedule import show_duration
from holdfast.text import portable

__all__ = [
    "Alert",
    "CaptureFacts",
    "Facts",
    "Judgement",
    "Message",
    "Newest",
    "Rule",
    "Rules",
    "Standing",
    "Told",
    "UpkeepFacts",
    "WayBack",
    "after_telling",
    "due",
    "judge",
    "retry_seconds",
    "stand",
]

Rule: TypeAlias = Literal["checkpoint-age", "capture", "damage", "retention", "way-back", "upkeep"]

FIRST_RETRY, LAST_RETRY = 1.0, 300.0
MOST_SHOWN = 3
"""So many faults are named in an alert; a check of the pipeline names all of them."""


# ---- facts ----


class Newest(NamedTuple):
    """The newest checkpoint that counts."""

    slot: str
    epoch: int
    timestamp_ms: int


@dataclass(frozen=True)
class CaptureFacts:
    """How the captures of a directory go. `failing` is how many failed in a row, None before the first look at it.

    `refused` says that a person is needed; `lag` is how many committed batches no checkpoint holds yet.
    """

    failing: int | None = None
    error: str = ""
    refused: bool = False
    lag: int | None = None


class UpkeepFacts(NamedTuple):
    """How often in a row a check, a prune or a look at the way back could not be carried out, and why."""

    failing: int
    error: str


@dataclass(frozen=True)
class WayBack:
    """One checkpoint that somebody may want to go back to: a savepoint, or the newest.

    `stuck` has each sink that can't go there, and why; `gone` what its sources have lost already; `until_ms` is when
    they lose more, None if never or if nobody can tell.
    """

    name: str
    stuck: Mapping[str, str] = field(default_factory=dict)
    gone: Sequence[str] = ()
    until_ms: int | None = None


@dataclass(frozen=True)
class Facts:
    """What is known of one pipeline. None stands for "not known yet", which raises no alert and clears none."""

    pipeline: str
    since_ms: int
    """When it was first looked for: what never had a checkpoint is as old as that."""
    newest: Newest | None = None
    looked: bool = False
    unseen: str = ""
    """Why the repository could not be looked at the last time."""
    capture: CaptureFacts | None = None
    damage: Sequence[str] | None = None
    ways_back: Sequence[WayBack] | None = None
    upkeep: Mapping[str, UpkeepFacts] = field(default_factory=dict)


@dataclass(frozen=True)
class Rules:
    """What is worth an alert, for one pipeline; None and False switch a rule off."""

    checkpoint_age_ms: int | None = None
    idle: bool = True
    """Whether a checkpoint can be too old when nothing was committed after it."""
    capture_failures: int | None = 3
    damage: bool = True
    retention_ms: int | None = None
    way_back: bool = True

    def asked(self) -> frozenset[Rule]:
        """The rules that are on."""
        switched: dict[Rule, bool] = {
            "checkpoint-age": self.checkpoint_age_ms is not None,
            "capture": self.capture_failures is not None,
            "upkeep": self.capture_failures is not None,
            "damage": self.damage,
            "retention": self.retention_ms is not None,
            "way-back": self.way_back,
        }
        return frozenset(rule for rule, on in switched.items() if on)


# ---- what holds ----


@dataclass(frozen=True)
class Alert:
    """Something that a person should know. `subject` tells several of one rule and pipeline apart, such as sinks."""

    rule: Rule
    pipeline: str
    summary: str
    hint: str
    subject: str = ""

    @property
    def key(self) -> str:
        """The same for the same cause, whoever finds it and whenever."""
        return _key(self.rule, self.pipeline, self.subject)


def _portable(alert: Alert) -> Alert:
    """The same, in words that reach every receiver."""
    words = portable(alert.summary), portable(alert.hint), portable(alert.subject)
    return Alert(alert.rule, alert.pipeline, *words)


def _key(*parts: str) -> str:
    return "/".join(part for part in parts if part)


@dataclass(frozen=True)
class Judgement:
    """What holds. `known` are the keys below which that is all; of others nothing is known yet.

    `asked` are the rules and pipelines that are looked at, None while not all pipelines are known yet.
    """

    holding: Mapping[str, Alert]
    known: frozenset[str]
    asked: frozenset[tuple[Rule, str]] | None


def judge(pipelines: Iterable[tuple[Facts, Rules]], now_ms: int, *, complete: bool = True) -> Judgement:
    """What holds now. Say `complete=False` while pipelines may be missing: their alerts then stay as they are."""
    holding: dict[str, Alert] = {}
    known: set[str] = set()
    asked: set[tuple[Rule, str]] = set()
    for facts, rules in pipelines:
        on = rules.asked()
        asked |= {(rule, facts.pipeline) for rule in on}
        for rule, subject, alerts in _judge_one(facts, rules, now_ms):
            if rule in on:
                known.add(_key(rule, facts.pipeline, subject))
                holding |= {alert.key: alert for alert in map(_portable, alerts)}
    return Judgement(holding, frozenset(known), frozenset(asked) if complete else None)


def _judge_one(facts: Facts, rules: Rules, now_ms: int) -> Iterator[tuple[Rule, str, Iterable[Alert]]]:
    """The alerts of each rule whose facts are known, with the subject if it is known of that alone."""
    name = facts.pipeline
    if rules.checkpoint_age_ms is not None and (facts.looked or facts.unseen):
        old = list(_too_old(facts, rules, rules.checkpoint_age_ms, now_ms))
        if facts.looked or old:
            # What could not be seen so far may well be too old, and was told so before.
            yield "checkpoint-age", "", old
    if rules.capture_failures is not None:
        if facts.capture is not None and (facts.capture.failing is not None or facts.capture.refused):
            yield "capture", "", _failing(name, facts.capture, rules.capture_failures)
        for kind, upkeep in sorted(facts.upkeep.items()):
            yield "upkeep", kind, _upkeep(name, kind, upkeep, rules.capture_failures)
    if facts.damage is not None:
        yield "damage", "", _damaged(name, facts.damage)
    if facts.ways_back is not None:
        yield "way-back", "", _stuck(name, facts.ways_back)
        if rules.retention_ms is not None:
            yield "retention", "", _expiring(name, facts.ways_back, rules.retention_ms, now_ms)


def _too_old(facts: Facts, rules: Rules, limit_ms: int, now_ms: int) -> Iterator[Alert]:
    lag = facts.capture.lag if facts.capture else None
    if lag == 0 and not facts.unseen and not rules.idle:
        return
    began_ms = facts.newest.timestamp_ms if facts.newest else facts.since_ms
    age_ms = now_ms - began_ms
    if age_ms < limit_ms:
        return
    name, shown = facts.pipeline, _span(age_ms)
    if facts.newest is None:
        summary = f"{name} has no checkpoint, {shown} after it was first looked for"
    else:
        summary = f"the newest checkpoint of {name} ({facts.newest.slot}, epoch {facts.newest.epoch}) is {shown} old"
    if facts.unseen:
        summary += f", and the repository can't be looked at: {facts.unseen}"
    elif lag:
        summary += f"; {lag} {'batch was' if lag == 1 else 'batches were'} committed since"
    elif lag == 0:
        summary += "; nothing was committed since"
    hint = f"See that the query runs and that its captures do; it may be {show_duration(limit_ms)} old."
    yield Alert("checkpoint-age", name, summary, hint)


def _failing(pipeline: str, capture: CaptureFacts, limit: int) -> Iterator[Alert]:
    if capture.refused:
        summary = f"{pipeline} is not captured any more: {capture.error}"
        yield Alert("capture", pipeline, summary, "Somebody has to decide: it is tried again each minute.")
    elif capture.failing is not None and capture.failing >= limit:
        summary = f"{capture.failing} captures of {pipeline} in a row have failed: {capture.error}"
        yield Alert("capture", pipeline, summary, "It is tried again by itself. The query is not affected.")


def _upkeep(pipeline: str, kind: str, upkeep: UpkeepFacts, limit: int) -> Iterator[Alert]:
    if upkeep.failing >= limit:
        summary = f"the {kind} of {pipeline} failed {upkeep.failing} times in a row: {upkeep.error}"
        yield Alert("upkeep", pipeline, summary, "It is tried again by itself.", kind)


def _damaged(pipeline: str, damage: Sequence[str]) -> Iterator[Alert]:
    if damage:
        more = f", and {len(damage) - MOST_SHOWN} more" if len(damage) > MOST_SHOWN else ""
        summary = f"{pipeline} is damaged: {'; '.join(damage[:MOST_SHOWN])}{more}"
        hint = f"`holdfast check {pipeline} --read-data` tells all of it, with --repair it mends what can be mended."
        yield Alert("damage", pipeline, summary, hint)


def _stuck(pipeline: str, ways: Sequence[WayBack]) -> Iterator[Alert]:
    by_sink: dict[str, list[tuple[str, str]]] = {}
    for way in ways:
        for sink, why in way.stuck.items():
            by_sink.setdefault(sink, []).append((way.name, why))
    for sink, found in sorted(by_sink.items()):
        names = ", ".join(name for name, _ in found)
        summary = f"the sink {sink} of {pipeline} can't go back to {names} any more: {found[0][1]}"
        hint = "Keep the table's versions for longer, or remove the savepoints that are not needed."
        yield Alert("way-back", pipeline, summary, hint, sink)


def _expiring(pipeline: str, ways: Sequence[WayBack], margin_ms: int, now_ms: int) -> Iterator[Alert]:
    gone = [f"{way.name} ({way.gone[0]})" for way in ways if way.gone]
    near = [(way.until_ms, way.name) for way in ways if not way.gone and way.until_ms is not None]
    near = sorted((until, name) for until, name in near if until - now_ms < margin_ms)
    said = []
    if gone:
        said.append(f"what comes after {', '.join(gone)} is gone from its sources")
    if near:
        left = _span(max(0, near[0][0] - now_ms))
        said.append(f"in {left} the sources begin to lose what comes after {', '.join(name for _, name in near)}")
    if said:
        hint = "Keep the topic for longer, or go back to a newer checkpoint while its rows can still be read."
        yield Alert("retention", pipeline, f"{pipeline}: {'; '.join(said)}", hint)


def _span(milliseconds: int) -> str:
    """A time span as people say it, in its largest unit that makes at least two."""
    for unit, length in (("days", 86_400_000), ("h", 3_600_000), ("min", 60_000)):
        if milliseconds >= 2 * length:
            return f"{milliseconds // length} {unit}"
    return f"{max(0, milliseconds) // 1000} s"


# ---- since when ----


@dataclass(frozen=True)
class Standing:
    """An alert that holds, and since when."""

    alert: Alert
    since_ms: int


def stand(before: Mapping[str, Standing], judgement: Judgement, now_ms: int) -> dict[str, Standing]:
    """What holds from now on: what was found now, and what held before and nobody has looked at since.

    An alert of a pipeline or rule that nobody asks about any more goes.
    """
    standing = {
        key: old for key, old in before.items() if key not in judgement.holding and _is_open(old.alert, judgement)
    }
    for key, alert in judgement.holding.items():
        standing[key] = Standing(alert, before[key].since_ms if key in before else now_ms)
    return standing


def _is_open(alert: Alert, judgement: Judgement) -> bool:
    """Whether nobody has looked since an alert was found, and somebody still will."""
    above = {_key(alert.rule, alert.pipeline), alert.key}
    return above.isdisjoint(judgement.known) and (
        judgement.asked is None or (alert.rule, alert.pipeline) in judgement.asked
    )


# ---- what to tell ----


@dataclass(frozen=True)
class Told:
    """What a receiver was told of an alert, and how often; kept until it was told that it is over."""

    alert: Alert
    since_ms: int
    at_ms: int
    times: int = 1


@dataclass(frozen=True)
class Message:
    """What a receiver is to be told. `times` counts how often it was told that this holds, with this one."""

    status: Literal["firing", "resolved"]
    alert: Alert
    since_ms: int
    times: int


def due(
    told: Mapping[str, Told], standing: Mapping[str, Standing], now_ms: int, repeat_ms: int | None = None
) -> list[Message]:
    """What one receiver is to be told now, oldest first, what is over before what holds.

    What came and went before it could be told is not told any more.
    """
    over = [
        Message("resolved", old.alert, old.since_ms, old.times)
        for key, old in told.items()
        if key not in standing or standing[key].since_ms != old.since_ms
    ]
    holds = []
    for key, now in standing.items():
        old = told.get(key)
        if old is None or old.since_ms != now.since_ms:
            holds.append(Message("firing", now.alert, now.since_ms, 1))
        elif repeat_ms is not None and not 0 <= now_ms - old.at_ms < repeat_ms:
            holds.append(Message("firing", now.alert, now.since_ms, old.times + 1))
    return sorted(over, key=lambda m: m.since_ms) + sorted(holds, key=lambda m: m.since_ms)


def after_telling(told: Mapping[str, Told], message: Message, now_ms: int) -> dict[str, Told]:
    """What the receiver has been told once it took a message."""
    key = message.alert.key
    if message.status == "resolved":
        return {other: old for other, old in told.items() if other != key}
    return {**told, key: Told(message.alert, message.since_ms, now_ms, message.times)}


def retry_seconds(failures: int) -> float:
    """How long to leave a receiver alone that did not take a message so many times in a row."""
    return min(LAST_RETRY, FIRST_RETRY * 2.0 ** min(failures - 1, 20))
