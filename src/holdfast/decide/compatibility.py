"""What would become of a checkpoint's state under a changed query: one pure judgement, change by change."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from holdfast.decide.fingerprint import DIGEST
from holdfast.decide.query_changes import CHANGES, REFUSED, Change, Verdict

__all__ = ["Finding", "judge", "refused"]

EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
MISSING = "nothing"
RETOLD = frozenset(
    {
        *("filter-below-state", "rows-below-state", "filter-moved-below-state", "aggregate-changed", "aggregate-order"),
        *("key-changed", "join-changed", "join-column-changed", "state-function"),
    }
)
"""What is found in texts that another scheme writes in another way; kinds, types, sources and sinks read alike."""


@dataclass(frozen=True)
class Finding:
    """One change: where, from what to what (None where it is too long to be kept), and what becomes of it."""

    change: Change
    where: str
    before: str | None = None
    after: str | None = None

    @property
    def name(self) -> str:
        return self.change.name

    @property
    def verdict(self) -> Verdict:
        return self.change.verdict

    @property
    def refused(self) -> bool:
        return self.verdict in REFUSED

    def __str__(self) -> str:
        if self.verdict == "kept from the checkpoint":
            return f"{self.where} stays {self.before}, though the session has {self.after}"
        told = f": {self.before} -> {self.after}" if self.before is not None and self.after is not None else ""
        return f"{self.where}{told}"


def refused(findings: Sequence[Finding], accepted: Sequence[str]) -> list[Finding]:
    """Those that a start must not go past, unless they are accepted by name."""
    return [finding for finding in findings if finding.refused and finding.name not in accepted]


def judge(
    old: Mapping[str, str],
    new: Mapping[str, str],
    pinned: Mapping[str, str] | None = None,
    session: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Every change from the query that a checkpoint was made by to the query as it is now, the worst first.

    `old` and `new` are the parts of fingerprints; one that is empty says nothing, and nothing is found. `pinned` are
    the settings in the checkpoint's offset log and `session` those of the session, where it has them.
    """
    found = list(_settings(pinned or {}, session or {}))
    if old and new:
        query = list(_sources(old, new))
        if len(_numbered(old)) == len(_numbered(new)):
            # With more or fewer sources Spark never starts, and what is said of each is not comparable.
            query += _operators(old, new)
        if old.get("scheme") != new.get("scheme"):
            query = [_retold(finding) for finding in query]
        # Where something below has changed, what comes after it has too, and nobody needs to be told.
        rest = [] if any(finding.refused for finding in query) else list(_output(old, new))
        found += [*query, *rest, *_output_mode(old, new), *_sinks(old, new)]
    order = list(CHANGES)
    return sorted(found, key=lambda finding: order.index(finding.name))


def _retold(finding: Finding) -> Finding:
    return Finding(CHANGES["query-retold"], finding.where) if finding.name in RETOLD else finding


def _find(name: str, where: str, before: str | None = None, after: str | None = None) -> Finding:
    return Finding(CHANGES[name], where, _shown(before), _shown(after))


def _shown(part: str | None) -> str | None:
    """A part as people read it; None where only its digest was kept."""
    if part is None:
        return MISSING
    if part.startswith(DIGEST):
        return None
    value = json.loads(part)
    if isinstance(value, list):
        return ", ".join(item if isinstance(item, str) else json.dumps(item) for item in value) or MISSING
    return value if isinstance(value, str) else json.dumps(value)


def _settings(pinned: Mapping[str, str], session: Mapping[str, str]) -> Iterator[Finding]:
    for name, value in sorted(pinned.items()):
        mine = session.get(name)
        if mine is None or mine == value:
            continue
        kind = "source-names" if name == EVOLUTION else "setting"
        yield Finding(CHANGES[kind], name, value, mine)


def _sources(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Finding]:
    before, after = _numbered(old), _numbered(new)
    if len(before) != len(after):
        kind = "source-added" if len(after) > len(before) else "source-removed"
        yield Finding(CHANGES[kind], "sources", str(len(before)), str(len(after)))
    elif before != after and sorted(before) == sorted(after):
        yield _find("source-order", "sources")
    else:
        for n, (was, now) in enumerate(zip(before, after, strict=True)):
            if was != now:
                yield _find("source-changed", f"source {n}", was, now)
    if old.get("source names") != new.get("source names"):
        yield _find("source-names", "names of the sources", old.get("source names"), new.get("source names"))


def _numbered(parts: Mapping[str, str], name: str = "source {}") -> list[str]:
    """The parts of these names, for 0, 1, 2, … as far as they go."""
    found: list[str] = []
    while (part := parts.get(name.format(len(found)))) is not None:
        found.append(part)
    return found


def _kinds(parts: Mapping[str, str]) -> list[str]:
    return [json.loads(kind) for kind in _numbered(parts, "operator {} kind")]


def _operators(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Finding]:
    before, after = _kinds(old), _kinds(new)
    if before != after:
        kind = _what_became(before, after)
        yield Finding(CHANGES[kind], "stateful operators", _listed(before), _listed(after))
        return
    for n, kind in enumerate(before):
        where = f"operator {n} ({kind})"
        yield from _Operator(where, _parts_of(old, n), _parts_of(new, n), kind).findings()


def _what_became(before: Sequence[str], after: Sequence[str]) -> str:
    if len(before) == len(after):
        return "operator-replaced"
    fewer, more = sorted((before, after), key=len)
    rest = iter(more)
    if not all(kind in rest for kind in fewer):
        return "operator-replaced"
    return "operator-added" if len(after) > len(before) else "operator-removed"


def _listed(kinds: Sequence[str]) -> str:
    return ", ".join(kinds) or "none"


def _parts_of(parts: Mapping[str, str], number: int) -> dict[str, str]:
    prefix = f"operator {number} "
    own = {name.removeprefix(prefix): value for name, value in parts.items() if name.startswith(prefix)}
    return {**own, "output mode": parts.get("output mode", "")}


class _Operator:
    """The changes of one stateful operator that kept its kind."""

    def __init__(self, where: str, old: Mapping[str, str], new: Mapping[str, str], kind: str) -> None:
        self._where = where
        self._old = old
        self._new = new
        self._kind = kind

    def findings(self) -> Iterator[Finding]:
        match self._kind:
            case "join":
                yield from self._join()
            case "transformWithState" | "groups with state":
                yield from self._processor()
            case "limit":
                yield from self._if_changed("modes", "limit", "the limit")
            case _:
                yield from self._key()
                yield from self._aggregates()
        yield from self._if_changed("filters", "filter-below-state", "filters below it")
        yield from self._moved_filters()
        yield from self._if_changed("rows", "rows-below-state", "rows below it")
        yield from self._if_changed("watermark", "watermark", "the watermark below it")

    def _changed(self, *parts: str) -> bool:
        return any(self._old.get(part) != self._new.get(part) for part in parts)

    def _if_changed(self, part: str, name: str, what: str) -> Iterator[Finding]:
        if self._changed(part):
            yield self._finding(name, part, what)

    def _finding(self, name: str, part: str, what: str) -> Finding:
        return _find(name, f"{self._where}, {what}", self._old.get(part), self._new.get(part))

    def _moved_filters(self) -> Iterator[Finding]:
        """Another filter on the keys alone is harmless where only keys with new rows are put out."""
        before, after = (_listed_in(parts.get("moved filters")) for parts in (self._old, self._new))
        updates = {self._old["output mode"], self._new["output mode"]} == {json.dumps("update")}
        if before is not None and after is not None and before <= after and updates and self._kind != "join":
            return
        yield from self._if_changed("moved filters", "filter-moved-below-state", "filters that Spark moves below it")

    def _key(self) -> Iterator[Finding]:
        if self._changed("key types"):
            yield self._finding("key-retyped", "keys", "the key")
        elif self._changed("keys"):
            yield self._finding("key-changed", "keys", "the key")
        yield from self._if_changed("window", "window-changed", "the window, in microseconds")

    def _aggregates(self) -> Iterator[Finding]:
        if self._changed("value types"):
            yield self._finding("aggregates-retyped", "values", "the aggregates")
        elif self._changed("values in any order"):
            yield self._finding("aggregate-changed", "values", "the aggregates")
        elif self._changed("values"):
            yield self._finding("aggregate-order", "values", "the aggregates")

    def _join(self) -> Iterator[Finding]:
        if self._changed("key types"):
            yield self._finding("key-retyped", "keys", "the condition")
        elif self._changed("keys"):
            yield self._finding("join-changed", "keys", "the condition")
        yield from self._if_changed("modes", "join-changed", "the kind of join")
        if self._changed("value types"):
            yield self._finding("join-retyped", "values", "the columns that it keeps")
        elif self._changed("values"):
            yield self._finding("join-column-changed", "values", "the columns that it keeps")

    def _processor(self) -> Iterator[Finding]:
        yield from self._key()
        yield from self._if_changed("modes", "processor-mode", "its modes")
        yield from self._if_changed("value types", "variable-retyped", "the type of its state")
        yield from self._variables()
        yield from self._if_changed("code", "state-function", "its code")

    def _variables(self) -> Iterator[Finding]:
        if not self._changed("variables"):
            return
        before, after = (_variables_in(parts.get("variables")) for parts in (self._old, self._new))
        if before is None or after is None or set(before) - set(after):
            yield self._finding("variable-renamed", "variables", "its state variables")
        elif any(after[name] != kind for name, kind in before.items()):
            yield self._finding("variable-retyped", "variables", "its state variables")
        else:
            yield self._finding("variable-added", "variables", "its state variables")


def _variables_in(part: str | None) -> dict[str, str] | None:
    """State variables by their names, each with its kind and types; None where only a digest was kept."""
    every = _listed_in(part)
    return None if every is None else {name: kind for name, _, kind in (item.partition(": ") for item in every)}


def _listed_in(part: str | None) -> frozenset[str] | None:
    """What a part lists; None where only its digest was kept."""
    if part is None:
        return frozenset()
    return None if part.startswith(DIGEST) else frozenset(json.loads(part))


def _sinks(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Finding]:
    before, after = (_sinks_in(parts) for parts in (old, new))
    for name in sorted({*before, *after}):
        was, now = before.get(name), after.get(name)
        if was is None or now is None:
            yield Finding(CHANGES["sink-added" if was is None else "sink-removed"], f"sink {name}")
        elif was.get("kind") != now.get("kind"):
            yield Finding(CHANGES["sink-moved"], f"sink {name}", str(was.get("kind")), str(now.get("kind")))
        elif was != now:
            yield Finding(CHANGES["sink-key"], f"sink {name}", _rule(was), _rule(now))


def _sinks_in(parts: Mapping[str, str]) -> dict[str, dict[str, object]]:
    every = [json.loads(part) for part in _numbered(parts, "sink {}") if not part.startswith(DIGEST)]
    return {sink["name"]: sink for sink in every}


def _rule(sink: Mapping[str, object]) -> str:
    key = sink.get("key")
    return (
        f"{sink.get('mode')} by {', '.join(map(str, key))}" if isinstance(key, list) and key else f"{sink.get('mode')}"
    )


def _output(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Finding]:
    if old.get("output") != new.get("output"):
        where = "what comes after the last stateful operator" if _kinds(new) else "the query"
        yield Finding(CHANGES["output-changed"], where)


def _output_mode(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Finding]:
    if old.get("output mode") != new.get("output mode"):
        yield _find("output-mode", "the output mode", old.get("output mode"), new.get("output mode"))
