"""The same as JSON: what the pages show, and what can be done. `/openapi.json` describes it."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard.actions import begin_check, begin_prune, begin_savepoint, make_plan, read_policy
from holdfast.dashboard.checkpoint import find
from holdfast.dashboard.fleet import Row
from holdfast.dashboard.jobs import Job
from holdfast.dashboard.overview import select
from holdfast.dashboard.pipeline import courses
from holdfast.dashboard.site import Site, of, read_body, read_number
from holdfast.errors import BadValue, CheckpointMissing, PipelineMissing
from holdfast.layout import Slot
from holdfast.report import (
    Which,
    compare,
    describe,
    describe_plan,
    list_generations,
    plain,
    read_history,
)

__all__ = [
    "answer",
    "api_check",
    "api_checkpoint",
    "api_checkpoints",
    "api_courses",
    "api_difference",
    "api_generations",
    "api_job",
    "api_pipeline",
    "api_pipelines",
    "api_plan",
    "api_prune",
    "api_savepoint",
]

MOST = 200
_encoder = msgspec.json.Encoder()


def answer(value: Any, status: int = 200) -> Response:
    return Response(_encoder.encode(plain(value)), status_code=status, media_type="application/json")


def _sized(request: Request) -> int:
    return min(MOST, max(1, read_number(request, "size", 50)))


def _row(site: Site, row: Row) -> dict[str, Any]:
    health = row.health
    return {
        "name": row.name,
        "health": None
        if health is None
        else {
            "status": health.status,
            "why": health.why,
            "advice": health.advice,
            "command": site.command(*health.command) if health.command else None,
        },
        "seen": row.seen,
    }


def api_pipelines(request: Request) -> Response:
    site, size = of(request), _sized(request)
    every = site.fleet.rows()
    chosen = select(every, request.query_params.get("q", ""), request.query_params.get("status", ""))
    start = read_number(request, "page") * size
    rows = site.fleet.look(row.name for row in chosen[start : start + size])
    return answer(
        {
            "url": site.looking.url,
            "total": len(chosen),
            "counts": site.fleet.counts(every),
            "pipelines": [_row(site, row) for row in rows],
        }
    )


def api_pipeline(request: Request) -> Response:
    site = of(request)
    name = site.pipeline(request).name
    rows = site.fleet.look([name])
    if not rows:
        raise PipelineMissing(name, site.fleet.names())
    return answer(_row(site, rows[0]))


def api_checkpoints(request: Request) -> Response:
    which: Which = request.query_params.get("which", "timeline")  # type: ignore[assignment]
    if which not in get_args(Which):
        raise BadValue("which", f"{which!r} is none of {', '.join(get_args(Which))}")
    return answer(read_history(of(request).pipeline(request), which, read_number(request, "page"), _sized(request)))


def api_courses(request: Request) -> Response:
    site = of(request)
    stored = site.pipeline(request)
    history = read_history(stored, "timeline", read_number(request, "page"), _sized(request))
    return answer({"pipeline": stored.name, "courses": courses(site, stored, history.rows)})


def api_generations(request: Request) -> Response:
    stored = of(request).pipeline(request)
    return answer({"pipeline": stored.name, "generations": list_generations(stored, newest=_sized(request))})


def api_checkpoint(request: Request) -> Response:
    found, _, _ = find(of(request).pipeline(request), Slot.read(request.path_params["slot"]))
    return answer(describe(found))


def api_difference(request: Request) -> Response:
    stored = of(request).pipeline(request)
    after, before, _ = find(stored, Slot.read(request.path_params["slot"]))
    given = request.query_params.get("with", "")
    other = stored[given] if given else find(stored, before)[0] if before else after
    return answer(compare(other, after))


def api_job(request: Request) -> Response:
    found = of(request).jobs.get(request.path_params["job"])
    if found is None:
        raise CheckpointMissing(f"job {request.path_params['job']}", "the dashboard remembers only the last ones")
    return answer(found)


async def _document(request: Request) -> dict[str, Any]:
    """The JSON object of a request. Its kind must be said: no form of another site can say so."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/json":
        raise BadValue("request", "its content-type is not application/json")
    try:
        found = msgspec.json.decode(await read_body(request) or b"{}")
    except msgspec.DecodeError as error:
        raise BadValue("request", f"it is not JSON: {error}") from None
    if not isinstance(found, dict):
        raise BadValue("request", "it is no JSON object")
    return found


async def api_savepoint(request: Request) -> Response:
    name = str((await _document(request)).get("name", ""))
    return _begun(await run_in_threadpool(begin_savepoint, of(request), request.path_params["name"], name))


async def api_check(request: Request) -> Response:
    percent = (await _document(request)).get("read_percent", 0)
    if isinstance(percent, bool) or not isinstance(percent, int | float):
        raise BadValue("read_percent", "it is no number")
    return _begun(await run_in_threadpool(begin_check, of(request), request.path_params["name"], float(percent)))


async def api_plan(request: Request) -> Response:
    policy = read_policy(await _document(request))
    plan_id, plan = await run_in_threadpool(make_plan, of(request), request.path_params["name"], policy)
    return answer({"plan_id": plan_id, **describe_plan(plan)}, status=201)


async def api_prune(request: Request) -> Response:
    plan_id = str((await _document(request)).get("plan_id", ""))
    return _begun(await run_in_threadpool(begin_prune, of(request), request.path_params["name"], plan_id))


def _begun(job: Job) -> Response:
    return answer({"job": job.id, "at": f"/api/jobs/{job.id}"}, status=202)
