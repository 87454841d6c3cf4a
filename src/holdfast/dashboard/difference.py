"""Two checkpoints side by side: what `diff` says."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard.checkpoint import find, trail_to
from holdfast.dashboard.site import of
from holdfast.layout import Slot
from holdfast.report import compare

__all__ = ["difference"]

MOST_ROWS = 200


def difference(request: Request) -> Response:
    site = of(request)
    stored = site.pipeline(request)
    after, before, _ = find(stored, Slot.read(request.path_params["slot"]))
    given = request.query_params.get("with", "").strip()
    other = stored[given] if given else find(stored, before)[0] if before else after
    found = compare(other, after)
    values = {
        "it": found,
        "before": other,
        "after": after,
        "cli": site.command("diff", f"{stored.name}@slot:{other.slot}", f"{stored.name}@slot:{after.slot}"),
        "MOST": MOST_ROWS,
    }
    address = f"/pipelines/{stored.name}/checkpoints/{after.slot}/diff"
    trail = [*trail_to(stored.name, after.slot), (f"Since {other.slot}", address)]
    return site.page(request, "difference.html", trail, values)
