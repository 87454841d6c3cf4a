"""The bytes of a checkpoint, carried from one repository to another: an object arrives only if it verifies."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from holdfast.errors import DamagedArtifact, Diverged, MissingRecords, ObjectMissing
from holdfast.manifest import Artifact, Manifest
from holdfast.repository.artifacts import stream_artifact
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
            target.store.write(key, stream_artifact(source.store, source.keys, whole[0]))
            return
        try:
            data = source.store.get(key)
        except ObjectMissing as error:
            raise DamagedArtifact(path, "the object is gone") from error
        if len(data) != manifest.objects[path]:
            raise DamagedArtifact(path, f"it has {len(data)} bytes where {manifest.objects[path]} were written")
        _prove_members(path, data, members)
        if not target.store.create(key, data):
            raise Diverged(key)


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
