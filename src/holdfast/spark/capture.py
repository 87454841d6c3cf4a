"""Capture: one whole batch of a directory becomes a checkpoint. Only what the last one does not hold is read.

The query does not wait and is not asked. What can come in between (clean-up, a file that is replaced, another capture)
leads to another attempt or to a newer batch, never to a checkpoint that is not whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from holdfast.draft import Draft
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
from holdfast.spark.logs import Malformed, parse_query_id
from holdfast.spark.state import Snapshots
from holdfast.spark.succession import OWNER, identify, stand
from holdfast.store.directory import Directory, FileStat, Look

__all__ = ["LIMITS", "Capturer", "NotYet", "Same", "Taken"]

ATTEMPTS = 20
OLDER = 10
"""How many batches before a broken one are tried at most."""
READERS = 16

LIMITS = Limits(inline=0)
"""State files are kept over many checkpoints: in the manifest they would be written again with each."""


@dataclass(frozen=True)
class Taken:
    """A new checkpoint, and what it cost to read."""

    manifest: Manifest
    files: int
    files_read: int
    bytes_read: int
    broken: tuple[str, ...] = ()


@dataclass(frozen=True)
class Same:
    """There is no whole batch after the one that the newest checkpoint holds."""

    manifest: Manifest


@dataclass(frozen=True)
class NotYet:
    """There is no whole batch yet, and why."""

    why: str


class Capturer:
    """Takes checkpoints of one directory into one pipeline. Not for several threads; close it when done.

    `always_claim` makes the first one begin a generation of its own; otherwise captures share the one that names the
    query. `spark_version` is written down if it is known.
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
        limits: Limits = LIMITS,
    ) -> None:
        self.records = records
        self.directory = directory
        self._why = why
        self._always_claim = always_claim
        self._new_timeline = new_timeline
        self._spark_version = spark_version
        self._limits = limits
        self._publisher: Publisher | None = None
        self._identity: tuple[FileStat | None, FileStat | None] | None = None
        self._known = Snapshots()

    @property
    def tip(self) -> Manifest | None:
        """The newest checkpoint that this capturer knows of."""
        return self._publisher.tip if self._publisher else None

    @property
    def generation(self) -> int | None:
        return self._publisher.generation if self._publisher else None

    def close(self) -> None:
        if self._publisher is not None:
            self._publisher.close()
            self._publisher = None

    def take(self, known: int | None = None) -> Taken | Same | NotYet:
        """Take the newest whole batch. Batches up to `known` are known to be over, though none has followed.

        Raises BrokenBatch if the newest ones can't be restored at all, NotCapturable, OtherTimeline, and Fenced if the
        pipeline was taken over by another query.
        """
        requests = waiting_requests(self.records) if self.records.exists() else []
        try:
            return self._take(known, requests)
        except Fenced:
            # The query itself may have been attached to meanwhile: then its new generation names it, and is joined.
            if self._always_claim:
                raise
            self.close()
            return self._take(known, requests)

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
            publisher = self._enter(look, batches)
            tip = publisher.tip
            if tip is not None and tip.epoch >= candidates[0]:
                return self._same(tip, requests, whole[0], broken)
            found = cut_at(self.directory, look, candidates[0], self._known)
            if isinstance(found, Unsupported):
                raise NotCapturable(self.directory.url, found.why)
            if isinstance(found, Cut):
                taken = self._publish(publisher, found, requests, broken)
                if taken is not None:
                    return taken
                continue
            if not isinstance(found, Gone):
                broken[found.epoch] = "; ".join(found.why)
            elif missed == found:
                # Missing twice, and Spark did not move on between the two looks.
                broken[found.epoch] = f"{found.name}: {found.why}"
            missed = found if isinstance(found, Gone) else None
            if len(broken) > OLDER:
                return self._nothing(batches, broken)
        return NotYet("the directory kept changing while it was read")

    def _nothing(self, batches: Batches, broken: Mapping[int, str]) -> NotYet:
        if broken:
            raise BrokenBatch(self.directory.url, max(broken), [f"batch {b}: {why}" for b, why in broken.items()])
        if batches.commits:
            return NotYet(f"batch {batches.commits[-1]} is committed, and none has begun after it")
        return NotYet("no batch is committed")

    def _same(self, tip: Manifest, requests: Sequence[Request], newest: int, broken: Mapping[int, str]) -> Same:
        if broken and tip.epoch < newest:
            raise BrokenBatch(self.directory.url, newest, [f"batch {b}: {why}" for b, why in broken.items()])
        for request in requests:
            answer(self.records, request, self.records.head(tip.at))
        return Same(tip)

    def _enter(self, look: Look, batches: Batches) -> Publisher:
        """The publisher for the query that is in the directory now, which may be another than the last time."""
        identity = (look.stat("metadata"), look.stat(OWNER))
        if identity != self._identity:
            self.close()
            self._identity = identity
        if self._publisher is None:
            try:
                query_id = parse_query_id(self.directory.read("metadata")[0])
            except (ObjectMissing, Malformed) as error:
                raise BrokenBatch(self.directory.url, batches.commits[-1], [f"metadata: {error}"]) from None
            who = identify(self.directory, query_id, batches.commits[-1])
            standing = stand(
                self.records, who, why=self._why, always_claim=self._always_claim, new_timeline=self._new_timeline
            )
            self._publisher = Publisher(self.records, standing.generation, standing.tip, self._limits)
        self._refuse_other_past(self._publisher.tip, batches)
        return self._publisher

    def _refuse_other_past(self, tip: Manifest | None, batches: Batches) -> None:
        """The batch of the last checkpoint must still be the one that was captured: else the directory was rewound."""
        name = f"offsets/{tip.epoch}" if tip else ""
        held = tip.files.get(name) if tip else None
        if tip is None or held is None:
            return
        if tip.epoch > batches.commits[-1]:
            why = f"its last batch is {batches.commits[-1]}, and checkpoint {tip.at} holds epoch {tip.epoch}"
            raise OtherTimeline(self.directory.url, self.records.name, why)
        if tip.epoch not in batches.offsets:
            return
        try:
            data, stat = self.directory.read(name)
        except ObjectMissing:
            return
        if stat.stamp != held.stamp and hashlib.sha256(data).hexdigest() != held.sha256:
            why = f"its batch {tip.epoch} is not the one that checkpoint {tip.at} holds"
            raise OtherTimeline(self.directory.url, self.records.name, why)

    def _publish(
        self, publisher: Publisher, cut: Cut, requests: Sequence[Request], broken: Mapping[int, str]
    ) -> Taken | Same | None:
        """Make a checkpoint of a cut; None if a file of it went or changed before it was read."""
        draft = publisher.begin(cut.epoch, requests=requests)
        try:
            read = _fill(draft, cut, self.directory, self._limits.single)
        except (ObjectMissing, ChangedWhileRead):
            return None
        if not self._still_there(read):
            return None
        try:
            about = describe_cut(cut, self.directory.url, self._spark_version)
            manifest = publisher.publish(draft, about)
        except Overtaken:
            tip = publisher.tip
            if tip is None or tip.epoch < cut.epoch:
                raise
            return self._same(tip, requests, tip.epoch, {})
        size = sum(stat.size for stat in read.values())
        return Taken(manifest, len(cut.files), len(read), size, tuple(broken.values()))

    def _still_there(self, read: Mapping[str, FileStat]) -> bool:
        """Whether no file was replaced since it was read; one that is gone is fine, its bytes are ours."""
        look = self.directory.look()
        return all((now := look.stat(name)) is None or now.stamp == stat.stamp for name, stat in read.items())


def _fill(draft: Draft, cut: Cut, directory: Directory, large: int) -> dict[str, FileStat]:
    """Bring every file of a cut into a draft and give those that had to be read."""
    new = {name: stat for name, stat in cut.files.items() if not draft.keep_file(name, stat.size, stat.stamp)}

    def bring(name: str) -> tuple[str, FileStat]:
        if name in cut.read:
            data, stat = cut.read[name]
        elif new[name].size >= large:
            stat, chunks = directory.stream(name)
            draft.save_file_stream(name, chunks, stat.stamp)
            return name, stat
        else:
            data, stat = directory.read(name)
        draft.save_file(name, data, stat.stamp)
        return name, stat

    return dict(_map(bring, sorted(new), directory.costly))


def _map(
    function: Callable[[str], tuple[str, FileStat]], names: Sequence[str], costly: bool
) -> list[tuple[str, FileStat]]:
    if not costly:
        return [function(name) for name in names]
    with ThreadPoolExecutor(READERS, thread_name_prefix="holdfast-capture") as pool:
        return list(pool.map(function, names))
