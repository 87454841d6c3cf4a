"""It was asked for wrongly: exit 2."""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.errors.base import HoldfastError

__all__ = [
    "BadConfig",
    "BadInput",
    "BadKey",
    "BadName",
    "BadReference",
    "BadURL",
    "BadValue",
    "NotCheckpointable",
    "NotLoadable",
    "NotMutable",
    "SinkUnfit",
]


class BadInput(HoldfastError):
    """The caller's words are off; nothing was done."""

    exit_code = 2


@dataclass(eq=False)
class BadName(BadInput):
    what: str
    name: str
    code = "HF-6001"
    template = "{name!r} is no name for a {what}"
    advice = "Letters, digits, dot, dash and underscore; 1 to 200 of them; no leading dot; now and latest are reserved."


@dataclass(eq=False)
class BadURL(BadInput):
    url: str
    why: str
    code = "HF-6002"
    template = "{url}: {why}"
    advice = "A path, or file://, memory://, s3://, gs://, az://."


@dataclass(eq=False)
class BadReference(BadInput):
    reference: str
    why: str
    code = "HF-6003"
    template = "{reference!r} names no checkpoint: {why}"
    advice = "PIPELINE, PIPELINE@SAVEPOINT, PIPELINE@ID-PREFIX, PIPELINE@epoch:N, PIPELINE@slot:G-N or PIPELINE@time:…"


@dataclass(eq=False)
class BadValue(BadInput):
    what: str
    why: str
    code = "HF-6004"
    template = "{what}: {why}"


@dataclass(eq=False)
class BadKey(BadInput):
    where: str
    why: str
    code = "HF-6020"
    template = "{where}: {why}"
    advice = "A key is one line that begins with holdfast-key-1: and is made by `holdfast key new FILE`."


@dataclass(eq=False)
class SinkUnfit(BadInput):
    sink: str
    why: str
    code = "HF-6007"
    template = "sink {sink!r}: {why}"
    advice = "Nothing was written. Change the query, the sink or the table, and start again: it goes on where it was."


@dataclass(eq=False)
class NotLoadable(BadInput):
    target: str
    why: str
    code = "HF-6008"
    template = "{target}: {why}"
    advice = (
        "MODULE:ATTR names a Pipeline, or a function without arguments that returns one; this folder is searched too."
    )


@dataclass(eq=False)
class BadConfig(BadInput):
    """`place` is the key in the file, with dots; empty where the file as a whole is meant."""

    file: str
    place: str
    why: str
    code = "HF-6030"
    template = "{file}: {place}: {why}"
    advice = "`holdfast watch --config FILE --check` says what a file means; docs/reference/config.md has every key."

    @property
    def message(self) -> str:
        return ": ".join(part for part in (self.file, self.place, self.why) if part)


@dataclass(eq=False)
class NotCheckpointable(BadInput):
    kind: str
    code = "HF-6005"
    template = "a {kind} can't be checkpointed"
    advice = "Give it checkpoint() -> bytes and restore(bytes), or build it from the ready types."


@dataclass(eq=False)
class NotMutable(NotCheckpointable):
    code = "HF-6006"
    template = "a bare {kind} can't be restored in place"
    advice = "Wrap it: register Cell(value), and read and set its .value."
