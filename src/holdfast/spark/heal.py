"""Healing: the damaged or missing files of a directory are brought back from what was captured of it. Nothing else is.

The rules, and why:
- The batch stays: a directory is healed at its last committed batch, never taken back to an older one. Deleting the
  newer logs in place leaves newer state files behind, which format 1 takes up again after the next restart: the result
  is silently wrong. That holds also when all newer batches are beyond repair. Whoever wants an older batch restores it
  into a new directory, which costs nothing more: Spark reads the same input again either way.
- The files come from a checkpoint of this directory: the same query, the same restore that made the directory, the same
  past (`offsets/B` is the one that was captured). It may be of an older batch: a name stands for one content, so a
  delta that it holds is the delta that the last batch still needs.
- Only files that the last batch needs are touched, and only if it is whole with them. If one file that it needs is
  neither intact nor held, nothing is done.
- Nobody may be at work in the directory: it must stand still for a while, or be said to be stopped.
- Nothing is lost: a file gets its bytes at once or not at all, and what was there is kept in `_holdfast/damaged/`.
  Killed in between, the same command goes on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TypeAlias

from holdfast.errors import BrokenBatch, NotHealable, StillRunning
from holdfast.ids import new_token
from holdfast.manifest import Manifest
from holdfast.repository.pipeline import PipelineRecords
from holdfast.spark.cut import Cut, batches_in, cut_at
from holdfast.spark.held import Compared, Other, compare, find_checkpoint, in_words
from holdfast.spark.intact import judge
from holdfast.spark.places import SparkPlace
from holdfast.spark.replace import open_replacer
from holdfast.store.directory import Directory, FileStat

__all__ = ["HealPlan", "Healed", "plan_heal"]

Progress = Callable[[str, int, int], None]

QUIET_SECONDS = 5.0

Signature: TypeAlias = dict[str, FileStat | None]


@dataclass(frozen=True)
class Healed:
    """What was brought back; `aside` is the folder of the directory that keeps what was replaced, None without any."""

    files: int
    bytes: int
    aside: str | None


@dataclass(frozen=True)
class HealPlan:
    """What a healing would do. `files` are to be brought back, each with the reason; `refused` says why that can't be.

    `checkpoint` is where their bytes come from, `epoch` the batch that the directory stands at.
    """

    directory: str
    checkpoint: str | None
    epoch: int | None
    files: tuple[Other, ...] = ()
    refused: tuple[str, ...] = ()
    _work: _Work | None = field(default=None, repr=False, compare=False)

    @property
    def nothing_to_do(self) -> bool:
        return not self.files and not self.refused

    @property
    def bytes(self) -> int:
        return sum(other.size for other in self.files if other.why != "checksum file")

    def apply(
        self, *, stopped: bool = False, quiet_seconds: float = QUIET_SECONDS, progress: Progress | None = None
    ) -> Healed:
        """Bring the files back and prove that the batch is whole.

        Nothing may have changed since the plan was made, nor for `quiet_seconds`; where the query is known to have
        `stopped`, only its batches are compared. Raises NotHealable if the plan is refused, StillRunning if something
        changed, DamagedArtifact if the repository's own copy is damaged, BrokenBatch if the batch is not whole
        afterwards.
        """
        if self.refused or (self.files and self._work is None):
            raise NotHealable(self.directory, self.refused)
        if self._work is None or not self.files:
            return Healed(0, 0, None)
        self._work.refuse_change(None if stopped else quiet_seconds)
        return self._work.carry_out(self.files, progress)


def plan_heal(
    records: PipelineRecords,
    place: SparkPlace,
    manifest: Manifest | None = None,
    progress: Progress | None = None,
) -> HealPlan:
    """Find out what is missing or damaged in a directory and can be brought back. Changes nothing.

    `manifest` is the checkpoint to take files from; without one the newest that knows the directory. Every file that
    it holds is read and compared.
    """
    directory = place.directory()
    began, seen = time.monotonic(), _signature(directory)
    if manifest is None:
        manifest = find_checkpoint(records, directory)
    if manifest is None:
        why = f"pipeline {records.name!r} has no checkpoint of this directory at a batch that its logs know"
        return HealPlan(directory.url, None, None, refused=(why,))
    compared = compare(records, directory, manifest, progress)
    refused = [*compared.refused]
    if refused:
        refused.append(f"`holdfast restore {records.name}@slot:{manifest.at} NEW_DIRECTORY` begins in a new place")
    return HealPlan(
        directory.url,
        f"{records.name}@slot:{manifest.at}",
        compared.epoch if compared.epoch >= 0 else None,
        tuple(compared.others),
        tuple(refused),
        _Work(place, directory, compared, seen, began),
    )


@dataclass(frozen=True)
class _Work:
    place: SparkPlace
    directory: Directory
    compared: Compared
    seen: Signature
    seen_at: float

    def refuse_change(self, quiet_seconds: float | None) -> None:
        """Raise StillRunning if somebody is at work: anything changed, or (None) there are other batches."""
        if quiet_seconds is not None:
            time.sleep(max(0.0, self.seen_at + quiet_seconds - time.monotonic()))
        now = _signature(self.directory)
        same = now == self.seen if quiet_seconds is not None else _logs(now) == _logs(self.seen)
        if not same:
            raise StillRunning(self.directory.url)

    def carry_out(self, files: tuple[Other, ...], progress: Progress | None) -> Healed:
        moment = f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{new_token()[:6]}"
        replacer = open_replacer(self.place, moment)
        total, done = sum(other.size for other in files), 0
        try:
            for other in files:
                if other.why == "checksum file":
                    replacer.drop_sidecar(other.name)
                else:
                    expected = self.compared.expected[other.name]
                    replacer.replace(other.name, expected.stream(), keep=other.why != "missing")
                done += other.size
                if progress:
                    progress("healing", done, total)
        finally:
            replacer.close()
        self._prove(files)
        kept = any(other.why != "missing" for other in files)
        written = [other for other in files if other.why != "checksum file"]
        return Healed(len(files), sum(other.size for other in written), replacer.aside if kept else None)

    def _prove(self, files: tuple[Other, ...]) -> None:
        """Read back what was written, and see that the batch is whole with it."""
        epoch = self.compared.epoch
        wrong = []
        for other in files:
            verdict = judge(self.directory, other.name, digest=self.compared.expected[other.name].sha256)
            if verdict.fault or verdict.beside:
                wrong.append(f"{other.name}: {verdict.fault or verdict.beside}")
        look = self.directory.look()
        cut = cut_at(self.directory, look, epoch)
        if not isinstance(cut, Cut):
            wrong.append(in_words(cut))
        if batches_in(look).last_committed != epoch:
            raise StillRunning(self.directory.url)
        if wrong:
            raise BrokenBatch(self.directory.url, epoch, wrong)


def _logs(seen: Signature) -> set[str]:
    return {name for name in seen if name.startswith(("offsets/", "commits/"))}


def _signature(directory: Directory) -> Signature:
    """Every file of a directory with its version, Holdfast's own aside."""
    look = directory.look()
    found: Signature = {}
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        above = f"{folder}/" if folder else ""
        found.update({above + name: look.stat(above + name) for name in look.files(folder)})
        found.update({above + name: None for name in look.leftovers(folder)})
        waiting += [above + name for name in look.folders(folder) if above + name != "_holdfast"]
    return found
