"""Reading artifacts back: every byte is checked against its digest before anybody gets it."""

from __future__ import annotations

import base64
import hashlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future
from itertools import chain
from typing import TypeVar

from holdfast.errors import DamagedArtifact, DamagedRecord, ObjectMissing
from holdfast.layout import PipelineKeys
from holdfast.manifest import Artifact
from holdfast.store.contract import CHUNK, Store

__all__ = ["damaged_artifacts", "load_artifact", "load_artifacts", "stream_artifact"]

SPAN = 8 * 1024 * 1024
"""How much of an object is fetched with one request: enough to be worth one, little enough for several at once."""

AHEAD = 4
"""How many pieces of work are under way on a pool before the first is handed out."""

T = TypeVar("T")
U = TypeVar("U")

Loaded = tuple[Artifact, bytes | DamagedArtifact]


def load_artifact(store: Store, keys: PipelineKeys, artifact: Artifact) -> bytes:
    """The bytes of one artifact, verified. Raises DamagedArtifact if they are gone or not what was saved."""
    [(_, data)] = load_artifacts(store, keys, [artifact])
    return data


def load_artifacts(
    store: Store, keys: PipelineKeys, artifacts: Iterable[Artifact], pool: Executor | None = None
) -> Iterator[tuple[Artifact, bytes]]:
    """The bytes of many artifacts, verified, in no promised order: what lies together is fetched together.

    With a pool, fetching and hashing run on it, a few spans ahead of the caller. Raises DamagedArtifact at the first
    that is gone or not what was saved.
    """
    for artifact, data in _load(store, keys, artifacts, pool):
        if isinstance(data, DamagedArtifact):
            raise data
        yield artifact, data


def damaged_artifacts(
    store: Store, keys: PipelineKeys, artifacts: Iterable[Artifact], pool: Executor | None = None
) -> Iterator[tuple[Artifact, DamagedArtifact]]:
    """Read every byte of these artifacts and give those that are damaged, however large they are."""
    small: list[Artifact] = []
    large: list[Artifact] = []
    for artifact in artifacts:
        (large if artifact.path is not None and artifact.size_bytes > SPAN else small).append(artifact)
    streamed = _ahead(pool, lambda artifact: (artifact, _damage(store, keys, artifact)), large)
    for artifact, found in chain(streamed, _load(store, keys, small, pool)):
        if isinstance(found, DamagedArtifact):
            yield artifact, found


def stream_artifact(store: Store, keys: PipelineKeys, artifact: Artifact) -> Iterator[bytes]:
    """One artifact in chunks, for those larger than memory.

    The digest is known only at the end: what was yielded is proven when the iterator ends without DamagedArtifact, so
    write to a place that nobody takes for good before that.
    """
    if artifact.path is None or artifact.size_bytes <= CHUNK:
        yield load_artifact(store, keys, artifact)
        return
    digest, size = hashlib.sha256(), 0
    try:
        for chunk in store.read(keys.prefix + artifact.path, artifact.offset or 0, artifact.size_bytes):
            digest.update(chunk)
            size += len(chunk)
            yield chunk
    except ObjectMissing as error:
        raise DamagedArtifact(artifact.path, "the object is gone") from error
    except DamagedRecord as error:
        raise _unopened(artifact, artifact.path, error) from error
    fault = _fault(artifact, size, digest.hexdigest(), artifact.path)
    if fault:
        raise fault


def _load(store: Store, keys: PipelineKeys, artifacts: Iterable[Artifact], pool: Executor | None) -> Iterator[Loaded]:
    by_path: dict[str, list[Artifact]] = {}
    for artifact in artifacts:
        if artifact.path is None:
            yield _inline(artifact)
        else:
            by_path.setdefault(artifact.path, []).append(artifact)
    spans = ((path, span) for path, members in by_path.items() for span in _spans(members))
    for loaded in _ahead(pool, lambda place: _load_span(store, keys, *place), spans):
        yield from loaded


def _ahead(pool: Executor | None, act: Callable[[T], U], items: Iterable[T]) -> Iterator[U]:
    """The results of an act on each item, in order; with a pool, a few items ahead of the caller."""
    if pool is None:
        yield from map(act, items)
        return
    under_way: deque[Future[U]] = deque()
    for item in items:
        under_way.append(pool.submit(act, item))
        if len(under_way) > AHEAD:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()


def _spans(members: list[Artifact]) -> Iterator[list[Artifact]]:
    """Members of one object, in groups that lie close together: one fetch each."""
    group: list[Artifact] = []
    start = end = wanted = 0
    for artifact in sorted(members, key=lambda a: a.offset or 0):
        offset = artifact.offset or 0
        reach = max(end, offset + artifact.size_bytes) - start
        # A gap is worth fetching along as long as at least half of the span is wanted.
        if group and (reach > SPAN or reach > 2 * (wanted + artifact.size_bytes)):
            yield group
            group, wanted = [], 0
        if not group:
            start = end = offset
        group.append(artifact)
        end = max(end, offset + artifact.size_bytes)
        wanted += artifact.size_bytes
    if group:
        yield group


def _load_span(store: Store, keys: PipelineKeys, path: str, members: list[Artifact]) -> list[Loaded]:
    loaded = _fetch_span(store, keys, path, members)
    if any(isinstance(data, DamagedArtifact) for _, data in loaded):
        # A bit can turn over on the way as well as in the store, and only the second is damage.
        return _fetch_span(store, keys, path, members)
    return loaded


def _fetch_span(store: Store, keys: PipelineKeys, path: str, members: list[Artifact]) -> list[Loaded]:
    try:
        found = store.get_ranges(keys.prefix + path, [(a.offset or 0, a.size_bytes) for a in members])
    except ObjectMissing:
        return [(artifact, DamagedArtifact(path, "the object is gone")) for artifact in members]
    except DamagedRecord as error:
        # Encrypted objects are opened a stretch at a time: others of them may be whole.
        if len(members) == 1:
            return [(members[0], _unopened(members[0], path, error))]
        return [loaded for artifact in members for loaded in _fetch_span(store, keys, path, [artifact])]
    return [_verified(artifact, data, path) for artifact, data in zip(members, found, strict=True)]


def _damage(store: Store, keys: PipelineKeys, artifact: Artifact) -> DamagedArtifact | None:
    for again in (False, True):
        try:
            deque(stream_artifact(store, keys, artifact), maxlen=0)
            return None
        except DamagedArtifact as damage:
            if again:
                return damage
    return None


def _inline(artifact: Artifact) -> Loaded:
    try:
        data = base64.b64decode(artifact.inline or "", validate=True)
    except ValueError as error:
        return artifact, DamagedArtifact("inline state", f"it can't be decoded: {error}")
    return _verified(artifact, data, "inline state")


def _verified(artifact: Artifact, data: bytes, where: str) -> Loaded:
    return artifact, _fault(artifact, len(data), hashlib.sha256(data).hexdigest(), where) or data


def _unopened(artifact: Artifact, where: str, error: DamagedRecord) -> DamagedArtifact:
    return DamagedArtifact(_at(artifact, where), error.why)


def _at(artifact: Artifact, where: str) -> str:
    return where if artifact.offset is None else f"{where} at {artifact.offset}"


def _fault(artifact: Artifact, size: int, sha256: str, where: str) -> DamagedArtifact | None:
    at = _at(artifact, where)
    if size != artifact.size_bytes:
        return DamagedArtifact(at, f"it has {size} bytes where {artifact.size_bytes} were saved")
    if sha256 != artifact.sha256:
        return DamagedArtifact(at, "its bytes do not match its digest")
    return None
