"""Every page of the dashboard in every state that is worth a look, and every way to look at it.

The tests walk through them, and `scripts/dashboard_pictures.py --all DIR` makes a picture of each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import holdfast
from builders import flip, make_repo
from dashboard.conftest import TOKEN, Client, Serving
from dashboard.sample import Writer, make_fleet
from holdfast.dashboard import actions
from holdfast.handles import Repository
from holdfast.layout import Slot
from holdfast.store import open_store
from holdfast.store.local_directory import LocalDirectory
from spark.directories import ROCKSDB, MadeDirectory
from spark.samples import capture

__all__ = ["WAYS", "Views", "every_view", "make_spark"]

WAYS: dict[str, dict[str, Any]] = {
    "light": {"color_scheme": "light", "viewport": {"width": 1280, "height": 860}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1280, "height": 860}},
    "phone": {"color_scheme": "light", "viewport": {"width": 390, "height": 844}},
    "dark phone": {"color_scheme": "dark", "viewport": {"width": 390, "height": 844}},
}

JOIN = tuple(f"{side}-{what}" for side in ("left", "right") for what in ("keyToNumValues", "keyWithIndexToValue"))
"""The stores of a join of two streams, as Spark names them."""

PAGES = {
    "overview": "/",
    "overview, none fits": "/?q=nothing-like-it",
    "pipeline": "/pipelines/orders",
    "pipeline, older": "/pipelines/orders?page=1",
    "pipeline, abandoned": "/pipelines/orders?which=abandoned",
    "pipeline, savepoints": "/pipelines/orders?which=savepoints",
    "pipeline, damaged": "/pipelines/inventory",
    "pipeline, unfinished": "/pipelines/shipments",
    "pipeline, late": "/pipelines/payments",
    "pipeline, waiting": "/pipelines/returns",
    "pipeline, fork": "/pipelines/orders-backfill",
    "checkpoint": "/pipelines/orders/checkpoints/3-12",
    "checkpoint, skewed": "/pipelines/clicks/checkpoints/0-39",
    "checkpoint, abandoned": "/pipelines/orders/checkpoints/1-20",
    "checkpoint, damaged": "/pipelines/inventory/checkpoints/0-9",
    "difference": "/pipelines/orders/checkpoints/3-12/diff?with=before-upgrade",
    "prune, rules": "/pipelines/shipments/prune",
    "prune, plan": "/pipelines/shipments/prune?keep_last=4",
    "login": "/login",
    "error": "/pipelines/nope",
}
"""Of the sample repository, by somebody who has signed in."""


@dataclass(frozen=True)
class Views:
    """Whole addresses by what is to be seen there, and the dashboard at which one signs in."""

    fleet: Client
    addresses: dict[str, str]


@contextmanager
def every_view(serving: Serving, folder: Path, url: str = "") -> Iterator[Views]:
    """Serve all that there is to be seen. `url` is what the sample repository says it is at."""
    with ExitStack() as stack:
        store = open_store("memory://")
        repository = make_fleet(store, time.time_ns() // 1_000_000)
        store.url = url or store.url
        fleet: Client = stack.enter_context(serving(repository, token=TOKEN))
        reader: Client = stack.enter_context(serving(repository))
        empty: Client = stack.enter_context(serving(make_repo(open_store("memory://"))))
        spark: Client = stack.enter_context(serving(make_spark(folder)))
        fleet.wait_for_the_sweep()
        reader.wait_for_the_sweep()
        fleet.sign_in()
        addresses = {name: fleet.url + path for name, path in {**PAGES, **_jobs(fleet)}.items()}
        yield Views(
            fleet,
            {
                **addresses,
                "overview, empty": f"{empty.url}/",
                "overview, read only": f"{reader.url}/",
                "pipeline, read only": f"{reader.url}/pipelines/orders",
                "login, read only": f"{reader.url}/login",
                "spark, pipeline": f"{spark.url}/pipelines/sessions",
                "spark, checkpoint": f"{spark.url}/pipelines/sessions/checkpoints/0-2",
                "spark, join": f"{spark.url}/pipelines/joins/checkpoints/0-0",
                "spark, damaged": f"{spark.url}/pipelines/clicks/checkpoints/0-1",
                "spark, sinks": f"{spark.url}/pipelines/totals/checkpoints/0-0",
                "spark, difference": f"{spark.url}/pipelines/sessions/checkpoints/0-2/diff?with=slot:0-0",
            },
        )


def _jobs(fleet: Client) -> dict[str, str]:
    """Jobs of every kind and outcome, as far as nobody runs the pipelines."""
    check, prune, savepoint = "/pipelines/{}/check", "/pipelines/{}/prune", "/pipelines/{}/savepoint"
    patient, actions.SAVEPOINT_SECONDS = actions.SAVEPOINT_SECONDS, 0.1
    try:
        failed = fleet.post(savepoint.format("clicks"), {"name": "now-or-never"})
        fleet.job(failed)
    finally:
        actions.SAVEPOINT_SECONDS = patient
    good = fleet.post(check.format("returns"), {"read": "none"})
    faults = fleet.post(check.format("inventory"), {"read": "none"})
    plan = fleet.call("/api/pipelines/payments/prune-plans", {"keep_last": 20}).document["plan_id"]
    pruned = fleet.post(prune.format("payments"), {"plan": plan})
    for begun in (good, faults, pruned):
        fleet.job(begun)
    running = fleet.post(savepoint.format("orders"), {"name": "before-deploy"})
    jobs = {"running": running, "failed": failed, "done": good, "with faults": faults, "pruned": pruned}
    return {f"job, {name}": begun.headers["location"] for name, begun in jobs.items()}


def make_spark(folder: Path) -> Repository:
    """Checkpoints of Spark: `sessions` in RocksDB, `joins` with the stores of a join, `clicks` in which a bit turned
    over since, `totals` with sinks."""
    repository = holdfast.open(str(folder / "repository"), create=True)
    sessions = MadeDirectory(folder / "sessions", ROCKSDB, partitions=8, operators=2)
    joins = MadeDirectory(folder / "joins", ROCKSDB, stores=JOIN)
    clicks = MadeDirectory(folder / "clicks")
    for made, batches in ((sessions, 3), (joins, 1), (clicks, 2)):
        for _ in range(batches):
            made.start()
            made.batch()
            capture(repository.pipeline(made.root.name), LocalDirectory(made.root))
    harmed = repository.pipeline("clicks")["slot:0-1"].manifest.files["state/0/_metadata/metadata"]
    assert harmed.path
    flip(repository.store, f"pipelines/clicks/{harmed.path}", harmed.offset or 0)
    totals = Writer(repository, "totals", time.time_ns() // 1_000_000)
    totals.claim(0)
    totals.hint(totals.checkpoint(Slot(0, 0), 7, 4_000, engine="spark", spark_version="4.1.1", operators={}).at)
    return repository
