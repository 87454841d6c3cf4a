"""Holdfast keeps streaming pipelines recoverable: verified, incremental checkpoints in any object store.

Names are imported when they are first used, so that `import holdfast` stays light.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from holdfast._version import __version__

if TYPE_CHECKING:
    from holdfast import events, sinks, state, tables
    from holdfast.capturing import capture
    from holdfast.check import Checked
    from holdfast.checkpoint import Checkpoint
    from holdfast.checkpointer import Checkpointer
    from holdfast.codec import CheckpointState
    from holdfast.copying import Copied
    from holdfast.decide.fingerprint import Fingerprint, fingerprint
    from holdfast.decide.retention import KeepPolicy
    from holdfast.decide.schedule import Schedule
    from holdfast.draft import Description, PartitionState
    from holdfast.encryption.keys import Key
    from holdfast.errors import HoldfastError
    from holdfast.gc import PrunePlan, Removed
    from holdfast.handles import Repository, StoredPipeline
    from holdfast.handles import open_url as open  # noqa: A004 - holdfast.open, as one opens a file
    from holdfast.layout import Slot
    from holdfast.manager import CheckpointManager
    from holdfast.manifest import Artifact, ConnectorOffset, Manifest, SinkStatus
    from holdfast.pipeline.pipeline import Pipeline
    from holdfast.pipeline.run import Run, RunStatus
    from holdfast.pipeline.starting import Recovery
    from holdfast.recovery import Demands, Recovered
    from holdfast.repository.uploads import Limits
    from holdfast.settle import LoopSink
    from holdfast.spark.attach import Attached, AttachedStatus, Stopped, attach
    from holdfast.states import Cell, Checkpointable
    from holdfast.store import RetryPolicy

_WHERE = {
    "Artifact": "manifest",
    "Attached": "spark.attach",
    "AttachedStatus": "spark.attach",
    "Cell": "states",
    "Checked": "check",
    "Checkpoint": "checkpoint",
    "CheckpointManager": "manager",
    "CheckpointState": "codec",
    "Checkpointable": "states",
    "Checkpointer": "checkpointer",
    "ConnectorOffset": "manifest",
    "Copied": "copying",
    "Demands": "recovery",
    "Description": "draft",
    "Fingerprint": "decide.fingerprint",
    "HoldfastError": "errors",
    "KeepPolicy": "decide.retention",
    "Key": "encryption.keys",
    "Limits": "repository.uploads",
    "LoopSink": "settle",
    "Manifest": "manifest",
    "PartitionState": "draft",
    "Pipeline": "pipeline.pipeline",
    "PrunePlan": "gc",
    "Recovered": "recovery",
    "Recovery": "pipeline.starting",
    "Removed": "gc",
    "Repository": "handles",
    "RetryPolicy": "store",
    "Run": "pipeline.run",
    "RunStatus": "pipeline.run",
    "Schedule": "decide.schedule",
    "SinkStatus": "manifest",
    "Slot": "layout",
    "Stopped": "spark.attach",
    "StoredPipeline": "handles",
    "attach": "spark.attach",
    "capture": "capturing",
    "fingerprint": "decide.fingerprint",
    "open": "handles",
}

_MODULES = frozenset({"events", "sinks", "state", "tables"})

__all__ = [
    "Artifact",
    "Attached",
    "AttachedStatus",
    "Cell",
    "Checked",
    "Checkpoint",
    "CheckpointManager",
    "CheckpointState",
    "Checkpointable",
    "Checkpointer",
    "ConnectorOffset",
    "Copied",
    "Demands",
    "Description",
    "Fingerprint",
    "HoldfastError",
    "KeepPolicy",
    "Key",
    "Limits",
    "LoopSink",
    "Manifest",
    "PartitionState",
    "Pipeline",
    "PrunePlan",
    "Recovered",
    "Recovery",
    "Removed",
    "Repository",
    "RetryPolicy",
    "Run",
    "RunStatus",
    "Schedule",
    "SinkStatus",
    "Slot",
    "Stopped",
    "StoredPipeline",
    "__version__",
    "attach",
    "capture",
    "events",
    "fingerprint",
    "open",
    "sinks",
    "state",
    "tables",
]


def __getattr__(name: str) -> object:
    where = _WHERE.get(name)
    if name in _MODULES:
        return import_module(f"holdfast.{name}")
    if where is None:
        raise AttributeError(f"module 'holdfast' has no attribute {name!r}")
    value = getattr(import_module(f"holdfast.{where}"), "open_url" if name == "open" else name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
