"""The bytes of a checkpoint, carried from one repository to another: an object arrives only if it verifies."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress

from holdfast.errors import DamagedArtifact, DamagedCopy, DamagedRecord, MissingRecords, ObjectMissing
from holdfast.manifest import Artifact, Manifest
from holdfast.repository.artifacts import stream_artifact
from holdfast.repository.packs import Member, prove_pack
from holdfast.repository.pipeline import PipelineRecords

__all__ = ["Carrier", "prove_inline"]

BEAT_SECONDS = 0.5
CONCURRENCY = 4


class Carrier:
    """Carries objects, several at a time. Use as a context manager; not for several threads at once."""

    def __init__(self, source: PipelineRecords, target: PipelineRecords) -> None:
        self._source = source
        self._target = target
        self._pool = ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="holdfast-copy")

    def __enter__(self) -> Carrier:
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown(cancel_futures=True)

    def carry(
        self, manifest: Manifest, there: Mapping[str, int], beat: Callable[[], None]
    ) -> tuple[dict[str, int], BaseException | None]:
        """Carry what the manifest names and is not there. Gives what has arrived, keys with sizes, and what failed.

        `beat` is called every moment until then; what it raises ends the carrying before the next object.
        """
        prefix = self._source.keys.prefix
        jobs: dict[str, Future[None]] = {}
        for path, size in sorted(manifest.objects.items()):
            if there.get(prefix + path) != size:
                # Objects are written whole: one of another size is damage at the target, which is the copier's to mend.
                jobs[path] = self._pool.submit(self._object, manifest, path, mend=prefix + path in there)
        while wait(jobs.values(), BEAT_SECONDS).not_done:
            beat()
        failures = {path: error for path, job in jobs.items() if (error := job.exception()) is not None}
        arrived = {prefix + path: manifest.objects[path] for path in jobs if path not in failures}
        return arrived, next(iter(failures.values()), None)

    def _object(self, manifest: Manifest, path: str, *, mend: bool) -> None:
        """Carry one object, if every artifact that this manifest finds in it verifies."""
        source, target = self._source, self._target
        key, members = source.keys.prefix + path, [a for _, a in manifest.artifacts() if a.path == path]
        if mend:
            target.drop(key)
        whole = [a for a in members if a.offset is None]
        if whole:
            try:
                target.store.write(key, stream_artifact(source.store, source.keys, whole[0]))
            except (DamagedArtifact, DamagedRecord):
                # Again: a bit can turn over on the way as well as in the store, and only the second is damage.
                target.store.write(key, stream_artifact(source.store, source.keys, whole[0]))
            return
        data = self._pack(path, manifest.objects[path], members)
        # No name of bytes is ever used again: whatever else stands there was these once.
        if not target.store.create(key, data) and not _holds(target, key, data):
            raise DamagedCopy(target.store.url, key, "its bytes are not those of the source, which verify")

    def _pack(self, path: str, size: int, members: list[Artifact]) -> bytes:
        """A pack, every byte of it verified; of one that is damaged, those that this manifest needs."""
        with suppress(DamagedArtifact, DamagedRecord):
            data = self._bytes(path, size)
            if prove_pack(path, data).issuperset(Member(a.offset or 0, a.size_bytes, a.sha256) for a in members):
                return data
        data = self._bytes(path, size)
        _prove_members(path, data, members)
        return data

    def _bytes(self, path: str, size: int) -> bytes:
        try:
            data = self._source.store.get(self._source.keys.prefix + path)
        except ObjectMissing as error:
            raise DamagedArtifact(path, "the object is gone") from error
        if len(data) != size:
            raise DamagedArtifact(path, f"it has {len(data)} bytes where {size} were written")
        return data


def _holds(target: PipelineRecords, key: str, data: bytes) -> bool:
    try:
        return target.store.get(key) == data
    except DamagedRecord:
        return False


def _prove_members(path: str, data: bytes, members: list[Artifact]) -> None:
    view = memoryview(data)
    for artifact in members:
        at = artifact.offset or 0
        if hashlib.sha256(view[at : at + artifact.size_bytes]).hexdigest() != artifact.sha256:
            raise DamagedArtifact(f"{path} at {at}", "its bytes do not match its digest")


def prove_inline(source: PipelineRecords, manifest: Manifest) -> None:
    """What lies in no object lies in the manifest: raise MissingRecords if that does not hold together."""
    errors = [finding for finding in manifest.validate() if finding.severity == "error"]
    if errors:
        raise MissingRecords(source.keys.manifest(manifest.at), str(errors[0]))
