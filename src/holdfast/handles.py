"""The repository as a user holds it: `open` gives a Repository, that gives pipelines, those give checkpoints.

Every verb of the command line is one call here. Reading is lazy, and what was read once is kept.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence

from holdfast.check import Checked, check
from holdfast.checkpoint import Checkpoint
from holdfast.checkpointer import Checkpointer
from holdfast.claim import GenerationInfo
from holdfast.copying import Copied, copy_pipeline
from holdfast.decide.references import Reference, parse_reference
from holdfast.decide.retention import KeepPolicy
from holdfast.decide.timeline import World, abandoned, current, timeline
from holdfast.decide.usage import Usage, usage
from holdfast.encryption.keys import Key
from holdfast.encryption.opened_with import Keys
from holdfast.errors import (
    BadReference,
    CheckpointMissing,
    Damage,
    FormatTooNew,
    MissingRecords,
    NameTaken,
    NoAnswer,
    ObjectMissing,
    PipelineMissing,
    WouldDecrypt,
)
from holdfast.gc import PrunePlan, Removed, Swept, delete_checkpoint, plan_forget, plan_prune, sweep
from holdfast.ids import new_token, now_ms
from holdfast.layout import Slot
from holdfast.lost import missing_records, refuse_lost_beginning
from holdfast.names import ask, remove_name
from holdfast.notebook import facts, table
from holdfast.records import Answer, Pin, Savepoint
from holdfast.recovery import Demands
from holdfast.repair import repair
from holdfast.repository.pipeline import PipelineRecords
from holdfast.repository.root import GivenKey, RepositoryRecords, init_repository, open_repository
from holdfast.repository.uploads import Limits
from holdfast.restore import Progress
from holdfast.settle import LoopSink
from holdfast.store import Address, Finding, RetryPolicy, Store
from holdfast.text import age, size

__all__ = ["Checkpoint", "Repository", "StoredPipeline", "open_url", "read_through"]

SHOWN = 20
"""How many lines a table in a notebook has."""


def open_url(
    url: str | Store,
    *,
    create: bool = False,
    options: Mapping[str, str] | None = None,
    retry: RetryPolicy | None = None,
    key: GivenKey = "environment",
) -> Repository:
    """Open a repository; with `create`, make it (and prove the store) if it is not there.

    `options` are the store's own, such as credentials; they win over the URL and the environment. `key` opens an
    encrypted repository, and one that is made with a key is encrypted. By default it is the one that HOLDFAST_KEY_FILE,
    HOLDFAST_KEY_COMMAND or HOLDFAST_KEY gives; with None there is none. Raises KeyMissing, WrongKey and NotEncrypted.
    """
    opened = init_repository if create else open_repository
    return Repository(opened(url, options, retry, key))


def read_through(repository: Repository, store: Store) -> Repository:
    """The same repository through a store around its own, with the key that it was opened with."""
    return Repository(repository._records.through(store))


class Repository:
    """A root in an object store that holds pipelines."""

    def __init__(self, records: RepositoryRecords) -> None:
        self._records = records

    def __repr__(self) -> str:
        return f"<holdfast.Repository {self.url}>"

    def _repr_html_(self) -> str:
        """Its pipelines as a table, for notebooks."""
        names = self._records.pipelines()
        rows = [self.pipeline(name)._notebook_row() for name in names[:SHOWN]]
        remark = f"{len(names) - SHOWN} more are not shown." if len(names) > SHOWN else ""
        columns = ("pipeline", "newest", "epoch", "age", "state", "problem")
        return table(f"Holdfast repository {self.url}", columns, rows, remark)

    @property
    def url(self) -> str:
        """Where it lies, without any secret."""
        return self._records.store.url

    @property
    def id(self) -> str:
        """Drawn when it was made; a copy has another one."""
        return self._records.id

    @property
    def store(self) -> Store:
        """The store that it lies in."""
        return self._records.store

    @property
    def address(self) -> Address:
        """What another process needs to open it too, with the options that it was opened with here."""
        return self._records.address

    @property
    def key(self) -> Key | None:
        """The key that it was opened with here; None if it is not encrypted."""
        return self._records.key

    @property
    def keys(self) -> Keys | None:
        """Who can open an encrypted repository; None if it is not encrypted."""
        records = self._records
        return Keys(records.keeper, records.key) if records.keeper is not None and records.key is not None else None

    @property
    def proven(self) -> Sequence[Finding]:
        """What was tried of the store when this call made the repository; empty if it was there already."""
        return self._records.proven

    def pipelines(self) -> list[StoredPipeline]:
        """All pipelines, by name."""
        return [self.pipeline(name) for name in self._records.pipelines()]

    def pipeline(self, name: str) -> StoredPipeline:
        """One pipeline; it need not be there yet."""
        return StoredPipeline(self._records.pipeline(name), self)

    def find(self, reference: str) -> Checkpoint:
        """The checkpoint that a reference such as `orders@before-upgrade` means."""
        parsed = parse_reference(reference)
        pipeline = self.pipeline(parsed.pipeline)
        pipeline.require()
        return pipeline.resolve(parsed)

    def require_sealed(self, other: Repository, *, decrypt: bool = False) -> None:
        """Raise WouldDecrypt for a copy out of an encrypted repository into one that is not, unless that is meant."""
        if self.keys is not None and other.keys is None and not decrypt:
            raise WouldDecrypt(self.url, other.url)

    def copy_to(
        self, other: Repository, pipeline: str, progress: Progress | None = None, *, decrypt: bool = False
    ) -> Copied:
        """Copy a pipeline into another repository: only what is missing, every byte verified.

        Out of an encrypted repository into one that is not, only with `decrypt`: WouldDecrypt.
        """
        self.require_sealed(other, decrypt=decrypt)
        source = self.pipeline(pipeline)
        source.require()
        return copy_pipeline(source.records, other.pipeline(pipeline).records, progress)


class StoredPipeline:
    """The checkpoints of one pipeline in a repository."""

    def __init__(self, records: PipelineRecords, repository: Repository) -> None:
        self.records = records
        self.repository = repository

    def __repr__(self) -> str:
        return f"<holdfast pipeline {self.name!r} in {self.repository.url}>"

    def _repr_html_(self) -> str:
        """Its newest checkpoints as a table, for notebooks."""
        caption = f"Pipeline {self.name} in {self.repository.url}"
        try:
            found = self.checkpoints() if self.exists() else []
            savepoints = self.savepoints()
        except (Damage, FormatTooNew) as error:
            return facts(caption, [("problem", error.message)])
        rows = [each._notebook_row(savepoints) for each in reversed(found[-SHOWN:])]
        remark = f"{len(found) - SHOWN} older ones are not shown." if len(found) > SHOWN else ""
        return table(caption, ("checkpoint", "epoch", "taken", "new", "shared", "held by"), rows, remark)

    def _notebook_row(self) -> tuple[str, ...]:
        try:
            newest = self.latest()
            if newest is None:
                return self.name, "none yet", "", "", "", ""
            head = newest.head
        except (Damage, FormatTooNew, ObjectMissing) as error:
            return self.name, "?", "?", "?", "?", error.message
        return self.name, str(newest.slot), str(head.epoch), age(head.timestamp_ms, now_ms()), size(newest.bytes), ""

    @property
    def name(self) -> str:
        """What it is called in its repository."""
        return self.records.name

    def exists(self) -> bool:
        """Whether there is such a pipeline."""
        return self.records.exists()

    def require(self) -> None:
        """Raise PipelineMissing, with the names that there are, if there is no such pipeline."""
        if not self.exists():
            raise PipelineMissing(self.name, [p.name for p in self.repository.pipelines()])

    def is_copy(self) -> bool:
        """Whether the newest claim was made in another repository: then only the copier may change it here."""
        return not self.records.newest_is_local(self.records.generations())

    # ---- finding ----

    def world(self) -> World:
        """All records that say what counts, as they stand now."""
        return self.records.world()

    def checkpoints(self, *, with_abandoned: bool = False) -> list[Checkpoint]:
        """The checkpoints that count, oldest first; abandoned ones, if asked for, come before them.

        Raises MissingRecords where the record of a beginning is lost, since nobody can tell then which ones count;
        `with_abandoned` shows what there is all the same.
        """
        world = self.world()
        if not with_abandoned:
            refuse_lost_beginning(self.records, {slot.generation for slot in world.slots}, current(world))
        off = [Checkpoint(self, slot, counts=False) for slot in abandoned(world)] if with_abandoned else []
        return off + [Checkpoint(self, slot) for slot in timeline(world)]

    def latest(self) -> Checkpoint | None:
        """The newest checkpoint that counts, in a constant number of requests; None if there never was one.

        Raises MissingRecords if a newer one is known and gone: an older one is never given in its place.
        """
        # Folders are listed before the bases: a generation begins before it publishes, so its base is seen then.
        published = {int(g) for g in self.records.store.folders(self.records.keys.checkpoints) if g.isdecimal()}
        located = self.records.locate()
        begun = located.generation
        beyond = {g for g in published if begun is None or g > begun}
        refuse_lost_beginning(self.records, {g for g in beyond if self.records.slots(g)[0]}, begun)
        if located.lost is not None and (located.newest is None or located.lost > located.newest):
            raise MissingRecords(self.records.keys.prefix, f"the checkpoint {located.lost}, which the hint names")
        if located.newest is not None:
            return Checkpoint(self, located.newest)
        if missing := self.missing():
            raise MissingRecords(self.records.keys.prefix, "; ".join(missing))
        return None

    def missing(self) -> list[str]:
        """Records that are known to have been there and are not, in words; what a fresh look finds too."""
        return missing_records(self.records)

    def __getitem__(self, word: str) -> Checkpoint:
        """`pipeline["before-upgrade"]`, `pipeline["epoch:42"]`, `pipeline["0193a…"]`."""
        return self.resolve(parse_reference(f"{self.name}@{word}"))

    def __iter__(self) -> Iterator[Checkpoint]:
        return iter(self.checkpoints())

    def resolve(self, reference: Reference) -> Checkpoint:
        """The checkpoint that a reference means; abandoned ones only by savepoint, id or slot."""
        if reference.kind == "now":
            raise BadReference(str(reference), "@now asks a running pipeline for a savepoint and is no checkpoint yet")
        if reference.kind == "latest":
            latest = self.latest()
            if latest is None:
                raise CheckpointMissing(str(reference), "the pipeline has no checkpoint yet")
            return latest
        if reference.kind == "word":
            return self._by_word(reference)
        if reference.kind == "slot":
            found = [c for c in self.checkpoints(with_abandoned=True) if c.slot == reference.slot]
        elif reference.kind == "epoch":
            found = [c for c in self.checkpoints() if c.epoch == reference.epoch]
        else:
            # The order of the timeline decides, not the clock: the newest one that is not later than asked. Were a
            # newer one lost, it might be the one that is meant: `latest` refuses then.
            self.latest()
            found = [c for c in self.checkpoints() if c.head.timestamp_ms <= reference.time_ms]
        if not found:
            self.latest()
            raise CheckpointMissing(str(reference), "none of the checkpoints that count fits")
        return found[-1]

    def _by_word(self, reference: Reference) -> Checkpoint:
        named = self.savepoints().get(reference.word)
        every = self.checkpoints(with_abandoned=True)
        if named is not None:
            found = [c for c in every if c.slot == named.at]
            if not found and self.records.is_forgotten(named.at):
                raise CheckpointMissing(str(reference), f"{named.at} was pruned before the name was given")
            if not found:
                what = f"the checkpoint {named.at}, which the savepoint {named.name} names"
                raise MissingRecords(self.records.keys.prefix, what)
            return found[0]
        found = [c for c in every if len(reference.word) >= 4 and c.id.startswith(reference.word)]
        if len(found) > 1:
            raise BadReference(str(reference), f"{len(found)} ids begin so: {', '.join(c.id for c in found[:4])}")
        if not found:
            raise CheckpointMissing(str(reference), "no savepoint has this name and no id begins with it")
        return found[0]

    def generations(self, newest: int | None = None) -> list[GenerationInfo]:
        """The claims on the pipeline, oldest first: all of them, or only so many of the newest."""
        known = self.records.generations()
        wanted = sorted(known.claims)[-newest if newest else 0 :]
        return [GenerationInfo(self.records.claim(g), known.bases.get(g)) for g in wanted]

    def savepoints(self) -> dict[str, Savepoint]:
        """The savepoints by their names."""
        return self.records.savepoints()

    def pins(self) -> list[Pin]:
        """All pins, each with its checkpoint and why."""
        return self.records.pins()

    # ---- running ----

    def recover(
        self,
        why: str = "start",
        demands: Demands | None = None,
        sinks: Mapping[str, LoopSink] | None = None,
        limits: Limits | None = None,
        *,
        activate: bool = False,
    ) -> Checkpointer:
        """Take the pipeline over at its newest whole checkpoint and give the checkpointer to go on with."""
        return Checkpointer.recover(self.records, why, demands, sinks, limits, activate=activate)

    def request_savepoint(self, name: str, timeout: float = 60.0) -> Checkpoint:
        """Ask whoever runs the pipeline for a savepoint and wait for it. Raises NoAnswer if nobody answers in time."""
        token = new_token()
        key = self.records.keys.answer(token)
        deadline = time.monotonic() + timeout
        pause = 0.02
        try:
            ask(self.records, name, token)
            while True:
                try:
                    reply = self.records.read(key, Answer)
                    break
                except ObjectMissing:
                    if time.monotonic() > deadline:
                        raise NoAnswer(self.name, timeout) from None
                time.sleep(pause)
                pause = min(1.0, pause * 1.5)
        finally:
            self.records.drop(self.records.keys.request(token), key)
        if reply.refused is not None or reply.generation is None or reply.slot is None:
            raise NameTaken(name, reply.refused or "nothing")
        return Checkpoint(self, Slot(reply.generation, reply.slot))

    # ---- looking after ----

    def prune(self, policy: KeepPolicy, *, dry_run: bool = True) -> PrunePlan:
        """Plan what to drop; carried out at once unless `dry_run`. The plan says what and why, and has `apply()`."""
        plan = plan_prune(self.records, policy)
        if not dry_run:
            plan.apply()
        return plan

    def sweep(self, *, dry_run: bool = False) -> Swept:
        """Remove bytes that no checkpoint names, of generations that are over."""
        return sweep(self.records, dry_run=dry_run)

    def check(self, *, read_percent: float = 0, mend: bool = False, progress: Progress | None = None) -> Checked:
        """Look at every record, and at a share of the data; with `mend`, repair what can be repaired."""
        report = check(self.records, read_percent=read_percent, progress=progress)
        return repair(self.records.unread(), report) if mend else report

    def usage(self) -> Usage:
        """All bytes that the pipeline takes: exclusive and shared ones of each checkpoint, loose ones, and records."""
        prefix = self.records.keys.prefix
        manifests = [self.records.manifest(slot) for slot in sorted(self.world().counted())]
        stored = {info.key.removeprefix(prefix): info.size for info in self.records.store.list(prefix)}
        return usage([(self.records.keys.manifest(m.at).removeprefix(prefix), m) for m in manifests], stored)

    def forget(self, slot: Slot) -> Removed:
        """Delete one checkpoint and say what went; refuses what anybody needs."""
        return delete_checkpoint(self.records, slot)

    def plan_forget(self, slot: Slot) -> Removed:
        """What `forget` would remove as things stand; changes nothing and refuses what `forget` would."""
        return plan_forget(self.records, slot)

    def remove_savepoint(self, name: str) -> Savepoint:
        """Take a name off again: the checkpoint stays, and falls under retention."""
        return remove_name(self.records, name)
