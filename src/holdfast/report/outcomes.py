"""What commands did or would do, as plain JSON values."""

from __future__ import annotations

from typing import Any

from holdfast.check import Checked
from holdfast.copying import Copied
from holdfast.decide.usage import Usage
from holdfast.gc import PrunePlan
from holdfast.report.plain import iso_time, plain

__all__ = ["describe_checked", "describe_copied", "describe_plan", "describe_usage"]


def describe_plan(plan: PrunePlan) -> dict[str, Any]:
    """The plan of a prune: what is kept and what is dropped, each with its reasons."""
    return {
        "checkpoints": [
            {
                "slot": str(verdict.candidate.slot),
                "timestamp_ms": verdict.candidate.timestamp_ms,
                "time": iso_time(verdict.candidate.timestamp_ms),
                "on_timeline": verdict.candidate.on_timeline,
                "keep": verdict.keep,
                "reasons": list(verdict.reasons),
            }
            for verdict in plan.verdicts
        ],
        "interrupted": plain(plan.interrupted),
        "leftovers": plain(plan.leftovers),
    }


def describe_checked(checked: Checked) -> dict[str, Any]:
    """The outcome of a check; `damaged` are the checkpoints that can't be restored."""
    return {**plain(checked), "damaged": plain(sorted(checked.hit)), "ok": not checked.damaged}


def describe_copied(copied: Copied) -> dict[str, Any]:
    return {**plain(copied), "ok": not copied.damaged}


def describe_usage(pipeline: str, usage: Usage) -> dict[str, Any]:
    return {
        "pipeline": pipeline,
        "checkpoints": [
            {"slot": str(each.slot), "total": each.total, "shared": each.shared, "exclusive": each.exclusive}
            for each in usage.checkpoints
        ],
        "total": usage.total,
        "shared": usage.shared,
        "loose": usage.loose,
        "records": usage.records,
    }
