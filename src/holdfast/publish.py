"""Publishing: bytes, then the manifest at the next slot, then the look for a higher claim. The order is the protocol.

A checkpoint counts once its manifest exists; it may be reported only after the look, because a taker claims before it
reads: whatever was reported before the claim is seen by it, and whatever comes after is found out here.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import ParamSpec, TypeVar

from holdfast.decide.timeline import World, next_slot
from holdfast.draft import Description, Draft
from holdfast.errors import (
    BadValue,
    Fenced,
    ForkedProcess,
    InvalidManifest,
    MissingRecords,
    ObjectMissing,
    OutcomeUnknown,
    Overtaken,
    StoreError,
    Unsettled,
)
from holdfast.ids import new_token
from holdfast.layout import Slot
from holdfast.manifest import Manifest, decode_head, encode_manifest
from holdfast.names import answer, waiting_requests
from holdfast.records import Base, Request
from holdfast.repository.pipeline import PipelineRecords
from holdfast.repository.uploads import Limits, Upload

__all__ = ["Publisher"]

P = ParamSpec("P")
T = TypeVar("T")


class _Threads(ThreadPoolExecutor):
    """The threads that send bytes. A forked child has none of them, and is refused: it would wait for ever."""

    def __init__(self, count: int, url: str) -> None:
        super().__init__(count, thread_name_prefix="holdfast-upload")
        self._url = url
        self._process = os.getpid()
        self._ended = False

    def require(self) -> None:
        """Raise ForkedProcess in a forked child, and BadValue after `end`. Ask before taking any lock."""
        if os.getpid() != self._process:
            raise ForkedProcess(self._url)
        if self._ended:
            raise BadValue("checkpointer", "it was closed")

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        self.require()
        return super().submit(fn, *args, **kwargs)

    def end(self) -> None:
        """Finish what was submitted and take no more; in a forked child there is nothing to end."""
        if os.getpid() == self._process:
            self._ended = True
            self.shutdown(wait=True)


class Publisher:
    """Publishes checkpoints of one generation. Safe from several threads: one publish at a time, uploads in parallel.

    Several publishers may share a generation (a capture beside a watch): the create of a slot decides between them.
    """

    def __init__(
        self,
        records: PipelineRecords,
        generation: int,
        tip: Manifest | None,
        limits: Limits | None = None,
    ) -> None:
        self.records = records
        self.generation = generation
        self.limits = limits or Limits()
        self._tip = tip
        self._next = Slot(generation, 0) if tip is None or tip.generation != generation else _after(tip.at)
        self._unknown: tuple[Manifest, bytes] | None = None
        self._unsettled = self._if_unsettled(tip)
        self._fenced: str | None = None
        self._threads = _Threads(self.limits.concurrency, records.store.url)
        self._lock = threading.RLock()

    @property
    def tip(self) -> Manifest | None:
        """The newest checkpoint that this publisher knows of: the parent of the next one."""
        return self._tip

    def begin(self, epoch: int, *, carry: bool = False, requests: Sequence[Request] | None = None) -> Draft:
        """Start a checkpoint. Call it before the state is captured: requests that wait now are answered with it.

        Who has to capture first, to know the epoch, gives the requests that waited before that.
        """
        self._threads.require()
        with self._lock:
            self._refuse_stale()
            self.settle_unknown()
            asked = waiting_requests(self.records) if requests is None else requests
            keys = self.records.keys
            folder = keys.upload(self.generation, new_token())
            upload = Upload(self.records.store, keys, folder, self.limits, self._threads)
            return Draft(self.records, upload, epoch, self._tip, asked, carry=carry)

    def publish(self, draft: Draft, about: Description) -> Manifest:
        """Publish a draft and give its manifest, durable and counted.

        Raises Fenced if a higher generation was claimed: the manifest may then stand and be adopted by it, so the
        caller must not abort what it prepared in its sinks. Raises OutcomeUnknown if the store never answered: the
        next call settles it first. Raises Unsettled while sinks of the checkpoint before are not all committed, and
        Overtaken if another publisher of this generation got further.
        """
        self._threads.require()
        with self._lock:
            self._refuse_stale()
            self.settle_unknown()
            self._refuse_unsettled()
            self._refuse_older(draft)
            draft.refuse_other_parent(self._tip)
            pipeline_id = self.records.identity().pipeline_id
            while True:
                manifest = draft.manifest(self._next, pipeline_id, about, self._tip)
                _refuse_invalid(manifest)
                if self._create(manifest, encode_manifest(manifest)):
                    break
                self._refresh()
                self._refuse_unsettled()
                self._refuse_older(draft)
                draft.refuse_other_parent(self._tip)
            self._accept(manifest)
        self._answer(draft, manifest)
        return manifest

    def settle_unknown(self) -> None:
        """Settle a create whose reply was lost: the same bytes once more, and what is at the key decides."""
        self._threads.require()
        with self._lock:
            if self._unknown is None:
                return
            manifest, data = self._unknown
            if self._create(manifest, data):
                self._accept(manifest)
            else:
                self._unknown = None
                self._refresh()

    def mark_settled(self, slot: Slot) -> None:
        """All sinks of this checkpoint are committed: the next may be published."""
        with self._lock:
            if self._unsettled is not None and self._unsettled.at == slot:
                self._unsettled = None

    @property
    def unsettled(self) -> Manifest | None:
        return self._unsettled

    def close(self) -> None:
        self._threads.end()

    def _create(self, manifest: Manifest, data: bytes) -> bool:
        """Create the manifest and look; False if the slot is lost. What stays unknown is settled by the next call."""
        try:
            created = self.records.store.create(self.records.keys.manifest(manifest.at), data)
        except OutcomeUnknown:
            self._unknown = (manifest, data)
            raise
        if not created:
            return False
        # Until the look has answered it stands but may not be reported.
        self._unknown = (manifest, data)
        counts = self._counts(manifest)
        self._unknown = None
        return counts

    def _counts(self, manifest: Manifest) -> bool:
        """The look after the write. False: the slot was forgotten before we wrote into it.

        A slot can be taken by another publisher, pruned and deleted while we were on our way to it: the key is free
        again, but what lands there counts for nothing. The claim is looked for last: a checkpoint that a taker
        abandoned and pruned meanwhile must end as Fenced.
        """
        forgotten = self.records.is_forgotten(manifest.at)
        self._look_for_claim()
        return not forgotten

    def _look_for_claim(self) -> None:
        if self.records.is_claimed(self.generation + 1):
            self._fenced = f"generation {self.generation + 1} was claimed"
            self._refuse_stale()

    def _refuse_older(self, draft: Draft) -> None:
        """Epochs rise within a generation, also for who lost a slot and takes the next: newest never goes back."""
        if self._tip is not None and self._tip.generation == self.generation and self._tip.epoch >= draft.epoch:
            why = f"{self._tip.at} already holds epoch {self._tip.epoch}, this one is {draft.epoch}"
            raise Overtaken(self.records.name, why)

    def _refuse_unsettled(self) -> None:
        if self._unsettled is not None:
            raise Unsettled(str(self._unsettled.at), self._unsettled.pending_sinks())

    def _refuse_stale(self) -> None:
        if self._fenced is not None:
            raise Fenced(self.records.name, self.generation, self._fenced)

    def _accept(self, manifest: Manifest) -> None:
        self._tip = manifest
        self._next = _after(manifest.at)
        self._unsettled = manifest if manifest.pending_sinks() else None
        self.records.keep(manifest)
        try:
            self.records.put_hint(manifest.at)
        except StoreError:
            # The checkpoint is durable and counts; a hint that lags only costs its readers requests.
            return

    def _refresh(self) -> None:
        """A slot was lost: base the next attempt on what is newest in this generation now."""
        held, void = self.records.slots(self.generation)
        world = World(slots=held, void=void, forgotten=self.records.forgotten(Slot(self.generation, 0)))
        self._next = next_slot(world, self.generation)
        counted = sorted(world.counted())
        base = self.records.read(self.records.keys.base(self.generation), Base).slot
        slot = counted[-1] if counted else base
        try:
            self._tip = self.records.manifest(slot) if slot else None
        except ObjectMissing:
            # Only a taker makes the newest of a generation, or its base, fit to be pruned.
            self._look_for_claim()
            raise MissingRecords(self.records.keys.prefix, f"the manifest of {slot} is gone") from None
        self._unsettled = self._if_unsettled(self._tip)

    def _if_unsettled(self, manifest: Manifest | None) -> Manifest | None:
        """Nobody moves past a checkpoint whose sinks are not all committed, whoever published it."""
        if manifest is None or not manifest.pending_sinks():
            return None
        return None if self.records.settled(manifest.at) else manifest

    def _answer(self, draft: Draft, manifest: Manifest) -> None:
        if not draft.requests:
            return
        head = decode_head(self.records.keys.manifest(manifest.at), encode_manifest(manifest))
        try:
            for request in draft.requests:
                answer(self.records, request, head)
        except StoreError:
            # The checkpoint is durable all the same; whoever asked still waits, and the next one answers.
            return

    def look_for_claim(self) -> None:
        """Raise Fenced if a higher generation was claimed; for whoever goes on after a while."""
        self._refuse_stale()
        self._look_for_claim()


def _refuse_invalid(manifest: Manifest) -> None:
    """What recovery would refuse is never published: retention would count it among the good ones."""
    errors = [str(finding) for finding in manifest.validate() if finding.severity == "error"]
    if errors:
        raise InvalidManifest(str(manifest.at), errors)


def _after(slot: Slot) -> Slot:
    return Slot(slot.generation, slot.number + 1)
