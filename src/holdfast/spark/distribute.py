"""Files moved by Spark's executors: the driver sees their names, digests and sizes, and none of their bytes.

It takes a session that it is given, and imports no PySpark. A job costs some 0.4 s before the first byte moves, so it
pays for much state only, or where the driver can't reach the files. The executors need Holdfast installed.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import msgspec

from holdfast.draft import Draft
from holdfast.errors import ChangedWhileRead, ObjectMissing
from holdfast.layout import PipelineKeys
from holdfast.manifest import Artifact
from holdfast.repository.uploads import Limits, Upload
from holdfast.store import open_directory, open_store
from holdfast.store.directory import FileStat

__all__ = ["Address", "Executors"]

WORTH_A_JOB = 512 * 1024 * 1024
"""Below so many bytes a few threads of the driver are done before a job would be."""

TASKS_PER_CORE = 2
NAMES_OF_A_TASK = 1_000_000
ATTEMPTS = 64
"""Each attempt of a task numbers its objects in a range of its own, drawn from so many bits: none meets another."""


@dataclass(frozen=True)
class Address:
    """An address with its options, as an executor opens it. Secrets are better left to the executors' environment."""

    url: str
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


class Sent(msgspec.Struct, frozen=True):
    """What a task has sent: files with their stamps as they were read, and the objects that hold them.

    `gone` is a file that was not there any more, `changed` one that was replaced while it was read.
    """

    files: dict[str, Artifact] = {}
    objects: dict[str, int] = {}
    gone: str = ""
    changed: str = ""


@dataclass(frozen=True)
class Executors:
    """Moves the files of a capture by a Spark job; by size only where that pays, with `always` in any case."""

    session: Any
    directory: Address
    repository: Address
    limits: Limits
    always: bool = False

    def is_worth(self, files: Mapping[str, FileStat]) -> bool:
        return self.always or sum(stat.size for stat in files.values()) >= WORTH_A_JOB

    def send(self, draft: Draft, files: Mapping[str, FileStat]) -> dict[str, FileStat]:
        """Have the executors send files of the directory into the draft, and give the versions that they read.

        Raises ObjectMissing, ChangedWhileRead, and what Spark raises when a task keeps failing.
        """
        context = self.session.sparkContext
        groups = share_out(files, context.defaultParallelism * TASKS_PER_CORE)
        task = SendTask(self.directory, self.repository, *draft.shared_upload(), self.limits)
        read: dict[str, FileStat] = {}
        for answer in context.parallelize(groups, len(groups)).mapPartitions(task).collect():
            sent = msgspec.json.decode(answer, type=Sent)
            if sent.gone:
                raise ObjectMissing(self.directory.url, sent.gone)
            if sent.changed:
                raise ChangedWhileRead(self.directory.url, sent.changed)
            draft.adopt_files(sent.files, sent.objects)
            for name, artifact in sent.files.items():
                read[name] = FileStat(artifact.size_bytes, artifact.stamp or "", files[name].modified_ns)
        return read


@dataclass(frozen=True)
class SendTask:
    """One task of the job: it reads a share of the files and sends them into the upload that the driver began."""

    directory: Address
    repository: Address
    keys: PipelineKeys
    folder: str
    limits: Limits

    def __call__(self, groups: Iterable[Sequence[str]]) -> Iterator[bytes]:
        for names in groups:
            yield msgspec.json.encode(self.send(names, (1 + secrets.randbits(ATTEMPTS)) * NAMES_OF_A_TASK))

    def send(self, names: Sequence[str], first: int) -> Sent:
        """Send these files, naming objects from `first` on."""
        directory = open_directory(self.directory.url, self.directory.options)
        store = open_store(self.repository.url, self.repository.options)
        files: dict[str, Artifact] = {}
        with ThreadPoolExecutor(self.limits.concurrency, thread_name_prefix="holdfast-send") as pool:
            upload = Upload(store, self.keys, self.folder, self.limits, pool, first=first)
            for name in names:
                try:
                    stat, chunks = directory.stream(name)
                    if stat.size >= self.limits.single:
                        artifact = upload.add_stream(chunks)
                    else:
                        data = b"".join(chunks)
                        artifact = upload.add(data, hashlib.sha256(data).hexdigest())
                except ObjectMissing:
                    return Sent(gone=name)
                except ChangedWhileRead:
                    return Sent(changed=name)
                files[name] = msgspec.structs.replace(artifact, stamp=stat.stamp)
            return Sent(files, upload.finish())


def share_out(files: Mapping[str, FileStat], groups: int) -> list[list[str]]:
    """Names in at most so many groups of about the same number of bytes."""
    shares: list[list[str]] = [[] for _ in range(max(1, min(groups, len(files))))]
    weights = [0] * len(shares)
    for name, stat in sorted(files.items(), key=lambda item: (-item[1].size, item[0])):
        lightest = weights.index(min(weights))
        shares[lightest].append(name)
        weights[lightest] += stat.size
    return shares
