"""Every error that Holdfast raises, each with fields, a stable code and a hint.

HoldfastError                      exit 1
├── StoreError
│   ├── StoreUnavailable           HF-1001  transient failures outlasted the retry budget
│   ├── AccessDenied               HF-1002
│   ├── PlaceMissing               HF-1003  no such bucket, container or folder
│   ├── StoreFailure               HF-1004  a permanent failure with no better name
│   ├── OutcomeUnknown             HF-1005  a create may or may not have landed
│   ├── ForkedProcess              HF-1006  the store was in use when this process was forked
│   └── RepositoryGone             HF-1007  not where it was opened any more: a disk that is not mounted
├── SinkFailed                     HF-1101
├── BackgroundFailed               HF-1102
├── LibraryMissing                 HF-1103  a state needs a library that is not installed here
├── JavaMissing                    HF-1104  Spark needs a Java that is not here, or not new enough
├── DemoFailed                     HF-1105  the demo could not be played to its end
├── SinkUnavailable                HF-1106  a sink could not be reached, or failed in the middle
├── SparkGone                      HF-1107  Spark's own process ended under a pipeline
├── UserCodeFailed                 HF-1108  a module or function of the user's own raised
├── DemoUnready                    HF-1109  the demo needs libraries that are not installed here
├── StagingFailed                  HF-1110  there is no room for the rows of an epoch
├── DrillFailed                    HF-1140  Spark did not start from what a drill restored
├── CannotAttach                   HF-1120  this is no query that can be followed from here
├── NotAttached                    HF-1121  a query was let go of, and nothing is captured any more
├── ExecutorsFailed                HF-1122  a Spark job that was to move bytes did not
├── StateNotKept                   HF-1130  what was to hold changed state does not hold it
├── StateUnusable                  HF-1150  a sidecar's own file can't be read or written
├── VerbFailed                     HF-1151  what a sidecar has done in a process of its own was not done
├── Damage                         exit 3
│   ├── DamagedRecord              HF-2001
│   ├── DamagedArtifact            HF-2002
│   ├── BrokenChain                HF-2003
│   ├── NothingRestorable          HF-2004
│   ├── MissingRecords             HF-2005  absent is not empty
│   ├── DamagedState               HF-2006  a binary record cut short or flipped
│   ├── BrokenBatch                HF-2007  Spark committed a batch that can't be restored
│   └── DamagedCopy                HF-2008  a copy holds something else than was brought there
├── NotFound                       exit 4
│   ├── ObjectMissing              HF-3001
│   ├── RepositoryMissing          HF-3002
│   ├── PipelineMissing            HF-3003
│   ├── CheckpointMissing          HF-3004
│   ├── NoWholeBatch               HF-3005  a directory holds nothing yet that could be captured
│   └── NoPipelines                HF-3006  a repository holds nothing yet that could be proven
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
│   ├── SourceCleans               HF-5031  a source that a drill would take files away from
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

from holdfast.errors.bad_input import (
    BadConfig,
    BadInput,
    BadKey,
    BadName,
    BadReference,
    BadURL,
    BadValue,
    NotCheckpointable,
    NotLoadable,
    NotMutable,
    SinkUnfit,
)
from holdfast.errors.base import (
    HoldfastError,
)
from holdfast.errors.damage import (
    BrokenBatch,
    BrokenChain,
    Damage,
    DamagedArtifact,
    DamagedCopy,
    DamagedRecord,
    DamagedState,
    MissingRecords,
    NothingRestorable,
)
from holdfast.errors.failures import (
    AccessDenied,
    BackgroundFailed,
    CannotAttach,
    DemoFailed,
    DemoUnready,
    DrillFailed,
    ExecutorsFailed,
    ForkedProcess,
    JavaMissing,
    LibraryMissing,
    NotAttached,
    OutcomeUnknown,
    PlaceMissing,
    RepositoryGone,
    SinkFailed,
    SinkUnavailable,
    SparkGone,
    StagingFailed,
    StateNotKept,
    StateUnusable,
    StoreError,
    StoreFailure,
    StoreUnavailable,
    UserCodeFailed,
    VerbFailed,
)
from holdfast.errors.lost_race import (
    ActivatedElsewhere,
    BeingForgotten,
    ChangedWhileRead,
    Diverged,
    Fenced,
    KeysChanged,
    LostRace,
    NameTaken,
    NoAnswer,
    Overtaken,
)
from holdfast.errors.not_found import (
    CheckpointMissing,
    NoPipelines,
    NotFound,
    NoWholeBatch,
    ObjectMissing,
    PipelineMissing,
    RepositoryMissing,
)
from holdfast.errors.refused import (
    ChainBroken,
    DirectoryTaken,
    FingerprintMismatch,
    FormatTooNew,
    HasSinks,
    InvalidManifest,
    KeyInUse,
    KeyMissing,
    NotACopy,
    NotActivated,
    NotAllowed,
    NotCapturable,
    NotDeterministic,
    NotEncrypted,
    NotHealable,
    OtherBoundaries,
    OtherTimeline,
    PipelineExists,
    PlaceNotEmpty,
    QueryChanged,
    Refused,
    SinkLogGone,
    SinksAhead,
    SinkTaken,
    SourceCleans,
    SourcesGone,
    SparkRejects,
    StateFixed,
    StateUnreadable,
    StillNeeded,
    StillRunning,
    UnfinishedRestore,
    UnsafeStore,
    Unsettled,
    VersionGone,
    WouldDecrypt,
    WrongKey,
)

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
    "DamagedCopy",
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
    "NoPipelines",
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
    "RepositoryGone",
    "RepositoryMissing",
    "SinkFailed",
    "SinkLogGone",
    "SinkTaken",
    "SinkUnavailable",
    "SinkUnfit",
    "SinksAhead",
    "SourceCleans",
    "SourcesGone",
    "SparkGone",
    "SparkRejects",
    "StagingFailed",
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
    "VerbFailed",
    "VersionGone",
    "WouldDecrypt",
    "WrongKey",
]
