"""holdfast.toml: the repository, pipelines, retention, schedules and alerts of one sidecar, in one file."""

from __future__ import annotations

from holdfast.config.reading import read_config, read_repository
from holdfast.config.shape import (
    AlertsTable,
    CheckTable,
    Config,
    CopyTable,
    DrillTable,
    Duration,
    KeepTable,
    PipelineTable,
    ReachTable,
    ReceiverTable,
    RepositoryTable,
    RootTable,
    WatchTable,
)

__all__ = [
    "AlertsTable",
    "CheckTable",
    "Config",
    "CopyTable",
    "DrillTable",
    "Duration",
    "KeepTable",
    "PipelineTable",
    "ReachTable",
    "ReceiverTable",
    "RepositoryTable",
    "RootTable",
    "WatchTable",
    "read_config",
    "read_repository",
]
