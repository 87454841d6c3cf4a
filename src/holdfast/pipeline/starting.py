"""What one start, rewind or fork works with: the records, Spark's directories, and what there is to go on from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from pyspark.sql import DataFrame

from holdfast.decide.start import Known, decisions_that_count
from holdfast.decide.timeline import World, current, lineage, newest, timeline
from holdfast.draft import Description, Draft
from holdfast.epochs import Link
from holdfast.errors import Damage, InvalidManifest, MissingRecords, ObjectMissing
from holdfast.handles import StoredPipeline
from holdfast.layout import Slot
from holdfast.manifest import Manifest
from holdfast.pipeline.changes import QueryGuard
from holdfast.pipeline.driver_states import load_driver_states
from holdfast.pipeline.home import Home, new_directory
from holdfast.pipeline.ledger import Ledger, merged
from holdfast.pipeline.links import link_of_manifest
from holdfast.pipeline.origins import Describe, Origin
from holdfast.pipeline.sources.contract import Source
from holdfast.pipeline.sources.past import Stand, stand_of_manifest, stand_of_offsets
from holdfast.pipeline.takeover import Found, Taken
from holdfast.pipeline.trimming import trim
from holdfast.pipeline.warm import Warm, find_warm, has_cut_otherwise
from holdfast.recovery import Demands, Proven, Skipped, choose
from holdfast.repository.pipeline import PipelineRecords
from holdfast.sinks.contract import Sink
from holdfast.spark.capture import Add
from holdfast.spark.lay import lay_down, refuse_to_lay
from holdfast.spark.places import SparkPlace

__all__ = ["Recovery", "Starting"]


@dataclass
class Starting:
    """A pipeline about to be taken over.

    `is_mine` says that the folder is held: only then may a directory that is there be gone on in. `target` is a
    checkpoint to go back to, `origin` a state from outside for the first generation.
    """

    stored: StoredPipeline
    home: Home
    frame: DataFrame
    versions: Mapping[str, str]
    """Of the reference tables."""
    sources: Sequence[Source]
    guard: QueryGuard
    is_mine: bool
    target: Manifest | None = None
    origin: Origin | None = None
    warm: Warm | None = None
    skipped: tuple[Skipped, ...] = ()
    way_back_ms: int | None = None
    """For how long the way back is kept; None: as long as there are checkpoints."""
    first: Manifest | None = None
    """The checkpoint that a state from outside became."""
    reach: Callable[[str], None] = lambda _step: None
    """Called at each step by name, as in an epoch."""
    _seen: tuple[World, Warm | None] | None = field(default=None, repr=False)
    _proven: Proven = field(default_factory=Proven, repr=False)
    _go_back: bool | None = field(default=None, repr=False)

    @property
    def may_clear(self) -> bool:
        """Whether what older generations have left in the folder may be taken away.

        In an object store nobody can be known to be gone: one that is still at work there is fenced, and fails for it.
        """
        return self.is_mine or not self.home.is_local

    def has_checkpoints(self) -> bool:
        return self.stored.exists() and newest(self.stored.records.world()) is not None

    def begun_as(self, origin: Origin) -> Slot | None:
        """The checkpoint that this very origin became, if that was the end of it; None if more has happened since."""
        world = self.stored.records.world()
        slots, generation = timeline(world), current(world)
        if generation is None or [slot.generation for slot in slots] != [generation]:
            return None
        is_same = world.bases[generation].origin == origin.said
        return slots[0] if is_same and _link(self.stored.records.manifest(slots[0])) == origin.link else None

    def began(self) -> str:
        """What the first state of its timeline was, in words."""
        world = self.stored.records.world()
        return next((o for at, _, _ in lineage(world) if (o := world.bases[at].origin)), "") or "it began with nothing"

    def find(self, world: World) -> Found:
        """What there is to go on from: a directory that can be gone on in, else the newest whole checkpoint."""
        self.home.require_owner(self.stored.records.identity().pipeline_id if self.stored.exists() else "")
        if self.target is not None:
            # Every byte, before the claim: once a sink has gone back, a checkpoint that can't be laid helps nobody.
            choose(self.stored.records, Demands(to=self.target.at), proven=self._proven)
            return self._from_checkpoint(self.target)
        manifest = self._newest(world)
        self.warm = self._find_warm(world, manifest) if self.is_mine else None
        if self.warm is not None:
            found = self._from(Known("warm", self.warm.at), manifest)
            next_one = decisions_that_count(world, found.decisions).get(self.warm.at.epoch + 1)
            if not next_one or not has_cut_otherwise(self.home.directory(self.warm.directory), next_one[0]):
                return found
            self.warm = None
        manifest = self._newest_whole()
        if manifest is not None:
            return self._from_checkpoint(manifest)
        if self.origin is not None:
            return Found(Known("checkpoint", self.origin.link), None, [], self.origin.said, self.origin.query())
        self._refuse_half_begun(world)
        return self._from(Known("nothing"), None)

    def stand(self, found: Found) -> Stand | None:
        """Where the sources stand in what was found; None if nothing was ever read, or nothing is known of it."""
        if found.state.at.epoch < 0:
            return None
        if found.origin and self.origin is not None:
            return self.origin.stand()
        known = stand_of_manifest(found.follows) if found.follows is not None else None
        if found.state.kind != "warm" or self.warm is None or self.warm.heal is not None:
            return known
        epoch = found.state.at.epoch
        here = stand_of_offsets(epoch, self.home.directory(self.warm.directory).read(f"offsets/{epoch}")[0])
        return replace(here, identities=known.identities) if known is not None else here

    def past(self, *, rewind: bool) -> PipelineRecords | None:
        """Whose records tell what was read after the state, and is to be read again; None for what goes on from it."""
        if self.origin is not None:
            return self.origin.past
        return self.stored.records if rewind else None

    def directory(self, taken: Taken) -> str:
        """Which directory this generation runs in; one that is gone on in stays where it is."""
        if taken.plan.state.kind == "warm" and self.warm is not None:
            return self.warm.directory
        return new_directory(taken.generation.number)

    def lay(self, taken: Taken, describe: Describe) -> None:
        """Have the directory there, whole. What comes from outside becomes a checkpoint, to which `describe` adds."""
        generation, state, name = taken.generation.number, taken.plan.state, self.directory(taken)
        place = SparkPlace(self.home.spelled(name), self.home.place.options, self.home.place.retry)
        self.home.own(self.stored.name, self.stored.records.identity().pipeline_id)
        follows = taken.found.follows
        if state.kind == "warm" and self.warm is not None:
            if self.warm.heal is not None:
                self.warm.heal.apply(stopped=True)
        elif taken.found.origin and self.origin is not None:
            self.first = self.origin.lay(self.stored.records, generation, place, self._reaching(describe))
        elif state.kind == "checkpoint" and follows is not None:
            lay_down(self.stored.records, follows, place.url, options=place.options, state_only=True)
        self.reach("laid")
        self.home.note_run(generation, name, state.at.epoch)
        self.reach("noted")

    def _reaching(self, describe: Describe) -> Describe:
        def reaching(epoch: int) -> Add | None:
            add = describe(epoch)
            if add is None:
                return None

            def and_add(draft: Draft, about: Description) -> Description:
                self.reach("drafted")
                return add(draft, about)

            return and_add

        return reaching

    def was_begun(self, taken: Taken) -> bool:
        """Whether the next epoch was begun in the directory before, and not finished."""
        if taken.plan.state.kind != "warm" or self.warm is None:
            return False
        try:
            self.home.directory(self.warm.directory).read(f"offsets/{taken.plan.state.at.epoch + 1}")
        except ObjectMissing:
            return False
        return True

    def go_back(self, sinks: Mapping[str, Sink]) -> bool:
        """Whether all sinks can take back what they are about to commit. The sinks are fenced by now."""
        if self._go_back is None:
            self._go_back = all(sink.keeps_way_back() for sink in sinks.values())
        return self._go_back

    def ledgers(self, sinks: Mapping[str, Sink]) -> list[Ledger]:
        """Where a decision must be before a sink commits: with one that can't go back, in the repository too."""
        return [self.local_ledger()] if self.go_back(sinks) else [self.local_ledger(), self.remote_ledger()]

    def local_ledger(self) -> Ledger:
        return Ledger(self.home.address("ledger").store())

    def remote_ledger(self) -> Ledger:
        records = self.stored.records
        return Ledger(records.store, records.keys.ledger)

    def trim_ledgers(self) -> None:
        for ledger in (self.local_ledger(), self.remote_ledger()):
            trim(ledger, self.stored.records, self.way_back_ms)

    def driver_states(self, taken: Taken) -> Mapping[str, bytes]:
        """The driver's states where the state stands: of the decision on that epoch, else of its checkpoint."""
        if taken.found.origin and self.origin is not None:
            return self.origin.driver_states()
        epoch, manifest = taken.plan.state.at.epoch, taken.found.follows
        if epoch in taken.decided:
            return taken.decided[epoch][0].states
        return load_driver_states(self.stored.records, manifest) if manifest and manifest.epoch == epoch else {}

    def _newest(self, world: World) -> Manifest | None:
        """The newest checkpoint whose record can be read: what it holds is looked at only if it is needed."""
        slot = newest(world)
        try:
            return self.stored.records.manifest(slot) if slot else None
        except Damage:
            return self._newest_whole()

    def _newest_whole(self) -> Manifest | None:
        chosen = choose(self.stored.records, Demands(), proven=self._proven)
        self.skipped = chosen.skipped
        return chosen.manifest

    def _from_checkpoint(self, manifest: Manifest) -> Found:
        refuse_to_lay(self.stored.records, manifest)
        return self._from(Known("checkpoint", _link(manifest)), manifest)

    def _from(self, state: Known, manifest: Manifest | None) -> Found:
        after = state.at.epoch - 1
        decisions = merged(self.local_ledger().read(after), self.remote_ledger().read(after))
        return Found(state, manifest, decisions)

    def _find_warm(self, world: World, manifest: Manifest | None) -> Warm | None:
        """Looked for once for the same records: all files may have to be read for it."""
        if self._seen is None or self._seen[0].bases != world.bases or self._seen[0].slots != world.slots:
            self._seen = world, find_warm(self.home, self.stored.records, world, manifest)
        return self._seen[1]

    def _refuse_half_begun(self, world: World) -> None:
        """A pipeline that began with a state from outside, and has none, must not begin at nothing."""
        for generation, _, _ in lineage(world):
            origin = world.bases[generation].origin
            if origin:
                raise MissingRecords(self.stored.name, f"it began as a {origin}, which was not finished: do it again")


def _link(manifest: Manifest) -> Link:
    link = link_of_manifest(manifest)
    if link is None:
        raise InvalidManifest(str(manifest.at), ["it was captured from a plain query, not from a pipeline"])
    return link


@dataclass(frozen=True)
class Recovery:
    """What a start found, and did before anything ran.

    `state` is what it went on from: nothing, Spark's directory as it lay there (warm) or healed, a checkpoint, or a
    state from outside (`origin`). Epochs of `replays` were decided and ran again on their recorded boundaries;
    `rolled_back` are the sinks that went back to the state; `skipped` checkpoints were damaged.
    """

    generation: int
    state: Literal["nothing", "warm", "healed", "checkpoint", "origin"]
    epoch: int
    checkpoint: Slot | None
    origin: str
    replays: range
    rolled_back: tuple[str, ...]
    skipped: tuple[Skipped, ...]

    @classmethod
    def of(cls, start: Starting, taken: Taken) -> Recovery:
        plan, found = taken.plan, taken.found
        state: Literal["nothing", "warm", "healed", "checkpoint", "origin"] = plan.state.kind
        if found.origin:
            state = "origin"
        elif state == "warm" and start.warm is not None and start.warm.heal is not None:
            state = "healed"
        return cls(
            taken.generation.number,
            state,
            plan.state.at.epoch,
            found.follows.at if found.follows else None,
            found.origin,
            plan.replays,
            tuple(name for name, sink in plan.sinks.items() if sink.rolls_back),
            start.skipped,
        )
