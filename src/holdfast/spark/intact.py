"""Whether one file of a directory is what was written, by what lies beside it and by what it says of itself.

On a local disk Hadoop leaves a sidecar beside each file (`.NAME.crc`), and Spark refuses a file that does not match
its own. In checkpoint format 2 Spark adds checksums of its own (`NAME.crc`). Elsewhere only what is inside can tell.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
import zipfile
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from holdfast.errors import ObjectMissing
from holdfast.spark.crc32c import Crc32c
from holdfast.spark.logs import Malformed, parse_commit, parse_offsets, parse_operator, parse_query_id
from holdfast.spark.lz4 import blocks
from holdfast.store.directory import Directory

__all__ = ["Progress", "Proof", "Verdict", "judge", "read_files", "sidecar_of"]

Proof = Literal["checksum", "inner checksum", "form", "presence"]
"""What vouches for a file: a checksum beside it, checksums inside of it, that it can be read, or nothing at all."""

Progress = Callable[[str, int, int], None]

READERS = 16
SIDECAR = b"crc\0"
SIDECAR_HEAD = len(SIDECAR) + 4
SST_END = bytes.fromhex("f7cff485b741e288")
SCHEMA = '{"type"'
LONG_SCHEMA = 60_000
STREAMS = (".delta", ".snapshot", ".changelog")

NOT_HADOOPS = "it does not match its Hadoop checksum"
NOT_SPARKS = "it does not match the checksum that Spark wrote beside it"


@dataclass(frozen=True)
class Verdict:
    """What was found of one file: what vouches for it, or why it is damaged.

    `beside` is a checksum file that does not match though the file itself is proven: Spark refuses the file all the
    same. `sha256` is of the bytes as they are now.
    """

    name: str
    size: int
    sha256: str
    proof: Proof
    fault: str | None = None
    beside: str | None = None


def sidecar_of(name: str) -> str:
    """Where Hadoop keeps the checksums of a local file."""
    folder, slash, plain = name.rpartition("/")
    return f"{folder}{slash}.{plain}.crc"


def judge(directory: Directory, name: str, codec: str = "lz4", digest: str | None = None) -> Verdict:
    """Read one file to its end and say whether it is intact. Raises ObjectMissing and ChangedWhileRead.

    `digest` is the SHA-256 that it should have, where that is known: it alone decides then. What is found wanting is
    looked at twice: a file may be replaced between its bytes and its checksum.
    """
    found = _judge(directory, name, codec, digest)
    return _judge(directory, name, codec, digest) if found.fault or found.beside else found


def read_files(
    directory: Directory,
    names: Iterable[str],
    examine: Callable[[str], Verdict],
    sizes: Callable[[str], int],
    progress: Progress | None = None,
) -> list[Verdict]:
    """Judge many files, several at once where each read is a request."""
    chosen = list(names)
    total, done = sum(map(sizes, chosen)), 0
    verdicts: list[Verdict] = []
    with ThreadPoolExecutor(READERS if directory.costly else 1, thread_name_prefix="holdfast-inspect") as pool:
        for verdict in pool.map(examine, chosen) if directory.costly else map(examine, chosen):
            verdicts.append(verdict)
            done += verdict.size
            if progress:
                progress("reading", done, total)
    return verdicts


def _judge(directory: Directory, name: str, codec: str, digest: str | None) -> Verdict:
    sidecar = _Sidecar.of(_beside(directory, sidecar_of(name)) if not directory.costly else None)
    checksum = _spark_checksum(_beside(directory, f"{name}.crc")) if _may_have_checksum(name) else None
    stat, chunks = directory.stream(name)
    passing = _Passing(chunks, sidecar, Crc32c() if checksum else None)
    proof: Proof = "presence" if digest is None and sidecar is None and checksum is None else "checksum"
    fault: str | None = None
    if proof == "presence":
        try:
            proof = _content(name, passing, codec)
        except Malformed as error:
            fault = str(error)
    deque(passing, maxlen=0)
    sha256 = passing.sha256.hexdigest()
    by_hadoop = sidecar is None or sidecar.matches()
    by_spark = checksum is None or passing.crc is None or checksum == (passing.crc.value, stat.size)
    beside = None
    if digest is not None:
        fault = None if sha256 == digest else "its bytes are not those that were captured"
    elif sidecar is not None and checksum is not None:
        fault = None if by_hadoop or by_spark else NOT_HADOOPS
    elif proof == "checksum":
        fault = NOT_HADOOPS if not by_hadoop else None if by_spark else NOT_SPARKS
    if fault is None and not by_hadoop:
        beside = sidecar_of(name)
    elif fault is None and not by_spark:
        beside = f"{name}.crc"
    return Verdict(name, stat.size, sha256, proof, fault, beside)


def _may_have_checksum(name: str) -> bool:
    """Whether Spark's own checksum may lie beside: only for the files of state whose names have a unique id."""
    plain = name.rpartition("/")[2]
    return "_" in plain and plain.endswith((".zip", ".changelog"))


def _beside(directory: Directory, name: str) -> bytes | None:
    try:
        return directory.read(name)[0]
    except ObjectMissing:
        return None


class _Sidecar:
    """Hadoop's checksums of a file: a head, then a CRC-32 for every so many bytes. Compared as the bytes pass."""

    def __init__(self, size: int, sums: bytes) -> None:
        self._size = size
        self._expected = [*struct.unpack(f">{len(sums) // 4}I", sums[: len(sums) // 4 * 4])]
        self._seen = 0
        self._rest = b""
        self._good = len(sums) % 4 == 0

    @classmethod
    def of(cls, data: bytes | None) -> _Sidecar | None:
        """None without a sidecar, and for one whose head is not Hadoop's: Hadoop too then reads on without."""
        size = int.from_bytes(data[len(SIDECAR) : SIDECAR_HEAD], "big") if data else 0
        if not data or not size or not data.startswith(SIDECAR) or len(data) < SIDECAR_HEAD:
            return None
        return cls(size, data[SIDECAR_HEAD:])

    def update(self, chunk: bytes) -> None:
        whole = self._rest + chunk
        full = len(whole) - len(whole) % self._size
        self._rest = whole[full:]
        self._compare(memoryview(whole)[:full])

    def matches(self) -> bool:
        """Whether all bytes that have passed are those that were summed."""
        self._compare(memoryview(self._rest))
        self._rest = b""
        return self._good and self._seen == len(self._expected)

    def _compare(self, data: memoryview) -> None:
        sums = [zlib.crc32(data[start : start + self._size]) for start in range(0, len(data), self._size)]
        self._good &= sums == self._expected[self._seen : self._seen + len(sums)]
        self._seen += len(sums)


class _Passing(Iterator[bytes]):
    """Chunks of a file on their way, summed as they pass."""

    def __init__(self, chunks: Iterator[bytes], sidecar: _Sidecar | None, crc: Crc32c | None) -> None:
        self._chunks = chunks
        self.sha256 = hashlib.sha256()
        self.sidecar = sidecar
        self.crc = crc

    def __next__(self) -> bytes:
        chunk = next(self._chunks)
        self.sha256.update(chunk)
        if self.crc is not None:
            self.crc.update(chunk)
        if self.sidecar is not None:
            self.sidecar.update(chunk)
        return chunk


def _spark_checksum(data: bytes | None) -> tuple[int, int] | None:
    """The CRC32C and the size that Spark wrote down for a file; None if that can't be read."""
    try:
        return _parse_checksum(data) if data is not None else None
    except Malformed:
        return None


def _parse_checksum(data: bytes) -> tuple[int, int]:
    try:
        fields = json.loads(data)
        value, size = int(fields["value"]), int(fields["mainFileSize"])
    except (ValueError, KeyError, TypeError):
        raise Malformed("it is cut short or no checksum of Spark's") from None
    if fields.get("algorithm") != "CRC32C":
        raise Malformed(f"its algorithm is {fields.get('algorithm')!r}, and CRC32C is known")
    return value & 0xFFFFFFFF, size


# ---- what is inside ----


def _content(name: str, passing: _Passing, codec: str) -> Proof:
    """What a file says of itself. Raises Malformed if that does not hold together."""
    if name.endswith(STREAMS):
        if codec != "lz4":
            return "presence"
        deque(blocks(_Reader(passing).read, verify=True), maxlen=0)
        return "inner checksum"
    if name.endswith(".zip"):
        _check_zip(b"".join(passing))
        return "inner checksum"
    parse = _form(name)
    if parse is None:
        return "presence"
    parse(b"".join(passing))
    return "form"


class _Reader:
    """So many bytes at a time, from chunks."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        self._chunks = chunks
        self._held = b""

    def read(self, size: int) -> bytes:
        """Up to `size` bytes; fewer only at the end."""
        while len(self._held) < size and (chunk := next(self._chunks, None)) is not None:
            self._held += chunk
        taken, self._held = self._held[:size], self._held[size:]
        return taken


def _form(name: str) -> Callable[[bytes], object] | None:
    folder, _, plain = name.rpartition("/")
    if name == "metadata":
        return parse_query_id
    if folder == "offsets":
        return _check_offsets
    if folder == "commits":
        return parse_commit
    if "/_stateSchema/" in name or name.endswith("/_metadata/schema"):
        return _check_schemas
    if folder.endswith(("/_metadata", "/_metadata/v2")):
        return parse_operator
    if plain.endswith(".crc"):
        return _parse_checksum
    if plain.endswith(".sst"):
        return _check_sst
    return _check_log if folder.startswith("sources/") else None


def _check_offsets(data: bytes) -> None:
    for name, offset in parse_offsets(data).sources.items():
        _check_json(offset or "", f"the offset of source {name}")


def _check_log(data: bytes) -> None:
    """A log of a file source is JSON line by line; what other sources keep is theirs to read."""
    version, newline, text = data.partition(b"\n")
    if version.startswith(b"v") and newline:
        for line in text.decode("utf-8", "replace").split("\n"):
            _check_json(line, "a line of it")


def _check_json(text: str, what: str) -> None:
    if text[:1] in ("{", "["):
        try:
            json.loads(text)
        except ValueError:
            raise Malformed(f"{what} is cut short or not JSON") from None


def _check_schemas(data: bytes) -> None:
    """The schemas of keys and values, as JSON between numbers; version 3 says of how many pairs."""
    if len(data) > LONG_SCHEMA:
        return  # Java writes long text in pieces, with numbers in between
    text, decoder = data.decode("latin-1"), json.JSONDecoder()
    found, at = 0, text.find(SCHEMA)
    try:
        while at >= 0:
            _, end = decoder.raw_decode(text, at)
            found, at = found + 1, text.find(SCHEMA, end)
    except ValueError:
        raise Malformed("it is cut short or holds no schema") from None
    pairs = int.from_bytes(data[4:8], "big") if data[:4] == b"\0\2v3" else 1
    if found < 2 * pairs:
        raise Malformed("it is cut short or holds no schema")


def _check_sst(data: bytes) -> None:
    if not data.endswith(SST_END):
        raise Malformed("it is cut short or no table of RocksDB's")


def _check_zip(data: bytes) -> None:
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            bad = archive.testzip()
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, NotImplementedError) as error:
        raise Malformed(f"it is no RocksDB snapshot: {error}") from None
    if bad is not None:
        raise Malformed(f"its part {bad} is damaged")
