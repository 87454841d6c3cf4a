"""The description of the API, as OpenAPI 3.1: from the read models themselves, so that it can't say anything else."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast._version import __version__
from holdfast.report import CheckpointDetails, CheckpointRow, Course, Difference, GenerationRow, Glance, History

__all__ = ["description", "openapi"]

MODELS = [CheckpointDetails, CheckpointRow, Course, Difference, GenerationRow, Glance, History]
SLOT = {"type": "string", "pattern": "^[0-9]+-[0-9]+$", "description": "GENERATION-NUMBER"}
JSON = "application/json"


def openapi(_request: Request) -> Response:
    return Response(msgspec.json.encode(description()), media_type=JSON)


@lru_cache(maxsize=1)
def description() -> dict[str, Any]:
    """The whole document."""
    _, found = msgspec.json.schema_components(MODELS, ref_template="#/components/schemas/{name}")
    schemas: dict[str, Any] = {
        **found,
        "Slot": SLOT,
        "Error": ERROR,
        "Health": HEALTH,
        "Pipeline": PIPELINE,
        "Job": JOB,
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Holdfast dashboard",
            "version": __version__,
            "description": "What a repository holds. Changes need the token, as `Authorization: Bearer …`.",
        },
        "components": {
            "schemas": schemas,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "paths": {
            path: {verb: _told(path, verb, said) for verb, said in verbs.items()} for path, verbs in PATHS.items()
        },
    }


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


def _ref(name: str) -> dict[str, str]:
    return {"$ref": f"#/components/schemas/{name}"}


def _list(of: Any) -> dict[str, Any]:
    return {"type": "array", "items": of}


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
ERROR = _object(error=_object(code=TEXT, message=TEXT, hint=TEXT, fields={"type": "object"}))
HEALTH = _object(
    status={"enum": ["damaged", "unfinished", "late", "waiting", "good"]},
    why=TEXT,
    advice=TEXT,
    command={"type": ["string", "null"], "description": "what to do next, ready for a shell"},
)
PIPELINE = _object(name=TEXT, health=_ref("Health"), seen=_ref("Glance"))
JOB = _object(
    id=TEXT,
    kind={"enum": ["savepoint", "check", "prune"]},
    pipeline=TEXT,
    state={"enum": ["running", "done", "failed"]},
    said=TEXT,
    started_ms=NUMBER,
    ended_ms={"type": ["integer", "null"]},
    result={},
    error={},
)
BEGUN = _object(job=TEXT, at={"type": "string", "description": "where to ask how it goes"})
KEEP = _object(
    keep_last=NUMBER, keep_hourly=NUMBER, keep_daily=NUMBER, keep_weekly=NUMBER, keep_monthly=NUMBER, keep_within=TEXT
)

QUERY: dict[str, tuple[dict[str, Any], str]] = {
    "q": (TEXT, "only names that hold this"),
    "status": (TEXT, "only those whose health is so"),
    "page": (NUMBER, "which page; 0 has the newest"),
    "size": (NUMBER, "how many on a page, at most 200"),
    "which": ({"enum": ["timeline", "abandoned", "savepoints"]}, "which checkpoints"),
    "with": (
        TEXT,
        "the other one: slot:G-N, epoch:N, a savepoint or the beginning of an id; the one before, if left out",
    ),
}

PATHS: dict[str, dict[str, dict[str, Any]]] = {
    "/healthz": {"get": {"says": "Whether the dashboard answers", "kind": "text/plain", "gives": TEXT}},
    "/metrics": {"get": {"says": "Figures for Prometheus", "kind": "text/plain", "gives": TEXT}},
    "/openapi.json": {"get": {"says": "This description", "gives": {"type": "object"}}},
    "/api/pipelines": {
        "get": {
            "says": "All pipelines, those that need somebody first",
            "query": ["q", "status", "page", "size"],
            "gives": _object(url=TEXT, total=NUMBER, counts={"type": "object"}, pipelines=_list(_ref("Pipeline"))),
        }
    },
    "/api/pipelines/{name}": {"get": {"says": "One pipeline at a glance", "gives": _ref("Pipeline")}},
    "/api/pipelines/{name}/checkpoints": {
        "get": {"says": "Its checkpoints", "query": ["which", "page", "size"], "gives": _ref("History")}
    },
    "/api/pipelines/{name}/checkpoints/{slot}": {
        "get": {"says": "One checkpoint, whole", "gives": _ref("CheckpointDetails")}
    },
    "/api/pipelines/{name}/checkpoints/{slot}/diff": {
        "get": {"says": "What changed since another", "query": ["with"], "gives": _ref("Difference")}
    },
    "/api/pipelines/{name}/courses": {
        "get": {
            "says": "Where its sources stood over time",
            "query": ["page", "size"],
            "gives": _object(pipeline=TEXT, courses=_list(_ref("Course"))),
        }
    },
    "/api/pipelines/{name}/generations": {
        "get": {
            "says": "Who claimed it, the newest claims",
            "query": ["size"],
            "gives": _object(pipeline=TEXT, generations=_list(_ref("GenerationRow"))),
        }
    },
    "/api/pipelines/{name}/savepoints": {
        "post": {"says": "Ask the running pipeline for a savepoint", "takes": _object(name=TEXT), "gives": BEGUN}
    },
    "/api/pipelines/{name}/checks": {
        "post": {
            "says": "Check it; read_percent of the data is read",
            "takes": _object(read_percent={"type": "number", "minimum": 0, "maximum": 100}),
            "gives": BEGUN,
        }
    },
    "/api/pipelines/{name}/prune-plans": {
        "post": {
            "says": "Plan a prune; nothing is changed",
            "takes": KEEP,
            "status": 201,
            "gives": _object(plan_id=TEXT, checkpoints=_list({"type": "object"}), interrupted=_list(_ref("Slot"))),
        }
    },
    "/api/pipelines/{name}/prunes": {
        "post": {"says": "Carry out the very plan of this id", "takes": _object(plan_id=TEXT), "gives": BEGUN}
    },
    "/api/jobs/{job}": {"get": {"says": "How something that was set off goes", "gives": _ref("Job")}},
}


def _told(path: str, verb: str, said: dict[str, Any]) -> dict[str, Any]:
    names = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": SLOT if name == "slot" else TEXT} for name in names
    ]
    parameters += [
        {"name": name, "in": "query", "schema": QUERY[name][0], "description": QUERY[name][1]}
        for name in said.get("query", ())
    ]
    status = said.get("status", 202 if verb == "post" else 200)
    good = {"description": said["says"], "content": {said.get("kind", JSON): {"schema": said["gives"]}}}
    failed = {"description": "What went wrong", "content": {JSON: {"schema": _ref("Error")}}}
    operation: dict[str, Any] = {"summary": said["says"], "parameters": parameters, "responses": {str(status): good}}
    if path.startswith("/api/"):
        operation["responses"]["default"] = failed
    if "takes" in said:
        operation["requestBody"] = {"required": True, "content": {JSON: {"schema": said["takes"]}}}
        operation["security"] = [{"token": []}]
        operation["responses"]["403"] = failed
    return operation
