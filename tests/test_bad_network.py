"""The whole repository over a real S3 server and a network that fails: nothing is lost, doubled or taken for damage."""

from __future__ import annotations

import random
import socket
import uuid
from collections.abc import Iterator

import pytest

import fault_proxy
import holdfast
from builders import NAME, epochs
from fault_proxy import FaultProxy, answer
from holdfast.draft import PartitionState
from servers import S3Server

FAULTS = [
    fault_proxy.cut_request,
    fault_proxy.lose_reply,
    fault_proxy.cut_reply,
    fault_proxy.slow_reply,
    answer("500 Internal Server Error"),
    answer("503 Slow Down"),
    fault_proxy.flip_object,
]


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    proxy = FaultProxy(s3_server.address)
    yield proxy
    proxy.end()


@pytest.fixture
def repo(s3_server: S3Server, proxy: FaultProxy) -> holdfast.Repository:
    policy = holdfast.RetryPolicy(budget_seconds=30, first_delay=0.01, max_delay=0.1)
    options = {**s3_server.options, "endpoint": proxy.endpoint, "timeout": "2s"}
    return holdfast.open(s3_server.url(f"bad-{uuid.uuid4().hex}"), create=True, options=options, retry=policy)


def save(run: holdfast.Checkpointer, epoch: int) -> None:
    draft = run.begin(epoch, carry=True)
    for partition in range(4):
        run.save_partitions(draft, [PartitionState("op", partition, f"{epoch}/{partition}".encode() * 900)])
    run.save_manifest(draft)


def test_checkpoints_recovery_prune_and_copy_outlast_a_bad_network(
    repo: holdfast.Repository, proxy: FaultProxy
) -> None:
    draw = random.Random(11)

    def trouble() -> None:
        proxy.order(draw.choice(("GET", "PUT")), draw.choice(FAULTS), times=draw.choice((1, 2)))

    epoch = 0
    for _ in range(3):
        trouble()
        with repo.pipeline(NAME).recover() as run:
            for _ in range(4):
                trouble()
                save(run, epoch)
                epoch += 1
    trouble()
    repo.pipeline(NAME)["epoch:9"].savepoint("named")
    trouble()
    repo.pipeline(NAME).prune(holdfast.KeepPolicy(last=3), dry_run=False)
    trouble()
    other = holdfast.open("memory://", create=True)
    repo.copy_to(other, NAME)
    for place in (repo, other):
        # 7 is where the newest generation began.
        assert epochs(place.pipeline(NAME)) == [7, 9, 10, 11]
        assert place.pipeline(NAME).check(read_percent=100).damaged == []


def test_a_bit_that_turns_over_in_any_object_on_the_way_to_a_copy_changes_nothing(
    repo: holdfast.Repository, proxy: FaultProxy
) -> None:
    with repo.pipeline(NAME).recover() as run:
        for epoch in range(2):
            save(run, epoch)
    repo.pipeline(NAME)["epoch:1"].savepoint("named")
    repo.pipeline(NAME)["epoch:0"].pin("because")
    fetched = 0
    while True:
        other, before = holdfast.open("memory://", create=True), len(proxy.seen)
        # Those before it pass, and the one after them turns over.
        for _ in range(fetched):
            proxy.order("GET", pass_object)
        proxy.order("GET", fault_proxy.flip_object)
        copied = repo.copy_to(other, NAME)
        assert copied.damaged == [], proxy.seen[before:]
        assert other.pipeline(NAME).check(read_percent=100).damaged == []
        assert epochs(other.pipeline(NAME)) == [0, 1]
        assert other.pipeline(NAME)["named"].epoch == 1
        assert [pin.why for pin in other.pipeline(NAME).pins()] == ["because"]
        if proxy.left:
            break
        fetched += 1
    assert fetched > 10


def pass_object(proxy: FaultProxy, request: fault_proxy.Request, client: socket.socket) -> None:
    """Let one object through; a listing is none."""
    if "list-type" in request.path:
        proxy.order_next("GET", pass_object)
    fault_proxy.pass_on(proxy, request, client)


def test_a_bit_that_turns_over_on_the_way_is_not_taken_for_damage(repo: holdfast.Repository, proxy: FaultProxy) -> None:
    with repo.pipeline(NAME).recover() as run:
        for epoch in range(3):
            save(run, epoch)
    newest = repo.pipeline(NAME).latest()
    assert newest is not None
    proxy.order("GET", fault_proxy.flip_byte)
    assert repo.pipeline(NAME)["epoch:2"].manifest.epoch == 2
    artifact = newest.operators["op"][1][-1]
    proxy.order("GET", fault_proxy.flip_byte)
    assert newest.load(artifact) == b"2/1" * 900
    assert proxy.left == 0
