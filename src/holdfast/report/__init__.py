"""Read models: what people ask of a repository, as plain structs for the command line and other front ends.

Nothing here prints, and nothing is changed in the repository.
"""

from __future__ import annotations

from holdfast.report.course import Course, course_at, sample
from holdfast.report.details import CheckpointDetails, describe
from holdfast.report.difference import Difference, compare
from holdfast.report.directory import DirectoryChecked, check_directory, describe_directory
from holdfast.report.drills import describe_drills, junit_of_drills, text_of_drills
from holdfast.report.glance import Glance, glance
from holdfast.report.history import History, Which, read_history
from holdfast.report.lists import (
    CheckpointRow,
    GenerationRow,
    PipelineRow,
    list_checkpoints,
    list_generations,
    list_pipelines,
)
from holdfast.report.nextstep import next_step
from holdfast.report.outcomes import describe_checked, describe_copied, describe_plan, describe_usage
from holdfast.report.plain import iso_time, plain, to_json, to_json_line
from holdfast.report.positions import PositionRow, list_positions

__all__ = [
    "CheckpointDetails",
    "CheckpointRow",
    "Course",
    "Difference",
    "DirectoryChecked",
    "GenerationRow",
    "Glance",
    "History",
    "PipelineRow",
    "PositionRow",
    "Which",
    "check_directory",
    "compare",
    "course_at",
    "describe",
    "describe_checked",
    "describe_copied",
    "describe_directory",
    "describe_drills",
    "describe_plan",
    "describe_usage",
    "glance",
    "iso_time",
    "junit_of_drills",
    "list_checkpoints",
    "list_generations",
    "list_pipelines",
    "list_positions",
    "next_step",
    "plain",
    "read_history",
    "sample",
    "text_of_drills",
    "to_json",
    "to_json_line",
]
