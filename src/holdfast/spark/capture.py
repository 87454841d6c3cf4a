"""Capture: one whole batch of a directory becomes a checkpoint. Only what the last one does not hold is read.

The query does not wait and is not asked. What can come in between (clean-up, a file that is replaced, another capture)
leads to another attempt or to a newer batch, never to a checkpoint that is not whole.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from holdfast.draft import Description, Draft
from holdfast.errors import (
    BrokenBatch,
    ChangedWhileRead,
    Fenced,
    NotCapturable,
    ObjectMissing,
    OtherTimeline,
    Overtaken,
)
from holdfast.manifest import Manifest
from holdfast.names import answer, waiting_requests
from holdfast.publish import Publisher
from holdfast.records import Request
from holdfast.repository.pipeline import PipelineRecords
from holdfast.repository.uploads import Limits
from holdfast.spark.cut import Batches, Cut, Gone, Unsupported, batches_in, cut_at
from holdfast.spark.describe import describe_cut
from holdfast.spark.fill import Mover, fill
from holdfast.spark.logs import Malformed, parse_query_id
from holdfast.spark.sink_log import keep_sink_log
from holdfast.spark.state import Snapshots
from holdfast.spark.succession import (
    OWNER,
    Join,
    Refuse,
    Running,
    Standing,
    Survey,
    TakeOver,
    identify,
    stand,
    survey,
)
from holdfast.store.directory import Directory, FileStat, Look

__all__ = ["LIMITS", "Add", "Capturer", "NotYet", "Same", "Taken"]

Add: TypeAlias = Callable[[Draft, Description], Description]
"""Adds to what is said of a checkpoint."""

ATTEMPTS = 20
OLDER = 10
"""How many batches before a broken one are tried at most."""
ENTRIES = 6
"""How often a generation is entered anew in one go: two that begin at the same instant fence each other."""

LIMITS = Limits(inline=0)
"""State files are kept over many checkpoints: in the manifest they would be written again with each."""


@dataclass(frozen=True)
class Taken:
    """A new checkpoint, and what it cost to read. `committed` is the last batch that was committed then.

    `broken` are newer batches that can't be restored, and why.
    """

    manifest: Manifest
    committed: int
    files: int
    files_read: int
    bytes_read: int
    broken: tuple[str, ...] = ()


@dataclass(frozen=True)
class Same:
    """There is no whole batch after the one that the newest checkpoint holds."""

    manifest: Manifest
    committed: int


@dataclass(frozen=True)
class NotYet:
    """There is no whole batch yet, and why."""

    why: str


_ANEW = Survey(TakeOver("nothing", anew=True), -1, None)


class Capturer:
    """Takes checkpoints of one directory into one pipeline. Not for several threads; close it when done.

    `always_claim` makes the first one begin a generation of its own; otherwise captures share the one that names the
    query. `spark_version` is written down if it is known; of a `file_sink` of the query the log is kept along.
    A `mover` moves large captures in its own way. Whoever has claimed a generation already gives it as `standing`, and
    may `add` to what is said of each cut: asked with the epoch before anything is uploaded, done after it; an epoch of
    which they can say nothing is not captured. Batches up to `over` are over, whatever is known of later ones.
    """

    def __init__(
        self,
        records: PipelineRecords,
        directory: Directory,
        *,
        why: str = "capture",
        always_claim: bool = False,
        new_timeline: bool = False,
        spark_version: str | None = None,
        file_sink: Directory | None = None,
        mover: Mover | None = None,
        limits: Limits = LIMITS,
        standing: Standing | None = None,
        add: Callable[[int], Add | None] | None = None,
        over: int = -1,
    ) -> None:
        self.records = records
        self.directory = directory
        self._why = why
        self._always_claim = always_claim
        self._new_timeline = new_timeline
        self._spark_version = spark_version
        self._file_sink = file_sink
        self._mover = mover
        self._limits = limits
        self._standing = standing
        self._add = add
        self._over = over
        self._identity: tuple[FileStat | None, FileStat | None] | None = None
        self._who: Running | None = None
        self._survey: Survey | None = None
        self._has_stood = False
        self._publisher: Publisher | None = None
        self._known = Snapshots()

    @property
    def tip(self) -> Manifest | None:
        """The newest checkpoint that this capturer knows of."""
        if self._publisher is not None:
            return self._publisher.tip
        return self._survey.tip if self._survey else None

    @property
    def generation(self) -> int | None:
        return self._publisher.generation if self._publisher else None

    def close(self) -> None:
        self._survey = None
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None

    def enter(self) -> None:
        """Claim now what the first capture would, if a batch is committed already: what refuses does so early."""
        look = self.directory.look()
        batches = batches_in(look)
        if batches.commits:
            self._enter(look, batches)
            self._stand()

    def take(self, known: int | None = None) -> Taken | Same | NotYet:
        """Take the newest whole batch. Batches up to `known` are known to be over, though none has followed.

        Raises BrokenBatch if the newest ones can't be restored at all, NotCapturable, OtherTimeline if the directory
        or the pipeline is another query's now, and Fenced if `always_claim` and the pipeline was taken over.
        """
        known = self._over if known is None else max(known, self._over)
        requests = waiting_requests(self.records) if self.records.exists() else []
        for entry in range(ENTRIES):
            try:
                return self._take(known, requests)
            except Fenced:
                # Another capture or an attach of the same query has claimed: its generation names the query, and is
                # joined. Had another query done so, that is refused on entry.
                self.close()
                if entry == ENTRIES - 1 or (self._always_claim and self._has_stood):
                    raise
                time.sleep(random.uniform(0, 0.02 * 2**entry))
        raise AssertionError("the last entry returns or raises")

    def _take(self, known: int | None, requests: Sequence[Request]) -> Taken | Same | NotYet:
        broken: dict[int, str] = {}
        missed: Gone | None = None
        for _ in range(ATTEMPTS):
            look = self.directory.look()
            batches = batches_in(look)
            whole = batches.whole(known)
            candidates = [batch for batch in whole if batch not in broken][:1]
            if not candidates:
                return self._nothing(batches, broken)
            tip = self._enter(look, batches)
            if tip is not None and self._holds(tip, candidates[0]):
                return self._same(tip, requests, batches.commits[-1], broken)
            add = self._add(candidates[0]) if self._add is not None else None
            if self._add is not None and add is None:
                return NotYet(f"batch {candidates[0]} was run again while a sink was ahead of it")
            found = cut_at(self.directory, look, candidates[0], self._known)
            if isinstance(found, Unsupported):
                raise NotCapturable(self.directory.url, found.why)
            if isinstance(found, Cut):
                taken = self._publish(found, add, requests, batches.commits[-1], broken)
                if taken is not None:
                    return taken
            elif not isinstance(found, Gone):
                broken[found.epoch] = "; ".join(found.why)
            elif missed == found:
                # Missing twice, and Spark did not move on between the two looks.
                broken[found.epoch] = f"{found.name}: {found.why}"
            missed = found if isinstance(found, Gone) else None
            if len(broken) > OLDER:
                return self._nothing(batches, broken)
        return NotYet("the directory kept changing while it was read")

    def _holds(self, tip: Manifest, epoch: int) -> bool:
        """Whether the last checkpoint holds a batch. One that was edited on its way into the directory is another."""
        owner = self._who.owner if self._who else None
        if owner is not None and owner.edits and owner.at == tip.at:
            return tip.epoch > epoch
        return tip.epoch >= epoch

    def _nothing(self, batches: Batches, broken: Mapping[int, str]) -> NotYet:
        if broken:
            raise BrokenBatch(self.directory.url, max(broken), [f"batch {b}: {why}" for b, why in broken.items()])
        if batches.commits:
            return NotYet(f"batch {batches.commits[-1]} is committed, and none has begun after it")
        return NotYet("no batch is committed")

    def _same(self, tip: Manifest, requests: Sequence[Request], committed: int, broken: Mapping[int, str]) -> Same:
        if broken and tip.epoch < max(broken):
            raise BrokenBatch(self.directory.url, max(broken), [f"batch {b}: {why}" for b, why in broken.items()])
        for request in requests:
            answer(self.records, request, self.records.head(tip.at))
        return Same(tip, committed)

    # ---- whose the directory is ----

    def _enter(self, look: Look, batches: Batches) -> Manifest | None:
        """The checkpoint that the next one follows, for the query that is in the directory now. Claims nothing."""
        identity = (look.stat("metadata"), look.stat(OWNER))
        if identity != self._identity:
            self.close()
            self._identity, self._has_stood = identity, False
        if self._survey is None:
            self._survey = self._look_around(batches)
        why = self._other_past(self.tip, batches)
        if why is not None:
            if not self._new_timeline:
                raise OtherTimeline(self.directory.url, self.records.name, why)
            self.close()
            self._survey = _ANEW
        return self.tip

    def _look_around(self, batches: Batches) -> Survey:
        try:
            query_id = parse_query_id(self.directory.read("metadata")[0])
        except (ObjectMissing, Malformed) as error:
            raise BrokenBatch(self.directory.url, batches.commits[-1], [f"metadata: {error}"]) from None
        self._who = identify(self.directory, query_id)
        if self._standing is not None:
            return Survey(Join(), *self._standing)
        found = survey(self.records, self._who)
        if isinstance(found.decision, Refuse):
            # Asked for once: whoever has taken the pipeline over from us since then is not fought.
            if not self._new_timeline or self._has_stood:
                raise OtherTimeline(self.directory.url, self.records.name, found.decision.why)
            return _ANEW
        if isinstance(found.decision, Join) and self._always_claim:
            return found._replace(decision=TakeOver("newest"))
        return found

    def _other_past(self, tip: Manifest | None, batches: Batches) -> str | None:
        """Why the last checkpoint is not in this directory's past: it was rewound. None if nothing says so."""
        owner = self._who.owner if self._who else None
        if tip is None or (owner is not None and owner.at == tip.at):
            return None
        if tip.epoch > batches.commits[-1]:
            # Another capture may have gone on since we looked: so once more, now that its checkpoint is known.
            commits = [int(name) for name in self.directory.look("commits").files("commits") if name.isdecimal()]
            if tip.epoch > max(commits, default=-1):
                return f"its last batch is {batches.commits[-1]}, and checkpoint {tip.at} holds epoch {tip.epoch}"
        name = f"offsets/{tip.epoch}"
        held = tip.files.get(name)
        if held is None or tip.epoch not in batches.offsets:
            return None
        try:
            data, stat = self.directory.read(name)
        except ObjectMissing:
            return None
        if stat.stamp == held.stamp or hashlib.sha256(data).hexdigest() == held.sha256:
            return None
        return f"its batch {tip.epoch} is not the one that checkpoint {tip.at} holds"

    def _stand(self) -> Publisher:
        """The publisher of the generation that was found, or claimed now."""
        if self._publisher is None:
            assert self._survey is not None
            assert self._who is not None
            decision, generation, tip = self._survey
            if isinstance(decision, TakeOver):
                generation, tip = stand(self.records, self._who, decision, self._why)
            self._publisher = Publisher(self.records, generation, tip, self._limits)
            self._has_stood = True
        return self._publisher

    # ---- the checkpoint ----

    def _publish(
        self, cut: Cut, add: Add | None, requests: Sequence[Request], committed: int, broken: Mapping[int, str]
    ) -> Taken | Same | None:
        """Make a checkpoint of a cut; None if a file of it went or changed before it was read."""
        publisher = self._stand()
        if publisher.tip is not None and self._holds(publisher.tip, cut.epoch):
            # Another capture published it between our look and our claim: it is in what the generation began from.
            return None
        draft = publisher.begin(cut.epoch, requests=requests)
        try:
            read = fill(draft, cut, self.directory, self._limits.single, self._mover)
            about = describe_cut(cut, self.directory.url, self._spark_version)
            if self._file_sink is not None:
                about = keep_sink_log(draft, self._file_sink, about)
            if add is not None:
                about = add(draft, about)
            is_whole = self._still_there(read)
        except (ObjectMissing, ChangedWhileRead):
            is_whole = False
        if not is_whole:
            # A generation may go on for months, and what its drafts leave behind is swept only after it.
            draft.abandon()
            return None
        try:
            manifest = publisher.publish(draft, about)
        except Overtaken:
            tip = publisher.tip
            return self._same(tip, requests, committed, {}) if tip and tip.epoch >= cut.epoch else None
        size = sum(stat.size for stat in read.values())
        return Taken(manifest, committed, len(cut.files), len(read), size, tuple(broken.values()))

    def _still_there(self, read: Mapping[str, FileStat]) -> bool:
        """Whether no file was replaced since it was read; one that is gone is fine, its bytes are ours."""
        look = self.directory.look()
        return all((now := look.stat(name)) is None or now.stamp == stat.stamp for name, stat in read.items())
