"""The pages of actions: their forms, the plan of a prune, and what was set off."""

from __future__ import annotations

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from holdfast.dashboard.actions import RULES, begin_check, begin_prune, begin_savepoint, make_plan, read_policy
from holdfast.dashboard.jobs import Job
from holdfast.dashboard.render import version_of
from holdfast.dashboard.site import of, read_form
from holdfast.errors import CheckpointMissing

__all__ = ["ask_savepoint", "carry_out_prune", "job", "plan_prune", "run_check"]

MOST_VERDICTS = 300


async def ask_savepoint(request: Request) -> Response:
    form = await read_form(request)
    started = await run_in_threadpool(begin_savepoint, of(request), request.path_params["name"], form.get("name", ""))
    return _to(started)


async def run_check(request: Request) -> Response:
    percent = 100.0 if (await read_form(request)).get("read") == "all" else 0.0
    return _to(await run_in_threadpool(begin_check, of(request), request.path_params["name"], percent))


def plan_prune(request: Request) -> Response:
    """The form with the rules; with rules in the address, also what they would keep and drop."""
    site = of(request)
    name = request.path_params["name"]
    if not site.access.knows(request):
        return RedirectResponse("/login", status_code=303)
    given = dict(request.query_params)
    site.acting.pipeline(name).require()
    plan_id, plan = make_plan(site, name, read_policy(given)) if given else ("", None)
    values = {
        "name": name,
        "rules": RULES,
        "given": given,
        "plan": plan,
        "plan_id": plan_id,
        "verdicts": plan.verdicts[::-1][:MOST_VERDICTS] if plan else [],
        "left_out": max(0, len(plan.verdicts) - MOST_VERDICTS) if plan else 0,
    }
    trail = [("Pipelines", "/"), (name, f"/pipelines/{name}"), ("Prune", f"/pipelines/{name}/prune")]
    return site.page(request, "prune.html", trail, values)


async def carry_out_prune(request: Request) -> Response:
    form = await read_form(request)
    return _to(await run_in_threadpool(begin_prune, of(request), request.path_params["name"], form.get("plan", "")))


def job(request: Request) -> Response:
    site = of(request)
    found = site.jobs.get(request.path_params["job"])
    if found is None:
        raise CheckpointMissing(f"job {request.path_params['job']}", "the dashboard remembers only the last ones")
    values = {"job": found, "job_version": version_of(found)}
    trail = [
        ("Pipelines", "/"),
        (found.pipeline, f"/pipelines/{found.pipeline}"),
        (found.kind.capitalize(), f"/jobs/{found.id}"),
    ]
    return site.page(request, "job.html", trail, values)


def _to(started: Job) -> Response:
    return RedirectResponse(f"/jobs/{started.id}", status_code=303)
