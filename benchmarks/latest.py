"""Finding the latest of many checkpoints: the requests that it takes, and the time on disk.

    python -m benchmarks.latest [--rounds N] [--checkpoints N]

Goal: as many requests for 10,000 checkpoints as for 10, also when the hint is a little behind. Time is
shown for scale: a folder on disk is read whole, whatever it is asked for.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

from benchmarks.pairs import alternate, milliseconds, print_table, verdict
from benchmarks.places import scratch

from holdfast import Checkpoint, Slot
from holdfast import open as open_repository
from holdfast.store import Store, open_store
from holdfast.testing.faults import CountingStore

FEW = 10
BEHIND = 5


def fill(checkpoints: int) -> Store:
    """A repository in memory with so many checkpoints of one pipeline."""
    store = open_store("memory://")
    with open_repository(store, create=True).pipeline("orders").recover() as run:
        for epoch in range(checkpoints):
            draft = run.begin(epoch)
            draft.save_driver_state("state", epoch.to_bytes(8, "big"))
            run.save_manifest(draft)
    return store


def lay(store: Store, folder: Path) -> Store:
    """The same objects on disk; not synced, since nothing is lost with them."""
    for info in store.list(""):
        path = folder / info.key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(store.get(info.key))
    return open_store(str(folder))


def find(store: Store) -> Callable[[], Checkpoint | None]:
    """As by a process that has just begun: nothing is kept from before."""
    return lambda: open_repository(store).pipeline("orders").latest()


def requests(store: Store, checkpoints: int) -> dict[str, int]:
    counting = CountingStore(store)
    pipeline = open_repository(counting).pipeline("orders")
    counting.reset()
    found = pipeline.latest()
    assert found is not None
    assert found.slot.number == checkpoints - 1
    return dict(sorted(counting.counts.items()))


def main() -> None:
    options = argparse.ArgumentParser(description="finding the latest checkpoint of many")
    options.add_argument("--rounds", type=int, default=21)
    options.add_argument("--checkpoints", type=int, default=10_000)
    chosen = options.parse_args()

    stores = {count: fill(count) for count in (FEW, chosen.checkpoints)}
    counts = {count: [requests(store, count)] for count, store in stores.items()}
    for count, store in stores.items():
        records = open_repository(store).pipeline("orders").records
        records.put_hint(Slot(0, count - 1 - BEHIND))
        counts[count].append(requests(store, count))
        records.put_hint(Slot(0, count - 1))
    met = counts[FEW] == counts[chosen.checkpoints]
    print_table(
        "requests to find the latest",
        ("checkpoints", "hint", "by verb", "total", "goal", ""),
        [
            (
                count,
                hint,
                ", ".join(f"{n} {verb}" for verb, n in by.items()),
                sum(by.values()),
                "the same",
                verdict(met),
            )
            for count, found in counts.items()
            for hint, by in zip(("newest", f"{BEHIND} behind"), found, strict=True)
        ],
    )
    with scratch() as folder:
        on_disk = {count: lay(store, folder / str(count)) for count, store in stores.items()}
        rows = []
        for place, where in (("memory://", stores), ("file://", on_disk)):
            found = alternate(find(where[chosen.checkpoints]), find(where[FEW]), chosen.rounds)
            rows.append((place, found.wall, found.cpu, milliseconds(found.first), milliseconds(found.second)))
    print_table(
        f"time to open the repository and find it, {chosen.rounds} pairs; time over time, median (quartiles)",
        ("", "wall", "CPU", f"of {chosen.checkpoints}", f"of {FEW}"),
        rows,
    )


if __name__ == "__main__":
    main()
