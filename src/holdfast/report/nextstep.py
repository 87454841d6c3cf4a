"""What to do about a pipeline that is not well: the step itself, from how the pipeline is run."""

from __future__ import annotations

from dataclasses import replace

from holdfast.decide.health import Health
from holdfast.report.glance import Glance

__all__ = ["next_step"]

EVERY = "30s"
"""How often a sidecar is to capture that took too few checkpoints to tell."""

BY_A_PIPELINE = ("start", "rewind", "fork", "activate")
"""What a `holdfast.Pipeline` claims for; a plain loop does too."""


def next_step(health: Health, it: Glance) -> Health:
    """The same with what begins again whatever has stopped, and where that ran. Damage has its own next step.

    The repository knows a directory that is captured, and never the code: MODULE:ATTR stands for that. Where no
    command does it (a program of yours, a driver that attaches), there is none.
    """
    if health.status in ("good", "damaged"):
        return health
    advice, command = _begin_again(it)
    where = f"It last ran as {it.claimed_by}. " if it.claimed_by and not it.is_copy else ""
    return replace(health, advice=where + advice, command=command)


def _begin_again(it: Glance) -> tuple[str, tuple[str, ...]]:
    if it.is_copy:
        # The address of this repository is added at the end, and is what is copied into.
        return "See whether its copier is up, and start it again if not.", ("standby", "-p", it.name, "SOURCE")
    if it.claimed_why == "watch" and it.directory:
        seconds = (it.usual_interval_ms or 0) // 1000
        every = f"{seconds}s" if seconds else EVERY
        advice = "See whether its sidecar and its query are up. The sidecar is started again with this:"
        return advice, ("watch", it.directory, "-p", it.name, "--every", every)
    if it.claimed_why == "capture" and it.directory:
        advice = "It is captured by hand or on a schedule. See whether the query is up, and take one now:"
        return advice, ("capture", it.directory, "-p", it.name)
    if it.claimed_why in BY_A_PIPELINE and it.engine == "spark":
        advice = "See whether its driver is up. A new start recovers by itself, and drives its sinks to the end."
        return advice, ("run", "MODULE:ATTR")
    return "See whether its program is up. A new start of it recovers by itself.", ()
