"""The dashboard on 1,000 pipelines of 1,000 checkpoints: time, requests and memory, against 10 of 10.

    python -m benchmarks.dashboard_scale [--rounds N] [--pipelines N] [--checkpoints N]

Goal: each page answers within twice the time of the small repository plus one second, the first look as well as later
ones, and the memory of the dashboard does not grow with what is looked at. Both repositories are in memory, so that
the time is the dashboard's own; what a page asks of the store is counted. A miss ends it with exit code 1.
"""

from __future__ import annotations

import argparse
import http.client
import resource
import statistics
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.pairs import milliseconds, print_table, verdict

from holdfast.dashboard.server import serve
from holdfast.handles import Repository, open_url
from holdfast.ids import new_id, new_token, now_ms
from holdfast.layout import REPOSITORY, PipelineKeys, Slot
from holdfast.manifest import Artifact, ConnectorOffset, Manifest, SinkStatus, encode_manifest
from holdfast.records import Base, Claim, Hint, PipelineRecord, RepositoryRecord, seal
from holdfast.store import Store, open_store
from holdfast.testing.faults import CountingStore

SMALL = 10
TOKEN = "a-token-for-the-benchmark"
MINUTE = 60_000
FLAT_MIB = 32
"""Further walks may add as much as the dashboard remembers of small records, and no more."""


def manifests(count: int, now: int) -> list[bytes]:
    """The manifests of one pipeline. All pipelines share these bytes: a million of their own would fill the memory."""

    def one(number: int) -> bytes:
        artifacts = {
            partition: [Artifact(sha256=f"{number:064}", size_bytes=40_000 + partition, path="data/pack-0")]
            for partition in range(8)
        }
        offsets = {f"orders:{partition}": str(number * 100 + partition) for partition in range(4)}
        return encode_manifest(
            Manifest(
                checkpoint_id=new_id(),
                generation=0,
                slot=number,
                epoch=number,
                timestamp_ms=now - (count - number) * MINUTE,
                identifier="orders",
                pipeline_id=new_id(),
                operators={"count": artifacts},
                objects={"data/pack-0": 400_000},
                source_offsets={"orders": ConnectorOffset(offsets=offsets)},
                source_names=["orders"],
                sink_commit_statuses={"table": SinkStatus(status="committed")},
                sink_names=["table"],
                watermark=now - (count - number) * MINUTE - 5_000,
                took_ms=200,
            )
        )

    return [one(number) for number in range(count)]


def fill(store: Store, pipelines: int, checkpoints: int) -> Repository:
    """Keys are written in their order, which a store in memory takes well."""
    now, root = now_ms(), RepositoryRecord(token=new_token(), repository_id=new_id(), created_ms=0)
    store.put(REPOSITORY, seal(root))
    bodies = manifests(checkpoints, now)
    for index in range(pipelines):
        name = f"pipeline-{index:05}"
        keys = PipelineKeys(name)
        for number, body in enumerate(bodies):
            store.put(keys.manifest(Slot(0, number)), body)
        claim = Claim(
            token=new_token(), generation=0, why="start", who="bench", repository_id=root.repository_id, created_ms=now
        )
        store.put(keys.base(0), seal(Base(token=new_token(), generation=0)))
        store.put(keys.claim(0), seal(claim))
        store.put(keys.latest, seal(Hint(token=new_token(), generation=0, slot=checkpoints - 1)))
        identity = PipelineRecord(token=new_token(), pipeline_id=new_id(), name=name, created_ms=now)
        store.put(keys.identity, seal(identity))
    return open_url(store)


def pages(pipelines: int, checkpoints: int) -> dict[str, str]:
    name, last = f"/pipelines/pipeline-{pipelines // 2:05}", checkpoints - 1
    return {
        "overview": "/",
        "overview, searched": "/?q=pipeline-0000",
        "overview, last page": "/?page=99999",
        "pipeline": name,
        "pipeline, oldest page": f"{name}?page=99999",
        "checkpoint": f"{name}/checkpoints/0-{last}",
        "difference": f"{name}/checkpoints/0-{last}/diff?with=slot:0-0",
        "plan of a prune": f"{name}/prune?keep_last=5",
        "API: pipelines": "/api/pipelines",
        "API: checkpoints": f"/api{name}/checkpoints",
        "API: courses": f"/api{name}/courses",
        "metrics": "/metrics",
    }


@contextmanager
def dashboard(repository: Repository) -> Iterator[int]:
    ports: list[int] = []
    up, stop = threading.Event(), threading.Event()

    def ready(url: str) -> None:
        ports.append(int(url.rstrip("/").rpartition(":")[2]))
        up.set()

    options = {"token": TOKEN, "ready": ready, "stop": stop}
    thread = threading.Thread(target=serve, args=(repository,), kwargs=options)
    thread.start()
    up.wait()
    try:
        yield ports[0]
    finally:
        stop.set()
        thread.join()


def ask(port: int, path: str) -> float:
    """Seconds until the whole page is there."""
    began = time.perf_counter()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    connection.request("GET", path, headers={"authorization": f"Bearer {TOKEN}"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    if answer.status != 200:
        sys.exit(f"{path}: {answer.status}")
    return time.perf_counter() - began


def memory() -> float:
    """MiB that this process holds now, or the most that it ever held where /proc does not tell."""
    status = Path("/proc/self/statm")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return int(status.read_text().split()[1]) * resource.getpagesize() / 2**20


class Looked(NamedTuple):
    """One look at a page: the time until it was there, the processor's time, and the requests to the store.

    The last two are of all that went on meanwhile, the sweep in the background included.
    """

    seconds: float
    cpu: float
    requests: int


class Subject:
    """One repository with its dashboard."""

    def __init__(self, pipelines: int, checkpoints: int) -> None:
        self.store = CountingStore(open_store("memory://"))
        self.repository = fill(self.store, pipelines, checkpoints)
        self.pages = pages(pipelines, checkpoints)
        self.port = 0

    def look(self, page: str) -> Looked:
        self.store.reset()
        cpu = time.process_time()
        seconds = ask(self.port, self.pages[page])
        return Looked(seconds, time.process_time() - cpu, self.store.total)


def middle(looks: list[Looked]) -> Looked:
    seconds, cpu, requests = (statistics.median(column) for column in zip(*looks, strict=True))
    return Looked(seconds, cpu, round(requests))


def compare(small: Subject, large: Subject, rounds: int) -> bool:
    """Look at every page of both by turns, and print what it took; whether the goal was met by all."""
    rows: list[list[str]] = []
    met = True
    for page in small.pages:
        firsts = [small.look(page), large.look(page)]
        pairs = [(small.look(page), large.look(page)) for _ in range(rounds)]
        laters = [middle([pair[side] for pair in pairs]) for side in (0, 1)]
        fits = all(second.seconds <= 2 * first.seconds + 1 for first, second in (firsts, laters))
        met &= fits
        times = [milliseconds(each.seconds) for each in (*firsts, *laters)]
        cpu = [milliseconds(each.cpu) for each in laters]
        requests = [f"{a.requests} / {b.requests}" for a, b in zip(firsts, laters, strict=True)]
        rows.append([page, *times, *cpu, *requests, verdict(fits)])
    heads = ["page", "first, small", "first, large", "later, small", "later, large", "CPU, small", "CPU, large"]
    title = "Requests are at the first look / at a later one, with what the sweep in the background asks meanwhile."
    print_table(title, [*heads, "requests, small", "requests, large", "goal"], rows)
    return met


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--pipelines", type=int, default=1000)
    parser.add_argument("--checkpoints", type=int, default=1000)
    given = parser.parse_args()
    small, large = Subject(SMALL, SMALL), Subject(given.pipelines, given.checkpoints)
    held = [memory()]
    with dashboard(small.repository) as small.port, dashboard(large.repository) as large.port:
        met = compare(small, large, given.rounds)
        held.append(memory())
        for _ in range(3):
            for page in large.pages:
                for _ in range(given.rounds):
                    large.look(page)
            held.append(memory())
    print(f"memory: {', '.join(f'{each:,.0f}' for each in held)} MiB: written, compared, and after each further walk")
    is_flat = held[-1] - held[1] <= FLAT_MIB
    print(f"every page within twice the time and a second: {verdict(met)}")
    print(f"further walks add at most {FLAT_MIB} MiB: {verdict(is_flat)}")
    sys.exit(0 if met and is_flat else 1)


if __name__ == "__main__":
    main()
