"""It could be done and would do harm: exit 6."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.errors.base import HoldfastError

__all__ = [
    "ChainBroken",
    "DirectoryTaken",
    "FingerprintMismatch",
    "FormatTooNew",
    "HasSinks",
    "InvalidManifest",
    "KeyInUse",
    "KeyMissing",
    "NotACopy",
    "NotActivated",
    "NotAllowed",
    "NotCapturable",
    "NotDeterministic",
    "NotEncrypted",
    "NotHealable",
    "OtherBoundaries",
    "OtherTimeline",
    "PipelineExists",
    "PlaceNotEmpty",
    "QueryChanged",
    "Refused",
    "SinkLogGone",
    "SinkTaken",
    "SinksAhead",
    "SourceCleans",
    "SourcesGone",
    "SparkRejects",
    "StateFixed",
    "StateUnreadable",
    "StillNeeded",
    "StillRunning",
    "UnfinishedRestore",
    "UnsafeStore",
    "Unsettled",
    "VersionGone",
    "WouldDecrypt",
    "WrongKey",
]


class Refused(HoldfastError):
    """It could be done, but something would be lost by it."""

    exit_code = 6


@dataclass(eq=False)
class UnsafeStore(Refused):
    url: str
    why: str
    code = "HF-5001"
    template = "{url} can't hold a repository: {why}"
    advice = "Holdfast needs create-if-absent (If-None-Match: *) that holds under a race. Use another server."


@dataclass(eq=False)
class StillNeeded(Refused):
    checkpoint: str
    by: Sequence[str]
    code = "HF-5002"
    template = "{checkpoint} is still needed: {by}"
    advice = "Remove what needs it first: a savepoint, a pin, or wait until newer checkpoints stand on their own."


@dataclass(eq=False)
class FingerprintMismatch(Refused):
    checkpoint: str
    differences: Sequence[str]
    code = "HF-5003"
    template = "{checkpoint} was taken by a different pipeline: {differences}"
    advice = "If the change is meant and the state still fits, say so: allow_changed=True, or --allow-changed."


@dataclass(eq=False)
class FormatTooNew(Refused):
    what: str
    version: str
    code = "HF-5004"
    template = "{what} has format {version}, which is newer than this Holdfast reads"
    advice = "Upgrade Holdfast on this machine."


@dataclass(eq=False)
class NotActivated(Refused):
    pipeline: str
    code = "HF-5005"
    template = "pipeline {pipeline!r} is a copy here; only its copier may change it"
    advice = "Work on the original, or take the copy over: `holdfast standby --activate`, or start(…, activate=True)."


@dataclass(eq=False)
class Unsettled(Refused):
    checkpoint: str
    sinks: Sequence[str]
    code = "HF-5006"
    template = "the sinks of {checkpoint} are not all committed: {sinks}"
    advice = "Settle them first: recover() with a callback for each sink, or settle() on the running checkpointer."


@dataclass(eq=False)
class SinksAhead(Refused):
    checkpoint: str
    sinks: Sequence[str]
    code = "HF-5007"
    template = "beginning at {checkpoint} would leave sinks elsewhere than the state: {sinks}"
    advice = (
        "Give each sink a way back (sideways: can_jump), or accept that one gets rows twice: accept_duplicates=True in "
        "a loop, accept=['duplicates:SINK'] for a pipeline."
    )


@dataclass(eq=False)
class PlaceNotEmpty(Refused):
    place: str
    code = "HF-5008"
    template = "{place} is not empty"
    advice = "Restore writes only into a new or empty place."


@dataclass(eq=False)
class InvalidManifest(Refused):
    checkpoint: str
    findings: Sequence[str]
    code = "HF-5009"
    template = "the manifest of {checkpoint} does not hold together: {findings}"
    advice = "Take another checkpoint; `holdfast show` prints all findings."


@dataclass(eq=False)
class OtherTimeline(Refused):
    directory: str
    pipeline: str
    why: str
    code = "HF-5010"
    template = "{directory} is not where pipeline {pipeline!r} goes on: {why}"
    advice = "Give the directory that runs now, another pipeline name, or --new-timeline to begin from this one."


@dataclass(eq=False)
class NotCapturable(Refused):
    directory: str
    why: str
    code = "HF-5011"
    template = "{directory} can't be captured: {why}"
    advice = "Nothing was written. The documentation lists which queries can be captured."


@dataclass(eq=False)
class SparkRejects(Refused):
    checkpoint: str
    version: str
    why: str
    code = "HF-5012"
    template = "Spark {version} can't go on from {checkpoint}: {why}"
    advice = "Nothing was written. If another Spark is to run it, name that one: --spark VERSION."


@dataclass(eq=False)
class HasSinks(Refused):
    checkpoint: str
    sinks: Sequence[str]
    code = "HF-5013"
    template = "{checkpoint} has sinks that a directory alone would leave where they are: {sinks}"
    advice = "Take the pipeline itself back, so that its sinks go with it; or only the state and offsets: --state-only."


@dataclass(eq=False)
class UnfinishedRestore(Refused):
    place: str
    checkpoint: str
    code = "HF-5014"
    template = "{place} holds another restore that was cut off, of checkpoint {checkpoint}"
    advice = "Run that one again to finish it, or delete what is there; Spark does not start from it as it is."


@dataclass(eq=False)
class SinkLogGone(Refused):
    sink: str
    epoch: int
    why: str
    code = "HF-5015"
    template = "the log of the file sink {sink} can't be cut back to batch {epoch}: {why}"
    advice = "Nothing was written. Captures with --file-sink keep the log; or start the query with a new sink path."


@dataclass(eq=False)
class ChainBroken(Refused):
    sink: str
    before: str
    after: str
    holds: str
    code = "HF-5016"
    template = "sink {sink!r} holds {holds}; what goes from {before} to {after} does not join on"
    advice = "Rows would be lost or doubled, so nothing was written. `holdfast plan` says where each sink stands."


@dataclass(eq=False)
class SinkTaken(Refused):
    sink: str
    pipeline_id: str
    code = "HF-5017"
    template = "sink {sink!r} belongs to pipeline {pipeline_id}"
    advice = "Give each pipeline targets of its own: two would overwrite each other's place in it."


@dataclass(eq=False)
class OtherBoundaries(Refused):
    pipeline: str
    epoch: int
    code = "HF-5018"
    template = "epoch {epoch} of {pipeline!r} was decided on other source offsets than Spark runs it on now"
    advice = (
        "Start it again: what was decided is laid down and run first. A directory that was edited must be restored."
    )


@dataclass(eq=False)
class NotDeterministic(Refused):
    pipeline: str
    epoch: int
    why: str
    code = "HF-5019"
    template = "epoch {epoch} of {pipeline!r} gives other rows than it did, and {why}"
    advice = (
        "Something in the query is random or depends on the time: seed it, or take it out of what the state is made of."
    )


@dataclass(eq=False)
class NotHealable(Refused):
    directory: str
    why: Sequence[str]
    code = "HF-5020"
    template = "{directory} can't be healed in place: {why}"
    advice = "Nothing was changed. Restore into a new directory and start the query from there."


@dataclass(eq=False)
class StillRunning(Refused):
    directory: str
    code = "HF-5021"
    template = "{directory}: something changed in it meanwhile, so a query is still running there"
    advice = "Stop the query first. If something else writes there, say that it is stopped: --stopped."


@dataclass(eq=False)
class PipelineExists(Refused):
    pipeline: str
    began: str
    """What its first state was: a fork that was done before says of what."""
    code = "HF-5025"
    template = "pipeline {pipeline!r} has checkpoints already: {began}"
    advice = (
        "A fork begins a pipeline: give it a name of its own. One that was forked before is started as it is; to take "
        "it back, rewind it."
    )


@dataclass(eq=False)
class DirectoryTaken(Refused):
    directory: str
    other: str
    code = "HF-5027"
    template = "{directory} holds the Spark directories of another pipeline, {other}"
    advice = "Give each pipeline a checkpoint_dir of its own. Of one that is gone for good, remove the folder."


@dataclass(eq=False)
class VersionGone(Refused):
    table: str
    version: str
    why: str
    code = "HF-5026"
    template = "reference table {table!r} can't be read at version {version}: {why}"
    advice = "An epoch that is run again needs the version that it was run with: keep it as long as the checkpoints."


@dataclass(eq=False)
class QueryChanged(Refused):
    pipeline: str
    state: str
    changes: Sequence[str]
    names: Sequence[str]
    code = "HF-5022"
    template = "the query of {pipeline!r} is not the one that made the state of {state}: {changes}"
    advice = (
        "Nothing was touched. `holdfast plan` explains each change. What is meant can be accepted by its name: "
        "accept={names}, or --accept NAME."
    )


@dataclass(eq=False)
class SourcesGone(Refused):
    pipeline: str
    findings: Sequence[str]
    slugs: Sequence[str]
    code = "HF-5030"
    template = "pipeline {pipeline!r} can't read again what it has to: {findings}"
    advice = "Nothing was touched. Go on from a newer checkpoint, or give up those rows by name: accept={slugs}."


@dataclass(eq=False)
class SourceCleans(Refused):
    pipeline: str
    source: str
    clean: str
    code = "HF-5031"
    template = "source {source!r} of {pipeline!r} has cleanSource={clean}: a start of Spark takes files away there"
    advice = "Drill without --start, which proves every byte, or with a pipeline that reads it without cleanSource."


@dataclass(eq=False)
class KeyMissing(Refused):
    url: str
    code = "HF-5040"
    template = "{url} is encrypted, and no key was given"
    advice = "Give --key-file, or set HOLDFAST_KEY_FILE, HOLDFAST_KEY_COMMAND or HOLDFAST_KEY; in Python, open(key=…)."


@dataclass(eq=False)
class WrongKey(Refused):
    url: str
    key: str
    known: Sequence[str]
    code = "HF-5041"
    template = "the key {key} does not open {url}: it opens with {known}"
    advice = "Give one of those keys; after a rotation that is the new one. Without any of them nothing can be read."


@dataclass(eq=False)
class NotEncrypted(Refused):
    url: str
    code = "HF-5042"
    template = "a key was given, but {url} is not encrypted: whatever is written there can be read by others"
    advice = "If it never was, leave the key out (HOLDFAST_KEY… too). If it was, somebody has changed holdfast.json."


@dataclass(eq=False)
class WouldDecrypt(Refused):
    source: str
    target: str
    code = "HF-5043"
    template = "{source} is encrypted and {target} is not: a copy would lay everything open there"
    advice = "Make the target with a key, or say that it is meant with --decrypt."


@dataclass(eq=False)
class KeyInUse(Refused):
    key: str
    why: str
    code = "HF-5044"
    template = "the key {key} is not removed: {why}"
    advice = "Add another key first and open the repository with that one."


@dataclass(eq=False)
class NotAllowed(Refused):
    why: str
    code = "HF-5050"
    template = "the dashboard refused this: {why}"
    advice = "Nothing was done. Sign in with the token that it was started with, or send it as a bearer."


@dataclass(eq=False)
class NotACopy(Refused):
    pipeline: str
    repository: str
    code = "HF-5060"
    template = "pipeline {pipeline!r} is no copy in {repository}: there is nothing to activate"
    advice = "It was activated already, or never copied there: `holdfast run` starts one that belongs there."


@dataclass(eq=False)
class StateUnreadable(Refused):
    checkpoint: str
    why: str
    code = "HF-5070"
    template = "the state of {checkpoint} can't be read as rows: {why}"
    advice = "The checkpoint itself may be whole: `holdfast check --read-data` tells, `holdfast restore` lays it down."


@dataclass(eq=False)
class StateFixed(Refused):
    checkpoint: str
    why: str
    code = "HF-5071"
    template = "the state of {checkpoint} can't be changed so: {why}"
    advice = "Nothing was written, and the checkpoint is as it was."
