"""What a pipeline's answer on its way back means."""

from __future__ import annotations

from typing import Any

from holdfast.decide.alerts import WayBack
from holdfast.sidecar.upkeep import ways_back


def row(*savepoints: str, on_timeline: bool = True, **more: Any) -> dict[str, Any]:
    plain = {"sinks": {}, "sources": [], "replay_until_ms": None}
    return {"savepoints": list(savepoints), "on_timeline": on_timeline, **plain, **more}


def test_savepoints_and_the_newest_checkpoint_are_what_somebody_may_go_back_to() -> None:
    reach = [
        row("abandoned", on_timeline=False, sinks={"table": "off the timeline"}),
        row(sinks={"table": "vacuumed"}),
        row("v1", "v2", sinks={"table": "vacuumed", "db": None}, replay_until_ms=5),
        row(sources=[{"severity": "refuse", "why": "trimmed"}, {"severity": "warn", "why": "compacted"}]),
    ]
    assert ways_back(reach) == [
        WayBack("v1", {"table": "vacuumed"}, [], 5),
        WayBack("v2", {"table": "vacuumed"}, [], 5),
        WayBack("the newest checkpoint", {}, ["trimmed"], None),
    ]
    assert ways_back([]) == []
