"""Check: is everything there, is it what was written, and what does it mean if not. Repair what can be repaired."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, NamedTuple

from holdfast.decide.timeline import World, current, gaps, timeline
from holdfast.errors import Damage, DamagedArtifact, DamagedRecord, FormatTooNew, HoldfastError, ObjectMissing
from holdfast.layout import Named, Slot
from holdfast.manifest import Artifact, Manifest
from holdfast.records import Hint
from holdfast.repository.artifacts import damaged_artifacts
from holdfast.repository.packs import FOOTER_SIZE, index_span, read_index
from holdfast.repository.pipeline import PipelineRecords
from holdfast.repository.proof import SHAPES, prove_record

__all__ = ["Checked", "Fault", "check", "verify_integrity"]

Severity = Literal["damage", "warning", "note"]
Progress = Callable[[str, int, int], None]


class Fault(NamedTuple):
    """Something that is not as it should be: where, what, which checkpoints it hits, and what kind it is.

    `kind` is missing, truncated, flipped, extra, unreadable, invalid, hint, index or note.
    """

    severity: Severity
    kind: str
    where: str
    what: str
    checkpoints: tuple[Slot, ...] = ()


@dataclass
class Checked:
    """The outcome of a check of one pipeline."""

    pipeline: str
    checkpoints: int = 0
    objects: int = 0
    bytes_read: int = 0
    faults: list[Fault] = field(default_factory=list)
    repaired: list[str] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    """What a repair did not touch, and why."""

    @property
    def damaged(self) -> list[Fault]:
        """The faults that are damage, and not only notes."""
        return [fault for fault in self.faults if fault.severity == "damage"]

    @property
    def hit(self) -> set[Slot]:
        """Checkpoints that can't be restored."""
        return {slot for fault in self.damaged for slot in fault.checkpoints}


class _Listing(NamedTuple):
    names: dict[str, Named]
    sizes: dict[str, int]
    strange: list[str]

    def of(self, what: str) -> dict[str, Named]:
        return {key: name for key, name in self.names.items() if name.what == what}


def check(
    records: PipelineRecords, *, read_percent: float = 0, seed: int | None = None, progress: Progress | None = None
) -> Checked:
    """Look at every record, and at a share of the data: 0 for structure only, 100 for every byte.

    Which artifacts make up a smaller share is drawn anew each time, unless a seed is given. Nothing is changed.
    """
    records = records.unread()
    report = Checked(records.name)
    # Manifests are read before the objects are listed: bytes come before the manifest that names them, so what a
    # running pipeline adds meanwhile can't look as if it were missing.
    world = _world(records, report)
    manifests = _manifests(records, world, report) if world else {}
    listing = _list(records)
    report.objects = len(listing.sizes)
    report.faults += [
        Fault("note", "extra", key, "not a name of Holdfast's making; left alone") for key in listing.strange
    ]
    report.faults += _records(records, listing)
    if world is None:
        return report
    missing = gaps(world)
    if missing:
        # Records of a running pipeline change between two listings: only what is missing twice is missing.
        world = records.world()
        missing = [what for what in gaps(world) if what in missing]
    report.faults += [Fault("damage", "missing", records.keys.prefix, what) for what in missing]
    report.checkpoints = len(manifests)
    report.faults += _structure(records, manifests, listing)
    report.faults += _extra(records, world, manifests, listing)
    report.faults += _names(records, world)
    report.faults += _hint(records, world, listing)
    if read_percent > 0:
        _read_data(records, manifests, listing, read_percent, seed, report, progress)
    _without_pruned(records, report)
    return report


def verify_integrity(records: PipelineRecords, slot: Slot, progress: Progress | None = None) -> Checked:
    """Prove one checkpoint: its manifest, its chains, and every byte that it names."""
    records = records.unread()
    report = Checked(records.name, checkpoints=1)
    manifests = _manifests(records, World(slots={slot}), report)
    listing = _list(records)
    report.objects = len(_objects(manifests))
    report.faults += _structure(records, manifests, listing)
    _read_data(records, manifests, listing, 100, None, report, progress)
    _without_pruned(records, report)
    return report


def _without_pruned(records: PipelineRecords, report: Checked) -> None:
    """A checkpoint that was pruned while it was looked at is not damaged."""
    pruned = {slot for slot in report.hit if records.is_forgotten(slot)}
    kept = []
    for fault in report.faults:
        left = tuple(slot for slot in fault.checkpoints if slot not in pruned)
        if left or not fault.checkpoints:
            kept.append(fault._replace(checkpoints=left))
    report.faults = kept


def _list(records: PipelineRecords) -> _Listing:
    names: dict[str, Named] = {}
    sizes: dict[str, int] = {}
    strange: list[str] = []
    for info in records.store.list(records.keys.prefix):
        sizes[info.key] = info.size
        name = records.parse(info.key)
        if name is None:
            strange.append(info.key)
        else:
            names[info.key] = name
    return _Listing(names, sizes, strange)


def _records(records: PipelineRecords, listing: _Listing) -> Iterator[Fault]:
    for key, name in listing.names.items():
        # Bases were read for the timeline, and told of there.
        shape = SHAPES.get(name.what) if name.what != "base" else None
        try:
            if shape is not None:
                records.read(key, shape)
            elif name.what == "decision":
                records.verdict(key)
            elif name.what == "ledger":
                records.fetched(key, partial(prove_record, key, name))
        except (DamagedRecord, FormatTooNew) as error:
            yield Fault("damage", "unreadable", key, _why(error))
        except ObjectMissing:
            continue
    if records.keys.identity not in listing.sizes:
        yield Fault("damage", "missing", records.keys.identity, "the pipeline's identity is gone")


def _world(records: PipelineRecords, report: Checked) -> World | None:
    try:
        return records.world()
    except (DamagedRecord, FormatTooNew) as error:
        where = error.key if isinstance(error, DamagedRecord) else records.keys.generations
        report.faults.append(Fault("damage", "unreadable", where, f"{_why(error)}; the timeline can't be told"))
        return None


def _manifests(records: PipelineRecords, world: World, report: Checked) -> dict[Slot, Manifest]:
    found: dict[Slot, Manifest] = {}
    warnings: Counter[str] = Counter()
    for slot in sorted(world.counted()):
        try:
            manifest = records.manifest(slot)
        except ObjectMissing as error:
            report.faults.append(Fault("damage", "missing", error.key, "the manifest is gone", (slot,)))
            continue
        except (Damage, FormatTooNew) as error:
            report.faults.append(Fault("damage", "unreadable", records.keys.manifest(slot), _why(error), (slot,)))
            continue
        found[slot] = manifest
        for finding in manifest.validate():
            what = f"{finding.where}: {finding.message}"
            if finding.severity == "error":
                report.faults.append(Fault("damage", "invalid", records.keys.manifest(slot), what, (slot,)))
            else:
                warnings[what] += 1
    for what, times in warnings.items():
        # Most warnings hold for every checkpoint of a pipeline: one line each is enough.
        report.faults.append(Fault("note", "note", records.keys.checkpoints, f"{what} ({times} of {len(found)})"))
    return found


def _why(error: HoldfastError) -> str:
    """The reason alone: where it lies is told beside it."""
    return error.why if isinstance(error, DamagedRecord | DamagedArtifact) else error.message


def _structure(records: PipelineRecords, manifests: dict[Slot, Manifest], listing: _Listing) -> Iterator[Fault]:
    for path, (size, slots) in sorted(_objects(manifests).items()):
        there = listing.sizes.get(records.keys.prefix + path)
        if there is None:
            yield Fault("damage", "missing", path, "the object is gone", slots)
        elif there != size:
            yield Fault("damage", "truncated", path, f"it has {there} bytes where {size} were written", slots)


def _extra(
    records: PipelineRecords, world: World, manifests: dict[Slot, Manifest], listing: _Listing
) -> Iterator[Fault]:
    named, newest = set(_objects(manifests)), current(world)
    for key, name in listing.of("data").items():
        path = key.removeprefix(records.keys.prefix)
        if path.removesuffix(".index") in named:
            continue
        if newest is not None and name.generation is not None and name.generation < newest:
            yield Fault("note", "extra", path, "no checkpoint names it; `holdfast prune` sweeps it")
        else:
            yield Fault("note", "extra", path, "no checkpoint names it; an upload under way, or what one left")
    for slot in sorted(set(world.slots) & set(world.forgotten)):
        yield Fault("note", "extra", records.keys.manifest(slot), "it was forgotten; `holdfast prune` removes it")
    for slot in records.intents():
        yield Fault("note", "extra", records.keys.decision(slot), "a prune of it was interrupted, or is under way")


def _names(records: PipelineRecords, world: World) -> Iterator[Fault]:
    try:
        standing = sorted(records.savepoints().items())
    except (DamagedRecord, FormatTooNew):
        # Reported with the other records that can't be read.
        return
    for name, savepoint in standing:
        where, at = f"savepoint {name}", savepoint.at
        if at in world.forgotten:
            # Whoever gave the name died before looking for the prune, and told nobody.
            yield Fault("warning", "extra", where, f"its checkpoint {at} was pruned before the name was given")
        elif at not in world.counted() and _is_gone(records, at):
            yield Fault("damage", "missing", where, f"its checkpoint {at} is gone", (at,))


def _is_gone(records: PipelineRecords, slot: Slot) -> bool:
    """Whether a slot that the listing lacks is lost: it may have been published since."""
    try:
        records.manifest(slot)
    except ObjectMissing:
        return True
    except (Damage, FormatTooNew):
        return False
    return False


def _hint(records: PipelineRecords, world: World, listing: _Listing) -> Iterator[Fault]:
    standing = timeline(world)
    key = records.keys.latest
    hint: Hint | None = records.hint()
    if hint is None and standing:
        what = "it can't be read" if key in listing.sizes else "it is missing"
        yield Fault("warning", "hint", key, f"{what}; finding the newest checkpoint costs more requests")
        return
    lost = None if hint is None else Slot(hint.generation, hint.slot)
    if lost is not None and lost not in {*world.slots, *world.forgotten} and _is_gone(records, lost):
        yield Fault("damage", "missing", records.keys.manifest(lost), f"the hint names {lost}, which is gone", (lost,))


def _objects(manifests: dict[Slot, Manifest]) -> dict[str, tuple[int, tuple[Slot, ...]]]:
    found: dict[str, tuple[int, tuple[Slot, ...]]] = {}
    for slot, manifest in manifests.items():
        for path, size in manifest.objects.items():
            found[path] = (size, (*found.get(path, (0, ()))[1], slot))
    return found


def _read_data(
    records: PipelineRecords,
    manifests: dict[Slot, Manifest],
    listing: _Listing,
    percent: float,
    seed: int | None,
    report: Checked,
    progress: Progress | None,
) -> None:
    users: dict[tuple[str | None, int | None, str], list[Slot]] = {}
    artifacts: dict[tuple[str | None, int | None, str], Artifact] = {}
    for slot, manifest in manifests.items():
        for _, artifact in manifest.artifacts():
            # What is known to be gone was reported already.
            if artifact.path is None or records.keys.prefix + artifact.path in listing.sizes:
                key = (artifact.path, artifact.offset, artifact.sha256)
                artifacts[key] = artifact
                users.setdefault(key, []).append(slot)
    # No secret hangs on this draw; it only spreads the reading over many checks.
    chosen = [a for a in artifacts.values() if percent >= 100 or _draw(seed, a) * 100 < percent]
    total, done = sum(a.size_bytes for a in chosen), 0
    with ThreadPoolExecutor(4, thread_name_prefix="holdfast-check") as pool:
        for batch in _batches(chosen):
            for artifact, damage in damaged_artifacts(records.store, records.keys, batch, pool):
                slots = tuple(users[artifact.path, artifact.offset, artifact.sha256])
                report.faults.append(Fault("damage", _kind(damage), damage.path, damage.why, slots))
            done += sum(a.size_bytes for a in batch)
            if progress:
                progress("reading", done, total)
    report.bytes_read = total
    _read_indexes(records, chosen, listing, report)


def _draw(seed: int | None, artifact: Artifact) -> float:
    if seed is None:
        return random.random()
    return random.Random(f"{seed}/{artifact.sha256}").random()


def _batches(artifacts: list[Artifact]) -> Iterator[list[Artifact]]:
    """By object, a few objects at a time, so that progress shows."""
    by_path: dict[str, list[Artifact]] = {}
    for artifact in artifacts:
        by_path.setdefault(artifact.path or "", []).append(artifact)
    groups = list(by_path.values())
    for start in range(0, len(groups), 16):
        yield [artifact for group in groups[start : start + 16] for artifact in group]


def _kind(damage: DamagedArtifact) -> str:
    if "digest" in damage.why or "envelope" in damage.why:
        return "flipped"
    return "missing" if "gone" in damage.why else "truncated"


def _read_indexes(records: PipelineRecords, chosen: list[Artifact], listing: _Listing, report: Checked) -> None:
    for path in sorted({a.path for a in chosen if a.path is not None and a.offset is not None}):
        size = listing.sizes[records.keys.prefix + path]
        try:
            _index(records, path, size)
        except (DamagedArtifact, DamagedRecord, ObjectMissing) as error:
            if f"{records.keys.prefix}{path}.index" not in listing.sizes:
                report.faults.append(Fault("warning", "index", path, f"{_why(error)}; its members are not affected"))


def _index(records: PipelineRecords, path: str, size: int) -> None:
    key = records.keys.prefix + path
    [footer] = records.store.get_ranges(key, [(max(0, size - FOOTER_SIZE), FOOTER_SIZE)])
    start, length = index_span(path, size, footer)
    [tail] = records.store.get_ranges(key, [(start, length)])
    read_index(path, tail)
