"""One checkpoint: what `show` says of it, its partitions as a heat map of bytes, and the command that restores it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from holdfast.checkpoint import Checkpoint
from holdfast.dashboard.plots import Cell, heat
from holdfast.dashboard.site import Site, Trail, of
from holdfast.decide.timeline import abandoned, timeline
from holdfast.errors import CheckpointMissing, Damage, FormatTooNew
from holdfast.handles import StoredPipeline
from holdfast.layout import Slot
from holdfast.report import CheckpointDetails, describe
from holdfast.report.lists import blame
from holdfast.spark.explain import StoreSummary

__all__ = ["checkpoint", "find", "trail_to"]

MOST_CELLS = 512
"""Partitions of one operator that are drawn one by one; beyond this neighbours share a cell."""


@dataclass(frozen=True)
class HeatRow:
    """One operator of the heat map: bytes by partition, and its stores if they are Spark's."""

    name: str
    kind: str
    sizes: dict[int, int]
    stores: Sequence[StoreSummary] = ()
    snapshots: int = 0
    deltas: int = 0
    problem: str | None = None
    share: int = 1
    """How many partitions one cell stands for."""
    cells: Sequence[Cell] = ()

    @property
    def largest(self) -> tuple[int, int] | None:
        """The largest partition and its bytes, among several."""
        return max(self.sizes.items(), key=lambda item: item[1]) if len(self.sizes) > 1 else None


def checkpoint(request: Request) -> Response:
    site = of(request)
    stored = site.pipeline(request)
    slot = Slot.read(request.path_params["slot"])
    found, before, after = find(stored, slot)
    trail = trail_to(stored.name, slot)
    try:
        details = describe(found)
    except (Damage, FormatTooNew) as damage:
        why, key = blame(damage)
        told: dict[str, Any] = {"name": stored.name, "slot": slot, "before": before, "after": after}
        # What a newer Holdfast wrote is whole: nobody must be led to repair it.
        told |= {"damage": damage, "why": why, "key": key, "is_damage": isinstance(damage, Damage)}
        return site.page(request, "damaged.html", trail, told)
    rows = _heat(details)
    values = {
        "it": details,
        "heat": rows,
        "most": max((cell.value for row in rows for cell in row.cells), default=0),
        "damaged": _damaged(details),
        "totals": _totals(details),
        "before": before,
        "after": after,
        "rewind": _rewind(site, details),
        "by_program": _by_program(details),
        "restore": _restore(site, details),
        "savepoint_command": site.command("savepoint", f"{stored.name}@slot:{slot}", "NAME"),
    }
    return site.page(request, "checkpoint.html", trail, values)


def trail_to(name: str, slot: Slot) -> Trail:
    return [
        ("Pipelines", "/"),
        (name, f"/pipelines/{name}"),
        (f"Checkpoint {slot}", f"/pipelines/{name}/checkpoints/{slot}"),
    ]


def find(stored: StoredPipeline, slot: Slot) -> tuple[Checkpoint, Slot | None, Slot | None]:
    """The checkpoint at a slot, with its neighbours on the timeline. Raises CheckpointMissing."""
    stored.require()
    world = stored.world()
    standing = timeline(world)
    if slot in standing:
        at = standing.index(slot)
        before = standing[at - 1] if at else None
        return Checkpoint(stored, slot), before, standing[at + 1] if at + 1 < len(standing) else None
    if slot not in abandoned(world):
        raise CheckpointMissing(f"{stored.name}@slot:{slot}", "it never was, or it was pruned")
    return Checkpoint(stored, slot, counts=False), None, None


def _damaged(it: CheckpointDetails) -> list[tuple[str, str]]:
    """What could not be read of a checkpoint that could: (what, why)."""
    operators = it.spark.operators if it.spark is not None else ()
    found = [(f"operator {each.number}", each.problem) for each in operators]
    found += [(f"driver state {each.name}", each.problem) for each in it.driver_states]
    return [(what, why) for what, why in found if why]


def _totals(it: CheckpointDetails) -> dict[str, int]:
    """The sum of the offsets of each source that has several, all of them numbers."""
    return {
        source.name: sum(map(int, source.offsets.values()))
        for source in it.sources
        if len(source.offsets) > 1 and all(offset.isdecimal() for offset in source.offsets.values())
    }


def _heat(it: CheckpointDetails) -> list[HeatRow]:
    """Bytes by operator and partition; a Spark query's from its files."""
    if it.spark is not None:
        rows = [
            HeatRow(
                f"{each.number} {each.name or '(its name is not known)'}",
                each.kind,
                each.sizes,
                each.summaries,
                problem=each.problem,
            )
            for each in it.spark.operators
        ]
    else:
        rows = [
            HeatRow(
                each.name,
                "",
                {view.partition: view.bytes for view in each.partitions},
                snapshots=each.snapshots,
                deltas=each.deltas,
            )
            for each in it.operators
        ]
    grouped = [_grouped(row.sizes) for row in rows]
    largest = max((size for _, cells in grouped for _, size in cells), default=0)
    return [
        replace(row, share=share, cells=heat(cells, largest)) for row, (share, cells) in zip(rows, grouped, strict=True)
    ]


def _grouped(sizes: dict[int, int]) -> tuple[int, list[tuple[object, int]]]:
    share = -(-len(sizes) // MOST_CELLS) or 1
    ordered = sorted(sizes.items())
    if share == 1:
        return 1, list(ordered)
    groups = [ordered[start : start + share] for start in range(0, len(ordered), share)]
    return share, [(f"{group[0][0]}–{group[-1][0]}", sum(size for _, size in group)) for group in groups]


def _rewind(site: Site, it: CheckpointDetails) -> str | None:
    """Of a pipeline of Spark's with sinks: those go back with it. The repository does not know where it is defined."""
    if it.spark is None or not it.sinks:
        return None
    return site.command("rewind", "MODULE:ATTR", "--to", f"{it.pipeline}@slot:{it.slot}")


def _by_program(it: CheckpointDetails) -> str | None:
    """Of a plain loop with sinks: only its own program has them."""
    return f'recover("{it.pipeline}", to="slot:{it.slot}")' if it.spark is None and it.sinks else None


def _restore(site: Site, it: CheckpointDetails) -> str:
    """A directory: of what has sinks only when it is said that they stay behind."""
    more = ["--state-only"] if it.spark is not None and it.sinks else []
    return site.command("restore", f"{it.pipeline}@slot:{it.slot}", f"./{it.pipeline}-restored", *more)
