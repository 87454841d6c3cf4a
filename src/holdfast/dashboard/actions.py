"""What can be done from here: a savepoint now, a check, a prune whose plan was seen. The guard has let nobody else in.

Each is one call of the API, on a repository that remembers nothing, in the background; whoever asked sees it under way.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

from holdfast.dashboard.jobs import Job, Say
from holdfast.dashboard.site import Site
from holdfast.decide.retention import KeepPolicy
from holdfast.decide.schedule import parse_duration
from holdfast.errors import BadValue, Damage
from holdfast.gc import PrunePlan
from holdfast.ids import new_token
from holdfast.layout import check_name
from holdfast.report import describe_checked, plain
from holdfast.text import amount

__all__ = ["RULES", "begin_check", "begin_prune", "begin_savepoint", "make_plan", "read_policy"]

RULES = ("last", "hourly", "daily", "weekly", "monthly")
SAVEPOINT_SECONDS = 120.0
SAY_SECONDS = 0.2


def begin_savepoint(site: Site, pipeline: str, savepoint: str) -> Job:
    """Ask whoever runs the pipeline for a savepoint, and wait for it. A bad name is refused at once."""
    check_name("savepoint", savepoint)
    stored = site.acting.pipeline(pipeline)
    stored.require()

    def act(say: Say) -> Any:
        say("waiting for the running pipeline to take it")
        taken = stored.request_savepoint(savepoint, SAVEPOINT_SECONDS)
        site.fleet.forget(pipeline)
        return {"savepoint": savepoint, "slot": str(taken.slot), "epoch": taken.epoch, "checkpoint_id": taken.id}

    return site.jobs.start("savepoint", pipeline, act)


def begin_check(site: Site, pipeline: str, read_percent: float) -> Job:
    """Check every record, and a share of the data."""
    if not 0 <= read_percent <= 100:
        raise BadValue("read_percent", f"{read_percent} is not between 0 and 100")
    stored = site.acting.pipeline(pipeline)
    with suppress(Damage):
        stored.require()  # The check itself tells more about damage.

    def act(say: Say) -> Any:
        say("reading the records")
        told = time.monotonic()

        def progress(what: str, done: int, total: int) -> None:
            nonlocal told
            if time.monotonic() - told > SAY_SECONDS:
                told = time.monotonic()
                say(f"{what}: {done:,} of {total:,}")

        checked = stored.check(read_percent=read_percent, progress=progress)
        hit = [str(slot) for slot in sorted(checked.hit)]
        problem = f"a check found {amount(len(checked.damaged), 'fault')}" if checked.damaged else None
        site.fleet.note_check(pipeline, f"{problem}; hit: {', '.join(hit)}" if problem and hit else problem)
        return describe_checked(checked)

    return site.jobs.start("check", pipeline, act)


def read_policy(given: Mapping[str, Any]) -> KeepPolicy:
    """The rules of a prune from a form or a document: `keep_last`, `keep_daily`, …, `keep_within`."""
    counts: dict[str, int] = {}
    for rule in RULES:
        value = str(given.get(f"keep_{rule}") or "0").strip()
        if not value.isdecimal() or len(value) > 9:
            raise BadValue(f"keep_{rule}", f"{value!r} is no whole number")
        counts[rule] = int(value)
    within = str(given.get("keep_within") or "").strip()
    policy = KeepPolicy(**counts, within_ms=parse_duration(within) if within else 0)
    if policy.empty:
        raise BadValue("rules", "give at least one above 0: a prune without any would keep nothing it may drop")
    return policy


def make_plan(site: Site, pipeline: str, policy: KeepPolicy) -> tuple[str, PrunePlan]:
    """Plan a prune and keep the plan under an id, by which it can be carried out."""
    stored = site.looking.pipeline(pipeline)
    stored.require()
    # A plan needs the time of every checkpoint: those are remembered. It is carried out on records that are not.
    plan = replace(stored.prune(policy), records=site.acting.pipeline(pipeline).records)
    plan_id = new_token()
    site.plans.put(plan_id, plan)
    return plan_id, plan


def begin_prune(site: Site, pipeline: str, plan_id: str) -> Job:
    """Carry out the very plan that was shown, and sweep. What somebody came to need meanwhile is spared."""
    plan = site.plans.get(plan_id)
    if plan is None or plan.records.name != pipeline:
        raise BadValue("plan", "it is not known here any more; look at a new one")
    stored = site.acting.pipeline(pipeline)

    def act(say: Say) -> Any:
        removed = plan.apply(lambda what, done: say(f"{what}: {done:,}"))
        say("sweeping what nothing names")
        swept = stored.sweep()
        site.fleet.forget(pipeline)
        return {"removed": plain(removed), "swept": plain(swept)}

    return site.jobs.start("prune", pipeline, act)
