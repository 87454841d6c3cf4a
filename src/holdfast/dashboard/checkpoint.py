"""One checkpoint: what `show` says of it, its partitions as a heat map of bytes, and the command that restores it."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

from holdfast.checkpoint import Checkpoint
from holdfast.dashboard.plots import Cell, heat
from holdfast.dashboard.site import Site, Trail, of
from holdfast.decide.timeline import abandoned, timeline
from holdfast.errors import CheckpointMissing
from holdfast.handles import StoredPipeline
from holdfast.layout import Slot
from holdfast.report import CheckpointDetails, describe

__all__ = ["checkpoint", "find", "trail_to"]

MOST_CELLS = 512
"""Partitions of one operator that are drawn one by one; beyond this neighbours share a cell."""


@dataclass(frozen=True)
class HeatRow:
    """One operator of the heat map."""

    name: str
    kind: str
    bytes: int
    partitions: int
    share: int
    """How many partitions one cell stands for."""
    cells: list[Cell]


def checkpoint(request: Request) -> Response:
    site = of(request)
    stored = site.pipeline(request)
    slot = Slot.read(request.path_params["slot"])
    found, before, after = find(stored, slot)
    details = describe(found)
    values = {
        "it": details,
        "heat": _heat(details),
        "before": before,
        "after": after,
        "restore": _restore(site, details),
        "savepoint_command": site.command("savepoint", f"{stored.name}@slot:{slot}", "NAME"),
        "fork": site.command("restore", f"{stored.name}@slot:{slot}", f"./{stored.name}-restored"),
    }
    return site.page(request, "checkpoint.html", trail_to(stored.name, slot), values)


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


def _heat(it: CheckpointDetails) -> list[HeatRow]:
    """Bytes by operator and partition; a Spark query's from its files."""
    rows: list[tuple[str, str, dict[int, int]]] = []
    if it.spark is not None:
        for operator in it.spark.operators:
            sizes: dict[int, int] = {}
            for store in operator.stores:
                sizes[store.partition] = sizes.get(store.partition, 0) + store.bytes
            rows.append((f"{operator.number} {operator.name}".strip(), operator.kind, sizes))
    else:
        rows = [(each.name, "", {view.partition: view.bytes for view in each.partitions}) for each in it.operators]
    grouped = [(name, kind, sizes, *_grouped(sizes)) for name, kind, sizes in rows]
    largest = max((size for *_, cells in grouped for _, size in cells), default=0)
    return [
        HeatRow(name, kind, sum(sizes.values()), len(sizes), share, heat(cells, largest))
        for name, kind, sizes, share, cells in grouped
    ]


def _grouped(sizes: dict[int, int]) -> tuple[int, list[tuple[object, int]]]:
    share = -(-len(sizes) // MOST_CELLS) or 1
    ordered = sorted(sizes.items())
    if share == 1:
        return 1, list(ordered)
    groups = [ordered[start : start + share] for start in range(0, len(ordered), share)]
    return share, [(f"{group[0][0]}–{group[-1][0]}", sum(size for _, size in group)) for group in groups]


def _restore(site: Site, it: CheckpointDetails) -> str:
    """A directory that Spark starts from; one with sinks is better rewound by its pipeline, and the page says so."""
    more = ["--state-only"] if it.spark is not None and it.sinks else []
    return site.command("restore", f"{it.pipeline}@slot:{it.slot}", f"./{it.pipeline}-restored", *more)
