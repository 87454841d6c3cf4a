"""Every address of the dashboard, and what becomes of an error."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import FileResponse, PlainTextResponse, Response
from starlette.routing import Route

from holdfast.dashboard import api
from holdfast.dashboard.checkpoint import checkpoint
from holdfast.dashboard.difference import difference
from holdfast.dashboard.doing import ask_savepoint, carry_out_prune, job, plan_prune, run_check
from holdfast.dashboard.guard import Guard
from holdfast.dashboard.login import login_form, sign_in, sign_out
from holdfast.dashboard.metrics import metrics
from holdfast.dashboard.openapi import openapi
from holdfast.dashboard.overview import overview
from holdfast.dashboard.pipeline import pipeline
from holdfast.dashboard.render import FOLDER
from holdfast.dashboard.site import Site
from holdfast.errors import BadInput, Damage, HoldfastError, LostRace, NotFound, Refused, StoreError
from holdfast.report import plain

__all__ = ["make_app"]

ASSETS = {
    "style.css": "text/css",
    "live.js": "text/javascript",
    "theme.js": "text/javascript",
    "mark.svg": "image/svg+xml",
}

STATUS: list[tuple[type[HoldfastError], int]] = [
    (NotFound, 404),
    (BadInput, 400),
    (LostRace, 409),
    (Refused, 409),
    (Damage, 500),
    (StoreError, 503),
]


def healthz(_request: Request) -> Response:
    """This process answers. It says nothing of the pipelines: that is what /metrics is for."""
    return PlainTextResponse("ok\n")


def static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in ASSETS:
        raise HTTPException(404)
    headers = {"cache-control": "public, max-age=31536000, immutable"}
    return FileResponse(FOLDER / "static" / name, media_type=ASSETS[name], headers=headers)


PAGES = [
    Route("/", overview),
    Route("/login", login_form, methods=["GET"]),
    Route("/login", sign_in, methods=["POST"]),
    Route("/logout", sign_out, methods=["POST"]),
    Route("/pipelines/{name}", pipeline),
    Route("/pipelines/{name}/checkpoints/{slot}", checkpoint),
    Route("/pipelines/{name}/checkpoints/{slot}/diff", difference),
    Route("/pipelines/{name}/prune", plan_prune, methods=["GET"]),
    Route("/pipelines/{name}/prune", carry_out_prune, methods=["POST"]),
    Route("/pipelines/{name}/savepoint", ask_savepoint, methods=["POST"]),
    Route("/pipelines/{name}/check", run_check, methods=["POST"]),
    Route("/jobs/{job}", job),
    Route("/static/{name}", static),
]

PROGRAMS = [
    Route("/healthz", healthz),
    Route("/metrics", metrics),
    Route("/openapi.json", openapi),
    Route("/api/pipelines", api.api_pipelines),
    Route("/api/pipelines/{name}", api.api_pipeline),
    Route("/api/pipelines/{name}/checkpoints", api.api_checkpoints),
    Route("/api/pipelines/{name}/checkpoints/{slot}", api.api_checkpoint),
    Route("/api/pipelines/{name}/checkpoints/{slot}/diff", api.api_difference),
    Route("/api/pipelines/{name}/courses", api.api_courses),
    Route("/api/pipelines/{name}/generations", api.api_generations),
    Route("/api/pipelines/{name}/savepoints", api.api_savepoint, methods=["POST"]),
    Route("/api/pipelines/{name}/checks", api.api_check, methods=["POST"]),
    Route("/api/pipelines/{name}/prune-plans", api.api_plan, methods=["POST"]),
    Route("/api/pipelines/{name}/prunes", api.api_prune, methods=["POST"]),
    Route("/api/jobs/{job}", api.api_job),
]


def make_app(site: Site) -> Starlette:
    """The dashboard of a site as an ASGI application. Whoever made the site closes it."""

    def failed(request: Request, error: Exception) -> Response:
        assert isinstance(error, HoldfastError)
        status = next((status for kind, status in STATUS if isinstance(error, kind)), 500)
        if request.url.path.startswith("/api/"):
            return api.answer({"error": plain(error)}, status)
        return _told(request, status, error.message, error.code, error.hint)

    def refused(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if request.url.path.startswith("/api/"):
            return api.answer({"error": {"message": error.detail}}, error.status_code)
        return _told(request, error.status_code, error.detail, "", "")

    def _told(request: Request, status: int, message: str, code: str, hint: str) -> Response:
        values = {"status": status, "message": message, "code": code, "hint": hint}
        return site.page(request, "error.html", [("Pipelines", "/"), ("Error", "")], values, status)

    app = Starlette(
        routes=[*PAGES, *PROGRAMS],
        middleware=[Middleware(Guard, access=site.access)],
        exception_handlers={HoldfastError: failed, HTTPException: refused},
    )
    app.state.site = site
    return app
