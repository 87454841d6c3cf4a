"""How a pipeline is, from what its records say and what time it is; and what to do if something is wrong."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

__all__ = ["STATUSES", "Health", "Status", "Vitals", "judge", "usual_interval"]

Status = Literal["damaged", "unfinished", "late", "waiting", "good"]

STATUSES: tuple[Status, ...] = ("damaged", "unfinished", "late", "waiting", "good")
"""From the worst to the best."""

PATIENCE = 3
"""A checkpoint is late when it is so many times its usual interval old."""

LEAST_PATIENCE_MS = 60_000
"""And never earlier than this: pipelines that take one every second pause now and then."""

CLAIM_PATIENCE_MS = 120_000
"""A take-over reads and fences; one that has not begun after this long was probably cut off."""


@dataclass(frozen=True)
class Vitals:
    """What is known of a pipeline. `generation` is the one that has begun, `claimed` the highest that was claimed.

    `problem` is damage in words; `sinks` how each stands at the newest checkpoint; `max_age_ms`, if somebody said so,
    is how old that may be.
    """

    checkpoint_ms: int | None = None
    usual_ms: int | None = None
    max_age_ms: int | None = None
    generation: int | None = None
    claimed: int | None = None
    claimed_ms: int = 0
    sinks: Mapping[str, str] = field(default_factory=dict)
    problem: str | None = None
    is_copy: bool = False


@dataclass(frozen=True)
class Health:
    """A status, why, and what to do next: in words, and as the words of a `holdfast` command that begins with it."""

    status: Status
    why: str
    advice: str = ""
    command: tuple[str, ...] = ()


def judge(name: str, it: Vitals, now_ms: int) -> Health:
    """The worst that is true of a pipeline at a moment."""
    if it.problem:
        return Health(
            "damaged",
            it.problem,
            "Find out what is hit and what still restores.",
            ("check", name, "--read-data"),
        )
    has_begun = it.claimed is None or (it.generation is not None and it.claimed <= it.generation)
    if not has_begun and now_ms - it.claimed_ms > CLAIM_PATIENCE_MS:
        return Health(
            "unfinished",
            f"generation {it.claimed} was claimed and never began",
            "A take-over was cut off. Start the pipeline again: it claims anew and goes on.",
            ("show", name, "--generations"),
        )
    failed = sorted(sink for sink, status in it.sinks.items() if status == "failed")
    pending = sorted(sink for sink, status in it.sinks.items() if status == "pending")
    if failed or pending:
        what = f"sink {_listed(failed)} failed" if failed else f"sink {_listed(pending)} is not committed yet"
        if failed or _is_old(it, now_ms):
            return Health(
                "unfinished",
                f"{what} at the newest checkpoint",
                "The decision to commit stands. Start the pipeline again: it drives its sinks to the end.",
                ("show", name),
            )
    if it.checkpoint_ms is None:
        return Health("waiting", "no checkpoint yet", "See that whoever runs or watches it is up.", ("doctor",))
    if _is_old(it, now_ms):
        against = "allowed" if it.max_age_ms is not None else "its usual interval"
        limit = it.max_age_ms if it.max_age_ms is not None else it.usual_ms or 0
        return Health(
            "late",
            f"the last checkpoint is {_rough(now_ms - it.checkpoint_ms)} old, {against} is {_rough(limit)}",
            "The copier may be down." if it.is_copy else "Look whether it still runs. A new start recovers by itself.",
            ("list", name),
        )
    return Health("good", "a copy, kept up to date by its copier" if it.is_copy else "checkpoints arrive as usual")


def usual_interval(times_ms: Sequence[int]) -> int | None:
    """How far apart checkpoints usually are, by the median; None with fewer than two. Clocks may have gone back."""
    steps = sorted(max(0, after - before) for before, after in pairwise(times_ms))
    return steps[len(steps) // 2] if steps else None


def _is_old(it: Vitals, now_ms: int) -> bool:
    if it.checkpoint_ms is None:
        return False
    if it.max_age_ms is not None:
        return now_ms - it.checkpoint_ms > it.max_age_ms
    if it.usual_ms is None:
        return False
    return now_ms - it.checkpoint_ms > max(PATIENCE * it.usual_ms, LEAST_PATIENCE_MS)


def _rough(milliseconds: int) -> str:
    """A duration in one unit, as people say it."""
    for unit, length in (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000)):
        if milliseconds >= 2 * length or milliseconds == length:
            return f"{round(milliseconds / length)} {unit}"
    return f"{milliseconds} ms"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
