"""Copying a pipeline to another repository: only what is missing, every byte checked, in an order that can be cut off.

Identity, claims, bases, bytes, ledger, manifests, then names, outcomes and decisions. A manifest comes after all that
it names, so whatever has arrived is restorable. Until it is activated, the copy belongs to its copier alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.decide.timeline import World, newest
from holdfast.errors import BadValue, Damage, DamagedArtifact, Diverged, FormatTooNew, MissingRecords, ObjectMissing
from holdfast.gc import named_objects
from holdfast.joining import drop_joined
from holdfast.layout import Slot
from holdfast.manifest import Artifact, Manifest
from holdfast.records import Claim, Savepoint, unseal
from holdfast.repository.artifacts import stream_artifact
from holdfast.repository.pipeline import Generations, PipelineRecords

__all__ = ["Copied", "Uncopied", "copy_pipeline"]

Progress = Callable[[str, int, int], None]

CONCURRENCY = 4


class Uncopied(NamedTuple):
    """A checkpoint that could not be copied because it is damaged at the source."""

    slot: Slot
    why: str


@dataclass
class Copied:
    """What a copy moved. `removed` are checkpoints that the source had forgotten since the last copy."""

    pipeline: str
    checkpoints: int = 0
    objects: int = 0
    bytes: int = 0
    removed: list[Slot] = field(default_factory=list)
    damaged: list[Uncopied] = field(default_factory=list)


def copy_pipeline(source: PipelineRecords, target: PipelineRecords, progress: Progress | None = None) -> Copied:
    """Bring the target up to the source. Killed at any instant, it can be run again to the same end.

    Raises Diverged if the target was activated, or holds another pipeline or other claims under the same names, and
    Damage, when all else is done, if a manifest at the target can't be read: what it names is then not known.
    """
    if source.repository_id == target.repository_id:
        raise BadValue("copy", f"{source.store.url} and {target.store.url} are the same repository")
    copied = Copied(source.name)
    source.identity()
    _same(source, target, source.keys.identity)
    known = _generations(source, target)
    _bytes_and_manifests(source, target, known, copied, progress or (lambda _what, _done, _total: None))
    _savepoints(source, target)
    _records(source, target, source.keys.all_settled)
    _decisions(source, target)
    # Where the newest claim was made is no copy, or was activated meanwhile: whoever owns it hints and cleans up there.
    if not target.newest_is_local(target.generations()):
        world = target.world()
        _hint(target, world)
        copied.removed = _forget(target, world)
        _drop_loose(source, target, known)
    return copied


def _same(source: PipelineRecords, target: PipelineRecords, key: str) -> None:
    """Create a record at the target with the source's own bytes; other bytes there mean that the two have diverged."""
    if not target.store.create(key, source.store.get(key)):
        raise Diverged(key)


def _generations(source: PipelineRecords, target: PipelineRecords) -> Generations:
    """Claims, then bases, ascending; only generations whose base was seen have manifests that are copied."""
    known, there = source.generations(), target.generations()
    for generation in sorted(there.claims - known.claims):
        raise Diverged(target.keys.claim(generation))
    for generation in sorted(known.claims):
        if generation in there.claims:
            _refuse_other_claim(source, target, generation)
        else:
            _same(source, target, source.keys.claim(generation))
    for generation in sorted(known.bases.keys() - there.bases.keys()):
        _same(source, target, source.keys.base(generation))
    for generation in sorted(there.bases.keys()):
        if there.bases[generation] != known.bases.get(generation):
            raise Diverged(target.keys.base(generation))
    return known


def _refuse_other_claim(source: PipelineRecords, target: PipelineRecords, generation: int) -> None:
    key = source.keys.claim(generation)
    mine, theirs = source.read(key, Claim), unseal(key, target.store.get(key), Claim)
    if mine != theirs:
        raise Diverged(key)


def _bytes_and_manifests(
    source: PipelineRecords, target: PipelineRecords, known: Generations, copied: Copied, progress: Progress
) -> None:
    there = {info.key: info.size for info in target.store.list(target.keys.prefix)}
    plans = {generation: _plan(source, generation, there) for generation in sorted(known.bases)}
    done, total = 0, sum(len(plan) for plan in plans.values())
    with ThreadPoolExecutor(CONCURRENCY, thread_name_prefix="holdfast-copy") as pool:
        for generation, plan in plans.items():
            for slot, is_void in plan.items():
                if is_void:
                    _same(source, target, source.keys.manifest(slot))
                else:
                    _checkpoint(source, target, slot, there, copied, pool)
                done += 1
                progress("checkpoints", done, total)
            _records(source, target, f"{source.keys.ledger}{generation:010d}/")


def _plan(source: PipelineRecords, generation: int, there: Mapping[str, int]) -> dict[Slot, bool]:
    """The slots of a generation that the target lacks, in order, and whether each is void."""
    held, void = source.slots(generation)
    wanted = held - source.forgotten(Slot(generation, 0)) | void
    return {slot: slot in void for slot in sorted(wanted) if source.keys.manifest(slot) not in there}


def _checkpoint(
    source: PipelineRecords,
    target: PipelineRecords,
    slot: Slot,
    there: dict[str, int],
    copied: Copied,
    pool: ThreadPoolExecutor,
) -> None:
    try:
        manifest = source.manifest(slot)
        missing = [p for p, size in manifest.objects.items() if there.get(source.keys.prefix + p) != size]
        jobs = [pool.submit(_object, source, target, manifest, path, there) for path in sorted(missing)]
        failures = [error for job in jobs if (error := job.exception()) is not None]
        if failures:
            raise failures[0]
        _prove_inline(source, manifest)
        _same(source, target, source.keys.manifest(slot))
    except (Damage, FormatTooNew, ObjectMissing) as error:
        # A prune at the source may have overtaken us: then there is nothing to copy any more, and nothing is wrong.
        if not source.is_forgotten(slot):
            copied.damaged.append(Uncopied(slot, str(error)))
        return
    for path in missing:
        there[source.keys.prefix + path] = manifest.objects[path]
    copied.checkpoints += 1
    copied.objects += len(missing)
    copied.bytes += sum(manifest.objects[path] for path in missing)


def _object(
    source: PipelineRecords, target: PipelineRecords, manifest: Manifest, path: str, there: dict[str, int]
) -> None:
    """Copy one object; it arrives only if every artifact that this manifest finds in it verifies."""
    key, members = source.keys.prefix + path, [a for _, a in manifest.artifacts() if a.path == path]
    if key in there:
        # Objects are written whole: one of another size is damage at the target, which is the copier's to mend.
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


def _prove_inline(source: PipelineRecords, manifest: Manifest) -> None:
    errors = [finding for finding in manifest.validate() if finding.severity == "error"]
    if errors:
        raise MissingRecords(source.keys.manifest(manifest.at), str(errors[0]))


def _records(source: PipelineRecords, target: PipelineRecords, prefix: str) -> None:
    there = {info.key for info in target.store.list(prefix)}
    for info in source.store.list(prefix):
        if info.key not in there and source.parse(info.key) is not None:
            try:
                _same(source, target, info.key)
            except ObjectMissing:
                continue


def _savepoints(source: PipelineRecords, target: PipelineRecords) -> None:
    """Names, but for those of checkpoints that were published after we looked: they come with the next copy."""
    there = {info.key for info in target.store.list(target.keys.prefix)}
    for key, _, _ in source.listed(source.keys.savepoints, "savepoint"):
        if key in there:
            continue
        with suppress(ObjectMissing):
            word = source.read(key, Savepoint)
            if word.void or word.removed or target.keys.manifest(word.at) in there:
                _same(source, target, key)


def _decisions(source: PipelineRecords, target: PipelineRecords) -> None:
    # Decisions alone before joined ones: a listing that misses one that was joined meanwhile finds the joined one.
    for what in ("decision", "joined"):
        there = {key for key, _, _ in target.listed(target.keys.forgotten, what)}
        for key, _, _ in source.listed(source.keys.forgotten, what):
            if key not in there:
                with suppress(ObjectMissing):
                    _same(source, target, key)


def _hint(target: PipelineRecords, world: World) -> None:
    """From what has arrived: the source may have moved on, and a hint at what is not here looks like a loss."""
    slot = newest(world)
    if slot is not None:
        target.put_hint(slot)


def _forget(target: PipelineRecords, world: World) -> list[Slot]:
    """What the source has forgotten is forgotten here too; the handshake with names took place there."""
    gone = sorted(world.slots & world.forgotten)
    outcomes = target.listed(target.keys.all_settled, "settled", "failed")
    target.drop(*(target.keys.manifest(slot) for slot in gone))
    target.drop(*(key for key, name, _ in outcomes if name.slot in world.forgotten))
    drop_joined(target)
    return gone


def _drop_loose(source: PipelineRecords, target: PipelineRecords, known: Generations) -> None:
    """Delete bytes that no manifest names: of what was forgotten, and of what a copy that was cut off had begun.

    They are found anew each time, since nothing else tells what a killed copy has left. Those that a manifest of the
    source names stay: another copier may have put them here and be about to bring that manifest.
    """
    # The bytes are listed first: what arrives after this is not looked at.
    data = {
        key: key.removeprefix(target.keys.prefix).removesuffix(".index")
        for key, name, _ in target.listed(target.keys.data, "data")
        if name.generation in known.bases
    }
    named = named_objects(target)
    if not named.issuperset(data.values()):
        named |= _named_at_source(source, known)
    target.drop(*(key for key, path in data.items() if path not in named))


def _named_at_source(source: PipelineRecords, known: Generations) -> set[str]:
    """As far as its manifests can be read: no copier brings one that can't."""
    named: set[str] = set()
    for generation in known.bases:
        held, void = source.slots(generation)
        for slot in held - void:
            with suppress(Damage, FormatTooNew, ObjectMissing):
                named.update(source.manifest(slot).objects)
    return named
