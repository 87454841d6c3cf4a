"""The first page: every pipeline at a glance, those that need somebody first."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard.fleet import Row
from holdfast.dashboard.render import version_of
from holdfast.dashboard.site import of, read_number
from holdfast.decide.health import STATUSES

__all__ = ["overview", "select"]

PAGE = 50


def select(rows: list[Row], query: str, status: str) -> list[Row]:
    """The rows whose name holds a word and whose health is of a kind; "" asks for all."""
    word = query.strip().lower()
    return [
        row
        for row in rows
        if word in row.name.lower() and (not status or (row.health is not None and row.health.status == status))
    ]


def overview(request: Request) -> Response:
    site = of(request)
    query, status = request.query_params.get("q", ""), request.query_params.get("status", "")
    every = site.fleet.rows()
    chosen = select(every, query, status if status in STATUSES else "")
    pages = max(1, -(-len(chosen) // PAGE))
    page = min(read_number(request, "page"), pages - 1)
    shown = [row.name for row in chosen[page * PAGE : (page + 1) * PAGE]]
    rows = sorted(site.fleet.look(shown), key=lambda row: row.rank)
    now = {row.name: row for row in rows}
    every = [now.get(row.name, row) for row in every]
    values = {
        "rows": rows,
        "counts": site.fleet.counts(every),
        "total": len(every),
        "found": len(chosen),
        "unread": sum(1 for row in every if row.seen is None),
        "query": query,
        "status": status,
        "page": page,
        "pages": pages,
        "rows_version": version_of(rows, page, pages, len(every)),
    }
    return site.page(request, "overview.html", [("Pipelines", "/")], values)
