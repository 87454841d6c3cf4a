"""Somebody else's files: one suite for the disk, S3 and Azure, and what each of them does beyond it."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from hmac import digest as hmac
from pathlib import Path
from socket import socket
from typing import Any
from urllib.parse import quote, urlsplit
from urllib.request import Request as HTTPRequest
from urllib.request import urlopen

import obstore
import pytest

import fault_proxy
from fault_proxy import FaultProxy, Request, answer
from holdfast.errors import (
    AccessDenied,
    BadName,
    BadURL,
    BadValue,
    ChangedWhileRead,
    ObjectMissing,
    PlaceMissing,
    StoreFailure,
    StoreUnavailable,
)
from holdfast.store import CHUNK, Directory, FileStat, RetryPolicy, address, local_directory, open_directory, open_store
from servers import AzureServer, S3Server

MiB = 1024 * 1024


class Writer:
    """The other program: it writes, replaces, removes, and makes folders, in its own way."""

    url: str
    options: dict[str, str]

    def write(self, name: str, data: bytes) -> str:
        """Give a file these bytes, at once; the stamp of this version."""
        raise NotImplementedError

    def remove(self, name: str) -> None:
        raise NotImplementedError

    def make_folder(self, name: str) -> None:
        raise NotImplementedError

    def open(self) -> Directory:
        return open_directory(self.url, self.options)


class LocalWriter(Writer):
    def __init__(self, root: Path) -> None:
        self.root = root
        self.url = str(root)
        self.options = {}
        self.clock = time.time_ns()

    def write(self, name: str, data: bytes) -> str:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{uuid.uuid4()}.tmp")
        temporary.write_bytes(data)
        # A clock that is finer than the file system's, since these tests write faster than any program would.
        self.clock = max(self.clock + 1, time.time_ns())
        os.utime(temporary, ns=(self.clock, self.clock))
        stamp = f"{self.clock:x}.{temporary.stat().st_ino:x}"
        temporary.replace(path)
        return stamp

    def remove(self, name: str) -> None:
        (self.root / name).unlink()

    def make_folder(self, name: str) -> None:
        (self.root / name).mkdir(parents=True)


class CloudWriter(Writer):
    def __init__(self, url: str, options: dict[str, str]) -> None:
        self.url = url
        self.options = options
        self.client: Any = open_store(url, options)._store._client  # type: ignore[attr-defined]

    def write(self, name: str, data: bytes) -> str:
        put = obstore.put(self.client, name, data, use_multipart=False)
        return (put["e_tag"] or "").strip('"')

    def remove(self, name: str) -> None:
        obstore.delete(self.client, name)


class S3Writer(CloudWriter):
    def __init__(self, server: S3Server, prefix: str) -> None:
        super().__init__(server.url(prefix), server.options)
        self.server = server
        self.prefix = prefix

    def make_folder(self, name: str) -> None:
        """An empty object whose key ends in a slash, as S3A leaves it; obstore would drop the slash."""
        url = urlsplit(self.server.endpoint)
        path = quote(f"/{self.server.bucket}/{self.prefix}/{name}/")
        now = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
        scope = [now[:8], "us-east-1", "s3", "aws4_request"]
        body = hashlib.sha256(b"").hexdigest()
        headers = {"host": url.netloc, "x-amz-content-sha256": body, "x-amz-date": now}
        signed = ";".join(headers)
        canonical = ["PUT", path, "", *(f"{key}:{value}" for key, value in headers.items()), "", signed, body]
        asked = hashlib.sha256("\n".join(canonical).encode()).hexdigest()
        key = f"AWS4{self.server.secret_access_key}".encode()
        for part in scope:
            key = hmac(key, part.encode(), "sha256")
        signature = hmac(key, "\n".join(["AWS4-HMAC-SHA256", now, "/".join(scope), asked]).encode(), "sha256").hex()
        headers["Authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.server.access_key_id}/{'/'.join(scope)}, "
            f"SignedHeaders={signed}, Signature={signature}"
        )
        request = HTTPRequest(f"{self.server.endpoint}{path}", data=b"", method="PUT", headers=headers)
        with urlopen(request, timeout=30) as reply:
            assert reply.status == 200


class AzureWriter(CloudWriter):
    def make_folder(self, name: str) -> None:
        """An empty blob with an attribute, as Hadoop leaves it."""
        obstore.put(self.client, name, b"", attributes={"hdi_isfolder": "true"})


@pytest.fixture
def local_writer(tmp_path: Path) -> Writer:
    return LocalWriter(tmp_path / "ck")


@pytest.fixture
def s3_writer(s3_server: S3Server) -> S3Writer:
    return S3Writer(s3_server, f"t-{uuid.uuid4().hex}")


@pytest.fixture
def azure_writer(azure_server: AzureServer) -> Writer:
    return AzureWriter(azure_server.url(f"t-{uuid.uuid4().hex}"), azure_server.options)


@pytest.fixture(params=["local", "s3", "azure"])
def writer(request: pytest.FixtureRequest) -> Writer:
    """Another program at work in an empty place of each kind in turn."""
    writer: Writer = request.getfixturevalue(f"{request.param}_writer")
    return writer


@pytest.fixture
def directory(writer: Writer) -> Directory:
    return writer.open()


# ---- looks ----


def test_a_look_shows_files_and_folders(writer: Writer, directory: Directory) -> None:
    for name in ("metadata", "commits/0", "commits/1", "state/0/1/2.zip", "state/0/10/_metadata/schema"):
        writer.write(name, name.encode())
    look = directory.look()
    assert set(look.files("")) == {"metadata"}
    assert set(look.files("commits")) == {"0", "1"}
    assert look.folders("") == ["commits", "state"]
    assert look.folders("state") == ["0"]
    assert look.folders("state/0") == ["1", "10"]
    assert look.files("state/0") == {}
    assert look.folders("commits") == []


def test_a_directory_that_is_not_there_is_empty(directory: Directory) -> None:
    look = directory.look()
    assert look.files("") == look.files("commits") == {}
    assert look.folders("") == []
    assert look.stat("metadata") is None


def test_what_is_not_there_shows_as_nothing(writer: Writer, directory: Directory) -> None:
    writer.write("commits/0", b"0")
    look = directory.look()
    assert look.files("offsets") == look.files("commits/0") == {}
    assert look.folders("commits/0") == []
    for name in ("commits", "commits/1", "commits/0/x", "state"):
        assert look.stat(name) is None


def test_the_stat_of_a_look_is_that_of_a_read(writer: Writer, directory: Directory) -> None:
    stamp = writer.write("commits/0", b"12345")
    look = directory.look()
    stat = look.stat("commits/0")
    assert stat is not None
    assert stat[:2] == (5, stamp)
    assert look.files("commits")["0"] in (None, stat)
    assert directory.read("commits/0") == (b"12345", stat)
    assert directory.stream("commits/0")[0] == stat


def test_a_stat_is_the_same_where_a_listing_tells_the_time_more_finely_than_a_reply(bad_s3_server: S3Server) -> None:
    writer = CloudWriter(bad_s3_server.url(f"t-{uuid.uuid4().hex}"), bad_s3_server.options)
    writer.write("k", b"1")
    directory = writer.open()
    assert directory.look().stat("k") == directory.read("k")[1] == directory.stream("k")[0]


def test_a_stat_tells_when_a_file_was_written(writer: Writer, directory: Directory) -> None:
    before = time.time_ns() // 10**9 * 10**9
    writer.write("k", b"1")
    _, stat = directory.read("k")
    assert before <= stat.modified_ns <= time.time_ns()


def test_a_look_at_one_folder_has_what_is_below_it_and_nothing_else(writer: Writer, directory: Directory) -> None:
    for name in ("commits/0", "commits-2/0", "state/0/0/1.zip"):
        writer.write(name, b"x")
    look = directory.look("state/0")
    assert look.folders("state/0") == ["0"]
    assert set(look.files("state/0/0")) == {"1.zip"}
    assert set(directory.look("commits").files("commits")) == {"0"}
    for ask in (look.files, look.folders, look.leftovers, look.stat):
        for name in ("", "state", "commits", "commits/0", "state/01"):
            with pytest.raises(BadValue, match="lies outside"):
                ask(name)


def test_a_new_look_shows_what_is_new(writer: Writer, directory: Directory) -> None:
    writer.write("commits/0", b"0")
    directory.look()
    writer.write("commits/1", b"1")
    writer.remove("commits/0")
    assert set(directory.look().files("commits")) == {"1"}


def test_sidecars_and_temporaries_are_left_out_and_sparks_own_checksums_are_not(
    writer: Writer, directory: Directory
) -> None:
    one = str(uuid.uuid4())
    kept = {"1.zip", f"2_{one}.zip", f"2_{one}.zip.crc", "3.tmp"}
    left_out = {".1.zip.crc", f".4.zip.{one}.tmp", f".4.zip.{one}.TID7.tmp", f"..4.zip.{one}.TID7.tmp.crc"}
    for name in kept | left_out:
        writer.write(f"state/0/0/{name}", b"x")
    look = directory.look()
    assert set(look.files("state/0/0")) == kept
    assert look.leftovers("state/0/0") == sorted(left_out)
    assert look.leftovers("state/0") == look.leftovers("nowhere") == []


def test_folders_are_listed_without_what_is_in_them(writer: Writer, directory: Directory) -> None:
    assert directory.folders() == directory.folders("nowhere") == []
    for name in ("metadata", "commits/0", "state/0/1/2.zip", "state/10/1/2.zip", "state/2"):
        writer.write(name, b"x")
    assert directory.folders() == ["commits", "state"]
    assert directory.folders("state") == ["0", "10"]
    assert directory.folders("commits") == []


def test_markers_of_folders_are_no_files(writer: Writer, directory: Directory) -> None:
    for name in ("commits", "sources/0", "state/0"):
        writer.make_folder(name)
    writer.write("commits/0", b"0")
    writer.write("empty", b"")
    look = directory.look()
    assert set(look.files("")) == {"empty"}
    assert look.files("sources") == look.files("state") == look.files("sources/0") == {}
    assert look.stat("sources/0") is None
    assert look.stat("commits") is None
    assert set(look.files("commits")) == set(directory.look("commits").files("commits")) == {"0"}
    assert directory.look("sources/0").files("sources/0") == {}
    assert (stat := look.stat("empty")) is not None
    assert stat.size == 0


@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_the_markers_of_older_clients_are_no_files_either(kind: str, request: pytest.FixtureRequest) -> None:
    writer: Writer = request.getfixturevalue(f"{kind}_writer")
    writer.write("commits_$folder$", b"")
    writer.write("commits/0", b"0")
    writer.write("offsets/0", b"0")
    writer.write("offsets", b"")
    assert writer.open().look().files("") == {}


def test_a_look_goes_over_many_pages(s3_writer: S3Writer) -> None:
    names = {f"{n}.delta" for n in range(1050)}
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda name: s3_writer.write(f"state/0/0/{name}", b"x"), names))
    assert set(s3_writer.open().look().files("state/0/0")) == names


NAMES = ["a b", "a%20b", "é", "a=1", "2_0b1c-4d.zip", "+", "a:b", "a#b?c"]


@pytest.mark.parametrize("name", NAMES)
def test_names_of_all_kinds_come_back_as_they_are(writer: Writer, directory: Directory, name: str) -> None:
    writer.write(f"{name}/{name}", b"x")
    assert directory.look().folders("") == [name]
    assert set(directory.look(name).files(name)) == {name}
    assert directory.read(f"{name}/{name}")[0] == b"x"


@pytest.mark.parametrize("name", ["../x", "/x", "a//b", "a/../b", "a/", "."])
def test_no_name_leads_out_of_the_directory(directory: Directory, name: str) -> None:
    look = directory.look()
    of_look = (look.files, look.folders, look.leftovers, look.stat)
    for ask in (directory.read, directory.stream, directory.look, directory.folders, *of_look):
        with pytest.raises(BadName):
            ask(name)


def test_a_file_has_a_name(directory: Directory) -> None:
    for ask in (directory.read, directory.stream):
        with pytest.raises(BadName):
            ask("")


# ---- reads ----


def test_other_bytes_have_another_stamp_also_at_the_same_size(writer: Writer, directory: Directory) -> None:
    seen = set()
    for version in (b"1", b"2", b"3", b"44"):
        writer.write("k", version)
        data, stat = directory.read("k")
        assert (data, stat.size) == (version, len(version))
        assert directory.look().stat("k") == stat
        seen.add(stat.stamp)
    assert len(seen) == 4


@pytest.mark.parametrize("name", ["k", "folder", "folder/k/x", "nowhere/k"])
def test_a_file_that_is_not_there_is_missing(writer: Writer, directory: Directory, name: str) -> None:
    writer.write("folder/k", b"x")
    writer.write("k", b"x")
    writer.remove("k")
    with pytest.raises(ObjectMissing) as raised:
        directory.read(name)
    assert raised.value.key == name
    with pytest.raises(ObjectMissing):
        directory.stream(name)


def test_empty_files_are_read(writer: Writer, directory: Directory) -> None:
    writer.write("empty", b"")
    assert directory.read("empty")[0] == b""
    stat, chunks = directory.stream("empty")
    assert (stat.size, [*chunks]) == (0, [])


def test_a_large_file_comes_in_chunks(writer: Writer, directory: Directory) -> None:
    whole = b"".join(hashlib.sha256(bytes([n])).digest() * 32768 for n in range(20)) + b"end"
    writer.write("state/0/0/SSTs/1.sst", whole)
    stat, chunks = directory.stream("state/0/0/SSTs/1.sst")
    assert stat == directory.look().stat("state/0/0/SSTs/1.sst")
    parts = [*chunks]
    assert b"".join(parts) == whole
    assert max(map(len, parts)) <= CHUNK
    assert directory.read("state/0/0/SSTs/1.sst") == (whole, stat)


def test_bytes_and_stat_belong_together_whatever_the_writer_does(writer: Writer, directory: Directory) -> None:
    written: dict[str, bytes] = {}
    enough = threading.Event()

    def version(number: int) -> bytes:
        return f"{number:08}".encode() * (20_000 + number % 7)

    def replace() -> None:
        number = 1
        while not enough.is_set():
            data = version(number)
            written[writer.write("k", data)] = data
            number += 1

    written[writer.write("k", version(0))] = version(0)
    seen: list[tuple[bytes, FileStat]] = []
    streamed: list[tuple[bytes, FileStat]] = []
    changed = 0
    thread = threading.Thread(target=replace)
    thread.start()
    try:
        while len({data for data, _ in seen}) < 20:
            seen.append(directory.read("k"))
            stat, chunks = directory.stream("k")
            try:
                streamed.append((b"".join(chunks), stat))
            except ChangedWhileRead:
                changed += 1
    finally:
        enough.set()
        thread.join()
    for data, stat in seen + streamed:
        assert written[stat.stamp] == data
        assert stat.size == len(data)
    assert directory.costly or not changed


@pytest.mark.parametrize("size", [2 * CHUNK, 3 * CHUNK, 10], ids=["replaced", "grown", "shrunk"])
def test_a_stream_is_of_one_version_or_says_that_it_is_not(writer: Writer, directory: Directory, size: int) -> None:
    old, new = b"1" * (2 * CHUNK), b"2" * size
    old_stamp = writer.write("k", old)
    stat, chunks = directory.stream("k")
    assert stat.stamp == old_stamp
    first = next(chunks)
    writer.write("k", new)
    if directory.costly:
        with pytest.raises(ChangedWhileRead) as raised:
            list(chunks)
        assert raised.value.name == "k"
    else:
        assert first + b"".join(chunks) == old


def test_a_file_that_goes_away_under_a_stream_is_missing_or_read_to_its_end(
    writer: Writer, directory: Directory
) -> None:
    writer.write("k", bytes(2 * CHUNK))
    _, chunks = directory.stream("k")
    size = len(next(chunks))
    writer.remove("k")
    if directory.costly:
        with pytest.raises(ObjectMissing):
            list(chunks)
    else:
        assert size + sum(map(len, chunks)) == 2 * CHUNK


def test_many_threads_share_a_directory(writer: Writer, directory: Directory) -> None:
    names = [f"offsets/{n}" for n in range(40)]
    for name in names:
        writer.write(name, name.encode())

    def read(name: str) -> bytes:
        assert directory.look("offsets").stat(name) is not None
        return directory.read(name)[0]

    with ThreadPoolExecutor(8) as threads:
        assert [*threads.map(read, names)] == [name.encode() for name in names]


# ---- the local disk ----


def test_a_file_that_was_written_to_in_place_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "k"
    path.write_bytes(b"1")
    real = local_directory.read_range
    more = iter([b"2", b"3"])

    def read_range(fd: int, offset: int, length: int) -> bytes:
        data = real(fd, offset, length)
        with path.open("ab") as file:
            file.write(next(more, b""))
        return data

    monkeypatch.setattr(local_directory, "read_range", read_range)
    data, stat = open_directory(str(tmp_path)).read("k")
    assert (data, stat.size) == (b"123", 3)


def test_a_file_that_is_written_to_all_the_time_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "k"
    path.write_bytes(b"1")
    real = local_directory.read_range
    reads = 0

    def read_range(fd: int, offset: int, length: int) -> bytes:
        nonlocal reads
        reads += 1
        data = real(fd, offset, length)
        os.utime(path, ns=(reads, reads))
        return data

    monkeypatch.setattr(local_directory, "read_range", read_range)
    with pytest.raises(ChangedWhileRead, match="k was changed while it was read"):
        open_directory(str(tmp_path)).read("k")
    assert reads == local_directory.ATTEMPTS


@pytest.mark.parametrize("change", ["grown", "cut", "touched"])
def test_a_stream_of_a_file_that_is_written_to_in_place_ends_in_an_error(tmp_path: Path, change: str) -> None:
    path = tmp_path / "k"
    path.write_bytes(bytes(3 * MiB))
    _, chunks = open_directory(str(tmp_path)).stream("k")
    next(chunks)
    written = path.stat().st_mtime_ns
    os.truncate(path, {"grown": 4, "cut": 2, "touched": 3}[change] * MiB)
    # The clock of a file system may stand still between two writes.
    os.utime(path, ns=(written, written + (change == "touched")))
    with pytest.raises(ChangedWhileRead):
        list(chunks)


def test_streams_that_nobody_reads_hold_nothing_open(tmp_path: Path) -> None:
    (tmp_path / "k").write_bytes(bytes(2 * MiB))
    directory = open_directory(str(tmp_path))
    for _ in range(3):
        directory.stream("k")
        next(directory.stream("k")[1])
    # By this one file: a test before this may have left descriptors that are closed meanwhile.
    assert [fd for fd in Path("/dev/fd").iterdir() if _is_open_on(fd.name, tmp_path / "k")] == []


def _is_open_on(fd: str, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(int(fd)), path.stat())
    except OSError:
        return False


def test_a_lazy_look_asks_when_it_is_asked(tmp_path: Path) -> None:
    look = open_directory(str(tmp_path)).look()
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits/0").write_bytes(b"0")
    assert set(look.files("commits")) == {"0"}


def test_links_are_followed(tmp_path: Path) -> None:
    (tmp_path / "real/commits").mkdir(parents=True)
    (tmp_path / "real/commits/0").write_bytes(b"0")
    (tmp_path / "link").symlink_to("real")
    (tmp_path / "real/more").symlink_to("commits")
    (tmp_path / "real/astray").symlink_to("nowhere")
    directory = open_directory(str(tmp_path / "link"))
    assert directory.url == f"file:{tmp_path}/link"
    assert directory.read("more/0")[0] == b"0"
    assert directory.look().folders("") == ["commits", "more"]
    assert directory.look().files("") == {}


def test_a_file_in_place_of_the_directory_is_told(tmp_path: Path) -> None:
    (tmp_path / "ck").write_bytes(b"x")
    directory = open_directory(str(tmp_path / "ck"))
    look = directory.look()
    for ask in (look.files, look.folders, look.leftovers, directory.folders):
        with pytest.raises(StoreFailure, match="this is a file"):
            ask("")
    for ask in (look.stat, directory.read, directory.stream):
        with pytest.raises(StoreFailure, match="this is a file"):
            ask("commits/0")


def test_what_may_not_be_read_is_denied_and_not_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "k").write_bytes(b"x")
    directory = open_directory(str(tmp_path))
    look = directory.look()

    def denied(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    for name in ("open", "scandir", "stat"):
        monkeypatch.setattr(os, name, denied)
    for ask in (look.stat, directory.read, directory.stream, look.files, directory.folders):
        with pytest.raises(AccessDenied, match="Permission denied"):
            ask("k")


# ---- the clouds ----


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[FaultProxy]:
    proxy = FaultProxy(s3_server.address)
    yield proxy
    proxy.end()


@pytest.fixture
def behind(proxy: FaultProxy, s3_writer: S3Writer) -> Directory:
    """The directory of `s3_writer` through the proxy."""
    return open_directory(s3_writer.url, {**s3_writer.options, "endpoint": proxy.endpoint})


PASSING = {
    "a lost reply": fault_proxy.lose_reply,
    "half a reply": fault_proxy.cut_reply,
    "too many requests": answer("429 Too Many Requests"),
    "an error of the server": answer("500 Internal Server Error"),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_failures_that_pass_are_outlasted(
    fault: fault_proxy.Fault, proxy: FaultProxy, behind: Directory, s3_writer: S3Writer
) -> None:
    body = os.urandom(CHUNK + 1000)
    writer_stamp = s3_writer.write("k", body)
    proxy.order("GET", fault)
    stat = behind.look().stat("k")
    assert stat is not None
    assert stat[:2] == (len(body), writer_stamp)
    proxy.order("GET", fault, times=2)
    assert behind.read("k") == (body, stat)
    proxy.order("HEAD", fault)
    proxy.order("GET", fault)
    proxy.order("GET", fault_proxy.pass_on)
    proxy.order("GET", fault)
    assert b"".join(behind.stream("k")[1]) == body
    assert proxy.left == 0


def test_failures_that_stay_are_told_in_the_end(proxy: FaultProxy, s3_writer: S3Writer) -> None:
    hasty = RetryPolicy(budget_seconds=0.3, first_delay=0.01, max_delay=0.1)
    behind = open_directory(s3_writer.url, {**s3_writer.options, "endpoint": proxy.endpoint}, hasty)
    with proxy.down():
        for ask, action in ((behind.read, "read k"), (behind.stream, "read k"), (behind.look, "list k")):
            with pytest.raises(StoreUnavailable, match=f"{action} kept failing"):
                ask("k")


def test_looks_and_reads_cost_one_request_each(proxy: FaultProxy, behind: Directory, s3_writer: S3Writer) -> None:
    for name in ("commits/0", "offsets/0", "offsets/1"):
        s3_writer.write(name, b"x")
    look = behind.look()
    assert set(look.files("offsets")) == {"0", "1"}
    assert look.stat("commits/0") is not None
    assert len(proxy.seen) == 1
    behind.read("offsets/0")
    assert len(proxy.seen) == 2
    with pytest.raises(ObjectMissing):
        behind.read("offsets/2")
    assert len(proxy.seen) == 3


def reply(text: str) -> fault_proxy.Fault:
    """Answer with a reply of our own, without asking the server."""

    def fault(proxy: FaultProxy, request: Request, client: socket) -> None:
        client.sendall(text.replace("\n", "\r\n").encode())

    return fault


def test_a_server_without_etags_is_refused(proxy: FaultProxy, behind: Directory, s3_writer: S3Writer) -> None:
    s3_writer.write("k", b"1")
    without_tag = "HTTP/1.1 200 OK\nLast-Modified: Mon, 16 Nov 2026 04:00:00 GMT\nContent-Length: 1\n\n1"
    proxy.order("GET", reply(without_tag))
    with pytest.raises(StoreFailure, match="gives no ETag"):
        behind.read("k")


@pytest.mark.parametrize("kind", ["s3", "azure"])
def test_a_bucket_that_is_not_there_is_a_missing_place(kind: str, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(f"{kind}_server")
    scheme = server.url().partition(":")[0]
    directory = open_directory(f"{scheme}://no-such-place-{uuid.uuid4().hex[:8]}/ck", server.options)
    for ask in (directory.look, directory.read, directory.folders):
        with pytest.raises(PlaceMissing):
            ask("k")


@pytest.mark.parametrize(
    ("kind", "wrong"), [("s3", {"secret_access_key": "wrong"}), ("azure", {"account_key": "d3Jvbmc="})]
)
def test_wrong_keys_are_denied(kind: str, wrong: dict[str, str], request: pytest.FixtureRequest) -> None:
    writer: Writer = request.getfixturevalue(f"{kind}_writer")
    writer.write("k", b"1")
    directory = open_directory(writer.url, {**writer.options, **wrong})
    for ask in (directory.look, directory.read, directory.stream, directory.folders):
        with pytest.raises(AccessDenied) as raised:
            ask("k")
        assert not any(secret in str(raised.value) for secret in wrong.values() if secret != "wrong")


FORK = """
import os, sys
from holdfast.errors import ForkedProcess
from holdfast.store import open_directory, open_store

url, options = sys.argv[1], dict(pair.split("=", 1) for pair in sys.argv[2:])
open_store(url, options).create("k", b"1")
directory = open_directory(url, options)
child = os.fork()
if child == 0:
    code = 9
    try:
        directory.read("k")
    except ForkedProcess:
        code = 6
    finally:
        os._exit(code)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
assert directory.read("k")[0] == b"1"
"""


def test_a_forked_child_is_told_if_any_cloud_was_used_before(s3_server: S3Server, s3_url: str) -> None:
    options = [f"{name}={value}" for name, value in s3_server.options.items()]
    command = [sys.executable, "-W", "ignore", "-c", FORK, s3_url, *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "6", done.stderr


# ---- addresses ----


@pytest.mark.parametrize("name", ["ck", "with blank", "a%20b", "a#b?c=d", "é"])
def test_a_local_address_is_taken_to_the_letter_as_spark_does(tmp_path: Path, name: str) -> None:
    LocalWriter(tmp_path / name).write("k", b"1")
    for url in (f"{tmp_path}/{name}", f"file:{tmp_path}/{name}", f"file://{tmp_path}/{name}", f"{tmp_path}//{name}/"):
        directory = open_directory(url)
        assert directory.read("k")[0] == b"1"
        assert directory.url == f"file:{tmp_path}/{name}"
        assert open_directory(directory.url).url == directory.url


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_every_name_of_s3_leads_there(s3_writer: S3Writer, scheme: str) -> None:
    s3_writer.write("a b/k%20", b"1")
    url = s3_writer.url.replace("s3:", f"{scheme}:")
    for address_ in (url, f"{url}/", url.replace(s3_writer.prefix, f"/{s3_writer.prefix}//")):
        assert open_directory(address_, s3_writer.options).read("a b/k%20")[0] == b"1"
    assert open_directory(f"{url}//a b", s3_writer.options).read("k%20")[0] == b"1"


@pytest.mark.parametrize("form", ["abfss://{}@{}.dfs", "abfs://{}@{}.dfs", "wasbs://{}@{}.blob", "wasb://{}@{}.blob"])
def test_every_name_of_azure_leads_there(azure_server: AzureServer, azure_writer: Writer, form: str) -> None:
    azure_writer.write("k", b"1")
    prefix = azure_writer.url.rpartition("/")[2]
    host = form.format(azure_server.container, azure_server.account_name)
    options = {name: value for name, value in azure_server.options.items() if name != "account_name"}
    directory = open_directory(f"{host}.core.windows.net/{prefix}", options)
    assert directory.read("k")[0] == b"1"
    assert azure_server.account_key not in directory.url
    assert directory.url.startswith(f"{host}.core.windows.net/{prefix}?account_name=")


def test_an_opened_address_opens_again(s3_writer: S3Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    s3_writer.write("k", b"1")
    url = s3_writer.open().url
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", s3_writer.server.access_key_id)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", s3_writer.server.secret_access_key)
    assert s3_writer.server.secret_access_key not in url
    assert open_directory(url).read("k")[0] == b"1"


def test_dbfs_is_a_mount_where_there_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for url, mount in (("dbfs:/ck", "/dbfs"), ("dbfs:/Volumes/main/ck", "/Volumes")):
        with pytest.raises(BadURL, match=f"{mount} is not here: run this on Databricks"):
            open_directory(url)
    monkeypatch.setattr(address, "DATABRICKS", tmp_path / "dbfs")
    monkeypatch.setattr(address, "VOLUMES", tmp_path / "Volumes")
    LocalWriter(tmp_path / "dbfs").write("ck/k", b"1")
    LocalWriter(tmp_path / "Volumes").write("main/ck/k", b"2")
    assert open_directory("dbfs:/ck").read("k")[0] == open_directory("dbfs:///ck").read("k")[0] == b"1"
    assert open_directory("dbfs:/Volumes/main/ck").read("k")[0] == b"2"
    assert open_store("dbfs:/ck").get("k") == b"1"


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("", "empty"),
        ("hdfs://namenode/ck", "no way to HDFS"),
        ("viewfs://cluster/ck", "no way to HDFS"),
        ("https://u:hunter2@host/ck", "endpoint"),
        ("http://host/ck", "endpoint"),
        ("memory://x", "in memory"),
        ("ftp://host/ck", "'ftp' is not known"),
        ("file://host/ck", "without a host"),
        ("s3a://", "name of the bucket"),
        ("s3a://bucket/a/../b", "is no folder"),
        ("s3a://key:hunter2@bucket/ck", "does not belong here"),
        ("wasbs://c@account.dfs.core.windows.net/ck", "the form is wasbs://CONTAINER@ACCOUNT.blob"),
        ("abfss://account/ck", "the form is abfss://CONTAINER@ACCOUNT.dfs"),
    ],
)
def test_an_address_that_leads_nowhere_is_refused_and_says_why(url: str, why: str) -> None:
    with pytest.raises(BadURL, match=why) as raised:
        open_directory(url)
    assert "hunter2" not in str(raised.value)


def test_options_for_a_local_directory_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadURL, match="only a cloud store takes options"):
        open_directory(str(tmp_path), {"region": "x"})


def test_the_cloud_library_is_imported_only_for_a_cloud(tmp_path: Path) -> None:
    program = f"""
import sys, holdfast.store
holdfast.store.open_directory({str(tmp_path)!r}).look().files("")
assert "obstore" not in sys.modules
holdfast.store.open_directory("s3a://bucket/x")
assert "obstore" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
