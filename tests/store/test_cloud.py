"""What the cloud store promises beyond the contract: forks, folder markers, memory."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator

import obstore
import pytest

from fault_proxy import FaultProxy
from holdfast.store import Store, open_store
from holdfast.store.cloud import _join, _start_before
from servers import S3Server

FORK = """
import os, sys, time
from holdfast.errors import ForkedProcess
from holdfast.store import open_store

url, options, used_before = sys.argv[1], dict(pair.split("=", 1) for pair in sys.argv[3:]), sys.argv[2] == "used"
store = open_store(url, options)
if used_before:
    store.create("parent", b"1")
child = os.fork()
if child == 0:
    code = 9
    try:
        store.create("child", b"2")
        code = 0
    except ForkedProcess as error:
        code = 6
    finally:
        os._exit(code)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
if used_before:
    assert store.get("parent") == b"1"
"""


@pytest.mark.parametrize(("used", "outcome"), [("used", "6"), ("unused", "0")])
def test_a_forked_child_is_told_at_once_if_the_store_was_used_before(
    s3_server: S3Server, s3_url: str, used: str, outcome: str
) -> None:
    options = [f"{name}={value}" for name, value in s3_server.options.items()]
    command = [sys.executable, "-W", "ignore", "-c", FORK, s3_url, used, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    assert done.stdout.strip() == outcome, done.stderr


def test_folder_markers_are_not_listed(s3_server: S3Server) -> None:
    bucket = f"b-{uuid.uuid4().hex}"
    store = open_store(f"s3://{bucket}/root", s3_server.options)
    for key in ("ck/commits/0", "ck/commits-2/0", "ck/offsets/0"):
        store.create(key, b"1")
    store.create("ck/empty", b"")
    client = open_store(f"s3://{bucket}", s3_server.options)._store._client  # type: ignore[attr-defined]
    for marker in ("root/", "root/ck/", "root/ck/commits/", "root/ck/offsets/"):
        obstore.put(client, marker, b"")
    expected = ["ck/commits-2/0", "ck/commits/0", "ck/empty", "ck/offsets/0"]
    assert [info.key for info in store.list("")] == expected
    assert [info.key for info in store.list("ck/")] == expected
    assert [info.key for info in store.list("ck/commits/")] == ["ck/commits/0"]
    assert store.folders("ck/") == ["commits", "commits-2", "offsets"]


MEMORY = """
import resource, sys
from holdfast.store import open_store

url, options = sys.argv[1], dict(pair.split("=", 1) for pair in sys.argv[2:])
store = open_store(url, options)
chunk = bytes(1024 * 1024)
store.create("warm", chunk)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
assert store.write("big", (chunk for _ in range(768))) == 768 * len(chunk)
assert sum(map(len, store.read("big"))) == 768 * len(chunk)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def test_a_large_stream_takes_little_memory(s3_server: S3Server, s3_store: Store, s3_url: str) -> None:
    options = [f"{name}={value}" for name, value in s3_server.options.items()]
    done = subprocess.run([sys.executable, "-c", MEMORY, s3_url, *options], capture_output=True, text=True, check=True)
    s3_store.delete(["big"])
    assert int(done.stdout) < 256


def test_an_upload_that_is_given_up_is_aborted(s3_server: S3Server, s3_url: str) -> None:
    proxy = FaultProxy(s3_server.address)
    store = open_store(s3_url, {**s3_server.options, "endpoint": proxy.endpoint})

    def chunks() -> Iterator[bytes]:
        for _ in range(4):
            yield bytes(8 * 1024 * 1024)
        raise KeyError("the source broke")

    with pytest.raises(KeyError):
        store.write("big", chunks())
    assert store.list("") == []
    assert any(request.startswith("DELETE") and "uploadId=" in request for request in proxy.seen)
    proxy.end()


@pytest.mark.parametrize(
    ("ranges", "spans"),
    [
        ([], []),
        ([(5, 0)], []),
        ([(0, 10), (10, 5)], [(0, 15)]),
        ([(250_000, 10), (0, 10)], [(0, 250_010)]),
        ([(0, 100), (10, 5)], [(0, 100)]),
        ([(0, 10), (1_000_000, 10)], [(0, 10), (1_000_000, 1_000_010)]),
    ],
)
def test_ranges_are_joined_when_near(ranges: list[tuple[int, int]], spans: list[tuple[int, int]]) -> None:
    assert _join(ranges) == spans


@pytest.mark.parametrize(
    ("start_after", "start"),
    [
        ("g/0000000012.json", "g/0000000011~"),
        ("g/0000000010", "g/000000000~"),
        ("g/0000000000", None),
        ("g/a-b/c", "g/`~"),
        ("g/", None),
        ("f/x", None),
    ],
)
def test_the_server_is_told_to_start_no_later_than_needed(start_after: str, start: str | None) -> None:
    assert _start_before("g/", start_after) == start
    assert start is None or start < start_after
